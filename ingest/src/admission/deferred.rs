//! The deferred part of a write request: the series that a pass over the request did not store, and
//! the exhausted resources.

use std::time::Duration;

use super::budget::{Denied, Team};
use crate::error::Exhausted;

/// A deferred series of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeferredSeries {
    /// Its index in the request.
    pub(crate) series_idx: u32,
    /// Its team, if the budget of a team denied the series.
    pub(crate) denied_team: Option<Team>,
}

/// The deferred part of a request after a pass.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// The deferred series, ascending by their index.
    pub(crate) series: Vec<DeferredSeries>,
    /// Teams that were denied samples in this pass.
    without_samples: Vec<Team>,
    /// Teams that were denied a new series in this pass.
    without_series: Vec<Team>,
    /// The exhausted resource with the longest wait, its team, and the wait.
    exhausted: Option<(Exhausted, Team, Duration)>,
}

impl DeferredSeries {
    /// Returns `true` if a list, ascending by index, has a series.
    pub(crate) fn contains(list: &[Self], series_idx: u32) -> bool {
        list.binary_search_by_key(&series_idx, |deferred| deferred.series_idx)
            .is_ok()
    }
}

impl Deferred {
    /// The deferred part of a request of which nothing is decoded yet.
    pub(super) fn denied(team: Team, denied: Denied) -> Self {
        let mut deferred = Self::default();
        deferred.note(team, denied);
        deferred
    }

    /// Defers a series to the next pass. Its index is higher than those of all deferred series.
    pub(crate) fn push(&mut self, series_idx: u32, denied_team: Option<Team>) {
        self.series.push(DeferredSeries {
            series_idx,
            denied_team,
        });
    }

    /// Defers a series that no team's budget denied to the next pass.
    pub(crate) fn insert(&mut self, series_idx: u32) {
        let position = self
            .series
            .partition_point(|other| other.series_idx < series_idx);
        let deferred = DeferredSeries {
            series_idx,
            denied_team: None,
        };
        self.series.insert(position, deferred);
    }

    /// Starts the next pass: returns the deferred series and clears all denials.
    pub(crate) fn take_series(&mut self) -> Vec<DeferredSeries> {
        std::mem::take(self).series
    }

    /// Denies the samples of a team for the rest of the pass.
    pub(crate) fn deny_samples(&mut self, team: Team, denied: Denied) {
        self.without_samples.push(team);
        self.note(team, denied);
    }

    /// Denies new series of a team for the rest of the pass.
    pub(crate) fn deny_series(&mut self, team: Team, denied: Denied) {
        self.without_series.push(team);
        self.note(team, denied);
    }

    /// Returns `true` if the samples of any team are denied.
    pub(crate) fn denies_any_samples(&self) -> bool {
        !self.without_samples.is_empty()
    }

    /// Returns `true` if the samples of `team` are denied.
    pub(crate) fn denies_samples(&self, team: Team) -> bool {
        self.without_samples.contains(&team)
    }

    /// Returns `true` if a team was denied neither samples nor series in this pass.
    pub(crate) fn allows_series(&self, team: Team) -> bool {
        !self.without_series.contains(&team) && !self.denies_samples(team)
    }

    /// Returns the exhausted resource with the longest wait, its team, and the wait.
    pub(super) fn exhausted(&self) -> Option<(Exhausted, Team, Duration)> {
        self.exhausted
    }

    fn note(&mut self, team: Team, denied: Denied) {
        if let Denied::Temporary(resource, wait) = denied
            && self.exhausted.is_none_or(|(_, _, longest)| wait > longest)
        {
            self.exhausted = Some((resource, team, wait));
        }
    }
}
