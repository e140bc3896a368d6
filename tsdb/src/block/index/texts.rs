//! From rows of symbols to label sets, each made mostly of the one before.

use hashbrown::HashMap;

use super::dictionary::{Dictionary, DictionaryCursor};
use super::table::Access;
use crate::block::Symbol;
use crate::error::Result;
use crate::labels::{PackedBuilder, PackedLabel};
use crate::memory::Charge;

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

    /// Keeps more of the dictionary in memory from here on, where the budget has plenty of room.
    pub(super) fn keep_more(&mut self, charge: Charge) {
        self.recent.charge = Some(charge);
    }

    /// Makes the set of some symbols, which ascend; false if their names do not.
    ///
    /// # Errors
    /// As [`DictionaryCursor::go_to`].
    pub(super) fn make(&mut self, row: &[Symbol]) -> Result<bool> {
        std::mem::swap(&mut self.set, &mut self.before);
        self.set.clear();
        let made = self.make_of_before(row);
        // What was made of a row that is refused is no set.
        self.row.clear();
        if matches!(made, Ok(true)) {
            self.row.extend_from_slice(row);
        } else {
            self.set.clear();
        }
        made
    }

    /// Tells whether the set that was made last is of these symbols.
    pub(super) fn is_of(&self, row: &[Symbol]) -> bool {
        self.row == row
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
    /// Of what is kept above [`PACKED_SIZE_MIN`]; without, nothing is.
    charge: Option<Charge>,
    /// The bytes of labels that may be kept before all are forgotten.
    packed_size_max: usize,
}

/// The bytes of labels that are kept in any case.
const PACKED_SIZE_MIN: usize = 256 << 10;
/// The bytes of labels that are kept where the budget has plenty of room: those of ten thousand pods, which come again with each
/// metric.
const PACKED_SIZE_MAX: usize = 4 << 20;
/// Room is taken of the budget for so many bytes of labels at a time.
const PACKED_SIZE_STEP: usize = 64 << 10;
/// What a byte of labels takes with its part of the table: few labels are shorter than an entry there, and both may be half
/// empty.
const PACKED_COST: usize = 4;
/// Most cursors, each of which holds a page. The places from here on share the last one.
const CURSORS_MAX: usize = 16;

impl RecentLabels {
    fn new(dictionary: &Dictionary) -> Self {
        let dictionary = dictionary.clone();
        let (labels, packed) = (HashMap::new(), String::new());
        Self { dictionary, cursors: Vec::new(), labels, packed, charge: None, packed_size_max: PACKED_SIZE_MIN }
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
        if self.packed.len() > self.packed_size_max && !self.take_room() {
            self.forget();
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

    /// Takes room for more of the budget, if it has plenty.
    fn take_room(&mut self) -> bool {
        let Some(charge) = &mut self.charge else { return false };
        let has_room = self.packed_size_max < PACKED_SIZE_MAX && charge.grow_if_plenty(PACKED_SIZE_STEP * PACKED_COST);
        self.packed_size_max += if has_room { PACKED_SIZE_STEP } else { 0 };
        has_room
    }

    /// Starts anew. What was grown is given back, unless that was all there may be: then it fills again.
    fn forget(&mut self) {
        self.labels.clear();
        self.packed.clear();
        if self.packed_size_max < PACKED_SIZE_MAX
            && let Some(charge) = &mut self.charge
        {
            charge.shrink(charge.size());
            self.packed_size_max = PACKED_SIZE_MIN;
            self.labels.shrink_to(0);
            self.packed.shrink_to(0);
        }
    }
}
