//! The symbols of a part: writing the labels of its series, and mapping the symbols of the heads to
//! those of the part.

use std::ops::Range;

use hashbrown::HashMap;
use varve_collections::prefetch;

use super::freeze::FrozenShard;
use crate::block::{BlockWriter, Symbol};
use crate::error::Result;
use crate::head::SlotRef;
use crate::index::Pair;

/// Number of series whose labels are looked up per acquisition of the head lock.
const BATCH_SERIES: usize = 512;

/// The symbols of one shard's head in the part being written.
pub(super) type SymbolMap = HashMap<Pair, Symbol>;

/// Placeholder until [`write_symbols`] assigns the symbols, in the order of the texts.
const UNKNOWN: Symbol = Symbol(u32::MAX);

/// Texts of labels, copied from several heads.
#[derive(Default)]
struct Texts(String);

/// A label of a head and its text.
struct UsedLabel {
    shard: usize,
    pair: Pair,
    name: Range<usize>,
    value: Range<usize>,
}

impl Texts {
    fn push(&mut self, text: &str) -> Range<usize> {
        let start = self.0.len();
        self.0.push_str(text);
        start..self.0.len()
    }

    fn label(&self, used: &UsedLabel) -> (&str, &str) {
        (&self.0[used.name.clone()], &self.0[used.value.clone()])
    }
}

/// Writes the names and values of all labels of series in the part. Returns the symbols by shard.
pub(super) fn write_symbols(
    frozen: &[FrozenShard<'_>],
    in_window: &[&[SlotRef]],
    writer: &mut BlockWriter,
) -> Result<Vec<SymbolMap>> {
    let mut symbols: Vec<SymbolMap> = frozen.iter().map(|_| SymbolMap::new()).collect();
    let mut texts = Texts::default();
    let mut used = copy_labels(frozen, in_window, &mut symbols, &mut texts);

    // In the order of their texts, each text once.
    used.sort_unstable_by(|a, b| texts.label(a).cmp(&texts.label(b)));
    for same_text in used.chunk_by(|a, b| texts.label(a) == texts.label(b)) {
        let (name, value) = texts.label(&same_text[0]);
        let symbol = writer.symbol(name, value)?;
        for used in same_text {
            symbols[used.shard].insert(used.pair, symbol);
        }
    }
    Ok(symbols)
}

/// Returns every label of every shard once, with a copy of its text in `texts`. Adds the labels to
/// `symbols`.
fn copy_labels(
    frozen: &[FrozenShard<'_>],
    in_window: &[&[SlotRef]],
    symbols: &mut [SymbolMap],
    texts: &mut Texts,
) -> Vec<UsedLabel> {
    let mut used = Vec::new();
    for (idx, shard) in frozen.iter().enumerate() {
        let mut last = LastLabels::default();
        for slots in in_window[idx].chunks(BATCH_SERIES) {
            let head = shard.shard.head();
            let first_words = slots
                .iter()
                .map(|slot_ref| head.first_label_word(slot_ref.slot));
            prefetch(first_words);
            for slot_ref in slots {
                for (i, pair) in head.pairs(slot_ref.slot).enumerate() {
                    last.get(i, pair, || {
                        if symbols[idx].insert(pair, UNKNOWN).is_none() {
                            used.push(UsedLabel {
                                shard: idx,
                                pair,
                                name: texts.push(head.symbol(pair.0)),
                                value: texts.push(head.symbol(pair.1)),
                            });
                        }
                    });
                }
            }
        }
    }
    used
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
