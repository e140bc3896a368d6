//! Which symbols each series has.
//!
//! A series is its first symbol and the number of its stem. Series of one metric follow each other, and so do their
//! stems: most entries are a single zero. The first entry of a group has nothing before it.
//!
//! ```text
//! entry   stem << 1 | led, varint: zigzag of the stem's number less the one after that of the series before (or less
//!         0); whether the first symbol is given
//!         first symbol plus one, or 0 if there are no labels, less that of the series before (or less 0), zigzag
//!         varint (if led; the first entry of a group is)
//! ```

use std::sync::Arc;

use super::dictionary::Dictionary;
use super::projection::Projection;
use super::stems::{StemCursor, StemWriter};
use super::table::{Access, Moved, Table, TableCursor, TableWriter};
use super::texts::LabelTexts;
use crate::block::Symbol;
use crate::block::page::{PageRef, PageWriter, Pages};
use crate::error::Result;
use crate::labels::Labels;
use crate::memory::Charge;
use crate::varint::{put_i64, put_u64, take_i64, take_u64, unzigzag, zigzag};

/// Entries of a group: reading one series decodes at most so many.
const GROUP: u32 = 256;

/// Writes the series table as series come.
pub(super) struct SeriesWriter {
    table: TableWriter,
    stems: StemWriter,
    row: Vec<Symbol>,
    last: Entry,
    entry: Vec<u8>,
}

impl SeriesWriter {
    /// Starts without series; `memory_max` is for remembering stems.
    pub(super) fn new(page_size: usize, memory_max: usize) -> Self {
        let (table, stems) = (TableWriter::new(GROUP, page_size), StemWriter::new(page_size, memory_max));
        Self { table, stems, row: Vec::new(), last: Entry::default(), entry: Vec::new() }
    }

    /// Counts the series.
    pub(super) fn len(&self) -> u32 {
        self.table.next()
    }

    /// Counts the stems.
    pub(super) fn n_stems(&self) -> u32 {
        self.stems.len()
    }

    /// Adds a series.
    ///
    /// # Errors
    /// As [`PageWriter::write`].
    ///
    /// # Panics
    /// If symbols or series do not ascend.
    pub(super) fn push(&mut self, pages: &mut PageWriter, labels: &[Symbol]) -> Result<()> {
        assert!(labels.is_sorted_by(|a, b| a < b), "symbols of a series ascend");
        assert!(self.len() == 0 || *self.row < *labels, "series ascend");
        let (lead, stem) = labels.split_first().map_or((0, labels), |(first, rest)| (u64::from(first.0) + 1, rest));
        let entry = Entry { lead, next_stem: u64::from(self.stems.number(pages, stem)?) + 1 };
        let begins_group = self.table.begins_group();
        let last = if begins_group { Entry::default() } else { self.last };
        self.entry.clear();
        entry.encode(last, begins_group, &mut self.entry);
        self.table.push(pages, &[], &self.entry)?;
        self.last = entry;
        self.row.clear();
        self.row.extend_from_slice(labels);
        Ok(())
    }

    /// Writes what is left and returns the pages of the directories, that of the stems first.
    ///
    /// # Errors
    /// As [`PageWriter::write`].
    pub(super) fn finish(self, pages: &mut PageWriter) -> Result<(Vec<PageRef>, Vec<PageRef>)> {
        Ok((self.stems.finish(pages)?, self.table.finish(pages)?))
    }
}

/// What the table says of a series. The default is what precedes the first of a group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// The first symbol plus one; 0 if there is none.
    lead: u64,
    /// The number of the stem plus one.
    next_stem: u64,
}

impl Entry {
    fn encode(self, last: Self, begins_group: bool, dst: &mut Vec<u8>) {
        let led = begins_group || self.lead != last.lead;
        // Numbers are of 32 bits and a bit, so that nothing overflows.
        let stem = zigzag(self.next_stem as i64 - 1 - last.next_stem as i64);
        put_u64(dst, stem << 1 | u64::from(led));
        if led {
            put_i64(dst, self.lead as i64 - last.lead as i64);
        }
    }

    /// Takes an entry with a symbol and a stem below these numbers.
    fn decode(last: Self, begins_group: bool, n_symbols: u32, n_stems: u32, src: &mut &[u8]) -> Option<Self> {
        let head = take_u64(src)?;
        let stem = u64::try_from(unzigzag(head >> 1).checked_add_unsigned(last.next_stem)?).ok()?;
        let lead = match head & 1 {
            0 if begins_group => return None,
            0 => last.lead,
            _ => u64::try_from(take_i64(src)?.checked_add_unsigned(last.lead)?).ok()?,
        };
        (stem < n_stems.into() && lead <= n_symbols.into()).then_some(Self { lead, next_stem: stem + 1 })
    }
}

/// Opens a table of `n` series.
///
/// # Errors
/// As [`Table::open`].
pub(super) fn open(pages: &Arc<Pages>, n: u32, directory: &[PageRef]) -> Result<Arc<Table>> {
    Table::open(pages, GROUP, n, directory).map(Arc::new)
}

/// A place in the series table. Going to ordinals in ascending order is cheap.
#[derive(Debug)]
pub(crate) struct SeriesCursor {
    entries: TableCursor,
    stems: StemCursor,
    n_symbols: u32,
    n_stems: u32,
    /// What was decoded last.
    last: Entry,
    /// The series that the cursor is on.
    current: Option<u32>,
    row: Vec<Symbol>,
    before: Vec<Symbol>,
    /// What of a row is asked for.
    projected: Vec<Symbol>,
    texts: LabelTexts,
}

impl SeriesCursor {
    /// Starts in front of the first series.
    pub(super) fn new(series: &Arc<Table>, stems: &Arc<Table>, dictionary: &Dictionary, access: Access) -> Self {
        Self {
            entries: TableCursor::new(series, access),
            stems: StemCursor::new(stems, dictionary.len(), access),
            n_symbols: dictionary.len(),
            n_stems: stems.len(),
            last: Entry::default(),
            current: None,
            row: Vec::new(),
            before: Vec::new(),
            projected: Vec::new(),
            texts: LabelTexts::new(dictionary),
        }
    }

    /// Keeps more of the labels that were made in memory from here on, where the budget has plenty of room.
    pub(crate) fn keep_more(&mut self, charge: Charge) {
        self.texts.keep_more(charge);
    }

    /// Goes to a series.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) or [`Error::Corrupt`](crate::Error::Corrupt) with path and offset; the latter
    /// also if the block has no such series.
    pub(crate) fn seek(&mut self, ordinal: u32) -> Result<()> {
        if self.current == Some(ordinal) {
            return Ok(());
        }
        let before = self.current.take();
        if self.entries.approach(ordinal)? == Moved::Yes {
            self.last = Entry::default();
        }
        while self.entries.next() <= ordinal {
            self.step()?;
        }
        std::mem::swap(&mut self.row, &mut self.before);
        self.read_row()?;
        if before.is_some_and(|before| before < ordinal && self.before >= self.row) {
            return Err(self.entries.damaged());
        }
        self.current = Some(ordinal);
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let begins_group = self.entries.begins_group();
        let last = if begins_group { Entry::default() } else { self.last };
        let (n_symbols, n_stems) = (self.n_symbols, self.n_stems);
        self.last = self.entries.step(|src| Entry::decode(last, begins_group, n_symbols, n_stems, src))?;
        Ok(())
    }

    /// Makes the row of what was decoded last, which has a stem.
    fn read_row(&mut self) -> Result<()> {
        self.row.clear();
        // Both fit: see Entry::decode.
        self.row.extend(self.last.lead.checked_sub(1).map(|lead| Symbol(lead as u32)));
        let stem = self.stems.get((self.last.next_stem - 1) as u32)?;
        let follows = match (self.row.first(), stem.first()) {
            (Some(lead), Some(first)) => lead < first,
            (None, Some(_)) => false,
            (_, None) => true,
        };
        self.row.extend_from_slice(stem);
        if follows { Ok(()) } else { Err(self.entries.damaged()) }
    }

    /// Returns the symbols of the series, in order of their labels.
    pub(crate) fn symbols(&self) -> &[Symbol] {
        &self.row
    }

    /// Returns the labels of the series.
    ///
    /// # Errors
    /// As [`SeriesCursor::seek`].
    pub(crate) fn labels(&mut self) -> Result<Labels> {
        self.make_labels(None)?;
        Ok(Labels::from_packed(self.packed_labels()))
    }

    /// Makes the labels of the series, or those of them that are asked for.
    ///
    /// # Errors
    /// As [`SeriesCursor::seek`].
    pub(crate) fn make_labels(&mut self, asked: Option<&Projection>) -> Result<()> {
        let row = match asked {
            None => &self.row,
            Some(asked) => {
                asked.project(&self.row, &mut self.projected);
                // Fast path: neighbours have the few labels that groups are made by in common.
                if self.texts.is_of(&self.projected) {
                    return Ok(());
                }
                &self.projected
            }
        };
        if self.texts.make(row)? { Ok(()) } else { Err(self.entries.damaged()) }
    }

    /// Returns the canonical text of the labels that were made last.
    pub(crate) fn packed_labels(&self) -> &str {
        self.texts.packed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_entry() -> impl Strategy<Value = Entry> {
        (0..=u64::from(u32::MAX), 1..=u64::from(u32::MAX)).prop_map(|(lead, next_stem)| Entry { lead, next_stem })
    }

    proptest! {
        #[test]
        fn entries_come_back(last in any_entry(), entry in any_entry(), begins_group: bool) {
            let mut bytes = Vec::new();
            entry.encode(last, begins_group, &mut bytes);
            let mut src = &bytes[..];
            prop_assert_eq!(Entry::decode(last, begins_group, u32::MAX, u32::MAX, &mut src), Some(entry));
            prop_assert!(src.is_empty());
        }

        #[test]
        fn damaged_entries_are_refused_or_in_bounds(
            last in any_entry(), begins_group: bool, bytes in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            if let Some(entry) = Entry::decode(last, begins_group, 10, 20, &mut &bytes[..]) {
                prop_assert!(entry.lead <= 10 && (1..=20).contains(&entry.next_stem));
            }
        }
    }
}
