//! Building label sets from rows of symbols. Labels that the previous set has are copied from it.

use hashbrown::HashMap;
use varve_context::Charge;
use varve_model::labels::{PackedBuilder, PackedLabel};

use super::dictionary::{Dictionary, DictionaryCursor};
use crate::block::page::Access;
use crate::block::symbol::Symbol;
use crate::error::Result;

/// Builds label sets.
#[derive(Debug)]
pub(super) struct LabelSetBuilder {
    read_cache: LabelCache,
    /// The symbols of the set that was built last.
    row: Vec<Symbol>,
    set: PackedBuilder,
    before: PackedBuilder,
}

impl LabelSetBuilder {
    /// Creates a builder with the empty set.
    pub(super) fn new(dictionary: &Dictionary) -> Self {
        let read_cache = LabelCache::new(dictionary);
        Self {
            read_cache,
            row: Vec::new(),
            set: PackedBuilder::default(),
            before: PackedBuilder::default(),
        }
    }

    /// Caches more of the dictionary from now on, if the budget has plenty of room.
    pub(super) fn keep_more(&mut self, charge: Charge) {
        self.read_cache.charge = Some(charge);
    }

    /// Builds the label set of ascending symbols. Returns `false` if their names do not ascend.
    ///
    /// # Errors
    /// The errors of [`DictionaryCursor::go_to`].
    pub(super) fn make(&mut self, row: &[Symbol]) -> Result<bool> {
        std::mem::swap(&mut self.set, &mut self.before);
        self.set.clear();
        let made = self.make_of_before(row);
        // A rejected row leaves no valid set.
        self.row.clear();
        if matches!(made, Ok(true)) {
            self.row.extend_from_slice(row);
        } else {
            self.set.clear();
        }
        made
    }

    /// Returns `true` if the set that was built last has these symbols.
    pub(super) fn is_of(&self, row: &[Symbol]) -> bool {
        self.row == row
    }

    fn make_of_before(&mut self, row: &[Symbol]) -> Result<bool> {
        let Self {
            read_cache,
            row: row_before,
            set,
            before,
        } = self;
        let mut place = 0;
        let mut place_before = 0;
        while let Some(&symbol) = row.get(place) {
            place_before += row_before[place_before..]
                .iter()
                .take_while(|&&other| other < symbol)
                .count();
            let both = row[place..].iter().zip(&row_before[place_before..]);
            let n_same = both.take_while(|(symbol, other)| symbol == other).count();
            let ascends = if n_same > 0 {
                set.push_from(before, place_before..place_before + n_same)
            } else {
                let (text, label) = read_cache.get(symbol, place)?;
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

    /// Returns the size of the label sets in bytes, without the cache.
    pub(super) fn size(&self) -> usize {
        self.set.size() + self.before.size()
    }

    /// Returns the canonical string of the last set.
    pub(super) fn packed(&self) -> &str {
        self.set.as_packed()
    }
}

/// A bounded cache of the dictionary: names and values of recent symbols, packed as in label sets.
#[derive(Debug)]
struct LabelCache {
    dictionary: Dictionary,
    /// One cursor for each of the first positions in a set. The labels at a position mostly have
    /// the same name, and neighboring values.
    cursors: Vec<DictionaryCursor>,
    labels: HashMap<Symbol, PackedLabel>,
    /// Packed labels.
    packed: String,
    /// Charge for the size above [`PACKED_SIZE_MIN`]. Without a charge nothing more is cached.
    charge: Option<Charge>,
    /// Size of the packed labels at which the cache is cleared.
    packed_size_max: usize,
}

/// Size of packed labels that is always allowed, in bytes.
const PACKED_SIZE_MIN: usize = 256 << 10;
/// Maximum size of packed labels if the budget has plenty of room, in bytes: the labels of ten
/// thousand pods, which recur with each metric.
const PACKED_SIZE_MAX: usize = 4 << 20;
/// Step by which the allowed size grows, in bytes.
const PACKED_SIZE_STEP: usize = 64 << 10;
/// Memory per byte of packed labels, including the table: few labels are shorter than an entry of
/// the table, and both buffers may be half empty.
const PACKED_COST: usize = 4;
/// Maximum number of cursors, each of which holds a page. Later positions share the last cursor.
const CURSORS_MAX: usize = 16;

impl LabelCache {
    fn new(dictionary: &Dictionary) -> Self {
        let dictionary = dictionary.clone();
        let labels = HashMap::new();
        let packed = String::new();
        Self {
            dictionary,
            cursors: Vec::new(),
            labels,
            packed,
            charge: None,
            packed_size_max: PACKED_SIZE_MIN,
        }
    }

    /// Returns the string with the label of a symbol, and its position. `place` is the position of
    /// the label in its set.
    fn get(&mut self, symbol: Symbol, place: usize) -> Result<(&str, PackedLabel)> {
        let label = match self.labels.get(&symbol) {
            Some(&label) => label,
            None => self.read(symbol, place.min(CURSORS_MAX - 1))?,
        };
        Ok((&self.packed, label))
    }

    fn read(&mut self, symbol: Symbol, cursor: usize) -> Result<PackedLabel> {
        if self.packed.len() > self.packed_size_max && !self.grow() {
            self.clear();
        }
        while self.cursors.len() <= cursor {
            self.cursors.push(self.dictionary.cursor(Access::Cached));
        }
        let cursor = &mut self.cursors[cursor];
        cursor.go_to(symbol)?;
        let (name, value) = cursor.name_and_value()?;
        let label = PackedLabel::append(&mut self.packed, name, value);
        self.labels.insert(symbol, label);
        Ok(label)
    }

    /// Charges more room, if the budget has plenty.
    fn grow(&mut self) -> bool {
        let Some(charge) = &mut self.charge else {
            return false;
        };
        let has_room = self.packed_size_max < PACKED_SIZE_MAX
            && charge.grow_if_plenty(PACKED_SIZE_STEP * PACKED_COST);
        self.packed_size_max += if has_room { PACKED_SIZE_STEP } else { 0 };
        has_room
    }

    /// Clears the cache. Releases the charge unless the cache had its maximum size: then it will
    /// fill again.
    fn clear(&mut self) {
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
