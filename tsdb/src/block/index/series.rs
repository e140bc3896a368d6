//! The series table: the symbols of each series.
//!
//! An entry contains the first symbol of a series and the number of its suffix. The series of a
//! metric are consecutive, and often their suffixes are, too: most entries are a single zero byte.
//! The entry at a restart point does not refer to the entry before.
//!
//! ```text
//! entry   step << 1 | has_lead, varint   step: zigzag(suffix - (previous suffix + 1)); suffix at a restart point
//!         lead - previous lead, zigzag varint (if has_lead)
//!
//! lead    first symbol plus one, or 0 if there are no labels; the previous lead of the entry at a restart point is 0.
//!         has_lead is 1 if the lead differs from the previous one, and at a restart point
//! ```

use std::sync::Arc;

use varve_codec::varint::{put_i64, put_u64, take_i64, take_u64, unzigzag, zigzag};
use varve_context::Charge;
use varve_model::Labels;

use super::dictionary::Dictionary;
use super::label_sets::LabelSetBuilder;
use super::projection::Projection;
use super::suffixes::{SuffixCursor, SuffixWriter};
use super::table::{Table, TableCursor, TableWriter};
use crate::block::page::{Access, PageRef, PageWriter};
use crate::block::symbol::Symbol;
use crate::error::Result;

/// Maximum number of series in a block. A bitmap of that many series takes half a page of the
/// maximum size.
pub(super) const SERIES_MAX: u32 = 1 << 28;

/// Number of entries from one restart point to the next: reading a series decodes at most this
/// many.
pub(super) const RESTART_INTERVAL: u32 = 256;

/// Writes the series table.
pub(super) struct SeriesWriter {
    table: TableWriter,
    suffixes: SuffixWriter,
    row: Vec<Symbol>,
    last: Entry,
    entry: Vec<u8>,
}

impl SeriesWriter {
    /// Creates a writer that uses at most `memory_max` bytes to remember suffixes.
    pub(super) fn new(page_size: usize, memory_max: usize) -> Self {
        let table = TableWriter::new(RESTART_INTERVAL, page_size);
        let suffixes = SuffixWriter::new(page_size, memory_max);
        Self {
            table,
            suffixes,
            row: Vec::new(),
            last: Entry::default(),
            entry: Vec::new(),
        }
    }

    /// Returns the number of series.
    pub(super) fn len(&self) -> u32 {
        self.table.next()
    }

    /// Returns the number of suffixes.
    pub(super) fn n_suffixes(&self) -> u32 {
        self.suffixes.len()
    }

    /// Adds a series.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    ///
    /// # Panics
    /// If symbols or series do not ascend.
    pub(super) fn push(&mut self, pages: &mut PageWriter, labels: &[Symbol]) -> Result<()> {
        assert!(
            labels.is_sorted_by(|a, b| a < b),
            "symbols of a series ascend"
        );
        assert!(self.len() == 0 || *self.row < *labels, "series ascend");
        let (lead, suffix) = labels
            .split_first()
            .map_or((0, labels), |(first, rest)| (u64::from(first.0) + 1, rest));
        let entry = Entry {
            lead,
            next_suffix: u64::from(self.suffixes.number(pages, suffix)?) + 1,
        };
        let is_restart_point = self.table.is_restart_point();
        let last = if is_restart_point {
            Entry::default()
        } else {
            self.last
        };
        self.entry.clear();
        entry.encode(last, is_restart_point, &mut self.entry);
        self.table.push(pages, &[], &self.entry)?;
        self.last = entry;
        self.row.clear();
        self.row.extend_from_slice(labels);
        Ok(())
    }

    /// Writes the remaining entries. Returns the pages of the directories, first of suffixes, then
    /// of series.
    ///
    /// # Errors
    /// The errors of [`PageWriter::write`].
    pub(super) fn finish(self, pages: &mut PageWriter) -> Result<(Vec<PageRef>, Vec<PageRef>)> {
        Ok((self.suffixes.finish(pages)?, self.table.finish(pages)?))
    }
}

/// A decoded entry. The default precedes a restart point.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// The first symbol plus one; 0 if there are no labels.
    lead: u64,
    /// The number of the suffix plus one.
    next_suffix: u64,
}

impl Entry {
    fn encode(self, last: Self, is_restart_point: bool, dst: &mut Vec<u8>) {
        let has_lead = is_restart_point || self.lead != last.lead;
        // Numbers have at most 33 bits, so nothing overflows.
        let suffix = zigzag(self.next_suffix as i64 - 1 - last.next_suffix as i64);
        put_u64(dst, suffix << 1 | u64::from(has_lead));
        if has_lead {
            put_i64(dst, self.lead as i64 - last.lead as i64);
        }
    }

    /// Decodes an entry. Its symbol and suffix must be below `n_symbols` and `n_suffixes`.
    fn decode(
        last: Self,
        is_restart_point: bool,
        n_symbols: u32,
        n_suffixes: u32,
        src: &mut &[u8],
    ) -> Option<Self> {
        let head = take_u64(src)?;
        let suffix =
            u64::try_from(unzigzag(head >> 1).checked_add_unsigned(last.next_suffix)?).ok()?;
        let lead = match head & 1 {
            0 if is_restart_point => return None,
            0 => last.lead,
            _ => u64::try_from(take_i64(src)?.checked_add_unsigned(last.lead)?).ok()?,
        };
        (suffix < n_suffixes.into() && lead <= n_symbols.into()).then_some(Self {
            lead,
            next_suffix: suffix + 1,
        })
    }
}

/// A cursor over the series table. Visiting ordinals in ascending order is cheap.
#[derive(Debug)]
pub(crate) struct SeriesCursor {
    entries: TableCursor,
    suffixes: SuffixCursor,
    n_symbols: u32,
    n_suffixes: u32,
    /// The entry that was decoded last.
    last: Entry,
    /// The current series.
    current: Option<u32>,
    row: Vec<Symbol>,
    before: Vec<Symbol>,
    /// The requested part of a row.
    projected: Vec<Symbol>,
    builder: LabelSetBuilder,
}

impl SeriesCursor {
    /// Creates a cursor before the first series.
    pub(super) fn new(
        series: &Arc<Table>,
        suffixes: &Arc<Table>,
        dictionary: &Dictionary,
        access: Access,
    ) -> Self {
        Self {
            entries: TableCursor::new(series, access),
            suffixes: SuffixCursor::new(suffixes, dictionary.len(), access),
            n_symbols: dictionary.len(),
            n_suffixes: suffixes.len(),
            last: Entry::default(),
            current: None,
            row: Vec::new(),
            before: Vec::new(),
            projected: Vec::new(),
            builder: LabelSetBuilder::new(dictionary),
        }
    }

    /// Caches more of the labels from now on, if the budget has plenty of room.
    pub(crate) fn keep_more(&mut self, charge: Charge) {
        self.builder.keep_more(charge);
    }

    /// Moves to a series.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io); [`Error::Corrupt`](crate::Error::Corrupt) if a page is
    /// damaged or the series does not exist.
    pub(crate) fn seek(&mut self, ordinal: u32) -> Result<()> {
        if self.current == Some(ordinal) {
            return Ok(());
        }
        let before = self.current.take();
        if self.entries.seek_restart(ordinal)? {
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
        let is_restart_point = self.entries.is_restart_point();
        let last = if is_restart_point {
            Entry::default()
        } else {
            self.last
        };
        let n_symbols = self.n_symbols;
        let n_suffixes = self.n_suffixes;
        self.last = self
            .entries
            .step(|src| Entry::decode(last, is_restart_point, n_symbols, n_suffixes, src))?;
        Ok(())
    }

    /// Builds the row of the entry that was decoded last.
    fn read_row(&mut self) -> Result<()> {
        self.row.clear();
        // In range: see `Entry::decode`.
        self.row.extend(
            self.last
                .lead
                .checked_sub(1)
                .map(|lead| Symbol(lead as u32)),
        );
        let suffix = self.suffixes.get((self.last.next_suffix - 1) as u32)?;
        let follows = suffix
            .first()
            .is_none_or(|first| self.row.first().is_some_and(|lead| lead < first));
        self.row.extend_from_slice(suffix);
        if follows {
            Ok(())
        } else {
            Err(self.entries.damaged())
        }
    }

    /// Returns the symbols of the current series, in the order of its labels.
    pub(crate) fn symbols(&self) -> &[Symbol] {
        &self.row
    }

    /// Returns the labels of the current series.
    ///
    /// # Errors
    /// The errors of [`SeriesCursor::seek`].
    pub(crate) fn labels(&mut self) -> Result<Labels> {
        self.make_labels(None)?;
        Ok(Labels::from_packed(self.packed_labels()))
    }

    /// Builds all labels of the current series, or the requested labels.
    ///
    /// # Errors
    /// The errors of [`SeriesCursor::seek`].
    pub(crate) fn make_labels(&mut self, requested: Option<&Projection>) -> Result<()> {
        let row = match requested {
            None => &self.row,
            Some(requested) => {
                requested.project(&self.row, &mut self.projected);
                // Fast path: neighboring series often share the few labels used for grouping.
                if self.builder.is_of(&self.projected) {
                    return Ok(());
                }
                &self.projected
            }
        };
        if self.builder.make(row)? {
            Ok(())
        } else {
            Err(self.entries.damaged())
        }
    }

    /// Returns the size in bytes of the buffers in which labels are built.
    pub(crate) fn labels_size(&self) -> usize {
        self.builder.size()
    }

    /// Returns the canonical string of the labels that were built last.
    pub(crate) fn packed_labels(&self) -> &str {
        self.builder.packed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_entry() -> impl Strategy<Value = Entry> {
        (0..=u64::from(u32::MAX), 1..=u64::from(u32::MAX))
            .prop_map(|(lead, next_suffix)| Entry { lead, next_suffix })
    }

    proptest! {
        #[test]
        fn entries_round_trip(last in any_entry(), entry in any_entry(), is_restart_point: bool) {
            let mut bytes = Vec::new();
            entry.encode(last, is_restart_point, &mut bytes);
            let mut src = &bytes[..];
            prop_assert_eq!(Entry::decode(last, is_restart_point, u32::MAX, u32::MAX, &mut src), Some(entry));
            prop_assert!(src.is_empty());
        }

        #[test]
        fn damaged_entries_are_rejected_or_in_bounds(
            last in any_entry(), is_restart_point: bool, bytes in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            if let Some(entry) = Entry::decode(last, is_restart_point, 10, 20, &mut &bytes[..]) {
                prop_assert!(entry.lead <= 10 && (1..=20).contains(&entry.next_suffix));
            }
        }
    }
}
