//! Buffering samples during a replay, which still loads older samples into the head.
//!
//! Used by `Db::append`. The log gets the samples at once, as outside a replay.

use std::sync::Arc;

use varve_model::{Rejection, RejectionReason};

use super::append::ShardAppend;
use super::log::LogBatch;
use super::sample_buffer::{BufferedSample, SampleBuffer};
use super::shard::Shard;
use crate::batch::{HistogramQueue, NewFloat, NewHistogram, ShardBatch};
use crate::head::{Bounds, Head, SlotRef};
use crate::wal::{LoggedHistogram, StartTimestamp};

impl Shard {
    /// Buffers samples for the log and for the head while replay is still loading older samples.
    /// Their order is checked when replay ends.
    pub(crate) fn buffer_samples(
        &self,
        bounds: &Bounds,
        batch: ShardBatch<'_>,
        log_batch: &mut LogBatch,
        rejected: &mut Vec<Rejection>,
    ) -> ShardAppend {
        let n_floats = log_batch.n_floats();
        let n_histograms = log_batch.n_histograms();
        let histograms = HistogramQueue::new(batch);
        let mut next_start = batch.starts();

        let head = self.head();
        let mut buffer = self.buffer.lock();
        log_batch.mark_buffered();
        let mut buffering = Buffering {
            head: &head,
            bounds,
            buffer: &mut buffer,
            log_batch,
            rejected,
            log_all_starts: batch.has_starts,
            newest_ms: i64::MIN,
        };

        // The log and the buffer have the floats of a batch before its histograms.
        for float in batch.floats {
            let is_replaced = histograms.replaces(float);
            buffering.push(float, next_start(), is_replaced);
        }
        for histogram in batch.histograms {
            buffering.push_histogram(histogram);
        }

        let newest_ms = buffering.newest_ms;
        ShardAppend::new(log_batch, n_floats, n_histograms, newest_ms)
    }
}

/// Buffers the samples of one request.
struct Buffering<'a> {
    head: &'a Head,
    bounds: &'a Bounds,
    buffer: &'a mut SampleBuffer,
    log_batch: &'a mut LogBatch,
    rejected: &'a mut Vec<Rejection>,
    /// Two samples may share a timestamp while only one has a start timestamp. To tell them apart,
    /// the log has the start timestamps of all samples if any sample of the batch has one.
    log_all_starts: bool,
    newest_ms: i64,
}

impl Buffering<'_> {
    /// Buffers a float, unless a histogram of the batch replaces it.
    fn push(&mut self, float: &NewFloat, start_ms: i64, is_replaced: bool) {
        let NewFloat {
            slot,
            generation,
            index,
            position,
            sample,
        } = *float;
        let slot_ref = SlotRef { slot, generation };
        let mut checked = self
            .head
            .check_unordered(self.bounds, slot_ref, sample.timestamp_ms);
        if checked.is_ok() && is_replaced {
            checked = Err(RejectionReason::Duplicate);
        }
        match checked {
            Ok(series) => {
                self.newest_ms = self.newest_ms.max(sample.timestamp_ms);
                self.buffer.push_start(start_ms);
                if self.log_all_starts {
                    self.log_batch
                        .push_start(StartTimestamp::buffered(start_ms));
                }
                self.buffer.push(BufferedSample::Float { slot, sample });
                self.log_batch.push(position, series, sample);
            }
            Err(reason) => self.rejected.push(Rejection { index, reason }),
        }
    }

    fn push_histogram(&mut self, new: &NewHistogram) {
        let NewHistogram {
            slot,
            generation,
            index,
            timestamp_ms,
            start_ms,
            ref histogram,
            ..
        } = *new;
        let slot_ref = SlotRef { slot, generation };
        let mut checked = self
            .head
            .check_unordered(self.bounds, slot_ref, timestamp_ms);
        if checked.is_ok() && !histogram.fits() {
            checked = Err(RejectionReason::HistogramTooLarge);
        }
        match checked {
            Ok(series) => {
                self.newest_ms = self.newest_ms.max(timestamp_ms);
                self.buffer.push_start(start_ms);
                if self.log_all_starts {
                    self.log_batch
                        .push_histogram_start(StartTimestamp::buffered(start_ms));
                }
                self.buffer.push(BufferedSample::Histogram {
                    slot,
                    timestamp_ms,
                    histogram: Arc::clone(histogram),
                });
                self.log_batch.push_histogram(LoggedHistogram {
                    series,
                    timestamp_ms,
                    histogram: Arc::clone(histogram),
                });
            }
            Err(reason) => self.rejected.push(Rejection { index, reason }),
        }
    }
}
