//! A log and the requests that append to it.
//!
//! Used by `shard` and `db` (appending, committing), `flush` (cutting) and `shard::exemplars`. A request leaves one record
//! in each log of its series, however many shards there are: with one record per shard, records would be small and compress
//! worse, as a sample is encoded relative to its neighbours. A log is written to the disk far faster than heads accept
//! samples, so a few logs serve any number of shards.
//!
//! The number of logs is a power of two and at most that of the shards. The lowest bits of the hash of a series choose its
//! log, as they choose its shard: all series of a shard are in one log, chosen by the lowest bits of the shard's number.
//!
//! Invariants
//! 1. Requests with samples for one log are serialized: one goes through all shards of the log and into the log before the
//!    next. So the order of the log is that in which heads appended the samples.
//! 2. A definition is in the log before the series is visible to others.
//!
//! Lock order: the batch, then a shard's head, then the refs, the cut and the locks of the WAL.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::sample::Sample;
use crate::sample::SeriesRef;
use crate::wal::{Cut, LoggedHistogram, Position, SampleColumn, StartTimestamp, StartTimestamps, Wal};

/// Series refs that a log reserves at a time. Senders write series in the order in which they were created, and
/// consecutive refs take almost no space in a log.
const RESERVED_REFS: u64 = 1024;
/// A batch with more samples gives its memory back.
const RETAINED_SAMPLES_MAX: usize = 1 << 16;

/// A log that some of the shards share.
#[derive(Debug)]
pub(crate) struct ShardLog {
    wal: Wal,
    /// Locked from the first shard that a request changes until its record is in the log.
    batch: Mutex<LogBatch>,
    /// Refs for new series.
    refs: Mutex<Range<u64>>,
    /// Where the log was cut when its heads were frozen last, until a checkpoint replaces the segments before that.
    pub(super) cut: Mutex<Option<Cut>>,
}

/// The samples that a request appends to the shards of a log.
#[derive(Debug, Default)]
pub(crate) struct LogBatch {
    floats: SampleColumn,
    /// The positions of the floats in the request.
    positions: Vec<u32>,
    histograms: Vec<LoggedHistogram>,
    histogram_start_timestamps: StartTimestamps,
    /// Memory for sorting floats.
    sorted: Sorted,
}

#[derive(Debug, Default)]
struct Sorted {
    /// By position in the request, one more than the index among the floats.
    by_position: Vec<u32>,
    floats: SampleColumn,
    /// The new index of each float.
    moved: Vec<u32>,
}

/// A request that appends to a log.
#[derive(Debug)]
pub(crate) struct LogAppend<'a> {
    wal: &'a Wal,
    batch: MutexGuard<'a, LogBatch>,
}

impl ShardLog {
    /// Creates the log of some shards.
    pub(crate) fn new(wal: Wal) -> Arc<Self> {
        Arc::new(Self { wal, batch: Mutex::default(), refs: Mutex::default(), cut: Mutex::default() })
    }

    /// Returns the WAL.
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Begins to append a request's samples. Other requests wait until it ends.
    pub(crate) fn append(&self) -> LogAppend<'_> {
        let mut batch = self.batch.lock();
        // After a panic it may have samples that did not get to the log.
        batch.clear();
        LogAppend { wal: &self.wal, batch }
    }

    /// Returns the next series ref, locked until the caller knows whether it uses it.
    pub(crate) fn next_ref(&self, next_ref: &AtomicU64) -> NextRef<'_> {
        let mut refs = self.refs.lock();
        if refs.is_empty() {
            let start = next_ref.fetch_add(RESERVED_REFS, Ordering::Relaxed);
            *refs = start..start + RESERVED_REFS;
        }
        NextRef(refs)
    }
}

/// The ref of the next new series. No other series gets one until it is dropped.
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

    /// Appends the samples to the log, uncommitted. Returns the position to commit before the request is acknowledged. It
    /// covers samples that the request only repeated and whose first commit is still pending.
    pub(crate) fn finish(mut self) -> Position {
        let batch = &mut *self.batch;
        batch.sort();
        let LogBatch { floats, histograms, histogram_start_timestamps, .. } = batch;
        if !floats.is_empty() {
            self.wal.append_samples(floats);
        }
        if !histograms.is_empty() {
            self.wal.append_histograms(histograms, histogram_start_timestamps);
        }
        // They refer to memory of the request.
        histograms.clear();
        if floats.len() > RETAINED_SAMPLES_MAX {
            *batch = LogBatch::default();
        }
        self.wal.end()
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
        self.histogram_start_timestamps.push(self.histograms.len(), start);
    }

    /// Marks the samples as buffered during a replay: those without a start timestamp have none.
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
        let Sorted { by_position, floats, moved } = &mut self.sorted;
        let end = self.positions.iter().max().map_or(0, |&last| last as usize + 1);
        by_position.clear();
        by_position.resize(end, 0);
        for (&position, from) in self.positions.iter().zip(1..) {
            by_position[position as usize] = from;
        }
        floats.clear();
        moved.clear();
        moved.resize(self.positions.len(), 0);
        for from in by_position.iter().filter_map(|from| from.checked_sub(1)) {
            // A request has fewer than 2^32 samples.
            moved[from as usize] = floats.len() as u32;
            floats.push(self.floats.refs[from as usize], self.floats.samples[from as usize]);
        }
        floats.start_timestamps.take_permuted(&mut self.floats.start_timestamps, moved);
        std::mem::swap(&mut self.floats, floats);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::start_timestamps::Order;

    fn batch(positions: &[u32]) -> LogBatch {
        let mut batch = LogBatch::default();
        for &position in positions {
            if position % 3 == 0 {
                batch.push_start(StartTimestamp { start_ms: position.into(), order: Some(Order::Newest) });
            }
            batch.push(position, SeriesRef(position.into()), Sample { timestamp_ms: position.into(), value: 0.0 });
        }
        batch
    }

    #[test]
    fn samples_of_several_shards_are_sorted_into_the_order_of_the_request() {
        for positions in [&[][..], &[4], &[0, 1, 2, 3], &[1, 4, 6, 0, 3, 9, 2, 5], &[9, 6, 3]] {
            let mut batch = batch(positions);
            batch.sort();
            let mut sorted = positions.to_vec();
            sorted.sort_unstable();
            assert_eq!(batch.floats.refs, sorted.iter().map(|&of| SeriesRef(of.into())).collect::<Vec<_>>());
            assert!(batch.floats.samples.is_sorted_by_key(|sample| sample.timestamp_ms));
            let found = batch.floats.start_timestamps.iter().map(|(at, start)| (sorted[at], start.start_ms));
            let expected = sorted.iter().filter(|&&position| position % 3 == 0).map(|&place| (place, i64::from(place)));
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{positions:?}");
        }
    }
}
