//! Writing the frozen samples of one window of all shards as a part, in label order.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

use varve_collections::prefetch;
use varve_model::{SampleColumns, TimeRange};

use super::freeze::{FrozenShard, overwritten};
use super::symbols::{LastLabels, SymbolMap, write_symbols};
use crate::block::{Block, BlockOrigin, BlockWriter, Symbol};
use crate::compact::window_of;
use crate::error::Result;
use crate::head::{HeadCopies, SlotRef, StaleSeries};
use crate::store::flushing::SeriesByShard;
use crate::store::store::Store;
use crate::store::symbol_ranks::SymbolRanks;

/// Number of series whose chunks are prefetched together, and whose labels are looked up per
/// acquisition of the head lock.
const BATCH_SERIES: usize = 512;

impl Store {
    /// Writes all parts, and returns them with the stale series.
    pub(super) fn write_parts(
        &self,
        frozen: &[FrozenShard<'_>],
        flush: u64,
    ) -> Result<(Vec<Arc<Block>>, SeriesByShard)> {
        let windows: BTreeSet<i64> = frozen.iter().flat_map(FrozenShard::windows).collect();
        let ranks = SymbolRanks::new(&self.shards);
        let mut parts: Vec<Arc<Block>> = Vec::new();
        let mut stale = vec![Vec::new(); self.shards.len()];
        for start_ms in windows {
            match self.write_part(frozen, window_of(start_ms), &ranks, flush, &mut stale) {
                Ok(part) => parts.push(part),
                Err(refused) => {
                    // All parts are written again.
                    self.blocks
                        .discard(parts.iter().map(|part| part.meta().origin.id));
                    return Err(refused);
                }
            }
        }
        Ok((parts, stale))
    }

    fn write_part(
        &self,
        frozen: &[FrozenShard<'_>],
        window: TimeRange,
        ranks: &SymbolRanks,
        flush: u64,
        stale: &mut [Vec<StaleSeries>],
    ) -> Result<Arc<Block>> {
        let id = self.blocks.next_id();
        let origin = BlockOrigin {
            id,
            window,
            level: 0,
            flushes: (flush, flush),
            sources: Vec::new(),
            deletions: self.blocks.last_deletion(),
        };
        let mut writer =
            BlockWriter::create(Arc::clone(&self.options.fs), self.blocks.dir(), origin)?;

        // The symbols come first: the rows of the series refer to them.
        let in_window: Vec<_> = frozen
            .iter()
            .map(|shard| shard.in_window(window.start_ms))
            .collect();
        let symbols = write_symbols(frozen, &in_window, ranks, &mut writer)?;

        // The series of each shard are in label order. A heap merges the shards.
        let mut rows: Vec<Rows<'_>> = Vec::with_capacity(frozen.len());
        for (idx, shard) in frozen.iter().enumerate() {
            rows.push(Rows::new(shard, window, &symbols[idx], in_window[idx]));
        }
        let mut heap: BinaryHeap<_> = (0..rows.len())
            .filter_map(|idx| rows[idx].next(idx, Vec::new()))
            .collect();
        let mut samples = SampleColumns::default();
        let mut scratch = HeadCopies::default();
        while let Some(Reverse((labels, idx, slot))) = heap.pop() {
            let shard = &frozen[idx];
            samples.clear();
            shard
                .frozen
                .read(slot, window, &mut scratch, &mut samples)
                .map_err(overwritten)?;
            writer.series(&labels, &samples)?;
            stale[shard.number].extend(shard.stale(slot, &samples));
            if let Some(next) = rows[idx].next(idx, labels) {
                heap.push(next);
            }
        }

        writer.finish()?;
        self.blocks
            .open_block(id)
            .inspect_err(|_| self.blocks.discard([id]))
    }
}

/// The series of one shard in a part, in label order, as rows of the series table.
struct Rows<'a> {
    shard: &'a FrozenShard<'a>,
    window: TimeRange,
    symbols: &'a SymbolMap,
    /// Series that are not in `batch` yet.
    slots: &'a [SlotRef],
    /// The slot and the number of labels of each series.
    batch: VecDeque<(u32, usize)>,
    /// The labels of the series in `batch`.
    batch_labels: VecDeque<Symbol>,
    last: LastLabels<Symbol>,
    /// Scratch memory.
    tails: Vec<u32>,
}

impl<'a> Rows<'a> {
    fn new(
        shard: &'a FrozenShard<'a>,
        window: TimeRange,
        symbols: &'a SymbolMap,
        slots: &'a [SlotRef],
    ) -> Self {
        Self {
            shard,
            window,
            symbols,
            slots,
            batch: VecDeque::new(),
            batch_labels: VecDeque::new(),
            last: LastLabels::default(),
            tails: Vec::new(),
        }
    }

    /// Returns the next series with its labels, in the memory of `labels`.
    fn next(
        &mut self,
        idx: usize,
        mut labels: Vec<Symbol>,
    ) -> Option<Reverse<(Vec<Symbol>, usize, u32)>> {
        if self.batch.is_empty() {
            self.fill();
        }
        let (slot, n_labels) = self.batch.pop_front()?;
        labels.clear();
        labels.extend(self.batch_labels.drain(..n_labels));
        Some(Reverse((labels, idx, slot)))
    }

    fn fill(&mut self) {
        let (slots, rest) = self.slots.split_at(self.slots.len().min(BATCH_SERIES));
        self.slots = rest;
        let slot_numbers = slots.iter().map(|slot_ref| slot_ref.slot);
        self.shard
            .frozen
            .prefetch_chunks(slot_numbers.clone(), self.window, &mut self.tails);
        let head = self.shard.shard.head();
        prefetch(slot_numbers.map(|slot| head.first_label_word(slot)));
        for slot_ref in slots {
            let n_before = self.batch_labels.len();
            let labels = head.pairs(slot_ref.slot).enumerate();
            self.batch_labels
                .extend(labels.map(|(i, pair)| self.last.get(i, pair, || self.symbols[&pair])));
            let n_labels = self.batch_labels.len() - n_before;
            self.batch.push_back((slot_ref.slot, n_labels));
        }
    }
}
