//! Hands the batch of a pass to the store, and repeats this for series that were moved in memory.

use varve_tsdb::exemplars::RejectExemplar;
use varve_tsdb::{RejectReason, Rejected};

use super::request::{Write, Writer};
use crate::error::WriteError;
use crate::outcome::{Example, ExemplarRejection, Reason, RecordedRejection};

impl Write<'_> {
    /// Appends what was pushed, and repeats this for series that have moved. Returns the number of
    /// stored samples. Samples and exemplars of series in `out.evicted` are neither stored nor
    /// rejected.
    ///
    /// # Errors
    /// [`WriteError::Store`] if the store fails; [`WriteError::Moved`] if series moved
    /// [`ROUNDS_MAX`] times.
    pub(super) fn append(&mut self) -> Result<u64, WriteError> {
        let mut n_stored = 0;
        self.out.evicted.clear();
        for _ in 0..ROUNDS_MAX {
            if self.out.batch.is_empty() {
                return Ok(n_stored);
            }
            let n_samples = self.out.batch.len();
            self.receiver
                .db
                .append_with(&mut self.out.batch, || self.permit.end_priority())?;
            n_stored += (n_samples - self.out.batch.rejected().len()) as u64;
            self.note_samples();
            self.note_exemplars();
            self.push_moved()?;
        }
        if self.out.batch.is_empty() {
            Ok(n_stored)
        } else {
            Err(WriteError::Moved)
        }
    }

    /// Counts rejected samples. Collects the samples whose series have moved.
    fn note_samples(&mut self) {
        self.out.moved.clear();
        for rejected in self.out.batch.rejected() {
            if rejected.reason == RejectReason::Moved {
                self.out.moved.push(rejected.clone());
                continue;
            }
            self.out.histograms_rejected += u64::from(rejected.histogram.is_some());
            if let Writer::Rules(..) = self.request.writer {
                self.recorded_rejections.push(RecordedRejection {
                    index: rejected.tag as usize,
                    reason: rejected.reason.to_string(),
                    is_duplicate: rejected.reason == RejectReason::Duplicate,
                });
            } else {
                self.rejections
                    .add(Reason::Sample(rejected.reason), 1, 1, || {
                        Example::of_sample(self.request.print(rejected.tag), rejected.sample)
                    });
            }
        }
    }

    /// Counts stored and rejected exemplars. Collects the exemplars whose series have moved.
    fn note_exemplars(&mut self) {
        let rejected = self.out.batch.rejected_exemplars();
        self.out.exemplars.stored += (self.out.batch.n_exemplars() - rejected.len()) as u64;
        self.out.moved_exemplars.clear();
        for rejected in rejected {
            if rejected.reason == RejectExemplar::Moved {
                self.out
                    .moved_exemplars
                    .push((rejected.tag, rejected.exemplar.clone()));
                continue;
            }
            if rejected.reason == RejectExemplar::OutOfOrder && self.request.is_v2() {
                self.rejections.add(Reason::ExemplarOutOfOrder, 1, 0, || {
                    Example::of_series(self.request.print(rejected.tag))
                });
            }
            self.out
                .exemplars
                .reject(ExemplarRejection::Store(rejected.reason), 1);
        }
    }

    /// Fills the batch with the samples and exemplars whose series have moved.
    fn push_moved(&mut self) -> Result<(), WriteError> {
        self.out.batch.clear();
        let mut moved = std::mem::take(&mut self.out.moved);
        let mut last = None;
        for rejected in moved.drain(..) {
            let series_idx = rejected.tag;
            let handle = match last {
                Some((last_idx, handle)) if last_idx == series_idx => handle,
                _ => self.relocate(series_idx)?,
            };
            last = Some((series_idx, handle));
            let Rejected {
                sample,
                start_ms,
                histogram,
                ..
            } = rejected;
            let Some(handle) = handle else {
                if self.out.evicted.last() != Some(&series_idx) {
                    self.out.evicted.push(series_idx);
                }
                // The next pass pushes and counts the histogram again.
                self.out.histograms_rejected += u64::from(histogram.is_some());
                continue;
            };
            match histogram {
                None => self
                    .out
                    .batch
                    .push_with_start(handle, sample, start_ms, series_idx),
                Some(histogram) => self.out.batch.push_histogram_with_start(
                    handle,
                    sample.timestamp_ms,
                    histogram,
                    start_ms,
                    series_idx,
                ),
            }
        }
        self.out.moved = moved;

        let mut moved_exemplars = std::mem::take(&mut self.out.moved_exemplars);
        for (series_idx, exemplar) in moved_exemplars.drain(..) {
            match self.handle_for_exemplars(None, series_idx) {
                Ok(handle) => self.out.batch.push_exemplar(handle, exemplar, series_idx),
                Err(_) if self.out.evicted.contains(&series_idx) => {}
                Err(_) => self
                    .out
                    .exemplars
                    .reject(ExemplarRejection::UnknownSeries, 1),
            }
        }
        self.out.moved_exemplars = moved_exemplars;

        // The histograms of a series follow its floats, with other series in between.
        self.out.evicted.sort_unstable();
        self.out.evicted.dedup();
        Ok(())
    }
}

/// Maximum number of appends. A series moves when it leaves the head, hours after its last sample.
/// Twice in one request is unlikely, three times is an error.
pub(crate) const ROUNDS_MAX: usize = 3;
