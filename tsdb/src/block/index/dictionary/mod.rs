//! The dictionary: names and values of symbols.
//!
//! An entry is the value without the prefix that it shares with the previous value, and the name if
//! it differs from the previous name. The key of a page is the beginning of its first name and
//! value, so that a look-up reads one page.
//!
//! ```text
//! entry   shared << 1 | named, varint: size of the shared prefix; 1 if the name is stored, as at
//!         a restart point
//!         name: size varint, bytes (if named)
//!         rest of the value: size varint, bytes
//! key     size of the name's beginning, u8; beginning of the name; beginning of the value
//! ```

mod cursor;
mod key;

use std::ops::Range;
use std::sync::Arc;

use varve_codec::varint::{put_sized, put_u64};

use self::key::{key_of, key_parts};
use super::table::{Table, TableCursor, TableWriter};
use crate::block::page::{Access, PageRef, PageWriter, Pages};
use crate::block::symbol::Symbol;
use crate::error::{Error, Result};

pub(crate) use cursor::DictionaryCursor;

/// Number of entries from one restart point to the next: a look-up decodes at most this many in
/// sequence.
const RESTART_INTERVAL: u32 = 8;

/// Writes the dictionary.
pub(super) struct DictionaryWriter {
    table: TableWriter,
    name: String,
    value: String,
    entry: Vec<u8>,
}

impl DictionaryWriter {
    /// Creates an empty writer.
    pub(super) fn new(page_size: usize) -> Self {
        let table = TableWriter::new(RESTART_INTERVAL, page_size);
        Self {
            table,
            name: String::new(),
            value: String::new(),
            entry: Vec::new(),
        }
    }

    /// Returns the number of symbols.
    pub(super) fn len(&self) -> u32 {
        self.table.next()
    }

    /// Adds a symbol.
    ///
    /// # Errors
    /// [`Error::Limit`] when there are 2^32 - 1, and the errors of [`PageWriter::write`].
    ///
    /// # Panics
    /// If name or value are empty or do not ascend.
    pub(super) fn push(
        &mut self,
        pages: &mut PageWriter,
        name: &str,
        value: &str,
    ) -> Result<Symbol> {
        let symbol = Symbol(self.table.next());
        if symbol.0 == u32::MAX {
            return Err(Error::Limit {
                what: varve_context::Limit::Other("label values of a block"),
                used: 1 << 32,
                limit: u32::MAX.into(),
            });
        }
        assert!(
            !name.is_empty() && !value.is_empty(),
            "a symbol has a name and a value"
        );
        assert!(
            (&*self.name, &*self.value) < (name, value),
            "symbols ascend"
        );
        let is_restart_point = self.table.is_restart_point();
        let both = self.value.bytes().zip(value.bytes());
        let shared = if is_restart_point {
            0
        } else {
            both.take_while(|(a, b)| a == b).count()
        };
        let named = is_restart_point || self.name != name;
        self.entry.clear();
        put_u64(&mut self.entry, (shared as u64) << 1 | u64::from(named));
        if named {
            put_sized(&mut self.entry, name.as_bytes());
        }
        put_sized(&mut self.entry, &value.as_bytes()[shared..]);
        let key = if self.table.begins_page() {
            key_of(name.as_bytes(), value.as_bytes())
        } else {
            Vec::new()
        };
        self.table.push(pages, &key, &self.entry)?;
        if named {
            name.clone_into(&mut self.name);
        }
        value.clone_into(&mut self.value);
        Ok(symbol)
    }

    /// Writes the remaining entries and returns the pages of the directory.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(super) fn finish(self, pages: &mut PageWriter) -> Result<Vec<PageRef>> {
        self.table.finish(pages)
    }
}

/// An open dictionary.
#[derive(Debug, Clone)]
pub(super) struct Dictionary {
    table: Arc<Table>,
}

impl Dictionary {
    /// Reads the directory of a dictionary of `n` symbols.
    ///
    /// # Errors
    /// The errors of [`Table::open`].
    pub(super) fn open(pages: &Arc<Pages>, n: u32, directory: &[PageRef]) -> Result<Self> {
        let table = Table::open(pages, RESTART_INTERVAL, n, directory)?;
        if !table.keys().is_sorted_by_key(|key| key_parts(key)) {
            let offset = directory.first().map_or(0, |page| page.offset);
            return Err(pages.corrupt(offset, "the keys of the dictionary do not ascend"));
        }
        Ok(Self { table })
    }

    /// Returns the number of symbols.
    pub(super) fn len(&self) -> u32 {
        self.table.len()
    }

    /// Returns the symbol of a name and a value, or `None` if it does not exist.
    ///
    /// # Errors
    /// The errors of [`TableCursor::seek_restart`].
    pub(super) fn find(&self, name: &str, value: &str) -> Result<Option<Symbol>> {
        let mut cursor = self.cursor(Access::Cached);
        let name = name.as_bytes();
        let value = value.as_bytes();
        let symbol = cursor.seek(name, value)?;
        if cursor.is_at(name, value) {
            Ok(symbol)
        } else {
            Ok(None)
        }
    }

    /// Returns the numbers of the symbols with this name whose value begins with `prefix`.
    ///
    /// # Errors
    /// The errors of [`TableCursor::seek_restart`].
    pub(super) fn range(&self, name: &str, prefix: &str) -> Result<Range<u32>> {
        let mut cursor = self.cursor(Access::Cached);
        let mut number_at = |name: &[u8], value: &[u8]| {
            cursor
                .seek(name, value)
                .map(|found| found.map_or(self.len(), |symbol| symbol.0))
        };
        let start = number_at(name.as_bytes(), prefix.as_bytes())?;
        let end = match prefix.as_bytes().split_last() {
            // UTF-8 has no byte 0xff: the prefix with the next larger last byte is above all
            // strings with this prefix.
            Some((&last, head)) => number_at(name.as_bytes(), &[head, &[last + 1]].concat())?,
            None => number_at(&after(name), &[])?,
        };
        if start <= end {
            Ok(start..end)
        } else {
            Err(cursor.damaged())
        }
    }

    /// Returns a cursor before the first symbol.
    pub(super) fn cursor(&self, access: Access) -> DictionaryCursor {
        DictionaryCursor::new(TableCursor::new(&self.table, access))
    }
}

/// Returns the smallest string after `name`.
pub(super) fn after(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}
