//! Buffering samples during a replay, which still loads older samples into the head.
//!
//! Used by `Db::append`. The log gets the samples at once, as outside a replay.

use std::sync::Arc;

use varve_model::{Rejection, RejectionReason};

use super::Shard;
use super::append::ShardAppend;
use super::log::LogBatch;
use super::sample_buffer::BufferedSample;
use crate::batch::{Append, AppendHistogram, HistogramQueue, ShardBatch};
use crate::head::{Bounds, SlotRef};
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
        let mut newest_ms = i64::MIN;
        let histograms = HistogramQueue::new(batch);
        let mut next_start = batch.starts();
        // Two samples may share a timestamp while only one has a start timestamp. To tell them
        // apart, log the start timestamps of all samples if any sample of the batch has one.
        let log_all_starts = batch.has_starts;

        let head = self.head();
        let mut buffer = self.buffer.lock();
        log_batch.mark_buffered();

        // The log and the buffer have the floats of a batch before its histograms.
        for append in batch.floats {
            let Append {
                slot,
                generation,
                index,
                position,
                sample,
            } = *append;
            let start_ms = next_start();
            let slot_ref = SlotRef { slot, generation };
            let mut checked = head.check_unordered(bounds, slot_ref, sample.timestamp_ms);
            if checked.is_ok() && histograms.replaces(append) {
                checked = Err(RejectionReason::Duplicate);
            }
            match checked {
                Ok(series) => {
                    newest_ms = newest_ms.max(sample.timestamp_ms);
                    buffer.push_start(start_ms);
                    if log_all_starts {
                        log_batch.push_start(StartTimestamp::buffered(start_ms));
                    }
                    buffer.push(BufferedSample::Float { slot, sample });
                    log_batch.push(position, series, sample);
                }
                Err(reason) => rejected.push(Rejection { index, reason }),
            }
        }

        for append in batch.histograms {
            let AppendHistogram {
                slot,
                generation,
                index,
                timestamp_ms,
                start_ms,
                ref histogram,
                ..
            } = *append;
            let slot_ref = SlotRef { slot, generation };
            let mut checked = head.check_unordered(bounds, slot_ref, timestamp_ms);
            if checked.is_ok() && !histogram.fits() {
                checked = Err(RejectionReason::HistogramTooLarge);
            }
            match checked {
                Ok(series) => {
                    newest_ms = newest_ms.max(timestamp_ms);
                    buffer.push_start(start_ms);
                    if log_all_starts {
                        log_batch.push_histogram_start(StartTimestamp::buffered(start_ms));
                    }
                    buffer.push(BufferedSample::Histogram {
                        slot,
                        timestamp_ms,
                        histogram: Arc::clone(histogram),
                    });
                    log_batch.push_histogram(LoggedHistogram {
                        series,
                        timestamp_ms,
                        histogram: Arc::clone(histogram),
                    });
                }
                Err(reason) => rejected.push(Rejection { index, reason }),
            }
        }

        ShardAppend::new(log_batch, n_floats, n_histograms, newest_ms)
    }
}
