//! Appending the samples of a request to the head of a shard, and to the batch for its log.
//!
//! Used by `Db::append`. The log batch is locked for the whole request, the head once per shard.

use std::sync::Arc;

use varve_model::Rejection;

use super::log::LogBatch;
use super::shard::Shard;
use crate::batch::{HistogramQueue, NewFloat, NewHistogram, ShardBatch};
use crate::head::{Appended, Bounds, Head};
use crate::wal::{LoggedHistogram, StartTimestamp};

/// Parameters of one append, the same for all shards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppendContext {
    /// Bounds for the timestamps of samples.
    pub(crate) bounds: Bounds,
    /// Isolation id of the append.
    pub(crate) append_id: u32,
    /// Appends below this id are visible to every present and future reader.
    pub(crate) horizon: u32,
}

/// The result of an append to one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardAppend {
    /// Number of stored samples. Repeated ones do not count.
    pub(crate) n_new: usize,
    /// Number of native histograms in `n_new`.
    pub(crate) n_histograms: usize,
    /// Newest timestamp of the stored samples. `i64::MIN` if there are none.
    pub(crate) newest_ms: i64,
}

impl Shard {
    /// Appends samples to the head, the floats and histograms of a series in order of time. Adds the
    /// new ones to `log_batch` and the rejected ones to `rejected`. Repeated ones are in neither.
    pub(crate) fn append(
        &self,
        context: &AppendContext,
        batch: ShardBatch<'_>,
        log_batch: &mut LogBatch,
        rejected: &mut Vec<Rejection>,
    ) -> ShardAppend {
        let n_floats = log_batch.n_floats();
        let n_histograms = log_batch.n_histograms();
        let mut appender = HeadAppender {
            context,
            log_batch,
            rejected,
            newest_ms: i64::MIN,
        };
        let mut histograms = HistogramQueue::new(batch);
        let mut next_start = batch.starts();

        let mut head = self.head_mut();
        head.set_horizon(context.horizon);
        head.append_all(batch.floats, |head, float| {
            while let Some(histogram) = histograms.take_before(float) {
                appender.append_histogram(head, histogram);
            }
            appender.append(head, float, next_start());
        });
        for histogram in histograms.take_rest() {
            appender.append_histogram(&mut head, histogram);
        }

        let newest_ms = appender.newest_ms;
        ShardAppend::new(log_batch, n_floats, n_histograms, newest_ms)
    }
}

impl ShardAppend {
    /// Computes the result from the lengths of `log_batch` before the append.
    pub(super) fn new(
        log_batch: &LogBatch,
        n_floats: usize,
        n_histograms: usize,
        newest_ms: i64,
    ) -> Self {
        let n_histograms = log_batch.n_histograms() - n_histograms;
        Self {
            n_new: log_batch.n_floats() - n_floats + n_histograms,
            n_histograms,
            newest_ms,
        }
    }
}

/// Appends the samples of one request to a head.
struct HeadAppender<'a> {
    context: &'a AppendContext,
    log_batch: &'a mut LogBatch,
    rejected: &'a mut Vec<Rejection>,
    newest_ms: i64,
}

impl HeadAppender<'_> {
    #[inline]
    fn append(&mut self, head: &mut Head, float: &NewFloat, start_ms: i64) {
        let NewFloat {
            slot,
            index,
            position,
            sample,
            ..
        } = *float;
        match head.append(&self.context.bounds, self.context.append_id, float) {
            Ok(Appended::New(series, order)) => {
                self.newest_ms = self.newest_ms.max(sample.timestamp_ms);
                let start = StartTimestamp {
                    start_ms,
                    order: Some(order),
                };
                if set_start(head, slot, sample.timestamp_ms, start) {
                    self.log_batch.push_start(start);
                }
                self.log_batch.push(position, series, sample);
            }
            Ok(Appended::Repeated) => {}
            Err(reason) => self.rejected.push(Rejection { index, reason }),
        }
    }

    fn append_histogram(&mut self, head: &mut Head, new: &NewHistogram) {
        let NewHistogram {
            slot,
            index,
            timestamp_ms,
            start_ms,
            ref histogram,
            ..
        } = *new;
        match head.append_histogram(&self.context.bounds, self.context.append_id, new) {
            Ok(Appended::New(series, order)) => {
                self.newest_ms = self.newest_ms.max(timestamp_ms);
                let start = StartTimestamp {
                    start_ms,
                    order: Some(order),
                };
                if set_start(head, slot, timestamp_ms, start) {
                    self.log_batch.push_histogram_start(start);
                }
                let histogram = Arc::clone(histogram);
                self.log_batch.push_histogram(LoggedHistogram {
                    series,
                    timestamp_ms,
                    histogram,
                });
            }
            Ok(Appended::Repeated) => {}
            Err(reason) => self.rejected.push(Rejection { index, reason }),
        }
    }
}

/// Sets the start timestamp of a sample that was just appended. Returns `true` if it must be
/// logged.
#[inline]
fn set_start(head: &mut Head, slot: u32, timestamp_ms: i64, start: StartTimestamp) -> bool {
    // Fast path: no start timestamps.
    if start.start_ms == 0 && !head.has_starts() {
        return false;
    }
    start
        .order
        .is_some_and(|order| head.set_start(slot, timestamp_ms, start.start_ms, order))
}
