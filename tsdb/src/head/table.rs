//! The series table: what a shard knows of its series beside samples.

use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::DefaultHashBuilder;

use super::label_sets::{LabelSets, NONE};
use super::recent::Recent;
use crate::error::{Error, Result};
use crate::groups::Groups;
use crate::index::{Column, Index, Numbers, SLOTS_MAX, SymbolId, Symbols, WideTable};
use crate::labels::{Labels, LabelsBuilder};

/// The number of a series on disk: unique over all shards and never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SeriesRef(pub(crate) u64);

/// A slot as it was given: to be kept past the lock, and checked before it is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotRef {
    /// The slot.
    pub(crate) slot: u32,
    /// How often it had been given.
    pub(crate) generation: u32,
}

/// Whether a look-up made the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewSeries {
    /// It was not there before.
    Yes,
    /// It was there.
    No,
}

/// What an append needs to know of a series; all in one cache line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) series: SeriesRef,
    /// The time of the newest in-order sample, whether it is still in memory or not; `i64::MIN` if there was none.
    pub(super) last_ms: i64,
    pub(super) generation: u32,
    labels_at: u32,
}

/// All series of a shard, by slot.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) symbols: Symbols,
    pub(super) index: Index,
    pub(super) label_sets: LabelSets,
    /// Slots by hash of the label set's words.
    by_labels: WideTable<u32>,
    hasher: DefaultHashBuilder,
    numbers: Numbers,
    rows: Column<Row>,
    /// The place in label order among the series that have one; see `order`.
    ranks: Column<u32>,
    /// The generation of slots that are new at the end: as much as any slot has that series have left.
    first_generation: u32,
    /// Counts the series that were removed.
    n_removed: u64,
    pub(super) groups: Groups,
    /// The last series that was made: the next one resembles it.
    pub(super) recent: Recent,
    /// Memory for the words of a label set.
    pub(super) words: Vec<u32>,
}

/// The rank of a series that has none yet.
pub(super) const UNRANKED: u32 = u32::MAX;

const VACANT: Row = Row { series: SeriesRef(u64::MAX), last_ms: i64::MIN, generation: 0, labels_at: NONE };

impl Row {
    /// Tells whether the slot has a series.
    pub(super) fn is_used(&self) -> bool {
        self.labels_at != NONE
    }
}

impl Table {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            symbols: Symbols::new(seed),
            index: Index::default(),
            label_sets: LabelSets::default(),
            by_labels: WideTable::default(),
            hasher: DefaultHashBuilder::default(),
            numbers: Numbers::default(),
            rows: Column::default(),
            ranks: Column::default(),
            first_generation: 0,
            n_removed: 0,
            groups: Groups::default(),
            recent: Recent::default(),
            words: Vec::new(),
        }
    }

    /// Counts the series.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns one more than the highest slot in use.
    pub(super) fn end(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn size(&self) -> usize {
        self.symbols.size()
            + self.index.size()
            + self.label_sets.size()
            + self.by_labels.size()
            + self.rows.size()
            + self.ranks.size()
            + self.numbers.size()
            + self.groups.size()
    }

    pub(super) fn find(&self, labels: &Labels) -> Option<u32> {
        self.find_words(&self.words_of(labels)?)
    }

    /// Looks a label set's words up; a set of which a part has no number is not there.
    fn words_of(&self, labels: &Labels) -> Option<Vec<u32>> {
        let (mut names, mut words) = (Vec::with_capacity(32), Vec::with_capacity(32));
        words.push(0);
        for (name, value) in labels {
            words.push(self.symbols.find(value)?.0);
            names.push(self.symbols.find(name)?);
        }
        words[0] = self.label_sets.find_shape(&names)?;
        Some(words)
    }

    fn find_words(&self, words: &[u32]) -> Option<u32> {
        self.find_hashed(self.hash(words), words)
    }

    pub(super) fn hash(&self, words: &[u32]) -> u64 {
        self.hasher.hash_one(words)
    }

    pub(super) fn find_hashed(&self, hash: u64, words: &[u32]) -> Option<u32> {
        let same = |&slot: &u32| self.label_sets.words(self.rows[slot as usize].labels_at) == words;
        self.by_labels.find(hash, same).copied()
    }

    pub(super) fn find_or_create(&mut self, labels: &Labels, new_ref: SeriesRef) -> Result<(u32, NewSeries)> {
        let found = match self.recent.number(labels, &mut self.symbols) {
            Some(()) => {
                let (names, values) = (std::mem::take(&mut self.recent.names), std::mem::take(&mut self.recent.values));
                let found = self.find_or_create_symbols(&names, &values, new_ref);
                (self.recent.names, self.recent.values) = (names, values);
                found
            }
            None => Err(full()),
        };
        if found.is_err() {
            // What has got a number for this set alone has no use.
            let symbols = std::mem::take(&mut self.recent).into_symbols();
            symbols.for_each(|symbol| self.symbols.forget_unused(symbol));
        }
        found
    }

    /// As [`Table::find_or_create`], of names in ascending order and their values as symbols.
    fn find_or_create_symbols(
        &mut self,
        names: &[SymbolId],
        values: &[SymbolId],
        new_ref: SeriesRef,
    ) -> Result<(u32, NewSeries)> {
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        let shape = self.label_sets.find_shape(names);
        words.push(shape.unwrap_or_default());
        words.extend(values.iter().map(|value| value.0));
        let mut hash = self.hash(&words);
        let found = shape.and_then(|_| self.find_hashed(hash, &words));
        let slot = found.map_or_else(
            || {
                if shape.is_none() {
                    words[0] = self.new_shape(names)?;
                    hash = self.hash(&words);
                }
                self.create(&words, hash, new_ref)
            },
            Ok,
        );
        self.words = words;
        slot.map(|slot| (slot, if found.is_some() { NewSeries::No } else { NewSeries::Yes }))
    }

    /// Returns the shape of a list of names in ascending order, and makes it if it is new.
    pub(super) fn shape(&mut self, names: &[SymbolId]) -> Result<u32> {
        match self.label_sets.find_shape(names) {
            Some(shape) => Ok(shape),
            None => self.new_shape(names),
        }
    }

    /// Adds the shape of a list of names, which holds one use of each name for all its sets.
    fn new_shape(&mut self, names: &[SymbolId]) -> Result<u32> {
        names.iter().try_for_each(|&name| self.symbols.retain(name, 1)).ok_or_else(full)?;
        self.label_sets.add_shape(names).ok_or_else(full)
    }

    /// Adds a series. If numbers are used up what was counted up then stays: such a shard takes no new series.
    fn create(&mut self, words: &[u32], hash: u64, new_ref: SeriesRef) -> Result<u32> {
        words[1..].iter().try_for_each(|&value| self.symbols.retain(SymbolId(value), 1)).ok_or_else(full)?;
        let slot = self.place(words, hash, new_ref)?;
        self.groups.insert(1);
        self.index.insert(slot, self.label_sets.pairs(self.rows[slot as usize].labels_at));
        Ok(slot)
    }

    /// Gives a series a slot from which it can be told, and by whose labels it is found; nothing else knows of it.
    pub(super) fn place(&mut self, words: &[u32], hash: u64, series: SeriesRef) -> Result<u32> {
        let slot = self.numbers.take(SLOTS_MAX).ok_or_else(full)?;
        let Some(labels_at) = self.label_sets.push(words) else {
            self.numbers.give_back(slot);
            return Err(full());
        };
        match self.rows.get_mut(slot as usize) {
            Some(row) => *row = Row { series, last_ms: i64::MIN, labels_at, ..*row },
            None => {
                self.rows.push(Row { series, last_ms: i64::MIN, labels_at, generation: self.first_generation });
                self.ranks.push(UNRANKED);
            }
        }
        let (sets, rows, hasher) = (&self.label_sets, &self.rows, &self.hasher);
        let rehash = |&slot: &u32| hasher.hash_one(sets.words(rows[slot as usize].labels_at));
        self.by_labels.insert_unique(hash, slot, rehash);
        Ok(slot)
    }

    /// Removes a series; the slot may be given again, under another generation.
    pub(super) fn remove(&mut self, slot: u32) {
        // It may be this one, and its symbols go.
        self.recent = Recent::default();
        let labels_at = self.rows[slot as usize].labels_at;
        let hash = self.hasher.hash_one(self.label_sets.words(labels_at));
        self.by_labels.remove(hash, |&other| other == slot);
        self.index.remove(slot, self.label_sets.pairs(labels_at));
        self.label_sets.pairs(labels_at).for_each(|(_, value)| self.symbols.release(value));
        if let Some(names) = self.label_sets.remove(labels_at) {
            names.iter().for_each(|&name| self.symbols.release(name));
        }
        let generation = self.rows[slot as usize].generation.wrapping_add(1);
        self.first_generation = self.first_generation.max(generation);
        self.rows[slot as usize] = Row { generation, ..VACANT };
        self.ranks[slot as usize] = UNRANKED;
        self.numbers.give_back(slot);
        self.groups.remove(slot);
        self.n_removed += 1;
    }

    /// Gives the memory behind the last series and the last symbol back.
    pub(super) fn cut_ends(&mut self) {
        self.rows.truncate(self.numbers.end());
        self.ranks.truncate(self.numbers.end());
        self.groups.truncate(self.numbers.end());
        self.label_sets.cut_end();
        self.symbols.cut_end();
    }

    /// Moves the label sets of some slots together where few are left; false if there are no such slots.
    pub(super) fn gather_label_sets(&mut self, slots: Range<usize>) -> bool {
        for slot in slots.start..slots.end.min(self.rows.len()) {
            let row = &mut self.rows[slot];
            if row.is_used() {
                row.labels_at = self.label_sets.gather(row.labels_at);
            }
        }
        slots.start < self.rows.len()
    }

    /// Gives memory of a piece of the table back; false if there is no such piece.
    pub(super) fn shrink_piece(&mut self, piece: usize) -> bool {
        let (sets, rows, hasher) = (&self.label_sets, &self.rows, &self.hasher);
        self.by_labels.shrink_piece(piece, |&slot| hasher.hash_one(sets.words(rows[slot as usize].labels_at)))
    }

    pub(super) fn labels(&self, slot: u32) -> Labels {
        let pairs = || {
            let pairs = self.label_sets.pairs(self.rows[slot as usize].labels_at);
            pairs.map(|(name, value)| (self.symbols.text(name), self.symbols.text(value)))
        };
        let size = pairs().map(|(name, value)| name.len() + value.len() + 4).sum();
        let mut builder = LabelsBuilder::with_capacity(size);
        pairs().for_each(|(name, value)| builder.push(name, value));
        builder.finish()
    }

    /// Returns the labels of a series as symbols, in order of names.
    pub(super) fn pairs(&self, slot: u32) -> impl Iterator<Item = (SymbolId, SymbolId)> + '_ {
        self.label_sets.pairs(self.rows[slot as usize].labels_at)
    }

    /// Returns the label set of a series as words: its shape, and the value of each of the shape's names.
    #[inline]
    pub(super) fn label_words(&self, slot: u32) -> &[u32] {
        self.label_sets.words(self.rows[slot as usize].labels_at)
    }

    /// Returns where the label sets begin, by slot; all slots have a series.
    pub(super) fn label_places(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().map(|row| row.labels_at)
    }

    /// Returns the text of a symbol.
    pub(super) fn symbol(&self, id: SymbolId) -> &str {
        self.symbols.text(id)
    }

    /// Returns the newest time that a series has ever had; `None` if none has.
    pub(super) fn newest_ms(&self) -> Option<i64> {
        self.rows.iter().filter(|row| row.is_used()).map(|row| row.last_ms).max().filter(|&newest| newest != i64::MIN)
    }

    /// Compares the labels of two series, as [`Labels`] do.
    pub(super) fn compare(&self, a: u32, b: u32) -> Ordering {
        self.compare_words(self.label_words(a), self.label_words(b))
    }

    /// Compares the labels of two series, which are given as words.
    pub(super) fn compare_words(&self, a: &[u32], b: &[u32]) -> Ordering {
        let text = |id: SymbolId| self.symbols.text(id);
        // Fast path: the same names. Equal symbols are equal texts: only the first that differ are read.
        if a[0] == b[0] {
            let differing = a.iter().zip(b).find(|(a, b)| a != b);
            return differing.map_or(Ordering::Equal, |(&a, &b)| text(SymbolId(a)).cmp(text(SymbolId(b))));
        }
        let (a, b) = (self.label_sets.pairs_of(a), self.label_sets.pairs_of(b));
        let n_labels = (a.len(), b.len());
        match a.zip(b).find(|(a, b)| a != b) {
            Some(((name, a), (other, b))) if name == other => text(a).cmp(text(b)),
            Some(((a, _), (b, _))) => text(a).cmp(text(b)),
            None => n_labels.0.cmp(&n_labels.1),
        }
    }

    #[inline]
    pub(super) fn row(&self, slot: u32) -> Option<&Row> {
        self.rows.get(slot as usize)
    }

    #[inline]
    pub(super) fn row_mut(&mut self, slot: u32) -> &mut Row {
        &mut self.rows[slot as usize]
    }

    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.rows[slot as usize].generation
    }

    #[inline]
    pub(super) fn is_current(&self, of: SlotRef) -> bool {
        self.row(of.slot).is_some_and(|row| row.generation == of.generation && row.is_used())
    }

    pub(super) fn rank(&self, slot: u32) -> u32 {
        self.ranks[slot as usize]
    }

    /// Replaces all ranks; slots behind the last have none. Returns what they were before, to be dropped without a lock.
    pub(super) fn replace_ranks(&mut self, mut ranks: Column<u32>) -> Column<u32> {
        ranks.truncate(self.rows.len());
        while ranks.len() < self.rows.len() {
            ranks.push(UNRANKED);
        }
        std::mem::replace(&mut self.ranks, ranks)
    }

    pub(super) fn n_removed(&self) -> u64 {
        self.n_removed
    }
}

pub(super) fn full() -> Error {
    Error::Limit { what: "series or label values of a shard", used: 1 << 32, limit: u64::from(u32::MAX) }
}
