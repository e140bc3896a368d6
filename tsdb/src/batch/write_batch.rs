//! A batch of samples to append.

use std::sync::Arc;

use varve_model::histogram::Histogram;
use varve_model::{Exemplar, Rejection, Sample};

use super::exemplar::RejectedExemplar;
use crate::isolation::changes::TouchedMinutes;

/// A reference to a series in memory. Valid until the series is evicted. After that, appends with
/// this handle are rejected with [`RejectionReason::Moved`](varve_model::RejectionReason::Moved),
/// and [`Db::series`](crate::Db::series) returns a new handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesHandle {
    pub(crate) shard: u16,
    /// The group of the metric name, see
    /// [`name_group_of`](crate::isolation::changes::name_group_of).
    pub(crate) name_group: u8,
    pub(crate) generation: u32,
    pub(crate) slot: u32,
}

/// Samples to append, grouped by shard, and the samples that the last append rejected. Reuse it
/// with [`WriteBatch::clear`].
#[derive(Debug, Default)]
pub struct WriteBatch {
    /// Floats by shard. Samples of one shard keep the order in which they were pushed.
    pub(crate) floats: Vec<Vec<NewFloat>>,
    /// Number of floats, which is the position of the next one in the request. A request has fewer
    /// than 2^32 floats.
    n_floats: u32,
    /// Histograms by shard.
    pub(crate) histograms: Vec<Vec<NewHistogram>>,
    /// By shard: the indexes of floats with a start timestamp, ascending, with the start timestamp.
    pub(crate) starts: Vec<Vec<(u32, i64)>>,
    pub(crate) rejected: Vec<Rejection>,
    /// Exemplars in the order in which they were pushed.
    pub(crate) exemplars: Vec<AppendExemplar>,
    pub(crate) rejected_exemplars: Vec<RejectedExemplar>,
    /// Which minutes and metric names the samples belong to.
    pub(crate) touched: TouchedMinutes,
    pub(crate) source: SampleSource,
}

/// Who made the samples of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SampleSource {
    /// A sender, whose clock may be wrong.
    #[default]
    Sent,
    /// This process, at times up to the wall clock.
    Own,
}

/// The samples of a batch for one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardBatch<'a> {
    pub(crate) floats: &'a [NewFloat],
    /// The indexes of `floats` with a start timestamp, ascending, with the start timestamp.
    pub(crate) starts: &'a [(u32, i64)],
    pub(crate) histograms: &'a [NewHistogram],
    /// `true` if any sample of the batch, of any shard, has a start timestamp.
    pub(crate) has_starts: bool,
}

impl<'a> ShardBatch<'a> {
    /// Returns part number `idx`, of at most `n_floats_max` floats. A batch with histograms or
    /// start timestamps has one part.
    pub(crate) fn part(self, idx: usize, n_floats_max: usize) -> Option<Self> {
        if self.histograms.is_empty() && self.starts.is_empty() {
            return self
                .floats
                .chunks(n_floats_max)
                .nth(idx)
                .map(|floats| Self { floats, ..self });
        }
        (idx == 0).then_some(self)
    }

    /// Returns a function that returns the start timestamp of each float in turn, in milliseconds;
    /// 0 is unknown.
    pub(crate) fn starts(self) -> impl FnMut() -> i64 + 'a {
        let mut starts = self.starts.iter().peekable();
        let mut next_idx = 0;
        move || {
            let start_ms = starts
                .next_if(|(idx, _)| *idx == next_idx)
                .map_or(0, |&(_, start_ms)| start_ms);
            next_idx += 1;
            start_ms
        }
    }
}

/// The histograms of a shard that are still to be appended, by series, then time, then position in
/// the request.
///
/// If the batch has start timestamps, all histograms come after all floats, in the order of the
/// request: a log record has floats or histograms, and a replay must set the start timestamps of a
/// series in the order of the append.
#[derive(Debug)]
pub(crate) struct HistogramQueue<'a> {
    has_starts: bool,
    sorted: Vec<&'a NewHistogram>,
    /// At the index of the first histogram of a series: how many of its histograms were taken.
    n_taken: Vec<usize>,
}

impl<'a> HistogramQueue<'a> {
    pub(crate) fn new(batch: ShardBatch<'a>) -> Self {
        let mut sorted: Vec<_> = batch.histograms.iter().collect();
        if !batch.has_starts {
            sorted.sort_by_key(|histogram| (histogram.slot, histogram.timestamp_ms));
        }
        Self {
            has_starts: batch.has_starts,
            n_taken: vec![0; sorted.len()],
            sorted,
        }
    }

    /// Takes a histogram that precedes a float of the same series: an older one, or one at the same
    /// timestamp that is before the float in the request.
    #[inline]
    pub(crate) fn take_before(&mut self, float: &NewFloat) -> Option<&'a NewHistogram> {
        // Fast path: no histograms, or only those of other series.
        let lowest = self.sorted.first()?;
        let highest = self.sorted.last()?;
        if self.has_starts || float.slot < lowest.slot || float.slot > highest.slot {
            return None;
        }
        let first = self
            .sorted
            .partition_point(|histogram| histogram.slot < float.slot);
        let n_taken = self.n_taken.get_mut(first)?;
        let next = *self.sorted.get(first + *n_taken)?;
        let is_before =
            (next.timestamp_ms, next.position) <= (float.sample.timestamp_ms, float.position);
        if next.slot != float.slot || !is_before {
            return None;
        }
        *n_taken += 1;
        Some(next)
    }

    /// Returns `true` if a histogram precedes a float of the same series and timestamp, which is
    /// then a duplicate.
    pub(crate) fn replaces(&self, float: &NewFloat) -> bool {
        // Fast path: no histograms, or all of them come after all floats.
        if self.sorted.is_empty() || self.has_starts {
            return false;
        }
        let key = (float.slot, float.sample.timestamp_ms);
        let first = self
            .sorted
            .partition_point(|histogram| (histogram.slot, histogram.timestamp_ms) < key);
        let same = self.sorted[first..]
            .iter()
            .take_while(|histogram| (histogram.slot, histogram.timestamp_ms) == key);
        same.take_while(|histogram| histogram.position <= float.position)
            .any(|histogram| histogram.histogram.fits())
    }

    /// Takes all others.
    pub(crate) fn take_rest(self) -> impl Iterator<Item = &'a NewHistogram> {
        let Self {
            sorted, n_taken, ..
        } = self;
        let mut n_skipped = 0;
        sorted
            .into_iter()
            .zip(n_taken)
            .filter_map(move |(histogram, n_taken)| {
                n_skipped += n_taken;
                if n_skipped == 0 {
                    return Some(histogram);
                }
                n_skipped -= 1;
                None
            })
    }
}

/// A float to append to a known series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewFloat {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    /// The index for a rejection.
    pub(crate) index: u32,
    /// Position among the floats of the request.
    pub(crate) position: u32,
    pub(crate) sample: Sample,
}

/// An exemplar to append.
#[derive(Debug, Clone)]
pub(crate) struct AppendExemplar {
    pub(crate) series: SeriesHandle,
    pub(crate) tag: u32,
    pub(crate) exemplar: Exemplar,
}

/// A histogram to append to a known series.
#[derive(Debug, Clone)]
pub(crate) struct NewHistogram {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
    /// The index for a rejection.
    pub(crate) index: u32,
    /// Number of floats before it in the request.
    pub(crate) position: u32,
    pub(crate) timestamp_ms: i64,
    /// Start timestamp in milliseconds; 0 is unknown.
    pub(crate) start_ms: i64,
    pub(crate) histogram: Arc<Histogram>,
}

impl WriteBatch {
    /// Creates a batch of samples of this process. However new they are, they never make samples of
    /// other batches too old.
    #[must_use]
    pub fn own() -> Self {
        Self {
            source: SampleSource::Own,
            ..Self::default()
        }
    }

    /// Adds a sample. A rejection returns `index` in [`Rejection::index`].
    #[inline]
    pub fn push(&mut self, series: SeriesHandle, sample: Sample, index: u32) {
        let shard = usize::from(series.shard);
        let position = self.n_floats;
        self.n_floats = position.wrapping_add(1);
        self.touched.add(sample.timestamp_ms, series.name_group);
        at_shard(&mut self.floats, shard).push(NewFloat {
            slot: series.slot,
            generation: series.generation,
            index,
            position,
            sample,
        });
    }

    /// Adds a histogram. An append stores floats and histograms of a series in order of time,
    /// unless the batch has start timestamps: then histograms come last.
    pub fn push_histogram(
        &mut self,
        series: SeriesHandle,
        timestamp_ms: i64,
        histogram: Arc<Histogram>,
        index: u32,
    ) {
        self.push_histogram_with_start(series, timestamp_ms, histogram, 0, index);
    }

    /// Like [`WriteBatch::push_histogram`], with the start timestamp of the histogram in
    /// milliseconds; 0 is unknown.
    pub fn push_histogram_with_start(
        &mut self,
        series: SeriesHandle,
        timestamp_ms: i64,
        histogram: Arc<Histogram>,
        start_ms: i64,
        index: u32,
    ) {
        let shard = usize::from(series.shard);
        let SeriesHandle {
            slot, generation, ..
        } = series;
        let position = self.n_floats;
        self.touched.add(timestamp_ms, series.name_group);
        at_shard(&mut self.histograms, shard).push(NewHistogram {
            slot,
            generation,
            index,
            position,
            timestamp_ms,
            start_ms,
            histogram,
        });
    }

    /// Adds a sample with its start timestamp, the time since which its value has been counted, in
    /// milliseconds. 0 is unknown.
    #[inline]
    pub fn push_with_start(
        &mut self,
        series: SeriesHandle,
        sample: Sample,
        start_ms: i64,
        index: u32,
    ) {
        self.push(series, sample, index);
        if start_ms != 0 {
            let shard = usize::from(series.shard);
            at_shard(&mut self.starts, shard).push((self.floats[shard].len() as u32 - 1, start_ms));
        }
    }

    /// Adds an exemplar of a series. A rejection returns `tag` in [`RejectedExemplar::tag`].
    pub fn push_exemplar(&mut self, series: SeriesHandle, exemplar: Exemplar, tag: u32) {
        self.exemplars.push(AppendExemplar {
            series,
            tag,
            exemplar,
        });
    }

    /// Returns the exemplars that the last append did not store.
    #[must_use]
    pub fn rejected_exemplars(&self) -> &[RejectedExemplar] {
        &self.rejected_exemplars
    }

    /// Returns the samples that the last append did not store.
    #[must_use]
    pub fn rejected(&self) -> &[Rejection] {
        &self.rejected
    }

    /// Returns the samples for a shard, or `None` if there are none.
    pub(crate) fn shard_batch(&self, shard: usize) -> Option<ShardBatch<'_>> {
        let floats = self.floats.get(shard).map_or(&[][..], |floats| floats);
        let starts = self.starts.get(shard).map_or(&[][..], |starts| starts);
        let histograms = self
            .histograms
            .get(shard)
            .map_or(&[][..], |histograms| histograms);
        let has_starts = self.starts.iter().any(|starts| !starts.is_empty())
            || self
                .histograms
                .iter()
                .flatten()
                .any(|append| append.start_ms != 0);
        (!floats.is_empty() || !histograms.is_empty()).then_some(ShardBatch {
            floats,
            starts,
            histograms,
            has_starts,
        })
    }

    /// Returns the size of the histograms in bytes.
    pub(crate) fn histograms_size(&self) -> usize {
        self.histograms
            .iter()
            .flatten()
            .map(|append| append.histogram.size())
            .sum()
    }

    /// Returns the number of samples with a start timestamp.
    pub(crate) fn n_starts(&self) -> usize {
        let n_histograms = self
            .histograms
            .iter()
            .flatten()
            .filter(|append| append.start_ms != 0)
            .count();
        self.starts.iter().map(Vec::len).sum::<usize>() + n_histograms
    }

    /// Returns the number of samples to append.
    #[must_use]
    pub fn len(&self) -> usize {
        self.floats.iter().map(Vec::len).sum::<usize>()
            + self.histograms.iter().map(Vec::len).sum::<usize>()
    }

    /// Returns the number of exemplars to append.
    #[must_use]
    pub fn n_exemplars(&self) -> usize {
        self.exemplars.len()
    }

    /// Returns `true` if there is nothing to append.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.floats.iter().all(Vec::is_empty)
            && self.histograms.iter().all(Vec::is_empty)
            && self.exemplars.is_empty()
    }

    /// Clears the batch and keeps its memory.
    pub fn clear(&mut self) {
        for floats in &mut self.floats {
            floats.clear();
        }
        for histograms in &mut self.histograms {
            histograms.clear();
        }
        for starts in &mut self.starts {
            starts.clear();
        }
        self.n_floats = 0;
        self.touched.clear();
        self.rejected.clear();
        self.exemplars.clear();
        self.rejected_exemplars.clear();
    }
}

/// Returns the items of a shard. Creates the missing lists.
#[inline]
fn at_shard<T>(shards: &mut Vec<Vec<T>>, shard: usize) -> &mut Vec<T> {
    if shard >= shards.len() {
        shards.resize_with(shard + 1, Vec::new);
    }
    &mut shards[shard]
}
