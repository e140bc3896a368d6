//! Hands the batch of a pass to the store, and repeats this for series that were moved in memory.

use varve_model::{Rejection, RejectionReason, Sample};
use varve_tsdb::bounds::Bounds;
use varve_tsdb::exemplars::RejectExemplar;

use super::request::{Request, Write, Writer};
use crate::batch::HistogramEntry;
use crate::error::WriteError;
use crate::outcome::{Example, ExemplarRejection};

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
            self.has_appended = true;
            let bounds = self
                .receiver
                .db
                .append_with(&mut self.out.batch, || self.permit.end_priority())?;
            n_stored += (n_samples - self.out.batch.rejected().len()) as u64;
            self.note_samples(bounds);
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
    fn note_samples(&mut self, bounds: Bounds) {
        let decoded = self.request.batch;
        self.out.moved.clear();
        for &rejection in self.out.batch.rejected() {
            let Rejection { index, reason } = rejection;
            if reason == RejectionReason::Moved {
                self.out.moved.push(index);
                continue;
            }
            self.out.histograms_rejected += u64::from(decoded.histogram_at(index).is_some());
            if let Writer::Rules(..) = self.request.writer {
                self.rule_rejections.push(Rejection {
                    index: decoded.series_of(index),
                    reason,
                });
            } else {
                if let Some(rejected) = &mut self.rejected_samples {
                    rejected.add(index as usize);
                }
                self.rejections.add(reason, 1, 1, || {
                    self.request.example(index).out_of(Some(bounds), reason)
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
                self.rejections
                    .add(RejectionReason::ExemplarOutOfOrder, 1, 0, || {
                        Example::of_series(self.request.print(rejected.tag))
                    });
            }
            self.out
                .exemplars
                .reject(ExemplarRejection::Store(rejected.reason), 1);
        }
    }

    /// Fills the batch for the store with the samples and exemplars whose series have moved.
    fn push_moved(&mut self) -> Result<(), WriteError> {
        self.out.batch.clear();
        let decoded = self.request.batch;
        let mut moved = std::mem::take(&mut self.out.moved);
        let mut last = None;
        for index in moved.drain(..) {
            let series_idx = decoded.series_of(index);
            let handle = match last {
                Some((last_idx, handle)) if last_idx == series_idx => handle,
                _ => self.relocate(series_idx)?,
            };
            last = Some((series_idx, handle));
            let histogram = decoded.histogram_at(index);
            let Some(handle) = handle else {
                if self.out.evicted.last() != Some(&series_idx) {
                    self.out.evicted.push(series_idx);
                }
                // `push_histograms` counted the histogram as stored, and counts it again in the
                // next pass. `finish` subtracts it once.
                self.out.histograms_rejected += u64::from(histogram.is_some());
                continue;
            };
            match histogram {
                None => {
                    let entry = decoded.sample_at(index);
                    self.out
                        .batch
                        .push_with_start(handle, entry.sample, entry.start_ms, index);
                }
                Some(entry) => {
                    let sent = self.request.decode_histogram(entry)?;
                    // Only valid histograms were pushed.
                    if let Ok(histogram) = sent.checked {
                        self.out.batch.push_histogram_with_start(
                            handle,
                            sent.timestamp_ms,
                            histogram,
                            sent.start_ms,
                            index,
                        );
                    }
                }
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

impl Request<'_> {
    /// Describes a sample that the store rejected.
    fn example(&self, index: u32) -> Example {
        let labels = self.print(self.batch.series_of(index));
        let sample = match self.batch.histogram_at(index) {
            None => Some(self.batch.sample_at(index).sample),
            Some(entry) => self.sum_of(entry),
        };
        match sample {
            Some(sample) => Example::of_sample(labels, sample),
            None => Example::of_series(labels),
        }
    }

    /// Returns the time and the sum of a histogram; `None` if it is invalid, which no histogram in
    /// the store's batch is.
    fn sum_of(&self, entry: &HistogramEntry) -> Option<Sample> {
        let sent = self.decode_histogram(entry).ok()?;
        Some(Sample {
            timestamp_ms: sent.timestamp_ms,
            value: sent.checked.ok()?.sum,
        })
    }
}

/// Maximum number of appends. A series moves when it leaves the head, hours after its last sample.
/// Twice in one request is unlikely, three times is an error.
pub(crate) const ROUNDS_MAX: usize = 3;
