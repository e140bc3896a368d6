//! The type [`Shard`]: how samples reach the chunks of their series.

use std::ops::Range;

use hashbrown::HashMap;
use varve_collections::{Column, prefetch};
use varve_model::{Sample, TimeRange};
use varve_tsdb::Result;

use super::chunk_log::{ChunkBytes, ChunkLog, SeriesChunk, series_chunk};
use super::sample::{EXTRA, Extra, FullSample, RoutedSample, ShardBatch, Value};
use super::series_state::SeriesState;
use super::spill::SpillFile;
use crate::chunk::{Chunk, Encoder, Encoding, OpenChunks, StartTimestamps};
use crate::head_chunks::HeadChunk;
use crate::recover::input::HeadChunkList;
use crate::recover::windows::{Windows, range_of, window_of};

/// A share of the series.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) states: Column<SeriesState>,
    pub(super) open: OpenChunks,
    pub(super) finished: ChunkLog,
    /// Open chunks of histograms and of samples with start timestamps, by slot.
    pub(super) encoders: HashMap<u32, Box<Encoder>>,
    pub(super) out_of_order: HashMap<u32, Vec<FullSample>>,
    pub(super) out_of_order_size: usize,
    /// By slot, the head chunks that have not been reached yet. Empty if there are no head chunks.
    pub(super) head: Vec<Range<u32>>,
    pub(super) start_timestamps: StartTimestamps,
    pub(crate) windows: Windows,
    /// Timestamp of the newest out-of-order sample.
    pub(super) newest_out_of_order_ms: i64,
    /// In-order samples of the WAL that were appended.
    pub(crate) n_appended: u64,
    /// Samples of the WBL.
    pub(crate) n_out_of_order: u64,
    /// Samples of the WAL that are not newer than the last one: those that head chunks have, and
    /// those that are out of order.
    pub(crate) n_not_newer: u64,
    /// Samples of the WAL that are not newer than an earlier one of the WAL. The series may lack
    /// them, so they are added like those of the WBL.
    pub(crate) n_out_of_order_in_wal: u64,
    /// Samples of the WAL that blocks have.
    pub(crate) n_covered: u64,
    /// Out-of-order samples with the timestamp of another one.
    pub(crate) n_repeated_out_of_order: u64,
    /// Samples that [`Shard::delete_out_of_order`] dropped.
    pub(crate) n_deleted: u64,
    /// Samples that [`Shard::evict`] dropped.
    pub(crate) n_evicted: u64,
}

/// Number of samples whose series are loaded into the CPU cache together.
const PREFETCH_LEN: usize = 64;
/// Estimated size of an entry of [`Shard::encoders`].
const ENCODER_SIZE: usize = 2048;
/// Size of a series without its chunks.
pub(crate) const SERIES_SIZE: usize = size_of::<SeriesState>() + size_of::<Range<u32>>();

impl Shard {
    pub(crate) fn new(file: SpillFile, start_timestamps: StartTimestamps) -> Self {
        Self {
            states: Column::default(),
            open: OpenChunks::default(),
            finished: ChunkLog::new(file),
            encoders: HashMap::new(),
            out_of_order: HashMap::new(),
            out_of_order_size: 0,
            head: Vec::new(),
            start_timestamps,
            windows: Windows::default(),
            newest_out_of_order_ms: i64::MIN,
            n_appended: 0,
            n_out_of_order: 0,
            n_not_newer: 0,
            n_out_of_order_in_wal: 0,
            n_covered: 0,
            n_repeated_out_of_order: 0,
            n_deleted: 0,
            n_evicted: 0,
        }
    }

    /// Extends the shard to `n_series` series.
    pub(crate) fn grow(&mut self, n_series: usize) {
        while self.states.len() < n_series {
            self.states.push(SeriesState::NEW);
        }
    }

    /// Returns the number of bytes that [`Shard::spill`] would free.
    pub(crate) fn memory(&self) -> usize {
        self.open.size()
            + self.finished.memory()
            + self.encoders.len() * ENCODER_SIZE
            + self.out_of_order_size
    }

    /// Returns the number of spilled bytes.
    pub(crate) fn spilled_size(&self) -> u64 {
        self.finished.spilled_size()
    }

    /// Returns the timestamp of the newest sample.
    pub(crate) fn newest_ms(&self) -> i64 {
        self.states
            .iter()
            .map(|state| state.open.last_ms())
            .max()
            .unwrap_or(i64::MIN)
            .max(self.newest_out_of_order_ms)
    }

    /// Applies samples to their series.
    pub(crate) fn apply(&mut self, share: &ShardBatch<'_>, head: HeadChunkList<'_>) {
        for items in share.items.chunks(PREFETCH_LEN) {
            prefetch(
                items
                    .iter()
                    .map(|item| self.states[item.slot as usize].open.last_ms()),
            );
            self.apply_some(items, share, head);
        }
    }

    fn apply_some(
        &mut self,
        items: &[RoutedSample],
        share: &ShardBatch<'_>,
        head: HeadChunkList<'_>,
    ) {
        // Consecutive samples mostly have the same window: compute it when it changes.
        let mut window = TimeRange {
            start_ms: i64::MAX,
            end_ms: i64::MIN,
        };
        for item in items {
            let timestamp_ms = share.base_ms.wrapping_add(i64::from(item.offset_ms));
            if !(window.start_ms..=window.end_ms).contains(&timestamp_ms) {
                window = range_of(window_of(timestamp_ms));
            }
            let state = &mut self.states[item.slot as usize];
            let last_ms = state.open.last_ms();
            let is_simple =
                item.offset_ms != EXTRA && !(share.is_out_of_order || state.has_head_chunks);
            // Fast path: a float for an open chunk of its window. A chunk with samples has no head
            // chunks before it.
            if is_simple
                && state.open.can_append()
                && timestamp_ms > last_ms
                && last_ms >= window.start_ms
            {
                let sample = Sample {
                    timestamp_ms,
                    value: f64::from_bits(item.bits),
                };
                state.open.push(&mut self.open, sample);
                self.n_appended += 1;
                continue;
            }
            // Fast path: a float that head chunks have already.
            if is_simple
                && timestamp_ms >= head.min_valid_ms
                && timestamp_ms <= last_ms
                && timestamp_ms > state.newest_in_wal_ms()
            {
                state.wal_ms = timestamp_ms;
                self.n_not_newer += 1;
                continue;
            }
            self.apply_slowly(item, share, head);
        }
    }

    fn apply_slowly(
        &mut self,
        item: &RoutedSample,
        share: &ShardBatch<'_>,
        head: HeadChunkList<'_>,
    ) {
        let &RoutedSample {
            bits,
            slot,
            offset_ms,
        } = item;
        let sample = match offset_ms {
            EXTRA => match &share.extras[bits as usize] {
                Extra::Evict => return self.evict(slot, head),
                Extra::Delete(range) => return self.delete_out_of_order(slot, *range),
                Extra::Sample(sample) => sample.clone(),
            },
            _ => {
                let timestamp_ms = share.base_ms.wrapping_add(i64::from(offset_ms));
                FullSample {
                    timestamp_ms,
                    start_ms: 0,
                    value: Value::Float(f64::from_bits(bits)),
                }
            }
        };
        if share.is_out_of_order {
            self.n_out_of_order += 1;
            return self.push_out_of_order(slot, sample);
        }
        let timestamp_ms = sample.timestamp_ms;
        if timestamp_ms < head.min_valid_ms {
            return self.apply_before_blocks_end(slot, sample);
        }
        if self.states[slot as usize].has_head_chunks {
            self.take_head_chunks(slot, timestamp_ms, head);
        }
        let state = &mut self.states[slot as usize];
        if timestamp_ms > state.open.last_ms() {
            self.n_appended += 1;
            self.push(slot, sample);
            return;
        }
        self.n_not_newer += 1;
        if timestamp_ms > state.newest_in_wal_ms() {
            state.wal_ms = timestamp_ms;
        } else {
            // Repeated, or out of order: Prometheus writes those to the WBL, too, which may be lost.
            self.n_out_of_order_in_wal += 1;
            self.push_out_of_order(slot, sample);
        }
    }

    /// Applies a sample of the WAL before the end of the blocks. In order, blocks have it. Out of order,
    /// it is kept like one of the WBL.
    fn apply_before_blocks_end(&mut self, slot: u32, sample: FullSample) {
        let state = &mut self.states[slot as usize];
        if sample.timestamp_ms >= state.newest_in_wal_ms() {
            state.wal_ms = sample.timestamp_ms;
            self.n_covered += 1;
        } else {
            self.n_not_newer += 1;
            self.n_out_of_order_in_wal += 1;
            self.push_out_of_order(slot, sample);
        }
    }

    /// Appends a sample that is newer than the last one.
    fn push(&mut self, slot: u32, sample: FullSample) {
        let FullSample {
            timestamp_ms,
            start_ms,
            value,
        } = sample;
        let state = &self.states[slot as usize];
        let last_ms = state.open.last_ms();
        let is_plain = matches!(value, Value::Float(_))
            && !state.needs_encoder(self.start_timestamps, start_ms);
        let continues_chunk = if is_plain {
            state.open.can_append()
        } else {
            state.has_encoder
        };
        if !continues_chunk || window_of(timestamp_ms) != window_of(last_ms) {
            self.end(slot, false);
        }
        let state = &mut self.states[slot as usize];
        self.windows
            .add(timestamp_ms, timestamp_ms, &mut state.windows);
        match value {
            Value::Float(value) if is_plain => state.open.push(
                &mut self.open,
                Sample {
                    timestamp_ms,
                    value,
                },
            ),
            value => self.push_encoded(
                slot,
                FullSample {
                    timestamp_ms,
                    start_ms,
                    value,
                },
            ),
        }
    }

    fn push_encoded(&mut self, slot: u32, sample: FullSample) {
        let state = &mut self.states[slot as usize];
        state.has_encoder = true;
        state.open.skip_to(sample.timestamp_ms);
        let encoder = self
            .encoders
            .entry(slot)
            .or_insert_with(|| Box::new(Encoder::new(self.start_timestamps)));
        sample.encode(encoder);
        for chunk in encoder.drain() {
            self.finished
                .append(&mut state.last, &series_chunk(&chunk, false, false));
        }
    }

    /// Adds the head chunks of another ref of a series. Out-of-order head chunks are appended at
    /// once.
    pub(crate) fn add_head_chunks(
        &mut self,
        slot: u32,
        indexes: Range<usize>,
        head: HeadChunkList<'_>,
    ) {
        if indexes.is_empty() {
            return;
        }
        self.take_head_chunks(slot, i64::MAX, head);
        for index in indexes
            .clone()
            .filter(|&index| head.chunks[index].is_out_of_order)
        {
            self.newest_out_of_order_ms =
                self.newest_out_of_order_ms.max(head.chunks[index].max_ms);
            self.append_head_chunk(slot, index, head, true);
        }
        self.head.resize(self.states.len(), 0..0);
        // Indexes have 32 bits everywhere: memory is exhausted before.
        self.head[slot as usize] = indexes.start as u32..indexes.end as u32;
        self.states[slot as usize].has_head_chunks = true;
    }

    /// Appends the head chunks of a series that begin at or before `until_ms`.
    fn take_head_chunks(&mut self, slot: u32, until_ms: i64, head: HeadChunkList<'_>) {
        while self.states[slot as usize].has_head_chunks {
            let indexes = &mut self.head[slot as usize];
            let Some(index) = indexes.next() else {
                self.states[slot as usize].has_head_chunks = false;
                return;
            };
            let chunk = &head.chunks[index as usize];
            if !chunk.is_out_of_order && chunk.min_ms > until_ms {
                indexes.start = index;
                return;
            }
            // Out-of-order chunks have been appended. Others may be covered by blocks.
            if chunk.is_out_of_order || chunk.max_ms < head.min_valid_ms {
                continue;
            }
            self.end(slot, false);
            // One process does not write overlapping chunks, but their samples are kept.
            let last_ms = self.states[slot as usize].open.last_ms();
            self.append_head_chunk(slot, index as usize, head, chunk.min_ms <= last_ms);
            self.states[slot as usize]
                .open
                .skip_to(last_ms.max(chunk.max_ms));
        }
    }

    fn append_head_chunk(
        &mut self,
        slot: u32,
        index: usize,
        head: HeadChunkList<'_>,
        is_out_of_order: bool,
    ) {
        let HeadChunk {
            min_ms,
            max_ms,
            n_samples,
            encoding,
            ..
        } = head.chunks[index];
        let bytes = ChunkBytes::Head(index as u32);
        let state = &mut self.states[slot as usize];
        self.windows.add(min_ms, max_ms, &mut state.windows);
        let chunk = Chunk {
            encoding,
            min_ms,
            max_ms,
            n_samples,
            bytes,
        };
        self.finished.append(
            &mut state.last,
            &SeriesChunk {
                chunk,
                is_out_of_order,
                is_split: false,
            },
        );
    }

    /// Finishes the open chunk of a series, if any.
    fn end(&mut self, slot: u32, is_split: bool) {
        let state = &mut self.states[slot as usize];
        state.wal_ms = state.newest_in_wal_ms();
        if state.open.n_samples() > 0 {
            let max_ms = state.open.last_ms();
            let n_samples = state.open.n_samples();
            let mut bytes = Vec::new();
            let min_ms = state.open.copy_to(&self.open, &mut bytes);
            state.open.clear(&mut self.open);
            let chunk = Chunk {
                encoding: Encoding::Xor,
                min_ms,
                max_ms,
                n_samples,
                bytes,
            };
            self.finished
                .append(&mut state.last, &series_chunk(&chunk, false, is_split));
        }
        if std::mem::take(&mut state.has_encoder)
            && let Some(mut encoder) = self.encoders.remove(&slot)
        {
            for chunk in encoder.finish() {
                self.finished
                    .append(&mut state.last, &series_chunk(&chunk, false, is_split));
            }
        }
    }

    /// Spills all chunks and out-of-order samples. Finishes open chunks.
    pub(crate) fn spill(&mut self) -> Result<()> {
        for slot in 0..self.states.len() {
            // There are no more slots than series.
            self.end(slot as u32, true);
            self.finished.spill(false)?;
        }
        self.open = OpenChunks::default();
        self.end_out_of_order();
        self.finished.spill(true)
    }

    /// Finishes all chunks except for plain open ones, which are read in index.
    pub(crate) fn finish(&mut self, head: HeadChunkList<'_>) {
        for slot in 0..self.head.len() {
            self.take_head_chunks(slot as u32, i64::MAX, head);
        }
        let others: Vec<u32> = self.encoders.keys().copied().collect();
        for slot in others {
            self.end(slot, false);
        }
        self.end_out_of_order();
    }
}
