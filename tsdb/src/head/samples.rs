//! Samples of all series between two freezes.
//!
//! Every series has a row for the chunk that grows. What few series have lies in maps: chunks that were closed because
//! they were full, late samples, and which requests gave which samples as long as some reader may not see them.
//!
//! A request's in-order samples of a series follow each other in time and no other in-order sample lies between, so a
//! [`Group`] names them by their range of time; that stays true when chunks are closed and frozen.

use std::sync::Arc;

use hashbrown::HashMap;

use super::copy::HeadCopies;
use super::histograms::Histograms;
use super::late::Late;
use super::rows::Rows;
use super::starts::Starts;
use super::visible::{Visible, before};
use crate::chunk::{Blocks, Chunk};
use crate::histogram::Histogram;
use crate::sample::{Sample, TimeRange};

/// A sample of either kind, on its way into a head.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AnySample<'a> {
    /// A float.
    Float(Sample),
    /// A histogram and its time.
    Histogram(i64, &'a Arc<Histogram>),
}

impl AnySample<'_> {
    /// Returns its time.
    #[inline]
    pub(crate) fn timestamp_ms(self) -> i64 {
        match self {
            Self::Float(sample) => sample.timestamp_ms,
            Self::Histogram(timestamp_ms, _) => timestamp_ms,
        }
    }
}

/// In-order samples of a series that came with one request.
#[derive(Debug, Clone, Copy)]
struct Group {
    request: u32,
    range: TimeRange,
}

/// The samples of a shard's series since a freeze.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// The chunk that grows, by slot.
    open: Rows,
    blocks: Blocks,
    closed: HashMap<u32, Vec<Chunk>>,
    late: HashMap<u32, Late>,
    /// In order or late.
    histograms: HashMap<u32, Histograms>,
    pub(super) starts: Starts,
    /// Groups before the newest of the open chunk, in order of time.
    groups: HashMap<u32, Vec<Group>>,
    /// Bytes that the values of the maps take on the heap.
    sparse_size: usize,
    range: Option<TimeRange>,
    /// The newest request.
    newest_request: u32,
}

impl Samples {
    /// Starts empty, before a request.
    pub(super) fn new(request: u32) -> Self {
        Self { newest_request: request.wrapping_sub(1), ..Self::default() }
    }

    /// Returns the range from the oldest to the newest sample.
    pub(super) fn range(&self) -> Option<TimeRange> {
        self.range
    }

    /// Returns the newest request that gave a sample.
    pub(super) fn newest_request(&self) -> u32 {
        self.newest_request
    }

    /// Returns the bytes that the samples take.
    pub(super) fn size(&self) -> usize {
        let maps = self.closed.allocation_size() + self.late.allocation_size() + self.groups.allocation_size();
        let beside = self.histograms.allocation_size() + self.starts.size();
        self.open.size() + self.blocks.size() + maps + beside + self.sparse_size
    }

    /// Reads the row of a slot's open chunk, and is done when it is near.
    #[inline]
    pub(super) fn touch(&self, slot: u32) -> u32 {
        self.open.get(slot).request
    }

    /// Reads the byte before the place that the next append writes to.
    #[inline]
    pub(super) fn touch_tail(&self, slot: u32) -> u8 {
        self.open.get(slot).touch(&self.blocks)
    }

    /// Appends a sample that is newer than all in-order ones of its series.
    #[inline]
    pub(super) fn append(&mut self, slot: u32, sample: Sample, request: u32, horizon: u32) {
        let mut chunk = self.open.get(slot);
        self.append_to(slot, &mut chunk, sample, request, horizon);
        self.open.set(slot, chunk);
        self.note(sample.timestamp_ms, request);
    }

    /// Appends samples of one request, each newer than the one before and the first as in [`Samples::append`].
    pub(super) fn append_run(&mut self, slot: u32, samples: &[Sample], request: u32, horizon: u32) {
        let mut chunk = self.open.get(slot);
        samples.iter().for_each(|&sample| self.append_to(slot, &mut chunk, sample, request, horizon));
        self.open.set(slot, chunk);
        samples.first().into_iter().chain(samples.last()).for_each(|sample| self.note(sample.timestamp_ms, request));
    }

    /// Appends to the open chunk of a series, which begins anew when it is full.
    #[inline]
    fn append_to(&mut self, slot: u32, chunk: &mut Chunk, sample: Sample, request: u32, horizon: u32) {
        if !chunk.takes(sample.timestamp_ms) {
            self.close(slot, std::mem::take(chunk), horizon);
        }
        if chunk.len() == 0 {
            (chunk.request, chunk.request_at_ms) = (request, 0);
            chunk.append(&mut self.blocks, sample);
        } else if chunk.request == request {
            chunk.append(&mut self.blocks, sample);
        } else {
            self.end_group(slot, chunk, horizon);
            chunk.append(&mut self.blocks, sample);
            chunk.request = request;
            chunk.request_at_ms = chunk.span_ms();
        }
    }

    /// Adds a histogram, whose time is not here.
    pub(super) fn insert_histogram(&mut self, slot: u32, timestamp_ms: i64, histogram: &Histogram, request: u32) {
        self.sparse_size += self.histograms.entry(slot).or_default().insert(timestamp_ms, histogram, request);
        self.note(timestamp_ms, request);
    }

    /// Adds a sample that is not newer than all of its series, and whose time is not here.
    pub(super) fn append_late(&mut self, slot: u32, sample: AnySample<'_>, request: u32, horizon: u32) {
        let sample = match sample {
            AnySample::Float(sample) => sample,
            AnySample::Histogram(timestamp_ms, histogram) => {
                return self.insert_histogram(slot, timestamp_ms, histogram, request);
            }
        };
        let late = self.late.entry(slot).or_default();
        let size = late.size();
        late.insert(&mut self.blocks, sample, request, horizon);
        self.sparse_size = self.sparse_size + late.size() - size;
        self.note(sample.timestamp_ms, request);
    }

    #[inline]
    fn note(&mut self, at: i64, request: u32) {
        let range = self.range.get_or_insert(TimeRange { start_ms: at, end_ms: at });
        *range = TimeRange { start_ms: range.start_ms.min(at), end_ms: range.end_ms.max(at) };
        if before(self.newest_request, request) {
            self.newest_request = request;
        }
    }

    /// Remembers which samples the newest request gave, if someone may not see them, before another one takes its place.
    #[inline]
    fn end_group(&mut self, slot: u32, chunk: &Chunk, horizon: u32) {
        // Fast path: nobody asks any more.
        if before(chunk.request, horizon) && self.groups.is_empty() {
            return;
        }
        self.push_group(slot, chunk, horizon);
    }

    fn push_group(&mut self, slot: u32, chunk: &Chunk, horizon: u32) {
        let mut groups = self.groups.remove(&slot).unwrap_or_default();
        self.sparse_size -= groups.capacity() * size_of::<Group>();
        groups.retain(|group| !before(group.request, horizon));
        if let Some(group) = newest_group(chunk).filter(|group| !before(group.request, horizon)) {
            groups.push(group);
        }
        if !groups.is_empty() {
            self.sparse_size += groups.capacity() * size_of::<Group>();
            self.groups.insert(slot, groups);
        }
    }

    fn close(&mut self, slot: u32, chunk: Chunk, horizon: u32) {
        self.end_group(slot, &chunk, horizon);
        let closed = self.closed.entry(slot).or_default();
        self.sparse_size -= closed.capacity() * size_of::<Chunk>();
        closed.push(chunk);
        self.sparse_size += closed.capacity() * size_of::<Chunk>();
    }

    /// Tells whether the sample that a series has at the time of this one is the same, bit for bit; `None` if it has none.
    pub(super) fn has_same(&self, slot: u32, sample: AnySample<'_>) -> Option<bool> {
        let timestamp_ms = sample.timestamp_ms();
        if let Some(bits) = self.bits_at(slot, timestamp_ms) {
            return Some(matches!(sample, AnySample::Float(Sample { value, .. }) if value.to_bits() == bits));
        }
        let there = self.histograms.get(&slot)?.get(timestamp_ms)?;
        Some(matches!(sample, AnySample::Histogram(_, histogram) if histogram.is_same(&there)))
    }

    /// Returns the bits of a series' float at a time, if there is one.
    fn bits_at(&self, slot: u32, timestamp_ms: i64) -> Option<u64> {
        let in_order = self.open.get(slot).bits_at(&self.blocks, timestamp_ms).or_else(|| {
            let closed = self.closed.get(&slot)?;
            let at = closed.partition_point(|chunk| chunk.range().is_none_or(|range| range.end_ms < timestamp_ms));
            closed.get(at)?.bits_at(&self.blocks, timestamp_ms)
        });
        in_order.or_else(|| self.late.get(&slot)?.bits_at(&self.blocks, timestamp_ms))
    }

    /// Returns the time of the oldest float of a series that came in order.
    pub(super) fn first_in_order_ms(&self, slot: u32) -> Option<i64> {
        let oldest_closed = self.closed.get(&slot).and_then(|closed| closed.first()).and_then(Chunk::range);
        oldest_closed.or_else(|| self.open.get(slot).range()).map(|range| range.start_ms)
    }

    /// Tells whether a series has samples.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.open.get(slot).len() > 0 || self.late.contains_key(&slot) || self.histograms.contains_key(&slot)
    }

    /// Iterates over the slots of series that have samples, in ascending order.
    #[cfg(test)]
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        // A series without floats in order may lie behind all rows. Slots are less than 2^31.
        let sparse = self.late.keys().chain(self.histograms.keys());
        let end = sparse.map(|&slot| slot + 1).fold(self.open.end() as u32, u32::max);
        (0..end).filter(|&slot| self.has(slot))
    }

    /// Copies what reaches into a range and is visible (everything to whom `visible` is `None`): in-order chunks in
    /// order of time, then late samples, then histograms.
    pub(super) fn copy(&self, slot: u32, range: TimeRange, visible: Option<&Visible>, out: &mut HeadCopies) {
        let open = self.open.get(slot);
        let first_run = out.n_runs();
        out.hide_none();
        if let Some(visible) = visible {
            let groups = self.groups.get(&slot).into_iter().flatten().copied().chain(newest_group(&open));
            groups.filter(|group| !visible.sees(group.request)).for_each(|group| out.hide(group.range));
        }
        for chunk in self.closed.get(&slot).into_iter().flatten() {
            out.push_chunk(&self.blocks, chunk, range);
        }
        out.push_chunk(&self.blocks, &open, range);
        if let Some(late) = self.late.get(&slot) {
            late.copy(&self.blocks, range, visible, out);
        }
        if let Some(histograms) = self.histograms.get(&slot) {
            histograms.copy(range, visible, out);
        }
        out.push_starts(first_run, self.starts.changes(slot, range));
    }

    /// Marks requests that every reader sees with one that stays before all to come: numbers wrap.
    pub(super) fn settle(&mut self, horizon: u32) {
        let settled = horizon.wrapping_sub(1);
        self.open.update(|chunk| {
            if before(chunk.request, horizon) {
                chunk.request = settled;
            }
        });
        self.late.values_mut().for_each(|late| late.settle(horizon));
        self.histograms.values_mut().for_each(|histograms| histograms.settle(horizon));
        self.groups.values_mut().for_each(|groups| groups.retain(|group| !before(group.request, horizon)));
        if before(self.newest_request, horizon) {
            self.newest_request = settled;
        }
    }
}

/// Returns the samples of a chunk that came with the newest request.
fn newest_group(chunk: &Chunk) -> Option<Group> {
    let TimeRange { start_ms, end_ms } = chunk.range()?;
    let start_ms = start_ms.wrapping_add(i64::from(chunk.request_at_ms));
    Some(Group { request: chunk.request, range: TimeRange { start_ms, end_ms } })
}
