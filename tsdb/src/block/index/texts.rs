//! Names and values of the symbols that came lately.

use hashbrown::HashMap;

use super::dictionary::DictionaryCursor;
use crate::block::Symbol;
use crate::error::Result;

/// A bounded memory of the dictionary: neighbouring series have most of their labels in common.
#[derive(Debug)]
pub(super) struct TextCache {
    cursor: DictionaryCursor,
    places: HashMap<Symbol, Place>,
    /// Names and values, one behind the other.
    text: String,
}

/// Where a name and, behind it, its value lie.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    value_start: usize,
    end: usize,
}

/// The bytes of texts that are kept before all are forgotten.
const TEXT_SIZE_MAX: usize = 256 << 10;

impl TextCache {
    /// Starts empty.
    pub(super) fn new(cursor: DictionaryCursor) -> Self {
        Self { cursor, places: HashMap::new(), text: String::new() }
    }

    /// Returns name and value of a symbol.
    ///
    /// # Errors
    /// As [`DictionaryCursor::go_to`].
    pub(super) fn get(&mut self, symbol: Symbol) -> Result<(&str, &str)> {
        let place = match self.places.get(&symbol) {
            Some(&place) => place,
            None => self.read(symbol)?,
        };
        Ok((&self.text[place.start..place.value_start], &self.text[place.value_start..place.end]))
    }

    fn read(&mut self, symbol: Symbol) -> Result<Place> {
        if self.text.len() > TEXT_SIZE_MAX {
            self.text.clear();
            self.places.clear();
        }
        self.cursor.go_to(symbol)?;
        let (name, value) = self.cursor.texts()?;
        let start = self.text.len();
        let value_start = start + name.len();
        self.text.push_str(name);
        self.text.push_str(value);
        let place = Place { start, value_start, end: self.text.len() };
        self.places.insert(symbol, place);
        Ok(place)
    }
}
