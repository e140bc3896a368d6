//! A log that several shards share, and the requests that append to it.
//!
//! Used by `shard` and `db` (appending, committing), `flush` (rotating) and `shard::exemplars`. A
//! request writes its new floats as one record to each log of its series, for any number of shards,
//! and histograms and start timestamps as further records; many samples become several. With a
//! record per shard, records would be smaller and compress worse, because a sample is encoded
//! relative to its neighbors. A log is written to the disk far faster than heads accept samples, so
//! a few logs serve any number of shards.
//!
//! The number of logs is a power of two, at most the number of shards. The lowest bits of the hash
//! of a series select both its shard and its log. So all series of a shard are in one log, selected
//! by the lowest bits of the shard's index.
//!
//! Invariants
//! 1. Requests with samples for one log are serialized: a request, or a part of one, is appended to
//!    all shards of the log, and to the log, before the next one starts. So the log has the samples
//!    in the order in which the heads appended them.
//! 2. The definition of a series is in the log before other threads see the series.
//!
//! Lock order: the batch, then a shard's head, then the refs, the checkpoint position and the locks
//! of [`Log`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use varve_model::Sample;

use crate::batch::SeriesRef;
use crate::wal::{
    CheckpointPosition, Log, LoggedHistogram, Position, SampleColumn, StartTimestamp,
    StartTimestamps,
};

/// Number of series refs that a log reserves at a time. Senders write series in the order in which
/// they were created, and consecutive refs take almost no space in a log.
const RESERVED_REFS: u64 = 1024;
/// A batch that had more samples than this is freed after the append.
const RETAINED_SAMPLES_MAX: usize = 1 << 16;

/// A log, and what the shards that share it need to append to it.
#[derive(Debug)]
pub(crate) struct SharedLog {
    log: Log,
    /// Locked from the first shard that a request changes until its record is in the log.
    batch: Mutex<LogBatch>,
    /// Reserved refs for new series.
    refs: Mutex<Range<u64>>,
    /// Position of the last rotation, at which the heads were frozen. `None` once a checkpoint has
    /// replaced the segments before the rotation.
    pub(super) checkpoint_position: Mutex<Option<CheckpointPosition>>,
}

/// The samples that a request, or a part of one, appends to the shards of a log.
#[derive(Debug, Default)]
pub(crate) struct LogBatch {
    floats: SampleColumn,
    /// Position of each float in the request.
    positions: Vec<u32>,
    histograms: Vec<LoggedHistogram>,
    histogram_start_timestamps: StartTimestamps,
    /// Memory for sorting floats.
    sorted: Sorted,
}

#[derive(Debug, Default)]
struct Sorted {
    /// By position in the request, counted from the first float: the index of the float plus one,
    /// or 0 if there is no float of the log.
    by_position: Vec<u32>,
    floats: SampleColumn,
    /// New index of each float.
    moved: Vec<u32>,
}

/// A request that appends to a log.
#[derive(Debug)]
pub(crate) struct LogAppend<'a> {
    log: &'a Log,
    batch: MutexGuard<'a, LogBatch>,
}

impl SharedLog {
    /// Shares a log among several shards.
    pub(crate) fn new(log: Log) -> Arc<Self> {
        Arc::new(Self {
            log,
            batch: Mutex::default(),
            refs: Mutex::default(),
            checkpoint_position: Mutex::default(),
        })
    }

    /// Returns the log.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// Begins to append the samples of a request. Other requests wait until the returned value is
    /// dropped.
    pub(crate) fn begin_append(&self) -> LogAppend<'_> {
        let mut batch = self.batch.lock();
        // After a panic, the batch may have samples that were not logged.
        batch.clear();
        LogAppend {
            log: &self.log,
            batch,
        }
    }

    /// Returns the next series ref, and locks the refs until the caller has used or dropped it.
    pub(crate) fn next_ref(&self, next_ref: &AtomicU64) -> NextRef<'_> {
        let mut refs = self.refs.lock();
        if refs.is_empty() {
            let start = next_ref.fetch_add(RESERVED_REFS, Ordering::Relaxed);
            *refs = start..start + RESERVED_REFS;
        }
        NextRef(refs)
    }
}

/// The ref of the next new series. No other series gets a ref until this value is dropped.
pub(crate) struct NextRef<'a>(MutexGuard<'a, Range<u64>>);

impl NextRef<'_> {
    /// Returns the ref.
    pub(crate) fn get(&self) -> SeriesRef {
        SeriesRef(self.0.start)
    }

    /// Marks the ref as used.
    pub(crate) fn take(mut self) {
        self.0.start += 1;
    }
}

impl LogAppend<'_> {
    /// Returns the samples appended so far.
    pub(crate) fn batch(&mut self) -> &mut LogBatch {
        &mut self.batch
    }

    /// Appends the samples to the buffer of the log. Returns the position that the caller must
    /// commit before it acknowledges the request. The position covers repeated samples whose first
    /// append is not committed yet.
    pub(crate) fn finish(mut self) -> Position {
        let batch = &mut *self.batch;
        batch.sort();
        let LogBatch {
            floats,
            histograms,
            histogram_start_timestamps,
            sorted,
            ..
        } = batch;
        if !floats.is_empty() {
            self.log.append_samples(floats);
        }
        if !histograms.is_empty() {
            self.log
                .append_histograms(histograms, histogram_start_timestamps);
        }
        let n_retained = floats
            .len()
            .max(histograms.len())
            .max(sorted.by_position.len());
        // The histograms refer to memory of the request.
        histograms.clear();
        if n_retained > RETAINED_SAMPLES_MAX {
            *batch = LogBatch::default();
        }
        self.log.end()
    }
}

impl LogBatch {
    /// Appends a float at a position of the request.
    #[inline]
    pub(crate) fn push(&mut self, position: u32, series: SeriesRef, sample: Sample) {
        self.floats.push(series, sample);
        self.positions.push(position);
    }

    /// Returns the number of floats.
    pub(crate) fn n_floats(&self) -> usize {
        self.floats.len()
    }

    /// Sets the start timestamp of the next float.
    pub(crate) fn push_start(&mut self, start: StartTimestamp) {
        self.floats.start_timestamps.push(self.floats.len(), start);
    }

    /// Appends a histogram.
    pub(crate) fn push_histogram(&mut self, histogram: LoggedHistogram) {
        self.histograms.push(histogram);
    }

    /// Returns the number of histograms.
    pub(crate) fn n_histograms(&self) -> usize {
        self.histograms.len()
    }

    /// Sets the start timestamp of the next histogram.
    pub(crate) fn push_histogram_start(&mut self, start: StartTimestamp) {
        self.histogram_start_timestamps
            .push(self.histograms.len(), start);
    }

    /// Marks the samples as buffered during a replay: samples without a start timestamp have none.
    pub(crate) fn mark_buffered(&mut self) {
        self.floats.start_timestamps.mark_buffered();
        self.histogram_start_timestamps.mark_buffered();
    }

    fn clear(&mut self) {
        self.floats.clear();
        self.positions.clear();
        self.histograms.clear();
        self.histogram_start_timestamps.clear();
    }

    /// Sorts the floats of several shards into the order of the request.
    fn sort(&mut self) {
        // Fast path: one shard keeps the order.
        if self.positions.is_sorted() {
            return;
        }
        let Sorted {
            by_position,
            floats,
            moved,
        } = &mut self.sorted;
        let first = self.positions.iter().copied().min().unwrap_or(0);
        let end = self
            .positions
            .iter()
            .copied()
            .max()
            .map_or(0, |last| (last - first) as usize + 1);
        by_position.clear();
        by_position.resize(end, 0);
        for (position, from) in self.positions.iter().zip(1..) {
            by_position[(position - first) as usize] = from;
        }
        floats.clear();
        moved.clear();
        moved.resize(self.positions.len(), 0);
        for from in by_position.iter().filter_map(|from| from.checked_sub(1)) {
            // A request has fewer than 2^32 samples.
            moved[from as usize] = floats.len() as u32;
            floats.push(
                self.floats.refs[from as usize],
                self.floats.samples[from as usize],
            );
        }
        floats
            .start_timestamps
            .take_permuted(&mut self.floats.start_timestamps, moved);
        std::mem::swap(&mut self.floats, floats);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_model::start_timestamps::Order;

    fn batch(positions: &[u32]) -> LogBatch {
        let mut batch = LogBatch::default();
        for &position in positions {
            if position % 3 == 0 {
                batch.push_start(StartTimestamp {
                    start_ms: position.into(),
                    order: Some(Order::Newest),
                });
            }
            batch.push(
                position,
                SeriesRef(position.into()),
                Sample {
                    timestamp_ms: position.into(),
                    value: 0.0,
                },
            );
        }
        batch
    }

    #[test]
    fn samples_of_several_shards_are_sorted_into_the_order_of_the_request() {
        for positions in [
            &[][..],
            &[4],
            &[0, 1, 2, 3],
            &[1, 4, 6, 0, 3, 9, 2, 5],
            &[9, 6, 3],
        ] {
            let mut batch = batch(positions);
            batch.sort();
            let mut sorted = positions.to_vec();
            sorted.sort_unstable();
            assert_eq!(
                batch.floats.refs,
                sorted
                    .iter()
                    .map(|&of| SeriesRef(of.into()))
                    .collect::<Vec<_>>()
            );
            assert!(
                batch
                    .floats
                    .samples
                    .is_sorted_by_key(|sample| sample.timestamp_ms)
            );
            let found = batch
                .floats
                .start_timestamps
                .iter()
                .map(|(at, start)| (sorted[at], start.start_ms));
            let expected = sorted
                .iter()
                .filter(|&&position| position % 3 == 0)
                .map(|&position| (position, i64::from(position)));
            assert_eq!(
                found.collect::<Vec<_>>(),
                expected.collect::<Vec<_>>(),
                "{positions:?}"
            );
        }
    }
}
