//! Stores a decoded request in passes over its series.
//!
//! Used by `receiver`. The first pass stores the samples of known series and creates new series if
//! admission control allows it without waiting. Each later pass first waits in the queue, and
//! handles the series that the previous pass deferred. If the store cannot create a series, the
//! samples of known series are stored before the error is returned.

pub(crate) mod append;
pub(crate) mod exemplars;
mod metadata;
pub(crate) mod resolve;

use std::sync::Arc;

use varve_model::Sample;
use varve_model::histogram::{Histogram, InvalidHistogram};
use varve_protobuf::Reader;
use varve_tsdb::SeriesHandle;
use varve_tsdb::bounds::Bounds;

use crate::admission::{Deferred, Denied, Permit, SeriesLimit, Team};
use crate::batch::{HistogramEntry, SeriesEntry, SeriesSamples};
use crate::error::WriteError;
use crate::outcome::{Example, ExemplarRejection, Reason, Rejections, SampleCounts, Written};
use crate::relabel::Attribution;
use crate::route::Route;
use crate::sources::remote_write::histogram;
use append::{Outgoing, append};
use resolve::{Resolved, Resolver};

/// A decoded request that is being stored.
pub(crate) struct Request<'a> {
    resolver: Resolver<'a>,
    permit: Permit<'a>,
    rejections: Rejections,
    deferred: Deferred,
    /// Number of series that this pass created, and of those that it looked up without finding
    /// them.
    n_created: usize,
    n_unknown: usize,
    /// Bounds for the timestamps of this pass, once a series is new.
    bounds: Option<Bounds>,
    /// The error after which this pass creates no more series.
    creation_error: Option<WriteError>,
    stored: SampleCounts,
    dropped: SampleCounts,
    deduplicated: SampleCounts,
    /// Deduplicated samples of the request's own replica, counted at the end of the request.
    n_own_deduplicated: u64,
}

/// A histogram of a request, or the reason why it is invalid.
struct CheckedHistogram {
    timestamp_ms: i64,
    start_ms: i64,
    checked: Result<Arc<Histogram>, InvalidHistogram>,
}

impl<'a> Request<'a> {
    /// Creates a request; `rejects` has the rejects found while decoding.
    pub(crate) fn new(resolver: Resolver<'a>, permit: Permit<'a>, rejections: Rejections) -> Self {
        Self {
            resolver,
            permit,
            rejections,
            deferred: Deferred::default(),
            n_created: 0,
            n_unknown: 0,
            bounds: None,
            creation_error: None,
            stored: SampleCounts::default(),
            dropped: SampleCounts::default(),
            deduplicated: SampleCounts::default(),
            n_own_deduplicated: 0,
        }
    }

    /// Stores the request. `routes` holds the cached route of each series.
    pub(crate) fn write(
        mut self,
        routes: &mut [Option<Route>],
        out: &mut Outgoing,
    ) -> Result<Written, WriteError> {
        self.resolver.check_unknown(routes)?;
        out.clear();
        self.permit.start();
        self.pass(None, routes, out)?;
        let deferred = if self.deferred.series.is_empty() {
            Ok(())
        } else {
            self.write_deferred(routes, out)
        };
        self.count(out);
        deferred?;
        self.stored.histograms -= out.histograms_rejected;
        // Everything is stored. If there are no bounds, all times count.
        let bounds = self.resolver.db.bounds().ok();
        let is_accepted =
            |time_ms| bounds.is_none_or(|bounds| bounds.first_sample_rejection(time_ms).is_none());
        let mut written = Written {
            stored: self.stored,
            dropped: self.dropped,
            deduplicated: self.deduplicated,
            exemplars: std::mem::take(&mut out.exemplars),
            rejections: self.rejections,
            ignored: Rejections::default(),
            times: self.resolver.batch.times(is_accepted),
            replica: self.resolver.ha.replica(),
        };
        let rejections = if self.resolver.is_v2() {
            &mut written.ignored
        } else {
            &mut written.rejections
        };
        metadata::write(
            self.resolver.db,
            self.resolver.message,
            &self.resolver.batch.families,
            rejections,
        )?;
        Ok(written)
    }

    /// Stores the deferred series, in as many passes as necessary.
    fn write_deferred(
        &mut self,
        routes: &mut [Option<Route>],
        out: &mut Outgoing,
    ) -> Result<(), WriteError> {
        self.permit.enqueue(&self.deferred)?;
        let mut stored_nothing = false;
        while !self.deferred.series.is_empty() {
            self.permit.wait_for_rates(&self.deferred, stored_nothing)?;
            // Known series need no permit: they are deferred only because of their team's sample
            // rate.
            if self
                .deferred
                .series
                .iter()
                .any(|&(idx, _)| routes[idx as usize].is_none())
            {
                self.permit.wait_to_create(&self.deferred)?;
            }
            let series = self.deferred.take_series();
            self.pass(Some(&series), routes, out)?;
            stored_nothing = self.deferred.series.len() == series.len();
        }
        Ok(())
    }

    /// Runs one pass over all series, or over the series that the previous pass deferred.
    fn pass(
        &mut self,
        series: Option<&[(u32, Option<Team>)]>,
        routes: &mut [Option<Route>],
        out: &mut Outgoing,
    ) -> Result<(), WriteError> {
        out.batch.clear();
        self.admit_samples(series, routes, out);
        let pushed = match series {
            None => self.push_all(routes, out),
            Some(series) => self.push_deferred(series, routes, out),
        };
        self.push_exemplars(series, routes, out);
        (self.n_created, self.n_unknown, self.bounds) = (0, 0, None);
        let appended = append(&self.resolver, out, &mut self.rejections, || {
            self.permit.end_priority()
        });
        self.resolver.cache_new_routes();
        // Keeps the permit during the append: the samples of new series are as expensive as those
        // of many known series, under the same locks.
        self.permit.end_pass();
        self.stored.total += appended?;
        pushed?;
        for &idx in &out.evicted {
            routes[idx as usize] = None;
            let position = self
                .deferred
                .series
                .partition_point(|&(other, _)| other < idx);
            self.deferred.series.insert(position, (idx, None));
        }
        Ok(())
    }

    /// Takes the samples of known series from the budgets of their teams. Denies the samples of
    /// teams that exceed their budget.
    fn admit_samples(
        &mut self,
        series: Option<&[(u32, Option<Team>)]>,
        routes: &[Option<Route>],
        out: &mut Outgoing,
    ) {
        let (batch, budgets) = (self.resolver.batch, self.permit.budgets());
        if !budgets.bounds_samples() {
            return;
        }
        let mut add = |idx: usize| {
            if let Some(Route::Series(_, attribution)) = routes[idx] {
                out.requested
                    .add_any(attribution, batch.n_samples_of(idx) as u64);
            }
        };
        match series {
            None => (0..routes.len()).for_each(add),
            Some(series) => series.iter().for_each(|&(idx, _)| add(idx as usize)),
        }
        let mut by_team = Vec::new();
        self.resolver
            .relabeling
            .attributions
            .by_team(&mut out.requested, &mut by_team);
        budgets.admit_samples(&by_team, |team, denied| {
            self.deferred.deny_samples(team, denied)
        });
    }

    fn push_all(&mut self, routes: &[Option<Route>], out: &mut Outgoing) -> Result<(), WriteError> {
        let batch = self.resolver.batch;
        let has_fast_path = batch.histograms.is_empty() && !self.deferred.denies_any_samples();
        for ((idx, (series, samples)), route) in (0u32..).zip(batch.series()).zip(routes) {
            match (route, samples.single()) {
                // Fast path: the only float of a known series.
                (&Some(Route::Series(handle, attribution)), Some((sample, start_ms)))
                    if has_fast_path =>
                {
                    out.attributed.add(attribution, 1);
                    out.batch.push_with_start(handle, sample, start_ms, idx);
                }
                _ => self.push_series(idx, series, samples, *route, None, out)?,
            }
        }
        self.creation_error.take().map_or(Ok(()), Err)
    }

    fn push_deferred(
        &mut self,
        series: &[(u32, Option<Team>)],
        routes: &[Option<Route>],
        out: &mut Outgoing,
    ) -> Result<(), WriteError> {
        let batch = self.resolver.batch;
        for &(idx, team) in series {
            let i = idx as usize;
            self.push_series(
                idx,
                &batch.series[i],
                batch.samples_of(i),
                routes[i],
                team,
                out,
            )?;
        }
        self.creation_error.take().map_or(Ok(()), Err)
    }

    /// Pushes the samples of one series, or defers it. `team` is the team whose budget denied the
    /// series in the previous pass.
    fn push_series(
        &mut self,
        idx: u32,
        series: &SeriesEntry,
        samples: SeriesSamples<'_>,
        cached: Option<Route>,
        team: Option<Team>,
        out: &mut Outgoing,
    ) -> Result<(), WriteError> {
        let n_histograms = self.resolver.batch.histograms_of(idx as usize).len();
        let n = SampleCounts {
            total: (samples.samples.len() + n_histograms) as u64,
            histograms: n_histograms as u64,
        };
        let is_own_standby = cached.is_none()
            && self
                .resolver
                .ha
                .is_own_standby(self.resolver.pairs_of_ha(series));
        let route = match cached {
            Some(route) => route,
            None if is_own_standby => Route::Standby,
            None => match self.resolve(idx, series, n.total, team) {
                Some(route) => route,
                None => return Ok(()),
            },
        };
        match route {
            Route::Series(..) | Route::Dropped(_) if n.total == 0 => self.reject_empty(idx),
            Route::Series(_, attribution) if self.is_denied(attribution) => {
                self.deferred.push(idx, None)
            }
            Route::Series(handle, attribution) => {
                if cached.is_none() {
                    self.charge(attribution, n.total);
                }
                out.attributed.add(attribution, n.total);
                samples.for_each_in_time_order(|sample, start_ms| {
                    out.batch.push_with_start(handle, sample, start_ms, idx);
                });
                self.push_histograms(handle, idx, out)?;
            }
            Route::Dropped(attribution) => {
                out.attributed.add(attribution, n.total);
                self.dropped += n;
            }
            Route::Standby => {
                self.deduplicated += n;
                if is_own_standby {
                    self.n_own_deduplicated += n.total;
                } else {
                    self.resolver
                        .ha
                        .count_deduplicated(self.resolver.pairs_of_ha(series), n.total);
                }
            }
            Route::Rejected(reason) => {
                let labels = || self.resolver.print(idx);
                let example =
                    || Example::of_series(labels()).with(samples.samples.first().copied());
                self.rejections.add(reason, 1, n.total, example);
            }
        }
        Ok(())
    }

    /// Pushes the valid histograms of a series.
    fn push_histograms(
        &mut self,
        handle: SeriesHandle,
        idx: u32,
        out: &mut Outgoing,
    ) -> Result<(), WriteError> {
        for entry in self.resolver.batch.histograms_of(idx as usize) {
            let sent = self.decode_histogram(entry)?;
            match sent.checked {
                Ok(histogram) => {
                    out.batch.push_histogram_with_start(
                        handle,
                        sent.timestamp_ms,
                        histogram,
                        sent.start_ms,
                        idx,
                    );
                    self.stored.histograms += 1;
                }
                Err(invalid) => self.reject_histogram(idx, sent.timestamp_ms, &invalid),
            }
        }
        Ok(())
    }

    fn decode_histogram(&self, entry: &HistogramEntry) -> Result<CheckedHistogram, WriteError> {
        Ok(match entry {
            HistogramEntry::Encoded(span) => {
                let message = Reader::over(self.resolver.message, *span);
                let sent = histogram::decode(message, self.resolver.batch.version)?;
                CheckedHistogram {
                    timestamp_ms: sent.timestamp_ms,
                    start_ms: sent.start_ms,
                    checked: sent.check().map(Arc::new),
                }
            }
            HistogramEntry::Decoded {
                timestamp_ms,
                start_ms,
                histogram,
            } => CheckedHistogram {
                timestamp_ms: *timestamp_ms,
                start_ms: *start_ms,
                checked: Ok(Arc::clone(histogram)),
            },
        })
    }

    fn reject_histogram(&mut self, idx: u32, timestamp_ms: i64, invalid: &InvalidHistogram) {
        let labels = self.resolver.print(idx);
        let text = format!("series {labels} at {timestamp_ms}: {invalid}");
        let example = || Example {
            text,
            labels,
            timestamp_ms: Some(timestamp_ms),
            value: None,
        };
        self.rejections.add(Reason::InvalidHistogram, 1, 1, example);
    }

    /// Pushes the exemplars of the series of this pass that the store has, those of a series in
    /// order of time. The exemplars of deferred series stay for the next pass. Prometheus sends an
    /// exemplar and its sample as two series, so that series with exemplars only are deferred as
    /// well while new series are.
    fn push_exemplars(
        &mut self,
        series: Option<&[(u32, Option<Team>)]>,
        routes: &[Option<Route>],
        out: &mut Outgoing,
    ) {
        let Resolver { batch, message, .. } = self.resolver;
        let defers_new_series = self
            .deferred
            .series
            .iter()
            .any(|&(idx, _)| routes[idx as usize].is_none());
        let mut without_series = Vec::new();
        let contains = |series: &[(u32, Option<Team>)], idx: u32| {
            series.binary_search_by_key(&idx, |&(idx, _)| idx).is_ok()
        };
        for entries in batch
            .exemplars
            .chunk_by(|a, b| a.series_idx == b.series_idx)
        {
            let idx = entries[0].series_idx;
            if contains(&self.deferred.series, idx)
                || series.is_some_and(|series| !contains(series, idx))
            {
                continue;
            }
            let handle = match self.resolver.handle(routes[idx as usize], idx) {
                Ok(handle) => handle,
                Err(ExemplarRejection::UnknownSeries)
                    if defers_new_series && batch.n_samples_of(idx as usize) == 0 =>
                {
                    without_series.push((idx, None));
                    continue;
                }
                Err(rejection) => {
                    entries.iter().for_each(|_| out.exemplars.reject(rejection));
                    continue;
                }
            };
            let mut exemplars: Vec<_> = entries
                .iter()
                .filter_map(|entry| exemplars::parse(message, batch, entry))
                .collect();
            (exemplars.len()..entries.len())
                .for_each(|_| out.exemplars.reject(ExemplarRejection::InvalidLabels));
            exemplars.sort_by(exemplars::compare);
            exemplars
                .into_iter()
                .for_each(|parsed| out.batch.push_exemplar(handle, parsed.exemplar, idx));
        }
        self.deferred.series.append(&mut without_series);
        self.deferred.series.sort_unstable_by_key(|&(idx, _)| idx);
    }

    /// Returns the route of a series without a cached route. Returns `None` if the series was
    /// deferred or rejected, or if its creation failed.
    fn resolve(
        &mut self,
        idx: u32,
        series: &SeriesEntry,
        n_samples: u64,
        team: Option<Team>,
    ) -> Option<Route> {
        if n_samples == 0 {
            return match self.resolver.labels(series) {
                Ok(_) => {
                    self.reject_empty(idx);
                    None
                }
                Err(reason) => Some(Route::Rejected(reason)),
            };
        }
        if self.creation_error.is_some() {
            return None;
        }
        self.find_or_create(idx, series, team)
            .unwrap_or_else(|error| {
                self.creation_error = Some(error);
                None
            })
    }

    /// Resolves a series. Creates it if that is allowed now, and otherwise defers or rejects it.
    fn find_or_create(
        &mut self,
        idx: u32,
        series: &SeriesEntry,
        team: Option<Team>,
    ) -> Result<Option<Route>, WriteError> {
        // The series was resolved in an earlier pass, and its team is denied new series in this
        // pass as well.
        let is_denied = team.is_some_and(|team| !self.may_create(team));
        // Without a permit, the look-up would be repeated in the next pass.
        if is_denied
            || self.n_unknown >= UNKNOWN_MAX && self.permit.is_creation_over(self.n_created)
        {
            self.deferred.push(idx, team);
            return Ok(None);
        }
        let new = match self.resolver.resolve(series) {
            Resolved::Route(route) => return Ok(Some(route)),
            Resolved::New(new) => new,
        };
        self.n_unknown += 1;
        if self.reject_if_all_invalid(idx)? {
            return Ok(None);
        }
        if !self.may_create(new.team) {
            self.deferred.push(idx, Some(new.team));
            return Ok(None);
        }
        let grant = match self.permit.admit_series(new.team) {
            Ok(grant) => grant,
            Err(Denied::Permanent(limit)) => {
                self.reject_series(idx, new.team, limit);
                return Ok(None);
            }
            Err(denied) => {
                self.deferred.deny_series(new.team, denied);
                self.deferred.push(idx, Some(new.team));
                return Ok(None);
            }
        };
        let handle = self.resolver.db.series_for(&new.labels, new.team.group())?;
        drop(grant);
        self.n_created += 1;
        if self.n_created.is_multiple_of(BUFFERED_DEFINITIONS_MAX) {
            self.resolver.db.write_out()?;
        }
        self.permit.yield_after(self.n_created);
        let route = Route::Series(handle, new.attribution(self.resolver.relabeling));
        Ok(Some(self.resolver.remember_route(
            series,
            route,
            new.is_cacheable,
        )))
    }

    /// If the store would reject each sample of a new series, adds them to the rejects and returns
    /// `true`. No series is created for them.
    fn reject_if_all_invalid(&mut self, idx: u32) -> Result<bool, WriteError> {
        let batch = self.resolver.batch;
        let bounds = match self.bounds {
            Some(bounds) => bounds,
            None => *self.bounds.insert(self.resolver.db.bounds()?),
        };
        let mut rejected = Vec::new();
        for &sample in batch.samples_of(idx as usize).samples {
            match bounds.first_sample_rejection(sample.timestamp_ms) {
                Some(reason) => rejected.push((sample, reason)),
                None => return Ok(false),
            }
        }
        let mut invalid = Vec::new();
        for entry in batch.histograms_of(idx as usize) {
            let CheckedHistogram {
                timestamp_ms,
                checked,
                ..
            } = self.decode_histogram(entry)?;
            match (checked, bounds.first_sample_rejection(timestamp_ms)) {
                (Err(reason), _) => invalid.push((timestamp_ms, reason)),
                (Ok(histogram), Some(reason)) => {
                    rejected.push((
                        Sample {
                            timestamp_ms,
                            value: histogram.sum,
                        },
                        reason,
                    ));
                }
                (Ok(_), None) => return Ok(false),
            }
        }
        for (sample, reason) in rejected {
            let example = || Example::of_sample(self.resolver.print(idx), sample);
            self.rejections.add(Reason::Sample(reason), 1, 1, example);
        }
        invalid
            .into_iter()
            .for_each(|(timestamp_ms, reason)| self.reject_histogram(idx, timestamp_ms, &reason));
        Ok(true)
    }

    /// Returns `true` if a team may create a series in this pass.
    fn may_create(&mut self, team: Team) -> bool {
        self.permit.may_create(self.n_created) && self.deferred.allows_series(team)
    }

    fn is_denied(&self, attribution: Attribution) -> bool {
        self.deferred.denies_any_samples()
            && self
                .deferred
                .denies_samples(self.resolver.relabeling.attributions.team_of(attribution))
    }

    /// Takes the samples of a series without a cached route from its team's budget.
    /// [`Request::admit_samples`] did not see them.
    fn charge(&self, attribution: Attribution, n_samples: u64) {
        let budgets = self.permit.budgets();
        if budgets.bounds_samples() {
            budgets.charge_samples(
                self.resolver.relabeling.attributions.team_of(attribution),
                n_samples,
            );
        }
    }

    /// Rejects a series with neither samples nor exemplars in version 2.0. Version 1.0 ignores it.
    /// The specification also forbids series that have only exemplars, but Prometheus sends each
    /// exemplar as such a series.
    fn reject_empty(&mut self, idx: u32) {
        if self.resolver.is_v2() && !self.resolver.batch.has_exemplars(idx) {
            let example = || Example::of_series(self.resolver.print(idx));
            self.rejections.add(Reason::NoSamples, 1, 0, example);
        }
    }

    /// Rejects a new series because a budget of active series is exhausted.
    fn reject_series(&mut self, idx: u32, team: Team, limit: SeriesLimit) {
        let (reason, used, limit) = match limit {
            SeriesLimit::Team { used, limit } => (Reason::TeamSeries, used, limit),
            SeriesLimit::Total { used, limit } => (Reason::TotalSeries, used, limit),
        };
        let n_samples = self.resolver.batch.n_samples_of(idx as usize) as u64;
        let example = || {
            let name = self.permit.budgets().name(team);
            let team_suffix = if name.is_empty() {
                String::new()
            } else {
                format!(" of team {name:?}")
            };
            let labels = self.resolver.print(idx);
            let text = format!("series {labels}{team_suffix}, with {used} of {limit} active");
            Example {
                text,
                labels,
                timestamp_ms: None,
                value: None,
            }
        };
        self.rejections.add(reason, 1, n_samples, example);
    }

    /// Counts pushed samples for their rules and teams, and deduplicated samples for their cluster.
    fn count(&self, out: &mut Outgoing) {
        self.resolver
            .ha
            .count_own_deduplicated(self.n_own_deduplicated);
        let Outgoing {
            attributed,
            by_team,
            ..
        } = out;
        self.resolver
            .relabeling
            .attributions
            .count(attributed, by_team);
        let n_attributed: u64 = by_team.iter().map(|(_, n)| n).sum();
        by_team.push((Team::NONE, self.stored.total.saturating_sub(n_attributed)));
        self.permit.budgets().count_samples(by_team);
        by_team.clear();
    }
}

/// Maximum number of unsuccessful look-ups of a pass without a permit. So a few new series do not
/// delay many series that have lost their cached routes, and a storm of new series does not take
/// CPU time from requests of known series.
const UNKNOWN_MAX: usize = 64;
/// Maximum number of series definitions that a request buffers for the log. The next commit of any
/// request, even one of known series, compresses and writes all of them.
const BUFFERED_DEFINITIONS_MAX: usize = 256;
