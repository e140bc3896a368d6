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
/// Number of values whose texts are copied per acquisition of the head lock.
const BATCH_VALUES: usize = 1024;

/// Texts, one after the other.
#[derive(Default)]
struct Texts(String);

/// A label name of a head.
struct UsedName {
    text: Range<usize>,
    shard: usize,
    /// The labels of this name, in the list of the shard.
    labels: Range<usize>,
}

/// A label value of a head.
struct UsedValue {
    text: Range<usize>,
    shard: usize,
    label: Pair,
}

impl Texts {
    fn push(&mut self, text: &str) -> Range<usize> {
        let start = self.0.len();
        self.0.push_str(text);
        start..self.0.len()
    }

    fn get(&self, range: &Range<usize>) -> &str {
        &self.0[range.clone()]
    }
}

/// Writes the names and values of all labels of series in the part. Returns the symbols by shard.
///
/// Memory: 8 bytes for each label besides the returned symbols, the texts of the names, and for the
/// values of one name at a time 32 bytes each and their texts.
pub(super) fn write_symbols(
    frozen: &[FrozenShard<'_>],
    in_window: &[&[SlotRef]],
    writer: &mut BlockWriter,
) -> Result<Vec<SymbolMap>> {
    let mut symbols = Vec::with_capacity(frozen.len());
    let mut labels = Vec::with_capacity(frozen.len());
    let mut texts = Texts::default();
    let mut names = Vec::new();
    for (idx, shard) in frozen.iter().enumerate() {
        let used = used_labels(shard, in_window[idx]);
        let mut by_name: Vec<Pair> = used.keys().copied().collect();
        by_name.sort_unstable();
        add_names(shard, idx, &by_name, &mut texts, &mut names);
        symbols.push(used);
        labels.push(by_name);
    }
    names.sort_unstable_by(|a, b| texts.get(&a.text).cmp(texts.get(&b.text)));
    for same_name in names.chunk_by(|a, b| texts.get(&a.text) == texts.get(&b.text)) {
        let name = texts.get(&same_name[0].text);
        write_values(frozen, name, same_name, &labels, writer, &mut symbols)?;
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

/// Adds the names of labels that ascend by name to `names`, with copies of their texts.
fn add_names(
    shard: &FrozenShard<'_>,
    idx: usize,
    by_name: &[Pair],
    texts: &mut Texts,
    names: &mut Vec<UsedName>,
) {
    let mut start = 0;
    for same_name in by_name.chunk_by(|a, b| a.0 == b.0) {
        let end = start + same_name.len();
        names.push(UsedName {
            text: texts.push(shard.shard.head().symbol(same_name[0].0)),
            shard: idx,
            labels: start..end,
        });
        start = end;
    }
}

/// Writes the values of a name in the order of their texts, each text once.
fn write_values(
    frozen: &[FrozenShard<'_>],
    name: &str,
    same_name: &[UsedName],
    labels: &[Vec<Pair>],
    writer: &mut BlockWriter,
    symbols: &mut [SymbolMap],
) -> Result<()> {
    let mut texts = Texts::default();
    let mut values = Vec::new();
    for UsedName {
        shard,
        labels: range,
        ..
    } in same_name
    {
        for batch in labels[*shard][range.clone()].chunks(BATCH_VALUES) {
            let head = frozen[*shard].shard.head();
            for &label in batch {
                values.push(UsedValue {
                    text: texts.push(head.symbol(label.1)),
                    shard: *shard,
                    label,
                });
            }
        }
    }
    values.sort_unstable_by(|a, b| texts.get(&a.text).cmp(texts.get(&b.text)));
    for same_text in values.chunk_by(|a, b| texts.get(&a.text) == texts.get(&b.text)) {
        let symbol = writer.symbol(name, texts.get(&same_text[0].text))?;
        for used in same_text {
            symbols[used.shard].insert(used.label, symbol);
        }
    }
    Ok(())
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
