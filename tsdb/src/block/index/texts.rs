//! From rows of symbols to label sets, each made mostly of the one before.

use hashbrown::HashMap;

use super::dictionary::{Dictionary, DictionaryCursor};
use super::table::Access;
use crate::block::Symbol;
use crate::error::Result;
use crate::labels::{PackedBuilder, PackedLabel};

/// Makes label sets.
#[derive(Debug)]
pub(super) struct LabelTexts {
    recent: RecentLabels,
    /// The symbols of the set that was made last.
    row: Vec<Symbol>,
    set: PackedBuilder,
    before: PackedBuilder,
}

impl LabelTexts {
    /// Starts with the empty set.
    pub(super) fn new(dictionary: &Dictionary) -> Self {
        let recent = RecentLabels::new(dictionary);
        Self { recent, row: Vec::new(), set: PackedBuilder::default(), before: PackedBuilder::default() }
    }

    /// Makes the set of some symbols, which ascend; false if their names do not.
    ///
    /// # Errors
    /// As [`DictionaryCursor::go_to`].
    pub(super) fn make(&mut self, row: &[Symbol]) -> Result<bool> {
        std::mem::swap(&mut self.set, &mut self.before);
        self.set.clear();
        let made = self.make_of_before(row);
        // What was made of a row that is refused is not one of its sets.
        self.row.clear();
        if matches!(made, Ok(true)) {
            self.row.extend_from_slice(row);
        }
        made
    }

    fn make_of_before(&mut self, row: &[Symbol]) -> Result<bool> {
        let Self { recent, row: row_before, set, before } = self;
        let (mut place, mut place_before) = (0, 0);
        while let Some(&symbol) = row.get(place) {
            place_before += row_before[place_before..].iter().take_while(|&&other| other < symbol).count();
            let both = row[place..].iter().zip(&row_before[place_before..]);
            let n_same = both.take_while(|(symbol, other)| symbol == other).count();
            let ascends = if n_same > 0 {
                set.push_from(before, place_before..place_before + n_same)
            } else {
                let (text, label) = recent.get(symbol, place)?;
                set.push_packed(text, label)
            };
            if !ascends {
                return Ok(false);
            }
            place += n_same.max(1);
            place_before += n_same;
        }
        Ok(true)
    }

    /// Returns the canonical text of the set that was made last.
    pub(super) fn packed(&self) -> &str {
        self.set.as_packed()
    }
}

/// A bounded memory of the dictionary: names and values of the symbols that came lately, as label sets hold them.
#[derive(Debug)]
struct RecentLabels {
    dictionary: Dictionary,
    /// One for each of the first places of a set: the labels there mostly have one name, whose values lie together.
    cursors: Vec<DictionaryCursor>,
    labels: HashMap<Symbol, PackedLabel>,
    /// Labels, one behind the other.
    packed: String,
}

/// The bytes of labels that are kept before all are forgotten.
const PACKED_SIZE_MAX: usize = 256 << 10;
/// Most cursors, each of which holds a page. The places from here on share the last one.
const CURSORS_MAX: usize = 16;

impl RecentLabels {
    fn new(dictionary: &Dictionary) -> Self {
        let dictionary = dictionary.clone();
        Self { dictionary, cursors: Vec::new(), labels: HashMap::new(), packed: String::new() }
    }

    /// Returns the text in which the label of a symbol lies, and where. `place` is that in its set.
    fn get(&mut self, symbol: Symbol, place: usize) -> Result<(&str, PackedLabel)> {
        let label = match self.labels.get(&symbol) {
            Some(&label) => label,
            None => self.read(symbol, place.min(CURSORS_MAX - 1))?,
        };
        Ok((&self.packed, label))
    }

    fn read(&mut self, symbol: Symbol, cursor: usize) -> Result<PackedLabel> {
        if self.packed.len() > PACKED_SIZE_MAX {
            self.packed.clear();
            self.labels.clear();
        }
        while self.cursors.len() <= cursor {
            self.cursors.push(self.dictionary.cursor(Access::Cached));
        }
        let cursor = &mut self.cursors[cursor];
        cursor.go_to(symbol)?;
        let (name, value) = cursor.texts()?;
        let label = PackedLabel::append(&mut self.packed, name, value);
        self.labels.insert(symbol, label);
        Ok(label)
    }
}
