//! The symbols of a part: writing the labels of its series, and mapping the symbols of the heads to
//! those of the part.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use hashbrown::HashMap;
use varve_collections::prefetch;

use super::freeze::FrozenShard;
use crate::block::{BlockWriter, Symbol};
use crate::error::Result;
use crate::head::SlotRef;
use crate::index::Pair;
use crate::store::symbol_ranks::SymbolRanks;

/// Number of series whose labels are looked up per acquisition of the head lock.
const BATCH_SERIES: usize = 512;

/// The symbols of one shard's head in the part being written.
pub(super) type SymbolMap = HashMap<Pair, Symbol>;

/// Placeholder until [`write_symbols`] assigns the symbols, in the order of the texts.
const UNKNOWN: Symbol = Symbol(u32::MAX);
/// Maximum number of labels whose texts are copied per acquisition of the head lock.
const BATCH_LABELS: usize = 1024;
/// Bytes of copied texts after which no further text is copied.
const BATCH_SIZE: usize = 16 << 10;

/// The labels of one shard that a part uses, in the order of their texts.
struct SortedLabels<'a> {
    shard: &'a FrozenShard<'a>,
    /// The labels that are not in `batch` yet, each with the key of its ranks.
    rest: std::vec::IntoIter<(u64, Pair)>,
    batch: VecDeque<CopiedLabel>,
    /// The texts of `batch`, one after the other.
    texts: String,
}

/// A label, and where its texts are copied to.
#[derive(Clone)]
struct CopiedLabel {
    key: u64,
    label: Pair,
    name: Range<usize>,
    value: Range<usize>,
}

/// Writes the names and values of all labels of series in the part. Returns the symbols by shard.
///
/// Memory: 16 bytes for each label besides the returned symbols, and of each shard the texts of one
/// batch of labels: the texts of all labels may take as much memory as the heads.
pub(super) fn write_symbols(
    frozen: &[FrozenShard<'_>],
    in_window: &[&[SlotRef]],
    ranks: &SymbolRanks,
    writer: &mut BlockWriter,
) -> Result<Vec<SymbolMap>> {
    let mut symbols = Vec::with_capacity(frozen.len());
    let mut sorted = Vec::with_capacity(frozen.len());
    let mut heap = BinaryHeap::new();
    for (idx, shard) in frozen.iter().enumerate() {
        let used = used_labels(shard, in_window[idx]);
        let mut labels = SortedLabels::new(shard, &used, ranks);
        heap.extend(labels.next_key().map(|key| Reverse((key, idx))));
        symbols.push(used);
        sorted.push(labels);
    }

    // Equal labels of several shards have the same key.
    let mut last = None;
    while let Some(Reverse((key, idx))) = heap.pop() {
        let labels = &mut sorted[idx];
        let Some(copied) = labels.batch.pop_front() else {
            continue;
        };
        let symbol = match last {
            Some((last_key, symbol)) if last_key == key => symbol,
            _ => writer.symbol(&labels.texts[copied.name], &labels.texts[copied.value])?,
        };
        last = Some((key, symbol));
        symbols[idx].insert(copied.label, symbol);
        heap.extend(labels.next_key().map(|key| Reverse((key, idx))));
    }
    Ok(symbols)
}

/// Returns every label of the series once, without its symbol.
fn used_labels(shard: &FrozenShard<'_>, in_window: &[SlotRef]) -> SymbolMap {
    let mut used = SymbolMap::new();
    let mut last = LastLabels::default();
    for slots in in_window.chunks(BATCH_SERIES) {
        let head = shard.shard.head();
        let first_words = slots
            .iter()
            .map(|slot_ref| head.first_label_word(slot_ref.slot));
        prefetch(first_words);
        for slot_ref in slots {
            for (i, label) in head.pairs(slot_ref.slot).enumerate() {
                last.get(i, label, || {
                    used.insert(label, UNKNOWN);
                });
            }
        }
    }
    used
}

impl<'a> SortedLabels<'a> {
    fn new(shard: &'a FrozenShard<'a>, used: &SymbolMap, ranks: &SymbolRanks) -> Self {
        let mut labels = Vec::with_capacity(used.len());
        for &label in used.keys() {
            let key = ranks
                .key(shard.number, label)
                .expect("the labels of frozen series are ranked: they are older than the ranking");
            labels.push((key, label));
        }
        labels.sort_unstable();
        Self {
            shard,
            rest: labels.into_iter(),
            batch: VecDeque::new(),
            texts: String::new(),
        }
    }

    /// Returns the key of the next label, whose texts are then in memory.
    fn next_key(&mut self) -> Option<u64> {
        if self.batch.is_empty() {
            self.fill();
        }
        self.batch.front().map(|copied| copied.key)
    }

    fn fill(&mut self) {
        self.texts.clear();
        self.texts.shrink_to(2 * BATCH_SIZE);
        let head = self.shard.shard.head();
        while self.batch.len() < BATCH_LABELS && self.texts.len() < BATCH_SIZE {
            let Some((key, label)) = self.rest.next() else {
                break;
            };
            let name = match self.batch.back() {
                Some(before) if before.label.0 == label.0 => before.name.clone(),
                _ => push(&mut self.texts, head.symbol(label.0)),
            };
            let value = push(&mut self.texts, head.symbol(label.1));
            self.batch.push_back(CopiedLabel {
                key,
                label,
                name,
                value,
            });
        }
    }
}

/// Appends a text, and returns its range.
fn push(texts: &mut String, text: &str) -> Range<usize> {
    let start = texts.len();
    texts.push_str(text);
    start..texts.len()
}

/// The last label at each position, with what belongs to it: most labels of a series are those of
/// the series before. A flush evicts no series meanwhile, so the ids of labels stay the same.
pub(super) struct LastLabels<T>(Vec<(Pair, T)>);

impl<T> Default for LastLabels<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> LastLabels<T> {
    /// Returns what belongs to the label at a position. Calls `find` only if the last label there
    /// was another one.
    pub(super) fn get(&mut self, idx: usize, label: Pair, find: impl FnOnce() -> T) -> T {
        match self.0.get_mut(idx) {
            Some(&mut (last, found)) if last == label => return found,
            Some(last) => *last = (label, find()),
            None => self.0.push((label, find())),
        }
        self.0[idx].1
    }
}
