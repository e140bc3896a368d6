//! Names and values of the symbols that came lately, as label sets hold them.

use hashbrown::HashMap;

use super::dictionary::DictionaryCursor;
use crate::block::Symbol;
use crate::error::Result;
use crate::labels::PackedLabel;

/// A bounded memory of the dictionary: neighbouring series have most of their labels in common.
#[derive(Debug)]
pub(super) struct TextCache {
    cursor: DictionaryCursor,
    places: HashMap<Symbol, PackedLabel>,
    /// Labels, one behind the other.
    packed: String,
}

/// The bytes of labels that are kept before all are forgotten.
const PACKED_SIZE_MAX: usize = 256 << 10;

impl TextCache {
    /// Starts empty.
    pub(super) fn new(cursor: DictionaryCursor) -> Self {
        Self { cursor, places: HashMap::new(), packed: String::new() }
    }

    /// Returns the text in which the label of a symbol lies, and where.
    ///
    /// # Errors
    /// As [`DictionaryCursor::go_to`].
    pub(super) fn get(&mut self, symbol: Symbol) -> Result<(&str, PackedLabel)> {
        let label = match self.places.get(&symbol) {
            Some(&label) => label,
            None => self.read(symbol)?,
        };
        Ok((&self.packed, label))
    }

    fn read(&mut self, symbol: Symbol) -> Result<PackedLabel> {
        if self.packed.len() > PACKED_SIZE_MAX {
            self.packed.clear();
            self.places.clear();
        }
        self.cursor.go_to(symbol)?;
        let (name, value) = self.cursor.texts()?;
        let label = PackedLabel::append(&mut self.packed, name, value);
        self.places.insert(symbol, label);
        Ok(label)
    }
}
