//! A cursor over the dictionary, moved by number or by name and value.

use std::cmp::Ordering;

use varve_codec::varint::{take_sized, take_u64};

use super::key::{key_of, key_parts};
use crate::block::index::table::TableCursor;
use crate::block::symbol::Symbol;
use crate::error::{Error, Result};

/// A cursor: at a symbol, before the first, or after the last.
#[derive(Debug)]
pub(crate) struct DictionaryCursor {
    entries: TableCursor,
    name: Vec<u8>,
    value: Vec<u8>,
    current: Option<Symbol>,
}

impl DictionaryCursor {
    /// Creates a cursor before the first symbol. `entries` must be at the beginning of the
    /// dictionary.
    pub(super) fn new(entries: TableCursor) -> Self {
        Self {
            entries,
            name: Vec::new(),
            value: Vec::new(),
            current: None,
        }
    }

    /// Advances to the next symbol and returns it. Returns `None` after the last.
    ///
    /// # Errors
    /// The errors of [`TableCursor::step`].
    pub(crate) fn next(&mut self) -> Result<Option<Symbol>> {
        let number = self.entries.next();
        if number == self.len() {
            self.current = None;
            return Ok(None);
        }
        self.step()?;
        self.current = Some(Symbol(number));
        Ok(self.current)
    }

    /// Advances to the next symbol and returns its name and value. Returns `None` after the last
    /// symbol.
    ///
    /// # Errors
    /// The errors of [`TableCursor::step`]; [`Error::Corrupt`] if they are not UTF-8.
    pub(crate) fn next_pair(&mut self) -> Result<Option<(&str, &str)>> {
        if self.next()?.is_none() {
            Ok(None)
        } else {
            self.name_and_value().map(Some)
        }
    }

    /// Moves to a symbol.
    ///
    /// # Errors
    /// The errors of [`TableCursor::seek_restart`]; [`Error::Corrupt`] if the symbol does not
    /// exist.
    pub(crate) fn go_to(&mut self, symbol: Symbol) -> Result<()> {
        if self.current == Some(symbol) {
            return Ok(());
        }
        if self.entries.seek_restart(symbol.0)? {
            self.clear();
        }
        while self.entries.next() <= symbol.0 {
            self.step()?;
        }
        self.current = Some(symbol);
        Ok(())
    }

    /// Moves to the first symbol at or after this name and value, and returns it. Returns `None`
    /// after the last.
    ///
    /// # Errors
    /// The errors of [`TableCursor::seek_restart`].
    pub(crate) fn seek(&mut self, name: &[u8], value: &[u8]) -> Result<Option<Symbol>> {
        if self.len() == 0 {
            return Ok(None);
        }
        let page_idx = self.page_for(name, value)?;
        self.entries.load(page_idx)?;
        // The symbol follows the last restart point at or before it, or is at the next one.
        let mut low = 0;
        let mut high = self.entries.n_restarts();
        while high - low > 1 {
            let middle = low.midpoint(high);
            self.read_restart(middle)?;
            if self.compare(name, value).is_gt() {
                high = middle
            } else {
                low = middle
            }
        }
        self.read_restart(low)?;
        while self.compare(name, value).is_lt() {
            if self.next()?.is_none() {
                return Ok(None);
            }
        }
        self.current = Some(Symbol(self.entries.next() - 1));
        Ok(self.current)
    }

    /// Returns the last page whose first symbol is at or before this name and value, or the first
    /// page.
    fn page_for(&mut self, name: &[u8], value: &[u8]) -> Result<usize> {
        let key = key_of(name, value);
        let keys = self.entries.table().keys();
        let key = key_parts(&key);
        let mut low = keys.partition_point(|page| key_parts(page) < key);
        let mut high = keys.partition_point(|page| key_parts(page) <= key);
        // Pages from `low` to `high` have equal keys. Only their first symbols determine the page.
        while low < high {
            let middle = low.midpoint(high);
            self.entries.load(middle)?;
            self.read_restart(0)?;
            if self.compare(name, value).is_gt() {
                high = middle
            } else {
                low = middle + 1
            }
        }
        Ok(low.saturating_sub(1))
    }

    /// Reads the entry at a restart point of the page.
    fn read_restart(&mut self, restart_idx: u32) -> Result<()> {
        self.entries.go_to_restart(restart_idx)?;
        self.clear();
        self.step()
    }

    /// Returns `true` if the entry that was read last is this name and value.
    pub(super) fn is_at(&self, name: &[u8], value: &[u8]) -> bool {
        self.compare(name, value).is_eq()
    }

    fn compare(&self, name: &[u8], value: &[u8]) -> Ordering {
        (&*self.name, &*self.value).cmp(&(name, value))
    }

    fn clear(&mut self) {
        self.name.clear();
        self.value.clear();
        self.current = None;
    }

    fn len(&self) -> u32 {
        self.entries.table().len()
    }

    fn step(&mut self) -> Result<()> {
        let is_restart_point = self.entries.is_restart_point();
        let name = &mut self.name;
        let value = &mut self.value;
        self.entries
            .step(|src| take_entry(src, is_restart_point, name, value))?;
        match self.entries.key_of_first() {
            Some(found) if found != key_of(&self.name, &self.value) => Err(self.entries.damaged()),
            _ => Ok(()),
        }
    }

    /// Returns the error for a damaged page.
    pub(crate) fn damaged(&self) -> Error {
        self.entries.damaged()
    }

    /// Returns name and value of the current symbol.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if they are not UTF-8.
    pub(crate) fn name_and_value(&self) -> Result<(&str, &str)> {
        match (str::from_utf8(&self.name), str::from_utf8(&self.value)) {
            (Ok(name), Ok(value)) => Ok((name, value)),
            _ => Err(self.damaged()),
        }
    }
}

/// Decodes an entry. Replaces `name` and `value` of the previous entry, which are empty before the
/// first.
fn take_entry(
    src: &mut &[u8],
    is_restart_point: bool,
    name: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Option<()> {
    let head = take_u64(src)?;
    let shared = usize::try_from(head >> 1).ok()?;
    let named = head & 1 == 1;
    if shared > value.len() || (is_restart_point && (shared > 0 || !named)) {
        return None;
    }
    let mut name_ascends = false;
    if named {
        let text = take_sized(src)?;
        if text < &name[..] {
            return None;
        }
        name_ascends = text > &name[..];
        name.clear();
        name.extend_from_slice(text);
    }
    let rest = take_sized(src)?;
    if !name_ascends && rest <= &value[shared..] {
        return None;
    }
    value.truncate(shared);
    value.extend_from_slice(rest);
    (!name.is_empty() && !value.is_empty()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn damaged_entries_are_rejected_or_decode(
            bytes in proptest::collection::vec(any::<u8>(), 0..40), is_restart_point: bool,
        ) {
            let mut name = b"name".to_vec();
            let mut value = b"value".to_vec();
            if take_entry(&mut &bytes[..], is_restart_point, &mut name, &mut value).is_some() {
                prop_assert!((&name[..], &value[..]) > (b"name", b"value"));
            }
        }
    }
}
