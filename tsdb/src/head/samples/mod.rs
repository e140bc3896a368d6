//! Samples of all series between two freezes.
//!
//! Every series has a row for its open chunk. Data that few series have is stored in maps: full
//! chunks, out-of-order samples, and, until every reader sees them, the samples of recent appends
//! ([`AppendSpan`]).
//!
//! The in-order samples that one append adds to a series are consecutive in time, so a
//! [`AppendSpan`] identifies them by their time range, even after chunks are closed and frozen.

mod histograms;
mod open_chunks;
mod out_of_order;
pub(in crate::head) mod start_timestamps;

use std::sync::Arc;

use hashbrown::HashMap;
use varve_collections::SlabChains;
use varve_model::histogram::Histogram;
use varve_model::{Sample, TimeRange};

use crate::chunk::Chunk;
use crate::head::copy::HeadCopies;
use crate::isolation::{ReadView, before};
use histograms::Histograms;
use open_chunks::Rows;
use out_of_order::OutOfOrder;
use start_timestamps::StartTimestamps;

/// A float or histogram sample to append to a head.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AnySample<'a> {
    /// A float.
    Float(Sample),
    /// A histogram and its timestamp.
    Histogram(i64, &'a Arc<Histogram>),
}

impl AnySample<'_> {
    /// Returns the timestamp.
    #[inline]
    pub(crate) fn timestamp_ms(self) -> i64 {
        match self {
            Self::Float(sample) => sample.timestamp_ms,
            Self::Histogram(timestamp_ms, _) => timestamp_ms,
        }
    }
}

/// The time range of the in-order samples of a series that one append added.
#[derive(Debug, Clone, Copy)]
struct AppendSpan {
    append_id: u32,
    range: TimeRange,
}

/// The samples of a shard's series since a freeze.
#[derive(Debug, Default)]
pub(in crate::head) struct Samples {
    /// The open chunk of each slot.
    open: Rows,
    /// The bytes of all chunks, in chains.
    bytes: SlabChains,
    closed: HashMap<u32, Vec<Chunk>>,
    out_of_order: HashMap<u32, OutOfOrder>,
    /// Histograms by slot, both in order and out of order.
    histograms: HashMap<u32, Histograms>,
    pub(in crate::head) starts: StartTimestamps,
    /// Spans by slot, except the newest span of the open chunk, in order of time.
    spans: HashMap<u32, Vec<AppendSpan>>,
    /// Heap memory of the map values in bytes.
    sparse_size: usize,
    range: Option<TimeRange>,
    /// Id of the newest append.
    newest_append_id: u32,
}

impl Samples {
    /// Creates an empty set of samples. All future appends have this id or a later one.
    pub(in crate::head) fn new(append_id: u32) -> Self {
        Self {
            newest_append_id: append_id.wrapping_sub(1),
            ..Self::default()
        }
    }

    /// Returns the range from the oldest to the newest sample.
    pub(in crate::head) fn range(&self) -> Option<TimeRange> {
        self.range
    }

    /// Returns the id of the newest append that added a sample.
    pub(in crate::head) fn newest_append_id(&self) -> u32 {
        self.newest_append_id
    }

    /// Returns the size of the samples in bytes.
    pub(in crate::head) fn size(&self) -> usize {
        let maps = self.closed.allocation_size()
            + self.out_of_order.allocation_size()
            + self.spans.allocation_size();
        let other_maps = self.histograms.allocation_size() + self.starts.size();
        self.open.size() + self.bytes.size() + maps + other_maps + self.sparse_size
    }

    /// Returns the number of samples of a series.
    pub(in crate::head) fn n_samples(&self, slot: u32) -> usize {
        let closed = self
            .closed
            .get(&slot)
            .map_or(0, |chunks| chunks.iter().map(Chunk::len).sum());
        let out_of_order = self.out_of_order.get(&slot).map_or(0, OutOfOrder::len);
        self.open.get(slot).len()
            + closed
            + out_of_order
            + self.histograms.get(&slot).map_or(0, Histograms::len)
    }

    /// Returns a word of the row of a slot's open chunk, for
    /// [`prefetch`](varve_collections::prefetch).
    #[inline]
    pub(in crate::head) fn row_word(&self, slot: u32) -> u32 {
        self.open.get(slot).append_id
    }

    /// Returns the last byte written to a slot's open chunk, for
    /// [`prefetch`](varve_collections::prefetch).
    #[inline]
    pub(in crate::head) fn last_byte(&self, slot: u32) -> u8 {
        self.open.get(slot).last_byte(&self.bytes)
    }

    /// Appends a sample that is newer than all in-order samples of its series. `horizon`: every
    /// reader sees the appends before this id.
    #[inline]
    pub(in crate::head) fn append(
        &mut self,
        slot: u32,
        sample: Sample,
        append_id: u32,
        horizon: u32,
    ) {
        let mut chunk = self.open.get(slot);
        self.append_to(slot, &mut chunk, sample, append_id, horizon);
        self.open.set(slot, chunk);
        self.note(sample.timestamp_ms, append_id);
    }

    /// Appends samples of one append, in ascending order. All are newer than the in-order samples
    /// of the series.
    pub(in crate::head) fn append_run(
        &mut self,
        slot: u32,
        samples: &[Sample],
        append_id: u32,
        horizon: u32,
    ) {
        let mut chunk = self.open.get(slot);
        for &sample in samples {
            self.append_to(slot, &mut chunk, sample, append_id, horizon);
        }
        self.open.set(slot, chunk);
        for sample in samples.first().into_iter().chain(samples.last()) {
            self.note(sample.timestamp_ms, append_id);
        }
    }

    /// Appends to the open chunk of a series. Closes the chunk first if it is full.
    #[inline]
    fn append_to(
        &mut self,
        slot: u32,
        chunk: &mut Chunk,
        sample: Sample,
        append_id: u32,
        horizon: u32,
    ) {
        if !chunk.accepts(sample.timestamp_ms) {
            self.close(slot, std::mem::take(chunk), horizon);
        }
        if chunk.len() == 0 {
            (chunk.append_id, chunk.append_id_from_ms) = (append_id, 0);
            chunk.append(&mut self.bytes, sample);
        } else if chunk.append_id == append_id {
            chunk.append(&mut self.bytes, sample);
        } else {
            self.end_span(slot, chunk, horizon);
            chunk.append(&mut self.bytes, sample);
            chunk.append_id = append_id;
            chunk.append_id_from_ms = chunk.span_ms();
        }
    }

    /// Adds a histogram at a new timestamp. See [`Histograms::insert`].
    pub(in crate::head) fn insert_histogram(
        &mut self,
        slot: u32,
        timestamp_ms: i64,
        last_ms: i64,
        histogram: &Histogram,
        append_id: u32,
    ) {
        let histograms = self.histograms.entry(slot).or_default();
        self.sparse_size += histograms.insert(timestamp_ms, last_ms, histogram, append_id);
        self.note(timestamp_ms, append_id);
    }

    /// Adds an out-of-order sample at a new timestamp.
    pub(in crate::head) fn append_out_of_order(
        &mut self,
        slot: u32,
        sample: AnySample<'_>,
        append_id: u32,
        horizon: u32,
    ) {
        let sample = match sample {
            AnySample::Float(sample) => sample,
            AnySample::Histogram(timestamp_ms, histogram) => {
                return self.insert_histogram(slot, timestamp_ms, i64::MAX, histogram, append_id);
            }
        };
        let out_of_order = self.out_of_order.entry(slot).or_default();
        let size = out_of_order.size();
        out_of_order.insert(&mut self.bytes, sample, append_id, horizon);
        self.sparse_size = self.sparse_size + out_of_order.size() - size;
        self.note(sample.timestamp_ms, append_id);
    }

    #[inline]
    fn note(&mut self, timestamp_ms: i64, append_id: u32) {
        let time = TimeRange::at(timestamp_ms);
        let range = self.range.get_or_insert(time);
        *range = range.hull(time);
        if before(self.newest_append_id, append_id) {
            self.newest_append_id = append_id;
        }
    }

    /// Records the span of the newest append to a chunk, if a reader may not see it, before
    /// another append becomes the newest.
    #[inline]
    fn end_span(&mut self, slot: u32, chunk: &Chunk, horizon: u32) {
        // Fast path: every reader sees the samples.
        if before(chunk.append_id, horizon) && self.spans.is_empty() {
            return;
        }
        self.push_span(slot, chunk, horizon);
    }

    fn push_span(&mut self, slot: u32, chunk: &Chunk, horizon: u32) {
        let mut spans = self.spans.remove(&slot).unwrap_or_default();
        self.sparse_size -= spans.capacity() * size_of::<AppendSpan>();
        spans.retain(|span| !before(span.append_id, horizon));
        if let Some(span) = newest_span(chunk).filter(|span| !before(span.append_id, horizon)) {
            spans.push(span);
        }
        if !spans.is_empty() {
            self.sparse_size += spans.capacity() * size_of::<AppendSpan>();
            self.spans.insert(slot, spans);
        }
    }

    fn close(&mut self, slot: u32, chunk: Chunk, horizon: u32) {
        self.end_span(slot, &chunk, horizon);
        let closed = self.closed.entry(slot).or_default();
        self.sparse_size -= closed.capacity() * size_of::<Chunk>();
        closed.push(chunk);
        self.sparse_size += closed.capacity() * size_of::<Chunk>();
    }

    /// Compares a sample with the stored sample of the series at the same timestamp. Returns `true`
    /// if they are equal bit for bit, or `None` if the series has no sample at that timestamp.
    pub(in crate::head) fn has_same(&self, slot: u32, sample: AnySample<'_>) -> Option<bool> {
        let timestamp_ms = sample.timestamp_ms();
        if let Some(bits) = self.bits_at(slot, timestamp_ms) {
            return Some(
                matches!(sample, AnySample::Float(Sample { value, .. }) if value.to_bits() == bits),
            );
        }
        let stored = self.histograms.get(&slot)?.get(timestamp_ms)?;
        Some(matches!(sample, AnySample::Histogram(_, histogram) if histogram.is_same(&stored)))
    }

    /// Returns the bits of a series' float at a timestamp.
    fn bits_at(&self, slot: u32, timestamp_ms: i64) -> Option<u64> {
        let in_order = self
            .open
            .get(slot)
            .bits_at(&self.bytes, timestamp_ms)
            .or_else(|| {
                let closed = self.closed.get(&slot)?;
                let idx = closed.partition_point(|chunk| {
                    chunk
                        .range()
                        .is_none_or(|range| range.end_ms < timestamp_ms)
                });
                closed.get(idx)?.bits_at(&self.bytes, timestamp_ms)
            });
        in_order.or_else(|| {
            self.out_of_order
                .get(&slot)?
                .bits_at(&self.bytes, timestamp_ms)
        })
    }

    /// Returns the timestamp of the oldest in-order float of a series.
    pub(in crate::head) fn first_in_order_ms(&self, slot: u32) -> Option<i64> {
        let oldest_closed = self
            .closed
            .get(&slot)
            .and_then(|closed| closed.first())
            .and_then(Chunk::range);
        oldest_closed
            .or_else(|| self.open.get(slot).range())
            .map(|range| range.start_ms)
    }

    /// Returns `true` if a series has samples.
    pub(in crate::head) fn has(&self, slot: u32) -> bool {
        self.open.get(slot).len() > 0
            || self.out_of_order.contains_key(&slot)
            || self.histograms.contains_key(&slot)
    }

    /// Iterates over the slots of series that have samples, in ascending order.
    #[cfg(test)]
    pub(in crate::head) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        // A series without in-order floats may have a slot above all rows. Slots are less than
        // 2^31.
        let sparse = self.out_of_order.keys().chain(self.histograms.keys());
        let end = sparse
            .map(|&slot| slot + 1)
            .fold(self.open.end() as u32, u32::max);
        (0..end).filter(|&slot| self.has(slot))
    }

    /// Copies the samples that overlap `range` and are visible in `view` (every sample is visible
    /// if it is `None`): in-order chunks in order of time, then out-of-order samples, then
    /// histograms.
    pub(in crate::head) fn copy(
        &self,
        slot: u32,
        range: TimeRange,
        view: Option<&ReadView>,
        out: &mut HeadCopies,
    ) {
        let open = self.open.get(slot);
        let first_run = out.n_runs();
        out.hide_none();
        if let Some(view) = view {
            let spans = self
                .spans
                .get(&slot)
                .into_iter()
                .flatten()
                .copied()
                .chain(newest_span(&open));
            for span in spans.filter(|span| !view.sees(span.append_id)) {
                out.hide(span.range);
            }
        }
        for chunk in self.closed.get(&slot).into_iter().flatten() {
            out.push_chunk(&self.bytes, chunk, range);
        }
        out.push_chunk(&self.bytes, &open, range);
        if let Some(out_of_order) = self.out_of_order.get(&slot) {
            out_of_order.copy(&self.bytes, range, view, out);
        }
        if let Some(histograms) = self.histograms.get(&slot) {
            histograms.copy(range, view, out);
        }
        out.push_starts(first_run, self.starts.changes(slot, range));
    }

    /// Prefetches the chunks that [`Samples::copy`] will read. `tails` is scratch memory.
    pub(in crate::head) fn prefetch_chunks(
        &self,
        slots: impl Iterator<Item = u32>,
        range: TimeRange,
        tails: &mut Vec<u32>,
    ) {
        let mut n_slabs_max = 0;
        tails.clear();
        for slot in slots {
            let closed = self.closed.get(&slot).into_iter().flatten().copied();
            for chunk in closed.chain([self.open.get(slot)]) {
                if chunk
                    .range()
                    .is_some_and(|chunk_range| chunk_range.overlaps(range))
                {
                    let (last_slab, n_slabs) = chunk.slabs_from(range.start_ms);
                    n_slabs_max = n_slabs_max.max(n_slabs);
                    tails.extend((n_slabs > 0).then_some(last_slab));
                }
            }
        }
        self.bytes.prefetch(tails, n_slabs_max);
    }

    /// Replaces the ids of appends that every reader sees by an id that stays before all future
    /// ids, because ids wrap.
    pub(in crate::head) fn settle(&mut self, horizon: u32) {
        let settled = horizon.wrapping_sub(1);
        self.open.update(|chunk| {
            if before(chunk.append_id, horizon) {
                chunk.append_id = settled;
            }
        });
        for out_of_order in self.out_of_order.values_mut() {
            out_of_order.settle(horizon);
        }
        for histograms in self.histograms.values_mut() {
            histograms.settle(horizon);
        }
        for spans in self.spans.values_mut() {
            spans.retain(|span| !before(span.append_id, horizon));
        }
        if before(self.newest_append_id, horizon) {
            self.newest_append_id = settled;
        }
    }
}

/// Returns the samples of a chunk that the newest append added.
fn newest_span(chunk: &Chunk) -> Option<AppendSpan> {
    let TimeRange { start_ms, end_ms } = chunk.range()?;
    let start_ms = start_ms.wrapping_add(i64::from(chunk.append_id_from_ms));
    Some(AppendSpan {
        append_id: chunk.append_id,
        range: TimeRange { start_ms, end_ms },
    })
}
