//! Bulk loading of series during replay, before any reader or writer uses the head.
//!
//! A loaded series is in the table only: the use counts of its strings and the postings do not
//! include it. [`Head::finish_loading`] updates these for all series at once, label by label, which
//! is much faster ([`LabelBuilder`]).
//!
//! Used on heads without series. From the first loaded series until [`Head::finish_loading`],
//! series must not be selected, evicted, or created in another way.

use hashbrown::HashMap;
use varve_model::Labels;

use super::head::Head;
use super::table::label_sets::LabelSets;
use super::table::{Table, full};
use crate::batch::SeriesRef;
use crate::error::Result;
use crate::index::{LabelBuilder, SymbolId, Symbols};
use varve_collections::Column;

impl Head {
    /// Returns the symbol of a string, for a series that is loaded next.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) when the shard has no symbols left.
    pub(crate) fn load_symbol(&mut self, text: &str) -> Result<SymbolId> {
        self.table.symbols.find_or_add(text).ok_or_else(full)
    }

    /// Takes the strings of the head for a loader that adds to them. Until they are restored, only
    /// [`Head::load_shape`] and [`Head::load`] may be called.
    pub(crate) fn take_strings(&mut self) -> Symbols {
        std::mem::replace(&mut self.table.symbols, Symbols::new(0))
    }

    /// Restores the strings of [`Head::take_strings`].
    pub(crate) fn restore_strings(&mut self, strings: Symbols) {
        self.table.symbols = strings;
    }

    /// Returns the shape of a list of label names in ascending order. The shape is the first word
    /// of every series with these names.
    ///
    /// # Errors
    /// The errors of [`Head::load_symbol`].
    pub(crate) fn load_shape(&mut self, names: &[SymbolId]) -> Result<u32> {
        self.table.load_shape(names)
    }

    /// Returns the slot of a series. Adds the series if it is new. `words` are its shape and its
    /// label values.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) when the shard has no slots left.
    pub(crate) fn load(&mut self, words: &[u32], series: SeriesRef) -> Result<u32> {
        self.table.load(words, series)
    }

    /// Returns the slot of a series as [`Head::load`] does, from labels as strings.
    ///
    /// # Errors
    /// The errors of [`Head::load_symbol`].
    pub(crate) fn load_labels(&mut self, labels: &Labels, series: SeriesRef) -> Result<u32> {
        self.table.load_labels(labels, series)
    }

    /// Makes the loaded series visible to selections and counts.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) if a string is used too often.
    pub(crate) fn finish_loading(&mut self) -> Result<()> {
        self.created.skip(self.len() as u64);
        self.table.finish_loading()
    }
}

/// Series with the same label names, consecutive slots and consecutive label sets.
#[derive(Debug)]
struct SeriesRun {
    shape: u32,
    slot: u32,
    n_series: u32,
    /// Position of the first label set in the arena.
    labels_at: u32,
}

/// The values of one label in a run: the position of the first value, and the distance between
/// values.
#[derive(Debug)]
struct Stretch {
    slot: u32,
    n_series: u32,
    first: u32,
    step: u32,
}

/// The positions of the values of each label.
#[derive(Debug, Default)]
struct Columns {
    /// Stretches of each label, in order of slots.
    labels: Vec<(SymbolId, Column<Stretch>)>,
    /// Indexes into `labels`.
    by_name: HashMap<SymbolId, usize>,
    /// By shape, the indexes of its names in `labels`.
    by_shape: Vec<Vec<usize>>,
}

impl Table {
    fn load_shape(&mut self, names: &[SymbolId]) -> Result<u32> {
        match self.label_sets.find_shape(names) {
            Some(shape) => Ok(shape),
            None => self.label_sets.add_shape(names).ok_or_else(full),
        }
    }

    fn load(&mut self, words: &[u32], series: SeriesRef) -> Result<u32> {
        let hash = self.hash(words);
        if let Some(slot) = self.find_hashed(hash, words) {
            return Ok(slot);
        }
        let slot = self.place(words, series)?;
        self.loaded_hashes.push(hash);
        let hashes = &self.loaded_hashes;
        self.by_labels
            .insert_unique(hash, slot, |&slot| hashes[slot as usize]);
        Ok(slot)
    }

    fn load_labels(&mut self, labels: &Labels, series: SeriesRef) -> Result<u32> {
        let mut words = std::mem::take(&mut self.words);
        let slot = self
            .load_words(labels, &mut words)
            .and_then(|()| self.load(&words, series));
        self.words = words;
        slot
    }

    fn load_words(&mut self, labels: &Labels, words: &mut Vec<u32>) -> Result<()> {
        self.last_labels
            .resolve(labels, &mut self.symbols)
            .ok_or_else(full)?;
        let names = std::mem::take(&mut self.last_labels.names);
        let shape = self.load_shape(&names);
        self.last_labels.names = names;
        words.clear();
        words.push(shape?);
        words.extend(self.last_labels.values.iter().map(|value| value.0));
        Ok(())
    }

    fn finish_loading(&mut self) -> Result<()> {
        self.loaded_hashes = Column::default();
        let mut builder = LabelBuilder::default();
        for (name, stretches) in self.loaded_columns().labels {
            for &Stretch {
                slot,
                n_series,
                first,
                step,
            } in stretches.iter()
            {
                for i in 0..n_series {
                    builder.push(slot + i, SymbolId(self.label_sets.word(first + i * step)));
                }
            }
            let symbols = &mut self.symbols;
            let values = builder
                .finish(|value, n_uses| symbols.retain(value, n_uses))
                .ok_or_else(full)?;
            self.index.insert_label(name, values);
            self.label_names.add(self.symbols.resolve(name));
        }
        for &name in self.label_sets.names_of_shapes() {
            self.symbols.retain(name, 1).ok_or_else(full)?;
        }
        // A damaged checkpoint may have strings of which no series is left.
        self.symbols.forget_all_unused();

        // Slots are less than 2^31.
        self.index.insert_all(self.end() as u32);
        self.groups.insert(self.len() as u64);
        Ok(())
    }

    fn loaded_columns(&self) -> Columns {
        debug_assert_eq!(self.len(), self.end(), "no series has left");
        let mut columns = Columns::default();
        let mut run = None::<SeriesRun>;
        for (slot, labels_at) in (0..).zip(self.label_places()) {
            let shape = self.label_sets.word(labels_at);
            match &mut run {
                Some(run)
                    if run.shape == shape
                        && labels_at
                            == run.labels_at
                                + run.n_series
                                    * (self.label_sets.names(shape).len() as u32 + 1) =>
                {
                    run.n_series += 1
                }
                _ => {
                    let ended = run.replace(SeriesRun {
                        shape,
                        slot,
                        n_series: 1,
                        labels_at,
                    });
                    if let Some(run) = ended {
                        columns.add(&self.label_sets, &run);
                    }
                }
            }
        }
        if let Some(run) = run {
            columns.add(&self.label_sets, &run);
        }
        columns
    }
}

impl Columns {
    fn add(&mut self, sets: &LabelSets, run: &SeriesRun) {
        let names = sets.names(run.shape);
        let shape = run.shape as usize;
        if self.by_shape.len() <= shape {
            self.by_shape.resize_with(shape + 1, Vec::new);
        }
        if self.by_shape[shape].len() < names.len() {
            self.by_shape[shape] = names.iter().map(|&name| self.label(name)).collect();
        }
        // Positions of words have 32 bits.
        let step = names.len() as u32 + 1;
        for (&label, first) in self.by_shape[shape].iter().zip(run.labels_at + 1..) {
            self.labels[label].1.push(Stretch {
                slot: run.slot,
                n_series: run.n_series,
                first,
                step,
            });
        }
    }

    fn label(&mut self, name: SymbolId) -> usize {
        *self.by_name.entry(name).or_insert_with(|| {
            self.labels.push((name, Column::default()));
            self.labels.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use varve_context::QueryContext;
    use varve_model::{MatchOp, Matcher};

    /// Loads series into one head, creates them in another, and asserts that both give the same
    /// results.
    fn check(sets: &[Labels], asked: &[(&str, &str)]) -> Head {
        let mut loaded = Head::new(1);
        let mut grown = Head::new(1);
        for (number, labels) in (0..).map(SeriesRef).zip(sets) {
            let (slot, _) = grown.find_or_create(labels, number).unwrap();
            assert_eq!(
                loaded.load_labels(labels, number).unwrap(),
                slot,
                "of two that are equal the first stands"
            );
        }
        loaded.finish_loading().unwrap();
        assert_eq!(loaded.len(), grown.len());
        for &(name, value) in asked {
            let matchers = [Matcher::new(MatchOp::Equal, name, value).unwrap()];
            let select = |head: &Head| head.select(&QueryContext::unbounded(), &matchers).unwrap();
            assert_eq!(select(&loaded), select(&grown), "{name}={value}");
        }
        loaded
    }

    proptest! {
        #[test]
        fn a_loaded_head_gives_the_same_results_as_one_that_grew(
            sets in proptest::collection::vec(proptest::collection::btree_map("[a-c]", "[a-d]", 0..4), 0..80),
        ) {
            let of = |set: &std::collections::BTreeMap<String, String>| {
                Labels::from_pairs(set.iter().map(|(name, value)| (name.as_str(), value.as_str()))).unwrap()
            };
            let sets: Vec<_> = sets.iter().map(of).collect();
            let asked: Vec<_> = ["a", "b", "c"].into_iter()
                .flat_map(|name| ["", "a", "b", "c", "d"].map(|value| (name, value))).collect();
            let mut loaded = check(&sets, &asked);
            for labels in &sets {
                prop_assert_eq!(&loaded.labels(loaded.find(labels).unwrap()), labels);
            }
            // Strings were counted as often as they are used: they are removed with the last
            // series.
            loaded.evict(i64::MAX, 0..sets.len() as u32);
            prop_assert_eq!(loaded.len(), 0);
            prop_assert!(["a", "b", "c", "d"].iter().all(|text| loaded.table.symbols.find(text).is_none()));
        }
    }

    #[test]
    fn label_sets_in_several_arena_pieces_are_all_indexed() {
        let of = |i: usize| {
            let all = (i / 5_000).to_string();
            let some = (i % 3).to_string();
            let own = i.to_string();
            let pairs = [
                ("all", all.as_str()),
                ("own", &own),
                ("some", if i.is_multiple_of(2) { &some } else { "" }),
            ];
            Labels::from_pairs(pairs).unwrap()
        };
        let sets: Vec<_> = (0..40_000).map(of).collect();
        check(
            &sets,
            &[
                ("all", "0"),
                ("all", "7"),
                ("some", "2"),
                ("some", ""),
                ("own", "39999"),
                ("own", "16384"),
            ],
        );
    }
}
