//! Samples of one write request on their way into the store.

use std::sync::Arc;

use crate::exemplars::{AppendExemplar, Exemplar, RejectedExemplar};
use crate::histogram::Histogram;
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
    /// How many they are. Places wrap beyond 2^32, which costs the log its order and nothing else.
    n_floats: u32,
    /// Likewise; in a request they come after its floats.
    pub(crate) histograms: Vec<Vec<AppendHistogram>>,
    /// By shard: which of its floats have a start timestamp, ascending.
    pub(crate) starts: Vec<Vec<(u32, i64)>>,
    pub(crate) rejected: Vec<Rejected>,
    /// In the order in which they were pushed.
    pub(crate) exemplars: Vec<AppendExemplar>,
    pub(crate) rejected_exemplars: Vec<RejectedExemplar>,
}

/// What a request has for one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardBatch<'a> {
    pub(crate) floats: &'a [Append],
    /// Which of `floats` have a start timestamp, ascending.
    pub(crate) starts: &'a [(u32, i64)],
    pub(crate) histograms: &'a [AppendHistogram],
}

impl<'a> ShardBatch<'a> {
    /// Returns what returns the start timestamp of each float, one after the other; 0 is unknown.
    pub(crate) fn starts(self) -> impl FnMut() -> i64 + 'a {
        let (mut starts, mut next_idx) = (self.starts.iter().peekable(), 0);
        move || {
            let start_ms = starts.next_if(|(idx, _)| *idx == next_idx).map_or(0, |&(_, start_ms)| start_ms);
            next_idx += 1;
            start_ms
        }
    }

    /// Tells whether a sample has a start timestamp.
    pub(crate) fn has_starts(self) -> bool {
        !self.starts.is_empty() || self.histograms.iter().any(|of| of.start_ms != 0)
    }
}

/// One sample of a known series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Append {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) tag: u32,
    /// How many samples, histograms aside, the request has before this one.
    pub(crate) place: u32,
    pub(crate) sample: Sample,
}

/// One histogram of a known series.
#[derive(Debug, Clone)]
pub(crate) struct AppendHistogram {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    pub(crate) tag: u32,
    pub(crate) timestamp_ms: i64,
    /// 0 is unknown.
    pub(crate) start_ms: i64,
    pub(crate) histogram: Arc<Histogram>,
}

impl AppendHistogram {
    /// Says that it was not stored.
    pub(crate) fn reject(&self, reason: RejectReason) -> Rejected {
        let sample = Sample { timestamp_ms: self.timestamp_ms, value: self.histogram.sum };
        let histogram = Some(Arc::clone(&self.histogram));
        Rejected { tag: self.tag, sample, start_ms: self.start_ms, histogram, reason }
    }
}

/// A sample that was not stored.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// What the caller gave to [`WriteBatch::push`] with the sample.
    pub tag: u32,
    /// The sample; of a histogram, the sum is its value.
    pub sample: Sample,
    /// Its start timestamp; 0 is unknown.
    pub start_ms: i64,
    /// The histogram, if it is one.
    pub histogram: Option<Arc<Histogram>>,
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
    /// It has more buckets, spans or bounds than [`HISTOGRAM_BUCKETS_MAX`](crate::HISTOGRAM_BUCKETS_MAX).
    #[error("histogram has too many buckets")]
    HistogramTooLarge,
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
        let place = self.n_floats;
        self.n_floats = place.wrapping_add(1);
        self.shards[shard].push(Append { slot: series.slot, generation: series.generation, tag, place, sample });
    }

    /// Adds a histogram. Within a request histograms come after floats, whatever the order in which they were added.
    pub fn push_histogram(&mut self, series: SeriesHandle, timestamp_ms: i64, histogram: Arc<Histogram>, tag: u32) {
        self.push_histogram_with_start(series, timestamp_ms, histogram, 0, tag);
    }

    /// Adds a histogram as [`WriteBatch::push_histogram`] does, with its start timestamp; 0 is unknown.
    pub fn push_histogram_with_start(
        &mut self,
        series: SeriesHandle,
        timestamp_ms: i64,
        histogram: Arc<Histogram>,
        start_ms: i64,
        tag: u32,
    ) {
        let shard = usize::from(series.shard);
        if shard >= self.histograms.len() {
            self.histograms.resize_with(shard + 1, Vec::new);
        }
        let SeriesHandle { slot, generation, .. } = series;
        self.histograms[shard].push(AppendHistogram { slot, generation, tag, timestamp_ms, start_ms, histogram });
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

    /// Returns what goes to a shard, or `None` if that is nothing.
    pub(crate) fn of_shard(&self, shard: usize) -> Option<ShardBatch<'_>> {
        let floats = self.shards.get(shard).map_or(&[][..], |floats| floats);
        let starts = self.starts.get(shard).map_or(&[][..], |starts| starts);
        let histograms = self.histograms.get(shard).map_or(&[][..], |histograms| histograms);
        (!floats.is_empty() || !histograms.is_empty()).then_some(ShardBatch { floats, starts, histograms })
    }

    /// Returns the memory that the histograms refer to.
    pub(crate) fn histograms_size(&self) -> usize {
        self.histograms.iter().flatten().map(|append| append.histogram.size()).sum()
    }

    /// Counts the samples that have a start timestamp.
    pub(crate) fn n_starts(&self) -> usize {
        let of_histograms = self.histograms.iter().flatten().filter(|of| of.start_ms != 0).count();
        self.starts.iter().map(Vec::len).sum::<usize>() + of_histograms
    }

    /// Counts the samples to append.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(Vec::len).sum::<usize>() + self.histograms.iter().map(Vec::len).sum::<usize>()
    }

    /// Counts the exemplars to append.
    #[must_use]
    pub fn n_exemplars(&self) -> usize {
        self.exemplars.len()
    }

    /// Tells whether there is nothing to append.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(Vec::is_empty) && self.histograms.iter().all(Vec::is_empty) && self.exemplars.is_empty()
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.shards.iter_mut().for_each(Vec::clear);
        self.n_floats = 0;
        self.histograms.iter_mut().for_each(Vec::clear);
        self.starts.iter_mut().for_each(Vec::clear);
        self.rejected.clear();
        self.exemplars.clear();
        self.rejected_exemplars.clear();
    }
}
