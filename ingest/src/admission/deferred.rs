//! The deferred part of a write request: the series that a pass over the request did not store, and
//! the exhausted resources.

use std::time::Duration;

use super::budget::{Denied, Team};
use crate::error::Exhausted;

/// The deferred part of a request after a pass.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// Indexes of the deferred series in the request, ascending, each with its team if a team's
    /// budget denied the series.
    pub(crate) series: Vec<(u32, Option<Team>)>,
    /// Teams that were denied samples in this pass.
    without_samples: Vec<Team>,
    /// Teams that were denied a new series in this pass.
    without_series: Vec<Team>,
    /// The exhausted resource with the longest wait, its team, and the wait.
    exhausted: Option<(Exhausted, Team, Duration)>,
}

impl Deferred {
    /// Defers a series to the next pass.
    pub(crate) fn push(&mut self, series_idx: u32, team: Option<Team>) {
        self.series.push((series_idx, team));
    }

    /// Starts the next pass: returns the deferred series and clears all denials.
    pub(crate) fn take_series(&mut self) -> Vec<(u32, Option<Team>)> {
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

    pub(super) fn note(&mut self, team: Team, denied: Denied) {
        if let Denied::Temporary(resource, wait) = denied
            && self.exhausted.is_none_or(|(_, _, longest)| wait > longest)
        {
            self.exhausted = Some((resource, team, wait));
        }
    }
}
