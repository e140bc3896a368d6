//! A cursor over the dictionary, moved by number or by name and value.

use std::cmp::Ordering;

use super::{Dictionary, key_of, key_parts};
use crate::block::Symbol;
use crate::block::index::table::{Access, Moved, TableCursor};
use crate::chunk::varint::{take_bytes, take_u64};
use crate::error::{Error, Result};

/// A cursor: at a symbol, before the first, or after the last.
#[derive(Debug)]
pub(in crate::block::index) struct DictionaryCursor {
    entries: TableCursor,
    name: Vec<u8>,
    value: Vec<u8>,
    current: Option<Symbol>,
}

impl DictionaryCursor {
    /// Creates a cursor before the first symbol, where `entries` is.
    pub(super) fn new(entries: TableCursor) -> Self {
        Self { entries, name: Vec::new(), value: Vec::new(), current: None }
    }

    /// Advances to the next symbol and returns it. Returns `None` after the last.
    ///
    /// # Errors
    /// The errors of [`TableCursor::step`].
    pub(in crate::block::index) fn next(&mut self) -> Result<Option<Symbol>> {
        let number = self.entries.next();
        if number == self.len() {
            self.current = None;
            return Ok(None);
        }
        self.step()?;
        self.current = Some(Symbol(number));
        Ok(self.current)
    }

    /// Moves to a symbol.
    ///
    /// # Errors
    /// The errors of [`TableCursor::approach`]; [`Error::Corrupt`] if the symbol does not exist.
    pub(in crate::block::index) fn go_to(&mut self, symbol: Symbol) -> Result<()> {
        if self.current == Some(symbol) {
            return Ok(());
        }
        if self.entries.approach(symbol.0)? == Moved::Yes {
            self.forget();
        }
        while self.entries.next() <= symbol.0 {
            self.step()?;
        }
        self.current = Some(symbol);
        Ok(())
    }

    /// Moves to the first symbol at or after this name and value, and returns it. Returns `None` after the last.
    ///
    /// # Errors
    /// The errors of [`TableCursor::approach`].
    pub(in crate::block::index) fn seek(&mut self, name: &[u8], value: &[u8]) -> Result<Option<Symbol>> {
        if self.len() == 0 {
            return Ok(None);
        }
        let page_idx = self.page_for(name, value)?;
        self.entries.load(page_idx)?;
        // The symbol is in the last group that begins at or before it, or it begins the group after that.
        let (mut low, mut high) = (0, self.entries.n_groups());
        while high - low > 1 {
            let middle = low.midpoint(high);
            self.read_group(middle)?;
            if self.compare(name, value).is_gt() { high = middle } else { low = middle }
        }
        self.read_group(low)?;
        while self.compare(name, value).is_lt() {
            if self.next()?.is_none() {
                return Ok(None);
            }
        }
        self.current = Some(Symbol(self.entries.next() - 1));
        Ok(self.current)
    }

    /// Returns the last page whose first symbol is not after this name and value, or the first page.
    fn page_for(&mut self, name: &[u8], value: &[u8]) -> Result<usize> {
        let key = key_of(name, value);
        let (keys, key) = (self.entries.table().keys(), key_parts(&key));
        let mut low = keys.partition_point(|page| key_parts(page) < key);
        let mut high = keys.partition_point(|page| key_parts(page) <= key);
        // Pages from `low` to `high` have equal keys; only their first symbols tell.
        while low < high {
            let middle = low.midpoint(high);
            self.entries.load(middle)?;
            self.read_group(0)?;
            if self.compare(name, value).is_gt() { high = middle } else { low = middle + 1 }
        }
        Ok(low.saturating_sub(1))
    }

    /// Reads the first entry of a group of the page.
    fn read_group(&mut self, group_idx: u32) -> Result<()> {
        self.entries.go_to_group(group_idx)?;
        self.forget();
        self.step()
    }

    /// Returns `true` if the last entry read is this name and value.
    pub(super) fn is_on(&self, name: &[u8], value: &[u8]) -> bool {
        self.compare(name, value).is_eq()
    }

    fn compare(&self, name: &[u8], value: &[u8]) -> Ordering {
        (&*self.name, &*self.value).cmp(&(name, value))
    }

    fn forget(&mut self) {
        self.name.clear();
        self.value.clear();
        self.current = None;
    }

    fn len(&self) -> u32 {
        self.entries.table().len()
    }

    fn step(&mut self) -> Result<()> {
        let begins_group = self.entries.begins_group();
        let (name, value) = (&mut self.name, &mut self.value);
        self.entries.step(|src| take_entry(src, begins_group, name, value))?;
        match self.entries.key_of_first() {
            Some(found) if found != key_of(&self.name, &self.value) => Err(self.entries.damaged()),
            _ => Ok(()),
        }
    }

    /// Returns the error for a damaged page.
    pub(in crate::block::index) fn damaged(&self) -> Error {
        self.entries.damaged()
    }

    /// Returns name and value of the present symbol.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are not UTF-8.
    pub(in crate::block::index) fn name_and_value(&self) -> Result<(&str, &str)> {
        match (str::from_utf8(&self.name), str::from_utf8(&self.value)) {
            (Ok(name), Ok(value)) => Ok((name, value)),
            _ => Err(self.damaged()),
        }
    }
}

/// Decodes an entry; `name` and `value` are those of the entry before, or empty, and are overwritten.
fn take_entry(src: &mut &[u8], begins_group: bool, name: &mut Vec<u8>, value: &mut Vec<u8>) -> Option<()> {
    let head = take_u64(src)?;
    let (shared, named) = (usize::try_from(head >> 1).ok()?, head & 1 == 1);
    if shared > value.len() || (begins_group && (shared > 0 || !named)) {
        return None;
    }
    let mut name_ascends = false;
    if named {
        let text = take_string(src)?;
        if text < &name[..] {
            return None;
        }
        name_ascends = text > &name[..];
        name.clear();
        name.extend_from_slice(text);
    }
    let rest = take_string(src)?;
    if !name_ascends && rest <= &value[shared..] {
        return None;
    }
    value.truncate(shared);
    value.extend_from_slice(rest);
    (!name.is_empty() && !value.is_empty()).then_some(())
}

fn take_string<'a>(src: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = take_u64(src)?.try_into().ok()?;
    take_bytes(src, size)
}

/// All symbols in ascending order, read without the cache: for merges.
#[derive(Debug)]
pub(crate) struct SymbolCursor {
    cursor: DictionaryCursor,
}

impl SymbolCursor {
    /// Creates a cursor before the first symbol.
    pub(in crate::block::index) fn new(dictionary: &Dictionary) -> Self {
        Self { cursor: dictionary.cursor(Access::Scan) }
    }

    /// Returns name and value of the next symbol.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corrupt`] with path and offset.
    pub(crate) fn next(&mut self) -> Result<Option<(&str, &str)>> {
        match self.cursor.next()? {
            Some(_) => self.cursor.name_and_value().map(Some),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_entries_are_rejected_or_decode(
            bytes in proptest::collection::vec(any::<u8>(), 0..40), begins_group: bool,
        ) {
            let (mut name, mut value) = (b"name".to_vec(), b"value".to_vec());
            let mut src = &bytes[..];
            if take_entry(&mut src, begins_group, &mut name, &mut value).is_some() {
                prop_assert!((&name[..], &value[..]) > (b"name", b"value"));
            }
        }
    }
}
