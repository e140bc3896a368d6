//! Stems: the symbols of series less the first.
//!
//! The first label of a series is as a rule its metric name, and what is measured of a container or a disk comes under
//! many names: the rest is the same for all of them, and is kept once. Stems are numbered as they come, so that where
//! one metric's series follow another's, stem follows stem. Neighbours differ in few labels: an entry says which symbols
//! of the stem before are gone and which are new. The first entry of a group has nothing before it.
//!
//! ```text
//! entry   number of new symbols, varint
//!         gone: a bit per symbol of the stem before, lowest first, in whole bytes
//!         new symbols, ascending: the i-th less the i-th that is gone, or, if fewer are gone, less the new one before
//!         (the first of all less 0), zigzag varint
//! ```

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::table::{Access, Moved, Table, TableCursor, TableWriter};
use crate::block::Symbol;
use crate::block::page::{PageRef, PageWriter, Pages};
use crate::error::Result;
use crate::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64};

/// Entries of a group: reading one stem decodes at most so many.
const GROUP: u32 = 64;

/// Writes stems as they come, those that it remembers once.
pub(super) struct StemWriter {
    table: TableWriter,
    stem: Vec<Symbol>,
    changes: Changes,
    entry: Vec<u8>,
    /// The numbers of stems, by a hash that is taken for the stem itself: it is wide, and its seed is not known to those
    /// who choose labels.
    known: HashMap<[u64; 2], u32>,
    known_max: usize,
    seed: u64,
    hashed: Vec<u8>,
}

/// What a stem that is remembered takes in a table that is between half and seven eighths full.
const KNOWN_SIZE: usize = 36;

impl StemWriter {
    /// Starts without stems. At most `memory_max` bytes go into remembering them; when that is full it begins anew, and
    /// stems that come again are written again.
    pub(super) fn new(page_size: usize, memory_max: usize) -> Self {
        Self {
            table: TableWriter::new(GROUP, page_size),
            stem: Vec::new(),
            changes: Changes::default(),
            entry: Vec::new(),
            known: HashMap::new(),
            known_max: (memory_max / KNOWN_SIZE).max(1),
            seed: RandomState::new().hash_one(0),
            hashed: Vec::new(),
        }
    }

    /// Counts the stems.
    pub(super) fn len(&self) -> u32 {
        self.table.next()
    }

    /// Returns the number of a stem, and writes it if it is new.
    ///
    /// # Errors
    /// As [`PageWriter::write`].
    pub(super) fn number(&mut self, pages: &mut PageWriter, stem: &[Symbol]) -> Result<u32> {
        self.hashed.clear();
        stem.iter().for_each(|symbol| self.hashed.extend_from_slice(&symbol.0.to_le_bytes()));
        let hash = xxh3_128_with_seed(&self.hashed, self.seed);
        let hash = [hash as u64, (hash >> 64) as u64];
        if let Some(&number) = self.known.get(&hash) {
            return Ok(number);
        }
        let number = self.len();
        self.write(pages, stem)?;
        if self.known.len() == self.known_max {
            self.known.clear();
        }
        self.known.insert(hash, number);
        Ok(number)
    }

    fn write(&mut self, pages: &mut PageWriter, stem: &[Symbol]) -> Result<()> {
        if self.table.begins_group() {
            self.stem.clear();
        }
        self.changes.find(&self.stem, stem);
        self.entry.clear();
        self.changes.encode(&self.stem, &mut self.entry);
        self.table.push(pages, &[], &self.entry)?;
        self.stem.clear();
        self.stem.extend_from_slice(stem);
        Ok(())
    }

    /// Writes what is left and returns the pages of the directory.
    ///
    /// # Errors
    /// As [`PageWriter::write`].
    pub(super) fn finish(self, pages: &mut PageWriter) -> Result<Vec<PageRef>> {
        self.table.finish(pages)
    }
}

/// What makes one stem out of another.
#[derive(Debug, Default)]
struct Changes {
    /// Positions in the stem before, ascending.
    gone: Vec<usize>,
    /// Ascending.
    new: Vec<Symbol>,
}

impl Changes {
    fn find(&mut self, before: &[Symbol], row: &[Symbol]) {
        self.gone.clear();
        self.new.clear();
        let mut rest = row;
        for (i, symbol) in before.iter().enumerate() {
            let n_smaller = rest.iter().take_while(|other| *other < symbol).count();
            self.new.extend_from_slice(&rest[..n_smaller]);
            rest = &rest[n_smaller..];
            match rest.split_first() {
                Some((first, others)) if first == symbol => rest = others,
                _ => self.gone.push(i),
            }
        }
        self.new.extend_from_slice(rest);
    }

    fn encode(&self, before: &[Symbol], dst: &mut Vec<u8>) {
        put_u64(dst, self.new.len() as u64);
        let start = dst.len();
        dst.resize(start + before.len().div_ceil(8), 0);
        for &i in &self.gone {
            dst[start + i / 8] |= 1 << (i % 8);
        }
        let mut last = Symbol(0);
        for (i, &symbol) in self.new.iter().enumerate() {
            let base = self.gone.get(i).map_or(last, |&gone| before[gone]);
            put_i64(dst, i64::from(symbol.0) - i64::from(base.0));
            last = symbol;
        }
    }

    /// Takes changes off the front of `src`. The symbols ascend and are below `n_symbols`.
    fn decode(&mut self, before: &[Symbol], n_symbols: u32, src: &mut &[u8]) -> Option<()> {
        self.gone.clear();
        self.new.clear();
        let n_new = take_u64(src)?;
        let bits = take_bytes(src, before.len().div_ceil(8))?;
        for (byte_idx, &byte) in bits.iter().enumerate() {
            let mut byte = byte;
            while byte != 0 {
                self.gone.push(byte_idx * 8 + byte.trailing_zeros() as usize);
                byte &= byte - 1;
            }
        }
        if self.gone.last().is_some_and(|&last| last >= before.len()) {
            return None;
        }
        for i in 0..n_new {
            let last = self.new.last().copied();
            let gone = usize::try_from(i).ok().and_then(|i| self.gone.get(i));
            let base = gone.map_or(last.unwrap_or(Symbol(0)), |&gone| before[gone]);
            let symbol = take_i64(src)?.checked_add(base.0.into())?;
            let symbol = Symbol(u32::try_from(symbol).ok().filter(|&symbol| symbol < n_symbols)?);
            if last.is_some_and(|last| last >= symbol) {
                return None;
            }
            self.new.push(symbol);
        }
        Some(())
    }

    /// Writes to `row` what the changes make of `before`; `None` if a symbol would be there twice.
    fn apply(&self, before: &[Symbol], row: &mut Vec<Symbol>) -> Option<()> {
        row.clear();
        // Fast path: each new symbol in the place of one that is gone.
        if self.new.len() == self.gone.len() {
            row.extend_from_slice(before);
            self.gone.iter().zip(&self.new).for_each(|(&gone, &new)| row[gone] = new);
            if row.is_sorted_by(|a, b| a < b) {
                return Some(());
            }
            row.clear();
        }
        let (mut gone, mut new) = (self.gone.iter().peekable(), self.new.iter().peekable());
        for (i, &symbol) in before.iter().enumerate() {
            if gone.next_if(|&&gone| gone == i).is_some() {
                continue;
            }
            while let Some(&smaller) = new.next_if(|&&other| other < symbol) {
                row.push(smaller);
            }
            if new.peek() == Some(&&symbol) {
                return None;
            }
            row.push(symbol);
        }
        row.extend(new);
        Some(())
    }
}

/// Opens a table of `n` stems.
///
/// # Errors
/// As [`Table::open`].
pub(super) fn open(pages: &Arc<Pages>, n: u32, directory: &[PageRef]) -> Result<Arc<Table>> {
    Table::open(pages, GROUP, n, directory).map(Arc::new)
}

/// A place in the table of stems. Going to numbers in ascending order is cheap.
#[derive(Debug)]
pub(super) struct StemCursor {
    entries: TableCursor,
    n_symbols: u32,
    stem: Vec<Symbol>,
    before: Vec<Symbol>,
    changes: Changes,
}

impl StemCursor {
    /// Starts in front of the first stem; symbols are below `n_symbols`.
    pub(super) fn new(table: &Arc<Table>, n_symbols: u32, access: Access) -> Self {
        let (stem, before) = (Vec::new(), Vec::new());
        Self { entries: TableCursor::new(table, access), n_symbols, stem, before, changes: Changes::default() }
    }

    /// Returns the symbols of a stem, ascending.
    ///
    /// # Errors
    /// As [`TableCursor::approach`].
    pub(super) fn get(&mut self, number: u32) -> Result<&[Symbol]> {
        if self.entries.next().checked_sub(1) != Some(number) {
            if self.entries.approach(number)? == Moved::Yes {
                self.stem.clear();
            }
            while self.entries.next() <= number {
                self.step()?;
            }
        }
        Ok(&self.stem)
    }

    fn step(&mut self) -> Result<()> {
        std::mem::swap(&mut self.stem, &mut self.before);
        if self.entries.begins_group() {
            self.before.clear();
        }
        let (stem, before, changes, n_symbols) = (&mut self.stem, &self.before, &mut self.changes, self.n_symbols);
        self.entries.step(|src| {
            changes.decode(before, n_symbols, src)?;
            changes.apply(before, stem)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn row(symbols: &BTreeSet<u32>) -> Vec<Symbol> {
        symbols.iter().copied().map(Symbol).collect()
    }

    proptest! {
        #[test]
        fn changes_come_back(
            before in proptest::collection::btree_set(0_u32..40, 0..20),
            after in proptest::collection::btree_set(0_u32..40, 0..20),
        ) {
            let (before, after) = (row(&before), row(&after));
            let (mut changes, mut bytes, mut found) = (Changes::default(), Vec::new(), Vec::new());
            changes.find(&before, &after);
            changes.encode(&before, &mut bytes);
            let mut src = &bytes[..];
            prop_assert_eq!(changes.decode(&before, 40, &mut src), Some(()));
            prop_assert!(src.is_empty());
            prop_assert_eq!(changes.apply(&before, &mut found), Some(()));
            prop_assert_eq!(found, after);
        }

        #[test]
        fn damaged_changes_are_refused_or_ascend(
            before in proptest::collection::btree_set(0_u32..40, 0..20),
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let (before, mut changes, mut found) = (row(&before), Changes::default(), Vec::new());
            if changes.decode(&before, 40, &mut &bytes[..]).and_then(|()| changes.apply(&before, &mut found)).is_some() {
                prop_assert!(found.is_sorted_by(|a, b| a < b) && found.iter().all(|symbol| symbol.0 < 40));
            }
        }
    }
}
