//! Fills the batch for the store with the samples and exemplars of a pass.

use std::sync::Arc;

use varve_context::scheduler;
use varve_model::RejectionReason;
use varve_model::histogram::{Histogram, InvalidHistogram};
use varve_protobuf::Reader;
use varve_tsdb::SeriesHandle;

use super::exemplars;
use super::request::{Request, Write};
use crate::admission::{DeferredSeries, Team};
use crate::batch::{ExemplarEntry, HistogramEntry, SeriesSamples};
use crate::error::WriteError;
use crate::outcome::{Example, ExemplarRejection, SampleCounts};
use crate::relabel::Attribution;
use crate::route::Route;
use crate::sources::remote_write::histogram;

/// A histogram of a request, or the reason why it is invalid.
pub(super) struct CheckedHistogram {
    pub(super) timestamp_ms: i64,
    pub(super) start_ms: i64,
    pub(super) checked: Result<Arc<Histogram>, InvalidHistogram>,
}

impl Write<'_> {
    /// Pushes the samples of all series.
    pub(super) fn push_all(&mut self) -> Result<(), WriteError> {
        let batch = self.request.batch;
        let has_fast_path = batch.histograms.is_empty() && !self.deferred.denies_any_samples();
        for (series_idx, (_, samples)) in (0u32..).zip(batch.series()) {
            let route = self.routes[series_idx as usize];
            match (route, samples.single()) {
                // Fast path: the only float of a known series.
                (Some(Route::Series(handle, attribution)), Some(entry)) if has_fast_path => {
                    let out = &mut *self.out;
                    out.attributed.add(attribution, 1);
                    out.batch
                        .push_with_start(handle, entry.sample, entry.start_ms, entry.index);
                }
                _ => self.push_series(series_idx, samples, route, None)?,
            }
        }
        self.creation_error.take().map_or(Ok(()), Err)
    }

    /// Pushes the samples of the series that the previous pass deferred.
    pub(super) fn push_deferred(&mut self, series: &[DeferredSeries]) -> Result<(), WriteError> {
        let batch = self.request.batch;
        for deferred in series {
            let series_idx = deferred.series_idx;
            let samples = batch.samples_of(series_idx as usize);
            let route = self.routes[series_idx as usize];
            self.push_series(series_idx, samples, route, deferred.denied_team)?;
        }
        self.creation_error.take().map_or(Ok(()), Err)
    }

    /// Pushes samples of rules, or of the server itself. More urgent work runs between two of them.
    pub(super) fn push_internal(&mut self, series: &[u32]) -> Result<(), WriteError> {
        let batch = self.request.batch;
        for &series_idx in series {
            scheduler::pause();
            let samples = batch.samples_of(series_idx as usize);
            let route = self.routes[series_idx as usize];
            self.push_series(series_idx, samples, route, None)?;
            if let Some(error) = self.creation_error.take() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Pushes the samples of one series, or defers it. `denied_team` is the team whose budget denied
    /// the series in the previous pass.
    fn push_series(
        &mut self,
        series_idx: u32,
        samples: SeriesSamples<'_>,
        cached: Option<Route>,
        denied_team: Option<Team>,
    ) -> Result<(), WriteError> {
        let n = self.request.n_samples_of(series_idx, samples);
        let series = self.request.series(series_idx);
        let is_of_standby_sender = cached.is_none()
            && self
                .settings
                .ha
                .is_of_standby_sender(self.request.pairs_of_ha(series));
        let route = match cached {
            Some(route) => Some(route),
            None if is_of_standby_sender => Some(Route::Standby),
            None if n.total == 0 => self.route_without_samples(series_idx),
            None => self.find_or_create(series_idx, denied_team),
        };
        match route {
            // Deferred or rejected.
            None => {}
            Some(Route::Series(..) | Route::Dropped(_)) if n.total == 0 => {
                self.reject_empty(series_idx);
            }
            Some(Route::Series(_, attribution)) if self.is_denied(attribution) => {
                self.deferred.push(series_idx, None);
            }
            Some(Route::Series(handle, attribution)) => {
                if cached.is_none() {
                    self.charge(series_idx, attribution, n.total);
                    // If the series is evicted before the append, its samples no longer count for
                    // this attribution.
                    self.routes[series_idx as usize] = route;
                }
                self.out.attributed.add(attribution, n.total);
                self.push_floats(handle, samples);
                self.push_histograms(handle, series_idx)?;
            }
            Some(Route::Dropped(attribution)) => {
                self.out.attributed.add(attribution, n.total);
                self.dropped += n;
            }
            Some(Route::Standby) if is_of_standby_sender => {
                self.deduplicated += n;
                self.n_sender_deduplicated += n.total;
            }
            Some(Route::Standby) => {
                self.deduplicated += n;
                self.settings
                    .ha
                    .count_deduplicated(self.request.pairs_of_ha(series), n.total);
            }
            Some(Route::Rejected(reason)) => self.reject_samples(series_idx, reason, samples),
        }
        Ok(())
    }

    /// Rejects all samples of a series.
    fn reject_samples(
        &mut self,
        series_idx: u32,
        reason: RejectionReason,
        samples: SeriesSamples<'_>,
    ) {
        let n = self.request.n_samples_of(series_idx, samples);
        self.note_rejected_series(series_idx);
        self.rejections.add(reason, 1, n.total, || {
            let mut example = Example::of_series(self.request.print(series_idx));
            if let Some(excess) = self.request.excess(series_idx, reason) {
                example.text.push_str(&format!(" with {excess}"));
            }
            example.with(samples.samples.first().copied())
        });
    }

    /// Returns the route of an unknown series without samples: it creates no series, but its labels
    /// are checked.
    fn route_without_samples(&mut self, series_idx: u32) -> Option<Route> {
        match self.parse_labels(series_idx) {
            Ok(_) => {
                self.reject_empty(series_idx);
                None
            }
            Err(reason) => Some(Route::Rejected(reason)),
        }
    }

    fn push_floats(&mut self, handle: SeriesHandle, samples: SeriesSamples<'_>) {
        samples.for_each_in_time_order(|entry| {
            self.out
                .batch
                .push_with_start(handle, entry.sample, entry.start_ms, entry.index);
        });
    }

    /// Pushes the valid histograms of a series.
    fn push_histograms(&mut self, handle: SeriesHandle, series_idx: u32) -> Result<(), WriteError> {
        let batch = self.request.batch;
        let histograms = batch.histograms_of(series_idx as usize);
        for (histogram_idx, entry) in histograms.iter().enumerate() {
            let sent = self.request.decode_histogram(entry)?;
            match sent.checked {
                Ok(histogram) => {
                    let index = batch.histogram_index(series_idx as usize, histogram_idx);
                    self.out.batch.push_histogram_with_start(
                        handle,
                        sent.timestamp_ms,
                        histogram,
                        sent.start_ms,
                        index,
                    );
                    self.stored.histograms += 1;
                }
                Err(invalid) => self.reject_histogram(series_idx, sent.timestamp_ms, &invalid),
            }
        }
        Ok(())
    }

    /// Rejects an invalid histogram, unless an earlier pass did.
    pub(super) fn reject_histogram(
        &mut self,
        series_idx: u32,
        timestamp_ms: i64,
        invalid: &InvalidHistogram,
    ) {
        if self.was_pushed_before(series_idx) {
            return;
        }
        self.rejections
            .add(RejectionReason::InvalidHistogram, 1, 1, || {
                let labels = self.request.print(series_idx);
                Example {
                    text: format!("series {labels} at {timestamp_ms}: {invalid}"),
                    labels,
                    timestamp_ms: Some(timestamp_ms),
                    value: None,
                }
            });
    }

    /// Rejects a series with neither samples nor exemplars in version 2.0. Version 1.0 ignores it.
    /// The specification also forbids series that have only exemplars, but Prometheus sends each
    /// exemplar as such a series.
    fn reject_empty(&mut self, series_idx: u32) {
        if self.request.is_v2() && !self.request.batch.has_exemplars(series_idx) {
            self.rejections.add(RejectionReason::NoSamples, 1, 0, || {
                Example::of_series(self.request.print(series_idx))
            });
        }
    }

    /// Returns `true` if an earlier pass pushed the series, which was evicted before the append.
    fn was_pushed_before(&self, series_idx: u32) -> bool {
        self.out.pushed_before.binary_search(&series_idx).is_ok()
    }

    fn is_denied(&self, attribution: Attribution) -> bool {
        self.deferred.denies_any_samples()
            && self
                .deferred
                .denies_samples(self.settings.relabeling.attributions.team_of(attribution))
    }

    /// Takes the samples of a series without a cached route from its team's budget, unless an
    /// earlier pass did. [`Write::admit_samples`] did not see them. The samples of rules were
    /// charged together.
    fn charge(&self, series_idx: u32, attribution: Attribution, n_samples: u64) {
        let budgets = self.permit.budgets();
        let must_charge = self.request.is_sent() && budgets.bounds_samples();
        if must_charge && !self.was_pushed_before(series_idx) {
            let team = self.settings.relabeling.attributions.team_of(attribution);
            budgets.charge_samples(team, n_samples);
        }
    }

    /// Pushes the exemplars of the series of this pass that the store has, those of a series in
    /// order of time. An exemplar never creates a series: its series must be in memory, or have a
    /// sample in the same request. Rejected exemplars are counted; as in Prometheus, they do not make
    /// the response a 400, except for out-of-order exemplars in remote write 2.0.
    ///
    /// The exemplars of deferred series stay for the next pass. Prometheus sends an exemplar and its
    /// sample as two series, so that series with exemplars only are deferred as well while new series
    /// are.
    pub(super) fn push_exemplars(&mut self, series: Option<&[DeferredSeries]>) {
        let batch = self.request.batch;
        let defers_new_series = self.defers_new_series();
        let mut without_series = Vec::new();
        for entries in batch
            .exemplars
            .chunk_by(|a, b| a.series_idx == b.series_idx)
        {
            let series_idx = entries[0].series_idx;
            let is_of_pass =
                series.is_none_or(|series| DeferredSeries::contains(series, series_idx));
            if !is_of_pass || DeferredSeries::contains(&self.deferred.series, series_idx) {
                continue;
            }
            let route = self.routes[series_idx as usize];
            match self.handle_for_exemplars(route, series_idx) {
                Ok(handle) => self.push_exemplars_of(handle, entries),
                Err(ExemplarRejection::UnknownSeries)
                    if defers_new_series && batch.n_samples_of(series_idx as usize) == 0 =>
                {
                    without_series.push(series_idx);
                }
                Err(rejection) => {
                    self.out.exemplars.reject(rejection, entries.len() as u64);
                }
            }
        }
        for series_idx in without_series {
            self.deferred.insert(series_idx);
        }
    }

    /// Pushes the exemplars of one series.
    fn push_exemplars_of(&mut self, handle: SeriesHandle, entries: &[ExemplarEntry]) {
        let Request { message, batch, .. } = self.request;
        let mut exemplars: Vec<_> = entries
            .iter()
            .filter_map(|entry| exemplars::parse(message, batch, entry))
            .collect();
        let n_invalid = entries.len() - exemplars.len();
        if n_invalid > 0 {
            self.out
                .exemplars
                .reject(ExemplarRejection::InvalidLabels, n_invalid as u64);
        }
        exemplars.sort_by(exemplars::compare);
        for parsed in exemplars {
            self.out
                .batch
                .push_exemplar(handle, parsed.exemplar, entries[0].series_idx);
        }
    }
}

impl Request<'_> {
    fn n_samples_of(&self, series_idx: u32, samples: SeriesSamples<'_>) -> SampleCounts {
        let n_histograms = self.batch.histograms_of(series_idx as usize).len();
        SampleCounts {
            total: (samples.samples.len() + n_histograms) as u64,
            histograms: n_histograms as u64,
        }
    }

    pub(super) fn decode_histogram(
        &self,
        entry: &HistogramEntry,
    ) -> Result<CheckedHistogram, WriteError> {
        Ok(match entry {
            HistogramEntry::Encoded(span) => {
                let message = Reader::over(self.message, *span);
                let sent = histogram::decode(message, self.batch.version)?;
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
}
