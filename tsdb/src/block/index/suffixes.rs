//! Suffixes: the symbols of series without the first.
//!
//! The first label of a series is usually its metric name, and the metrics of a container or a disk
//! share all other labels. So these are stored once. Suffixes are numbered in order of first
//! occurrence, so that consecutive series have consecutive suffixes. Neighboring suffixes differ in
//! few labels: an entry contains the symbols that are removed from the suffix before, and the
//! symbols that are added. The entry at a restart point does not refer to the suffix before.
//!
//! ```text
//! entry   number of added symbols, varint
//!         removed: a bit per symbol of the suffix before, lowest first, in whole bytes
//!         added symbols, ascending, each as zigzag varint: the i-th added symbol less the i-th removed symbol; if fewer
//!         are removed, less the added symbol before, or 0
//! ```

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashMap;
use varve_codec::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::table::{Table, TableCursor, TableWriter};
use crate::block::page::{Access, PageRef, PageWriter};
use crate::block::symbol::Symbol;
use crate::error::Result;

/// Number of entries from one restart point to the next: reading a suffix decodes at most this
/// many.
pub(super) const RESTART_INTERVAL: u32 = 64;

/// Writes suffixes. A remembered suffix is not written again.
pub(super) struct SuffixWriter {
    table: TableWriter,
    suffix: Vec<Symbol>,
    changes: Changes,
    entry: Vec<u8>,
    /// Numbers of suffixes by hash. Suffixes are compared only by hash: it has 128 bits, and
    /// senders do not know its seed.
    known: HashMap<[u64; 2], u32>,
    known_max: usize,
    seed: u64,
    hashed: Vec<u8>,
}

/// Memory of a remembered suffix in a table that is between half and seven eighths full.
const KNOWN_SIZE: usize = 36;

impl SuffixWriter {
    /// Creates a writer that uses at most `memory_max` bytes to remember suffixes. When they are
    /// full, it forgets all suffixes, and a suffix that recurs is written again.
    pub(super) fn new(page_size: usize, memory_max: usize) -> Self {
        Self {
            table: TableWriter::new(RESTART_INTERVAL, page_size),
            suffix: Vec::new(),
            changes: Changes::default(),
            entry: Vec::new(),
            known: HashMap::new(),
            known_max: (memory_max / KNOWN_SIZE).max(1),
            seed: RandomState::new().hash_one(0),
            hashed: Vec::new(),
        }
    }

    /// Returns the number of suffixes.
    pub(super) fn len(&self) -> u32 {
        self.table.next()
    }

    /// Returns the number of a suffix. Writes the suffix if it is not known.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(super) fn number(&mut self, pages: &mut PageWriter, suffix: &[Symbol]) -> Result<u32> {
        self.hashed.clear();
        for symbol in suffix {
            self.hashed.extend_from_slice(&symbol.0.to_le_bytes());
        }
        let hash = xxh3_128_with_seed(&self.hashed, self.seed);
        let hash = [hash as u64, (hash >> 64) as u64];
        if let Some(&number) = self.known.get(&hash) {
            return Ok(number);
        }
        let number = self.len();
        self.write(pages, suffix)?;
        if self.known.len() == self.known_max {
            self.known.clear();
        }
        self.known.insert(hash, number);
        Ok(number)
    }

    fn write(&mut self, pages: &mut PageWriter, suffix: &[Symbol]) -> Result<()> {
        if self.table.is_restart_point() {
            self.suffix.clear();
        }
        self.changes.find(&self.suffix, suffix);
        self.entry.clear();
        self.changes.encode(&self.suffix, &mut self.entry);
        self.table.push(pages, &[], &self.entry)?;
        self.suffix.clear();
        self.suffix.extend_from_slice(suffix);
        Ok(())
    }

    /// Writes the remaining entries and returns the pages of the directory.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(super) fn finish(self, pages: &mut PageWriter) -> Result<Vec<PageRef>> {
        self.table.finish(pages)
    }
}

/// The differences between two suffixes.
#[derive(Debug, Default)]
struct Changes {
    /// Indexes of removed symbols in the suffix before, ascending.
    gone: Vec<usize>,
    /// Added symbols, ascending.
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

    /// Decodes changes from the front of `src`. The symbols must ascend and be below `n_symbols`.
    fn decode(&mut self, before: &[Symbol], n_symbols: u32, src: &mut &[u8]) -> Option<()> {
        self.gone.clear();
        self.new.clear();
        let n_new = take_u64(src)?;
        let bits = take_bytes(src, before.len().div_ceil(8))?;
        for (byte_idx, &(mut byte)) in bits.iter().enumerate() {
            while byte != 0 {
                self.gone
                    .push(byte_idx * 8 + byte.trailing_zeros() as usize);
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
            let symbol = Symbol(
                u32::try_from(symbol)
                    .ok()
                    .filter(|&symbol| symbol < n_symbols)?,
            );
            if last.is_some_and(|last| last >= symbol) {
                return None;
            }
            self.new.push(symbol);
        }
        Some(())
    }

    /// Applies the changes to `before` and stores the result in `row`. Returns `None` if a symbol
    /// would occur twice.
    fn apply(&self, before: &[Symbol], row: &mut Vec<Symbol>) -> Option<()> {
        row.clear();
        // Fast path: each added symbol replaces a removed one.
        if self.new.len() == self.gone.len() {
            row.extend_from_slice(before);
            for (&gone, &new) in self.gone.iter().zip(&self.new) {
                row[gone] = new;
            }
            if row.is_sorted_by(|a, b| a < b) {
                return Some(());
            }
            row.clear();
        }
        let mut gone = self.gone.iter().peekable();
        let mut new = self.new.iter().peekable();
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

/// A cursor over the table of suffixes. Visiting numbers in ascending order is cheap.
#[derive(Debug)]
pub(super) struct SuffixCursor {
    entries: TableCursor,
    n_symbols: u32,
    suffix: Vec<Symbol>,
    before: Vec<Symbol>,
    changes: Changes,
}

impl SuffixCursor {
    /// Creates a cursor before the first suffix; symbols are below `n_symbols`.
    pub(super) fn new(table: &Arc<Table>, n_symbols: u32, access: Access) -> Self {
        let suffix = Vec::new();
        let before = Vec::new();
        Self {
            entries: TableCursor::new(table, access),
            n_symbols,
            suffix,
            before,
            changes: Changes::default(),
        }
    }

    /// Returns the symbols of a suffix, ascending.
    ///
    /// # Errors
    /// The errors of [`TableCursor::seek_restart`].
    pub(super) fn get(&mut self, number: u32) -> Result<&[Symbol]> {
        if self.entries.next().checked_sub(1) != Some(number) {
            if self.entries.seek_restart(number)? {
                self.suffix.clear();
            }
            while self.entries.next() <= number {
                self.step()?;
            }
        }
        Ok(&self.suffix)
    }

    fn step(&mut self) -> Result<()> {
        std::mem::swap(&mut self.suffix, &mut self.before);
        if self.entries.is_restart_point() {
            self.before.clear();
        }
        let suffix = &mut self.suffix;
        let before = &self.before;
        let changes = &mut self.changes;
        let n_symbols = self.n_symbols;
        self.entries.step(|src| {
            changes.decode(before, n_symbols, src)?;
            changes.apply(before, suffix)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_row() -> impl Strategy<Value = Vec<Symbol>> {
        proptest::collection::btree_set(0_u32..40, 0..20)
            .prop_map(|row| row.into_iter().map(Symbol).collect())
    }

    proptest! {
        #[test]
        fn changes_round_trip(before in any_row(), after in any_row()) {
            let mut changes = Changes::default();
            let mut bytes = Vec::new();
            let mut found = Vec::new();
            changes.find(&before, &after);
            changes.encode(&before, &mut bytes);
            let mut src = &bytes[..];
            prop_assert_eq!(changes.decode(&before, 40, &mut src), Some(()));
            prop_assert!(src.is_empty());
            prop_assert_eq!(changes.apply(&before, &mut found), Some(()));
            prop_assert_eq!(found, after);
        }

        #[test]
        fn damaged_changes_are_rejected_or_ascend(
            before in any_row(), bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut changes = Changes::default();
            let mut found = Vec::new();
            if changes.decode(&before, 40, &mut &bytes[..]).and_then(|()| changes.apply(&before, &mut found)).is_some() {
                prop_assert!(found.is_sorted_by(|a, b| a < b) && found.iter().all(|symbol| symbol.0 < 40));
            }
        }
    }
}
