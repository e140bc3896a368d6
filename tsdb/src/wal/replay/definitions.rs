//! Series definitions on their way from a log into the head of the one shard that all its series belong to.
//!
//! A series is loaded as words: the number of its list of names, and the symbols of its values. Those of the series before
//! are kept, and what the log says to be the same is not looked up again. Labels of a checkpoint are numbered: each is
//! looked up once.

use crate::error::Result;
use crate::head::{Head, Pair, SeriesRef};
use crate::index::SymbolId;
use crate::wal::checkpoint::Described;
use crate::wal::record::{Common, DefinedLabel};

/// The series of a checkpoint. All come here, in order.
#[derive(Debug, Default)]
pub(super) struct OfCheckpoint {
    before: Words,
    /// Of the series before: places of its labels in the checkpoint.
    places: Vec<usize>,
    /// Labels by their places in the checkpoint, as far as they were needed.
    pairs: Vec<Option<Pair>>,
}

/// The series of segments. All come here, in order.
#[derive(Debug, Default)]
pub(super) struct OfSegments {
    before: Words,
}

/// The series that was loaded last.
#[derive(Debug)]
struct Words {
    names: Vec<SymbolId>,
    /// The number of the names if that is known, then the values.
    words: Vec<u32>,
    has_shape: bool,
}

impl OfCheckpoint {
    /// Loads a series and returns its slot.
    ///
    /// # Errors
    /// As [`Head::load_symbol`] and [`Head::load`].
    pub(super) fn load(&mut self, head: &mut Head, described: Described<'_>) -> Result<u32> {
        let places = described.places();
        for (at, &place) in places.iter().enumerate() {
            if self.places.get(at) != Some(&place) {
                let (name, value) = self.pair(head, described, place)?;
                self.before.set(at, name, value);
            }
        }
        self.places.clear();
        self.places.extend_from_slice(places);
        self.before.load(head, places.len(), described.series)
    }

    fn pair(&mut self, head: &mut Head, described: Described<'_>, place: usize) -> Result<Pair> {
        if place >= self.pairs.len() {
            // No more than the checkpoint has symbols.
            self.pairs.resize(place + 1, None);
        }
        if let Some(known) = self.pairs[place] {
            return Ok(known);
        }
        let (name, value) = described.symbol(place);
        Ok(*self.pairs[place].insert((head.load_symbol(name)?, head.load_symbol(value)?)))
    }
}

impl OfSegments {
    /// Loads a series and returns its slot.
    ///
    /// # Errors
    /// As [`Head::load_symbol`] and [`Head::load`].
    pub(super) fn load(&mut self, head: &mut Head, series: SeriesRef, labels: &[DefinedLabel<'_>]) -> Result<u32> {
        for (at, label) in labels.iter().enumerate() {
            let name = match label.common {
                Common::All => continue,
                Common::Name => self.before.names[at],
                Common::Nothing => head.load_symbol(label.name)?,
            };
            self.before.set(at, name, head.load_symbol(label.value)?);
        }
        self.before.load(head, labels.len(), series)
    }
}

impl Words {
    fn set(&mut self, at: usize, name: SymbolId, value: SymbolId) {
        match self.names.get_mut(at) {
            Some(before) => {
                self.has_shape &= *before == name;
                *before = name;
                self.words[1 + at] = value.0;
            }
            None => {
                self.has_shape = false;
                self.names.push(name);
                self.words.push(value.0);
            }
        }
    }

    /// Loads the series of the first `n_labels` labels, which are set.
    fn load(&mut self, head: &mut Head, n_labels: usize, series: SeriesRef) -> Result<u32> {
        self.has_shape &= self.names.len() == n_labels;
        if !self.has_shape {
            self.names.truncate(n_labels);
            self.words.truncate(1 + n_labels);
            self.words[0] = head.load_shape(&self.names)?;
            self.has_shape = true;
        }
        head.load(&self.words, series)
    }
}

impl Default for Words {
    fn default() -> Self {
        Self { names: Vec::new(), words: vec![0], has_shape: false }
    }
}
