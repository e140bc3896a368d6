//! The series table: labels, refs and newest timestamps of the series of a shard.

pub(in crate::head) mod label_sets;
mod last_labels;
mod row;
mod shrink;

use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::DefaultHashBuilder;
use varve_model::Labels;
use varve_model::labels::LabelsBuilder;

use crate::batch::SeriesRef;
use crate::error::{Error, Result};
use crate::head::groups::Groups;
use crate::head::label_names::LabelNames;
use crate::index::{Index, SLOTS_MAX, SlotLabels, SymbolId, Symbols};
use label_sets::LabelSets;
use last_labels::LastLabels;
use row::VACANT;
pub(crate) use row::{NewSeries, SlotRef};
pub(in crate::head) use row::{Row, UNRANKED};
use varve_collections::{Column, IdAllocator, WideTable};

/// All series of a shard, by slot.
#[derive(Debug)]
pub(in crate::head) struct Table {
    pub(in crate::head) symbols: Symbols,
    pub(in crate::head) index: Index,
    pub(in crate::head) label_sets: LabelSets,
    /// Slots by hash of the label set's words.
    pub(in crate::head) by_labels: WideTable<u32>,
    /// Hashes by slot, while series are loaded. Without them, a growing table would read all label
    /// sets again.
    pub(in crate::head) loaded_hashes: Column<u64>,
    hasher: DefaultHashBuilder,
    ids: IdAllocator,
    rows: Column<Row>,
    /// Ranks by slot: positions in label order among the ranked series of all heads. See
    /// `label_order`.
    pub(in crate::head) ranks: Column<u32>,
    /// The number of the ranking that `ranks` come from.
    ranking: u64,
    /// Generation of slots added at the end: the highest generation of any removed series.
    first_generation: u32,
    /// Number of series without a rank.
    n_unranked: usize,
    /// Number of removed series.
    n_removed: u64,
    pub(in crate::head) groups: Groups,
    pub(in crate::head) label_names: LabelNames,
    /// The last series that was looked up. The next one usually shares most of its labels.
    pub(in crate::head) last_labels: LastLabels,
    /// Buffer for the words of a label set.
    pub(in crate::head) words: Vec<u32>,
}

impl Table {
    pub(in crate::head) fn new(seed: u64) -> Self {
        Self {
            symbols: Symbols::new(seed),
            index: Index::default(),
            label_sets: LabelSets::default(),
            by_labels: WideTable::default(),
            loaded_hashes: Column::default(),
            hasher: DefaultHashBuilder::default(),
            ids: IdAllocator::default(),
            rows: Column::default(),
            ranks: Column::default(),
            ranking: 0,
            first_generation: 0,
            n_unranked: 0,
            n_removed: 0,
            groups: Groups::default(),
            label_names: LabelNames::default(),
            last_labels: LastLabels::default(),
            words: Vec::new(),
        }
    }

    /// Returns the number of series.
    pub(in crate::head) fn len(&self) -> usize {
        self.ids.n_used()
    }

    /// Returns one more than the highest slot in use.
    pub(in crate::head) fn end(&self) -> usize {
        self.rows.len()
    }

    pub(in crate::head) fn size(&self) -> usize {
        self.symbols.size()
            + self.index.size()
            + self.label_sets.size()
            + self.by_labels.size()
            + self.rows.size()
            + self.ranks.size()
            + self.ids.size()
            + self.groups.size()
    }

    pub(in crate::head) fn find(&self, labels: &Labels) -> Option<u32> {
        self.find_words(&self.words_of(labels)?)
    }

    /// Returns the words of a label set. Returns `None` if one of its strings has no symbol, so
    /// that no series has this set.
    fn words_of(&self, labels: &Labels) -> Option<Vec<u32>> {
        let mut names = Vec::with_capacity(32);
        let mut words = Vec::with_capacity(32);
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

    pub(in crate::head) fn hash(&self, words: &[u32]) -> u64 {
        self.hasher.hash_one(words)
    }

    pub(in crate::head) fn find_hashed(&self, hash: u64, words: &[u32]) -> Option<u32> {
        let found = self.by_labels.find(hash, |&slot| {
            self.label_sets.words(self.rows[slot as usize].labels_at) == words
        });
        found.copied()
    }

    pub(in crate::head) fn find_or_create(
        &mut self,
        labels: &Labels,
        new_ref: SeriesRef,
    ) -> Result<(u32, NewSeries)> {
        let found = match self.last_labels.resolve(labels, &mut self.symbols) {
            Some(()) => {
                let names = std::mem::take(&mut self.last_labels.names);
                let values = std::mem::take(&mut self.last_labels.values);
                let found = self.find_or_create_symbols(&names, &values, new_ref);
                self.last_labels.names = names;
                self.last_labels.values = values;
                found
            }
            None => Err(full()),
        };
        if found.is_err() {
            // Symbols added for this set alone are unused.
            let symbols = std::mem::take(&mut self.last_labels).into_symbols();
            for symbol in symbols {
                self.symbols.forget_unused(symbol);
            }
        }
        found
    }

    /// Finds or creates a series as [`Table::find_or_create`] does, for names in ascending order
    /// and their values as symbols.
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
        slot.map(|slot| {
            (
                slot,
                if found.is_some() {
                    NewSeries::No
                } else {
                    NewSeries::Yes
                },
            )
        })
    }

    /// Adds the shape of a list of names. The shape counts as one use of each name, for any number
    /// of sets.
    fn new_shape(&mut self, names: &[SymbolId]) -> Result<u32> {
        names
            .iter()
            .try_for_each(|&name| self.symbols.retain(name, 1))
            .ok_or_else(full)?;
        self.label_sets.add_shape(names).ok_or_else(full)
    }

    /// Adds a series. If no ids are left, the uses counted so far remain: such a shard accepts no
    /// new series anyway.
    fn create(&mut self, words: &[u32], hash: u64, new_ref: SeriesRef) -> Result<u32> {
        words[1..]
            .iter()
            .try_for_each(|&value| self.symbols.retain(SymbolId(value), 1))
            .ok_or_else(full)?;
        let slot = self.place(words, new_ref)?;
        let sets = &self.label_sets;
        let rows = &self.rows;
        let hasher = &self.hasher;
        self.by_labels.insert_unique(hash, slot, |&slot| {
            hasher.hash_one(sets.words(rows[slot as usize].labels_at))
        });
        self.groups.insert(1);
        let labels_at = self.rows[slot as usize].labels_at;
        self.index
            .insert(slot, self.label_sets.pairs(labels_at), |new_name| {
                self.label_names.add(self.symbols.resolve(new_name));
            });
        Ok(slot)
    }

    /// Allocates a slot for a series and stores its labels. Does not add the series to an index.
    pub(in crate::head) fn place(&mut self, words: &[u32], series: SeriesRef) -> Result<u32> {
        let slot = self.ids.allocate(SLOTS_MAX).ok_or_else(full)?;
        let Some(labels_at) = self.label_sets.push(words) else {
            self.ids.free(slot);
            return Err(full());
        };
        match self.rows.get_mut(slot as usize) {
            Some(row) => {
                *row = Row {
                    series,
                    last_ms: i64::MIN,
                    labels_at,
                    ..*row
                }
            }
            None => {
                self.rows.push(Row {
                    series,
                    last_ms: i64::MIN,
                    labels_at,
                    generation: self.first_generation,
                });
                self.ranks.push(UNRANKED);
            }
        }
        self.n_unranked += 1;
        Ok(slot)
    }

    /// Removes a series. Its slot may be reused with another generation.
    pub(in crate::head) fn remove(&mut self, slot: u32) {
        // The cached labels may belong to this series, whose symbols are released.
        self.last_labels = LastLabels::default();
        let labels_at = self.rows[slot as usize].labels_at;
        let hash = self.hasher.hash_one(self.label_sets.words(labels_at));
        self.by_labels.remove(hash, |&other| other == slot);
        self.index
            .remove(slot, self.label_sets.pairs(labels_at), |last_name| {
                self.label_names.remove(self.symbols.resolve(last_name));
            });
        for (_, value) in self.label_sets.pairs(labels_at) {
            self.symbols.release(value);
        }
        if let Some(names) = self.label_sets.remove(labels_at) {
            for name in names {
                self.symbols.release(name);
            }
        }
        let generation = self.rows[slot as usize].generation.wrapping_add(1);
        self.first_generation = self.first_generation.max(generation);
        self.rows[slot as usize] = Row {
            generation,
            ..VACANT
        };
        if std::mem::replace(&mut self.ranks[slot as usize], UNRANKED) == UNRANKED {
            self.n_unranked -= 1;
        }
        self.ids.free(slot);
        self.groups.remove(slot);
        self.n_removed += 1;
    }

    pub(in crate::head) fn labels(&self, slot: u32) -> Labels {
        let pairs = || {
            let pairs = self.label_sets.pairs(self.rows[slot as usize].labels_at);
            pairs.map(|(name, value)| (self.symbols.resolve(name), self.symbols.resolve(value)))
        };
        let size = pairs()
            .map(|(name, value)| name.len() + value.len() + 4)
            .sum();
        let mut builder = LabelsBuilder::with_capacity(size);
        for (name, value) in pairs() {
            builder.push(name, value);
        }
        builder.finish()
    }

    /// Returns the labels of a series as symbols, in order of names.
    pub(in crate::head) fn pairs(
        &self,
        slot: u32,
    ) -> impl Iterator<Item = (SymbolId, SymbolId)> + '_ {
        self.label_sets.pairs(self.rows[slot as usize].labels_at)
    }

    /// Returns the label set of a series as words: its shape, and the value of each of the shape's
    /// names.
    #[inline]
    pub(in crate::head) fn label_words(&self, slot: u32) -> &[u32] {
        self.label_sets.words(self.rows[slot as usize].labels_at)
    }

    /// Returns the first word of a series' labels; 0 if there is no such series.
    #[inline]
    pub(in crate::head) fn first_label_word(&self, slot: u32) -> u32 {
        self.rows
            .get(slot as usize)
            .map_or(0, |row| self.label_sets.word(row.labels_at))
    }

    /// Returns the positions of the label sets, by slot. Every slot must have a series.
    pub(in crate::head) fn label_places(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.iter().map(|row| row.labels_at)
    }

    /// Iterates over the strings of some symbol ids, as [`Symbols::of_ids`] does.
    pub(in crate::head) fn symbols_of(
        &self,
        ids: Range<usize>,
    ) -> Option<impl Iterator<Item = (SymbolId, &str)>> {
        self.symbols.of_ids(ids)
    }

    /// Returns the string of a symbol.
    pub(in crate::head) fn symbol(&self, id: SymbolId) -> &str {
        self.symbols.resolve(id)
    }

    /// Returns the newest in-order timestamp of the series, including samples that are no longer in
    /// memory. Returns `None` if there is none.
    pub(in crate::head) fn newest_ms(&self) -> Option<i64> {
        self.rows
            .iter()
            .filter(|row| row.is_used())
            .map(|row| row.last_ms)
            .max()
            .filter(|&newest| newest != i64::MIN)
    }

    /// Compares the labels of two series in the order of [`Labels`].
    pub(in crate::head) fn compare(&self, a: u32, b: u32) -> Ordering {
        self.compare_words(self.label_words(a), self.label_words(b))
    }

    /// Compares the labels of two series, given as words.
    pub(in crate::head) fn compare_words(&self, a: &[u32], b: &[u32]) -> Ordering {
        let text = |id: SymbolId| self.symbols.resolve(id);
        // Fast path: the same names. Equal symbols are equal strings: only the first difference is
        // read.
        if a[0] == b[0] {
            let differing = a.iter().zip(b).find(|(a, b)| a != b);
            return differing.map_or(Ordering::Equal, |(&a, &b)| {
                text(SymbolId(a)).cmp(text(SymbolId(b)))
            });
        }
        let a = self.label_sets.pairs_of(a);
        let b = self.label_sets.pairs_of(b);
        let n_labels = (a.len(), b.len());
        match a.zip(b).find(|(a, b)| a != b) {
            Some(((name, a), (other, b))) if name == other => text(a).cmp(text(b)),
            Some(((a, _), (b, _))) => text(a).cmp(text(b)),
            None => n_labels.0.cmp(&n_labels.1),
        }
    }

    #[inline]
    pub(in crate::head) fn row(&self, slot: u32) -> Option<&Row> {
        self.rows.get(slot as usize)
    }

    #[inline]
    pub(in crate::head) fn row_mut(&mut self, slot: u32) -> &mut Row {
        &mut self.rows[slot as usize]
    }

    pub(in crate::head) fn generation(&self, slot: u32) -> u32 {
        self.row(slot).map_or(0, |row| row.generation)
    }

    #[inline]
    pub(in crate::head) fn is_current(&self, slot_ref: SlotRef) -> bool {
        self.row(slot_ref.slot)
            .is_some_and(|row| row.generation == slot_ref.generation && row.is_used())
    }

    pub(in crate::head) fn rank(&self, slot: u32) -> u32 {
        self.ranks[slot as usize]
    }

    /// Replaces all ranks by the ranks of `n_ranked` series. Slots after the end of `ranks` have no
    /// rank. Returns the old ranks, so that the caller can drop them outside the lock.
    pub(in crate::head) fn replace_ranks(
        &mut self,
        mut ranks: Column<u32>,
        n_ranked: usize,
        ranking: u64,
    ) -> Column<u32> {
        ranks.truncate(self.rows.len());
        while ranks.len() < self.rows.len() {
            ranks.push(UNRANKED);
        }
        self.n_unranked = self.len() - n_ranked;
        self.ranking = ranking;
        std::mem::replace(&mut self.ranks, ranks)
    }

    pub(in crate::head) fn ranking(&self) -> u64 {
        self.ranking
    }

    pub(in crate::head) fn n_unranked(&self) -> usize {
        self.n_unranked
    }

    pub(in crate::head) fn n_removed(&self) -> u64 {
        self.n_removed
    }
}

impl SlotLabels for Table {
    fn value(&self, slot: u32, name: SymbolId) -> Option<SymbolId> {
        self.label_sets
            .value(self.rows[slot as usize].labels_at, name)
    }

    fn names(&self, slot: u32) -> (u32, &[SymbolId]) {
        self.label_sets.shape(self.rows[slot as usize].labels_at)
    }
}

pub(in crate::head) fn full() -> Error {
    Error::Limit {
        what: varve_context::Limit::Other("series or label values of a shard"),
        used: 1 << 32,
        limit: u64::from(u32::MAX),
    }
}
