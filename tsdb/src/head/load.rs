//! Loading: the series of a log come back, all of them before anybody asks.
//!
//! A series that is loaded is known to the table and to nothing else: its texts do not count it, and no postings have it.
//! [`Head::finish_loading`] makes up for that, label by label for all series at once, which takes a fraction of what it
//! takes series by series ([`LabelBuilder`]).
//!
//! Used by the replay, on heads without series. From the first series that is loaded until the end nobody may select, and
//! no series may be made otherwise or leave.

use hashbrown::HashMap;

use super::label_sets::LabelSets;
use super::table::{Table, full};
use super::{Head, SeriesRef};
use crate::error::Result;
use crate::index::{LabelBuilder, SymbolId};
use crate::labels::Labels;

impl Head {
    /// Returns the symbol of a text that a series is about to be loaded with.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) when the shard's symbols are used up.
    pub(crate) fn load_symbol(&mut self, text: &str) -> Result<SymbolId> {
        self.table.symbols.number(text).ok_or_else(full)
    }

    /// Returns the number of a list of label names in ascending order: the first of the words of a series that has them.
    ///
    /// # Errors
    /// As [`Head::load_symbol`].
    pub(crate) fn load_shape(&mut self, names: &[SymbolId]) -> Result<u32> {
        self.table.shape(names)
    }

    /// Returns the slot of a series, and adds it if it is not here; its words are the number of its names and its values.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) when the shard's slots are used up.
    pub(crate) fn load(&mut self, words: &[u32], series: SeriesRef) -> Result<u32> {
        self.table.load(words, series)
    }

    /// As [`Head::load`], of labels as texts.
    ///
    /// # Errors
    /// As [`Head::load_symbol`].
    pub(crate) fn load_labels(&mut self, labels: &Labels, series: SeriesRef) -> Result<u32> {
        self.table.load_labels(labels, series)
    }

    /// Makes all that was loaded known to those who select and count.
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit) if a text is used too often.
    pub(crate) fn finish_loading(&mut self) -> Result<()> {
        self.table.finish_loading()
    }
}

/// Series with the same label names, whose slots follow each other and whose label sets do as well.
#[derive(Debug)]
struct Run {
    shape: u32,
    slot: u32,
    n_series: u32,
    /// Where the first label set begins.
    at: u32,
}

/// The values of one label of a run: where the first is, and how far it is from each to the next.
#[derive(Debug)]
struct Stretch {
    slot: u32,
    n_series: u32,
    first: u32,
    step: u32,
}

/// Where the values of each label are.
#[derive(Debug, Default)]
struct Columns {
    /// In order of slots.
    labels: Vec<(SymbolId, Vec<Stretch>)>,
    /// Places in `labels`.
    by_name: HashMap<SymbolId, usize>,
    /// Likewise, of the names of each shape that was seen.
    by_shape: Vec<Vec<usize>>,
}

impl Table {
    fn load(&mut self, words: &[u32], series: SeriesRef) -> Result<u32> {
        let hash = self.hash(words);
        match self.find_hashed(hash, words) {
            Some(slot) => Ok(slot),
            None => self.place(words, hash, series),
        }
    }

    fn load_labels(&mut self, labels: &Labels, series: SeriesRef) -> Result<u32> {
        let mut words = std::mem::take(&mut self.words);
        let slot = self.load_words(labels, &mut words).and_then(|()| self.load(&words, series));
        self.words = words;
        slot
    }

    fn load_words(&mut self, labels: &Labels, words: &mut Vec<u32>) -> Result<()> {
        self.recent.number(labels, &mut self.symbols).ok_or_else(full)?;
        let names = std::mem::take(&mut self.recent.names);
        let shape = self.shape(&names);
        self.recent.names = names;
        words.clear();
        words.push(shape?);
        words.extend(self.recent.values.iter().map(|value| value.0));
        Ok(())
    }

    fn finish_loading(&mut self) -> Result<()> {
        let mut builder = LabelBuilder::default();
        for (name, stretches) in self.loaded_columns().labels {
            for Stretch { slot, n_series, first, step } in stretches {
                for i in 0..n_series {
                    builder.push(slot + i, SymbolId(self.label_sets.word(first + i * step)));
                }
            }
            let symbols = &mut self.symbols;
            let values = builder.finish(|value, n_uses| symbols.retain(value, n_uses)).ok_or_else(full)?;
            self.index.insert_label(name, values);
        }
        // Slots are less than 2^31.
        self.index.insert_all(self.end() as u32);
        self.groups.insert(self.len() as u64);
        Ok(())
    }

    fn loaded_columns(&self) -> Columns {
        debug_assert_eq!(self.len(), self.end(), "no series has left");
        let (mut columns, mut run) = (Columns::default(), None::<Run>);
        for (slot, at) in (0..).zip(self.label_places()) {
            let shape = self.label_sets.word(at);
            match &mut run {
                Some(run)
                    if run.shape == shape
                        && at == run.at + run.n_series * (self.label_sets.names(shape).len() as u32 + 1) =>
                {
                    run.n_series += 1
                }
                _ => {
                    let ended = run.replace(Run { shape, slot, n_series: 1, at });
                    ended.into_iter().for_each(|run| columns.add(&self.label_sets, &run));
                }
            }
        }
        run.into_iter().for_each(|run| columns.add(&self.label_sets, &run));
        columns
    }
}

impl Columns {
    fn add(&mut self, sets: &LabelSets, run: &Run) {
        let names = sets.names(run.shape);
        let shape = run.shape as usize;
        if self.by_shape.len() <= shape {
            self.by_shape.resize_with(shape + 1, Vec::new);
        }
        if self.by_shape[shape].len() < names.len() {
            self.by_shape[shape] = names.iter().map(|&name| self.label(name)).collect();
        }
        // Where words are is 32 bits.
        let step = names.len() as u32 + 1;
        for (&label, first) in self.by_shape[shape].iter().zip(run.at + 1..) {
            self.labels[label].1.push(Stretch { slot: run.slot, n_series: run.n_series, first, step });
        }
    }

    fn label(&mut self, name: SymbolId) -> usize {
        *self.by_name.entry(name).or_insert_with(|| {
            self.labels.push((name, Vec::new()));
            self.labels.len() - 1
        })
    }
}
