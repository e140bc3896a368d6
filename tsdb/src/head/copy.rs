//! Copies of series for a reader: taken under the lock, decoded without it.
//!
//! If only the last few samples of a chunk are needed, they are decoded at once instead of copying
//! the chunk. That takes no more time and memory than the copy.

use std::ops::Range;
use std::sync::Arc;

use varve_collections::SlabChains;
use varve_context::{Charge, Limit};
use varve_model::{Sample, SampleColumns, TimeRange, start_timestamps};

use crate::chunk;
use crate::chunk::histogram::{Layout, decode_counts};
use crate::chunk::{Chunk, Newest, Tail};
use crate::error::{Damaged, Error, Result};

/// Encoded bytes of several series, in a few large buffers.
#[derive(Debug, Default)]
pub(crate) struct HeadCopies {
    /// If `true`, only the newest sample is needed of a chunk that has none after the range.
    only_newest: bool,
    bytes: Vec<u8>,
    /// Out-of-order samples, and the last samples of chunks.
    samples: Vec<Sample>,
    tail: Tail,
    histograms: Vec<HistogramCopy>,
    /// Bytes of the histogram layouts.
    layouts_size: usize,
    /// The copied runs by series, in order of acceptance.
    runs: Vec<SampleRun>,
    /// The end of the runs of each series in `runs`.
    ends: Vec<u32>,
    /// Time ranges whose samples are not visible.
    hidden: Vec<TimeRange>,
    /// The start of the hidden ranges of the next run in `hidden`.
    hidden_from: usize,
    /// The runs whose samples have start timestamps, ascending, and the ranges of their entries in
    /// `changes`.
    starts: Vec<(Range<usize>, Range<usize>)>,
    /// Timestamps, and the start timestamp of the samples from that timestamp on.
    changes: Vec<(i64, i64)>,
}

/// An encoded histogram.
#[derive(Debug)]
struct HistogramCopy {
    timestamp_ms: i64,
    layout: Arc<Layout>,
    counts: Range<usize>,
    /// The previous copied histogram is also its predecessor in the head.
    follows: bool,
}

/// Samples of a series in order of time. There are millions of runs, so they are small: 48 bytes.
#[derive(Debug)]
enum SampleRun {
    /// A chunk.
    Chunk {
        bytes_at: usize,
        n_bytes: u32,
        newest: Newest,
        hidden: Range<u32>,
    },
    /// A decoded sample, in the range of the copy and visible.
    Sample(Sample),
    /// Decoded samples, all in the range of the copy and visible.
    Samples(Range<usize>),
    /// Histograms.
    Histograms(Range<usize>),
}

const _: () = assert!(size_of::<SampleRun>() <= 48);

impl HeadCopies {
    /// Creates copies that need to hold only the newest sample of each series. They may hold
    /// others.
    pub(crate) fn of_newest() -> Self {
        Self {
            only_newest: true,
            ..Self::default()
        }
    }

    /// Clears the copies and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.samples.clear();
        self.histograms.clear();
        self.layouts_size = 0;
        self.runs.clear();
        self.ends.clear();
        self.hidden.clear();
        self.hidden_from = 0;
        self.starts.clear();
        self.changes.clear();
    }

    /// Reserves memory for `n` series, estimated from the first `n_done`, so that buffers do not
    /// grow by doubling. Does nothing if memory is scarce. The estimate is too high if later series
    /// have fewer samples.
    pub(crate) fn reserve_for(&mut self, n_done: usize, n: usize, charge: &mut Charge) {
        // Later series may be a little larger.
        let rest = |done: usize| done.saturating_mul(n - n_done) / n_done * 17 / 16;
        let rests = [
            self.bytes.len(),
            self.samples.len(),
            self.runs.len(),
            self.ends.len(),
        ]
        .map(rest);
        let sizes = [
            1,
            size_of::<Sample>(),
            size_of::<SampleRun>(),
            size_of::<u32>(),
        ];
        let size = rests
            .iter()
            .zip(sizes)
            .map(|(rest, size)| rest.saturating_mul(size))
            .sum();
        if !charge.grow_if_plenty(size) {
            return;
        }
        let before = self.size();
        let Self {
            bytes,
            samples,
            runs,
            ends,
            ..
        } = self;
        bytes.reserve_exact(rests[0]);
        samples.reserve_exact(rests[1]);
        runs.reserve_exact(rests[2]);
        ends.reserve_exact(rests[3]);
        charge.shrink(size.saturating_sub(self.size() - before));
    }

    /// Fails before the number of runs or hidden ranges exceeds 32 bits. The runs alone take 100 GB
    /// then.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub(crate) fn check_size(&self) -> Result<()> {
        let n_max = self.runs.len().max(self.hidden.len());
        let limit = u32::MAX;
        if n_max < limit as usize / 2 {
            return Ok(());
        }
        Err(Error::Limit {
            what: Limit::Other("runs of samples in the heads per query"),
            used: n_max as u64,
            limit: u64::from(limit),
        })
    }

    /// Returns the number of series, including those without samples.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns `true` if nothing was copied.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the size of the copies in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.capacity()
            + self.samples.capacity() * size_of::<Sample>()
            + self.histograms.capacity() * size_of::<HistogramCopy>()
            + self.layouts_size
            + self.runs.capacity() * size_of::<SampleRun>()
            + self.ends.capacity() * size_of::<u32>()
            + self.hidden.capacity() * size_of::<TimeRange>()
            + self.starts.capacity() * size_of::<(Range<usize>, Range<usize>)>()
            + self.changes.capacity() * size_of::<(i64, i64)>()
    }

    /// Returns `true` if data of the `idx`-th series was copied. The series may still have no
    /// visible sample in the range.
    pub(crate) fn has(&self, idx: usize) -> bool {
        idx < self.ends.len() && !self.runs_of(idx).is_empty()
    }

    /// Returns `true` if [`HeadCopies::newest_float`] returns the newest sample of every series.
    pub(crate) fn has_only_newest_floats(&self) -> bool {
        self.only_newest
            && self
                .runs
                .iter()
                .all(|run| matches!(run, SampleRun::Sample(_)))
    }

    /// Returns the newest copied sample of the `idx`-th series, if all its samples were decoded when
    /// they were copied, and only the newest one was needed.
    #[inline]
    pub(crate) fn newest_float(&self, idx: usize) -> Option<Sample> {
        if !self.only_newest || idx >= self.ends.len() {
            return None;
        }
        let mut newest: Option<Sample> = None;
        for run in &self.runs[self.runs_of(idx)] {
            let SampleRun::Sample(sample) = run else {
                return None;
            };
            // Of samples with the same timestamp, the first wins.
            if newest.is_none_or(|newest| newest.timestamp_ms < sample.timestamp_ms) {
                newest = Some(*sample);
            }
        }
        newest
    }

    /// Returns the first run of the `idx`-th series.
    #[inline]
    pub(crate) fn first_run(&self, idx: usize) -> usize {
        idx.checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize)
    }

    /// Loads memory that a read of the run touches first, for
    /// [`prefetch`](varve_collections::prefetch). The value has no meaning.
    #[inline]
    pub(crate) fn first_byte(&self, run: usize) -> u8 {
        let first_byte = match self.runs.get(run) {
            Some(SampleRun::Chunk { bytes_at, .. }) => self.bytes.get(*bytes_at).copied(),
            Some(SampleRun::Sample(sample)) => Some(sample.timestamp_ms as u8),
            Some(SampleRun::Samples(samples)) => self
                .samples
                .get(samples.start)
                .map(|sample| sample.timestamp_ms as u8),
            Some(SampleRun::Histograms(_)) | None => None,
        };
        first_byte.unwrap_or(0)
    }

    /// Returns an upper bound on the number of samples that [`HeadCopies::read`] returns for the
    /// `idx`-th series.
    #[cfg(test)]
    pub(crate) fn n_samples_max(&self, idx: usize) -> usize {
        let runs = self.runs[self.runs_of(idx)].iter();
        runs.map(|run| match run {
            SampleRun::Chunk { newest, .. } => usize::from(newest.n_samples),
            SampleRun::Sample(_) => 1,
            SampleRun::Samples(range) | SampleRun::Histograms(range) => range.len(),
        })
        .sum()
    }

    /// Appends the visible samples of the `idx`-th series in `range` to `out`, in order of time,
    /// each timestamp once. `range` may be a part of the range that was copied.
    ///
    /// # Errors
    /// [`Damaged`] if memory was overwritten.
    pub(crate) fn read(
        &self,
        idx: usize,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<(), Damaged> {
        let start = out.len();
        let mut in_order = true;
        for run_idx in self.runs_of(idx) {
            let from = out.len();
            self.read_run(&self.runs[run_idx], range, out)?;
            self.read_starts(run_idx, from, out);
            in_order &= from == start
                || from == out.len()
                || out.timestamps_ms[from - 1] < out.timestamps_ms[from];
        }
        // Fast path: no out-of-order or repeated samples.
        if !in_order {
            merge(start, out);
        }
        Ok(())
    }

    fn read_run(
        &self,
        run: &SampleRun,
        range: TimeRange,
        out: &mut SampleColumns,
    ) -> Result<(), Damaged> {
        let from = out.len();
        match run {
            SampleRun::Chunk {
                bytes_at,
                n_bytes,
                newest,
                hidden,
            } => {
                let bytes = &self.bytes[*bytes_at..*bytes_at + *n_bytes as usize];
                chunk::decode(
                    *newest,
                    range.start_ms,
                    bytes,
                    &mut out.timestamps_ms,
                    &mut out.values,
                )?;
                cut(from, range, out);
                for hidden in &self.hidden[hidden.start as usize..hidden.end as usize] {
                    drop_inside(from, *hidden, out);
                }
            }
            SampleRun::Sample(sample) if range.contains(sample.timestamp_ms) => out.push(*sample),
            SampleRun::Sample(_) => {}
            SampleRun::Samples(samples) => {
                for &sample in &self.samples[samples.clone()] {
                    out.push(sample);
                }
                cut(from, range, out);
            }
            SampleRun::Histograms(histograms) => {
                for copy in &self.histograms[histograms.clone()] {
                    if !range.contains(copy.timestamp_ms) {
                        continue;
                    }
                    let mut histogram =
                        decode_counts(&copy.layout, &mut &self.bytes[copy.counts.clone()])
                            .ok_or(Damaged)?;
                    if !copy.follows {
                        histogram.reset_hint = histogram.reset_hint.after_another();
                    }
                    out.push_histogram(copy.timestamp_ms, Arc::new(histogram));
                }
            }
        }
        Ok(())
    }

    /// Sets the start timestamps of the samples from the `from`-th on, which belong to one run.
    fn read_starts(&self, run_idx: usize, from: usize, out: &mut SampleColumns) {
        // Fast path: no series has start timestamps.
        if self.starts.is_empty() && out.starts_ms.is_empty() || from == out.len() {
            return;
        }
        let idx = self.starts.partition_point(|(runs, _)| runs.end <= run_idx);
        let mut starts_ms = Vec::new();
        if let Some((runs, changes)) = self.starts.get(idx)
            && runs.contains(&run_idx)
        {
            for &(since_ms, start_ms) in &self.changes[changes.clone()] {
                let position = out.timestamps_ms[from..].partition_point(|&t| t < since_ms);
                if from + position < out.len() {
                    start_timestamps::push(&mut starts_ms, position, start_ms);
                }
            }
        }
        out.set_starts(from, &starts_ms);
    }

    pub(super) fn has_sample(&self, idx: usize, range: TimeRange) -> bool {
        for run in &self.runs[self.runs_of(idx)] {
            // Fast path: the newest sample of a chunk is in the range and visible.
            let has_sample = match run {
                SampleRun::Chunk { newest, hidden, .. } => {
                    hidden.is_empty() && range.contains(newest.timestamp_ms)
                }
                SampleRun::Sample(_) | SampleRun::Samples(_) | SampleRun::Histograms(_) => true,
            };
            if has_sample {
                return true;
            }
        }
        let mut out = SampleColumns::default();
        self.read(idx, range, &mut out).is_ok() && !out.is_empty()
    }

    fn runs_of(&self, idx: usize) -> Range<usize> {
        self.first_run(idx)..self.ends[idx] as usize
    }

    /// Starts a new list of hidden ranges for the runs that follow.
    pub(super) fn hide_none(&mut self) {
        self.hidden_from = self.hidden.len();
    }

    /// Hides the samples in `range` from the runs that follow.
    pub(super) fn hide(&mut self, range: TimeRange) {
        self.hidden.push(range);
    }

    /// Copies a chunk if it overlaps `range` and is not entirely hidden.
    pub(super) fn push_chunk(&mut self, slabs: &SlabChains, chunk: &Chunk, range: TimeRange) {
        let Some(chunk_range) = chunk.range() else {
            return;
        };
        if !chunk_range.overlaps(range) {
            return;
        }
        let hidden_idxs = self.hidden_from..self.hidden.len();
        for hidden_range in &self.hidden[hidden_idxs.clone()] {
            if hidden_range.covers(chunk_range) {
                return;
            }
        }
        let Some(newest) = chunk.newest() else { return };
        let is_decoded = if self.only_newest {
            self.push_newest(slabs, chunk, range, hidden_idxs.clone())
        } else {
            hidden_idxs.is_empty() && self.push_tail(slabs, chunk, range)
        };
        if is_decoded {
            return;
        }
        let bytes_at = self.bytes.len();
        // Fits 32 bits: a chunk has at most 255 samples.
        let n_bytes = chunk.copy_to(slabs, &mut self.bytes) as u32;
        self.runs.push(SampleRun::Chunk {
            bytes_at,
            n_bytes,
            newest,
            hidden: small(hidden_idxs.start)..small(hidden_idxs.end),
        });
    }

    /// Keeps the newest sample of a chunk in `range` that is not hidden. Returns `false` if the chunk
    /// is damaged: it is copied, so that its reader reports the damage.
    fn push_newest(
        &mut self,
        slabs: &SlabChains,
        chunk: &Chunk,
        range: TimeRange,
        hidden: Range<usize>,
    ) -> bool {
        // Fast path: the newest sample of the chunk.
        if hidden.is_empty()
            && let Some(last) = chunk.last()
            && last.timestamp_ms <= range.end_ms
        {
            self.runs.push(SampleRun::Sample(last));
            return true;
        }
        let mut tail = std::mem::take(&mut self.tail);
        let mut is_sound = true;
        // It is usually among the last two samples of the range.
        let last_two_ms = range.end_ms.saturating_sub(2 * chunk.delta_ms());
        for from_ms in [last_two_ms.max(range.start_ms), range.start_ms] {
            is_sound = chunk.read_tail(slabs, from_ms, &mut tail).is_ok();
            let hidden = &self.hidden[hidden.clone()];
            let visible = tail.samples().filter(|sample| {
                sample.timestamp_ms <= range.end_ms
                    && !hidden
                        .iter()
                        .any(|hidden| hidden.contains(sample.timestamp_ms))
            });
            let newest = if is_sound { visible.last() } else { None };
            if let Some(newest) = newest {
                self.runs.push(SampleRun::Sample(newest));
            }
            if newest.is_some() || !is_sound {
                break;
            }
        }
        self.tail = tail;
        is_sound
    }

    /// Decodes the last samples of a chunk, none of which is hidden, if only few of its samples are
    /// requested. Returns `false` if there are more, or if the chunk is damaged: it is copied, so
    /// that its reader reports the damage.
    fn push_tail(&mut self, slabs: &SlabChains, chunk: &Chunk, range: TimeRange) -> bool {
        let is_read = chunk.has_short_tail(range.start_ms)
            && chunk
                .read_tail(slabs, range.start_ms, &mut self.tail)
                .is_ok();
        if is_read {
            let from = self.samples.len();
            self.samples.extend(
                self.tail
                    .samples()
                    .take_while(|sample| sample.timestamp_ms <= range.end_ms),
            );
            self.end_samples(from);
        }
        is_read
    }

    /// Copies out-of-order samples, which ascend in time.
    pub(super) fn push_samples(&mut self, samples: impl Iterator<Item = Sample>) {
        let from = self.samples.len();
        self.samples.extend(samples);
        self.end_samples(from);
    }

    /// Ends a run of samples, all in the range and visible.
    fn end_samples(&mut self, from: usize) {
        if self.only_newest
            && let Some(&newest) = self.samples[from..].last()
        {
            self.samples.truncate(from);
            self.runs.push(SampleRun::Sample(newest));
            return;
        }
        match self.samples[from..] {
            [] => {}
            [sample] => {
                self.samples.truncate(from);
                self.runs.push(SampleRun::Sample(sample));
            }
            _ => self.runs.push(SampleRun::Samples(from..self.samples.len())),
        }
    }

    /// Begins to copy histograms. Returns the argument of [`HeadCopies::end_histograms`].
    pub(super) fn begin_histograms(&self) -> usize {
        self.histograms.len()
    }

    /// Copies a histogram, which is newer than all histograms copied since
    /// [`HeadCopies::begin_histograms`]. `follows` is `true` if its predecessor was copied.
    pub(super) fn push_histogram(
        &mut self,
        timestamp_ms: i64,
        layout: &Arc<Layout>,
        counts: &[u8],
        follows: bool,
    ) {
        if self
            .histograms
            .last()
            .is_none_or(|last| !Arc::ptr_eq(&last.layout, layout))
        {
            self.layouts_size += layout.size();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(counts);
        let counts = start..self.bytes.len();
        self.histograms.push(HistogramCopy {
            timestamp_ms,
            layout: Arc::clone(layout),
            counts,
            follows,
        });
    }

    /// Ends a run of histograms.
    pub(super) fn end_histograms(&mut self, begin: usize) {
        if self.histograms.len() > begin {
            self.runs
                .push(SampleRun::Histograms(begin..self.histograms.len()));
        }
    }

    /// Returns the number of runs.
    pub(super) fn n_runs(&self) -> usize {
        self.runs.len()
    }

    /// Sets the start timestamps of the runs from the `first_run`-th on. `changes` are timestamps,
    /// and the start timestamps that apply from there on.
    pub(super) fn push_starts(&mut self, first_run: usize, changes: &[(i64, i64)]) {
        if !changes.is_empty() && first_run < self.runs.len() {
            let from = self.changes.len();
            self.changes.extend_from_slice(changes);
            self.starts
                .push((first_run..self.runs.len(), from..self.changes.len()));
        }
    }

    /// Removes the last series, which must have no runs.
    pub(super) fn pop_series(&mut self) {
        self.ends.pop();
    }

    /// Ends the runs of a series.
    pub(super) fn end_series(&mut self) {
        self.ends.push(small(self.runs.len()));
    }
}

/// Converts the length of a list, which [`HeadCopies::check_size`] keeps below 2^32.
fn small(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Removes the samples from the `from`-th on that lie outside `range`. These samples ascend in
/// time.
fn cut(from: usize, range: TimeRange, out: &mut SampleColumns) {
    let end = from + out.timestamps_ms[from..].partition_point(|&t| t <= range.end_ms);
    out.timestamps_ms.truncate(end);
    out.values.truncate(end);
    let start = from + out.timestamps_ms[from..].partition_point(|&t| t < range.start_ms);
    // Fast path: nothing lies before the range.
    if start > from {
        out.timestamps_ms.drain(from..start);
        out.values.drain(from..start);
    }
}

/// Removes the samples from the `from`-th on that lie inside `range`. These samples ascend in time.
fn drop_inside(from: usize, range: TimeRange, out: &mut SampleColumns) {
    let start = from + out.timestamps_ms[from..].partition_point(|&t| t < range.start_ms);
    let end = from + out.timestamps_ms[from..].partition_point(|&t| t <= range.end_ms);
    if start < end {
        out.timestamps_ms.drain(start..end);
        out.values.drain(start..end);
    }
}

/// Sorts the samples from the `start`-th on by time. Of samples with the same timestamp, the first
/// wins.
fn merge(start: usize, out: &mut SampleColumns) {
    let samples = out.split_off(start);
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by_key(|&idx| samples.timestamps_ms[idx]);
    order.dedup_by_key(|idx| samples.timestamps_ms[*idx]);
    let mut before = None;
    for idx in order {
        // A histogram keeps its hint only if it follows the same predecessor as in its run.
        let next = if before.map_or(0, |before| before + 1) == idx {
            out.len()
        } else {
            usize::MAX
        };
        out.push_from(&samples, idx, next);
        before = Some(idx);
    }
}
