//! Samples of one write request on their way into the store.

use crate::exemplars::{AppendExemplar, Exemplar, RejectedExemplar};
use crate::sample::Sample;

/// Where a series lives in memory. Valid until the series leaves the head; then appends through it are rejected
/// with [`RejectReason::Moved`] and [`Db::series`](crate::Db::series) gives the new place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesHandle {
    pub(crate) shard: u16,
    pub(crate) generation: u32,
    pub(crate) slot: u32,
}

/// Samples to append, sorted by shard, and afterwards those that were rejected. Reused through [`WriteBatch::clear`].
#[derive(Debug, Default)]
pub struct WriteBatch {
    /// By shard; samples of one shard keep the order in which they were pushed.
    pub(crate) shards: Vec<Vec<Append>>,
    /// By shard: which of its samples have a start timestamp, ascending.
    pub(crate) starts: Vec<Vec<(u32, i64)>>,
    pub(crate) rejected: Vec<Rejected>,
    /// In the order in which they were pushed.
    pub(crate) exemplars: Vec<AppendExemplar>,
    pub(crate) rejected_exemplars: Vec<RejectedExemplar>,
}

/// One sample of a known series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Append {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) tag: u32,
    pub(crate) sample: Sample,
}

/// A sample that was not stored.
#[derive(Debug, Clone, Copy)]
pub struct Rejected {
    /// What the caller gave to [`WriteBatch::push`] with the sample.
    pub tag: u32,
    /// The sample.
    pub sample: Sample,
    /// Why it was not stored.
    pub reason: RejectReason,
}

/// Why a sample was not stored. The words are Prometheus' (`storage/interface.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum RejectReason {
    /// Older than the newest sample of its series, where late samples are off.
    #[error("out of order sample")]
    OutOfOrder,
    /// As old as a sample that its series has, with another value.
    #[error("duplicate sample for timestamp")]
    Duplicate,
    /// Too far behind the newest time of the store, where late samples are off.
    #[error("out of bounds")]
    OutOfBounds,
    /// Older than the window for late samples, or where it is new in its series, than in-order samples may be.
    #[error("too old sample")]
    TooOld,
    /// Too far ahead of the clock.
    #[error("out of bounds: timestamp is too far in the future")]
    TooFarInFuture,
    /// The series has left the place that the handle names; resolve it again.
    #[error("series has moved")]
    Moved,
}

impl WriteBatch {
    /// Adds a sample; `tag` comes back in [`Rejected::tag`].
    #[inline]
    pub fn push(&mut self, series: SeriesHandle, sample: Sample, tag: u32) {
        let shard = usize::from(series.shard);
        if shard >= self.shards.len() {
            self.shards.resize_with(shard + 1, Vec::new);
        }
        self.shards[shard].push(Append { slot: series.slot, generation: series.generation, tag, sample });
    }

    /// Adds a sample with its start timestamp, since when what it counts has been counted; 0 is unknown.
    pub fn push_with_start(&mut self, series: SeriesHandle, sample: Sample, start_ms: i64, tag: u32) {
        self.push(series, sample, tag);
        if start_ms != 0 {
            let shard = usize::from(series.shard);
            if shard >= self.starts.len() {
                self.starts.resize_with(shard + 1, Vec::new);
            }
            self.starts[shard].push((self.shards[shard].len() as u32 - 1, start_ms));
        }
    }

    /// Adds an exemplar of a series; `tag` comes back in [`RejectedExemplar::tag`].
    pub fn push_exemplar(&mut self, series: SeriesHandle, exemplar: Exemplar, tag: u32) {
        self.exemplars.push(AppendExemplar { series, tag, exemplar });
    }

    /// Returns the exemplars that the last append did not store.
    #[must_use]
    pub fn rejected_exemplars(&self) -> &[RejectedExemplar] {
        &self.rejected_exemplars
    }

    /// Returns the samples that the last append did not store.
    #[must_use]
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// Counts the samples to append.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(Vec::len).sum()
    }

    /// Counts the exemplars to append.
    #[must_use]
    pub fn n_exemplars(&self) -> usize {
        self.exemplars.len()
    }

    /// Tells whether there is nothing to append.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(Vec::is_empty) && self.exemplars.is_empty()
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.shards.iter_mut().for_each(Vec::clear);
        self.starts.iter_mut().for_each(Vec::clear);
        self.rejected.clear();
        self.exemplars.clear();
        self.rejected_exemplars.clear();
    }
}
