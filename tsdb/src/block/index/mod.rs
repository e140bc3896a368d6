//! The index of a block: its label names and values, the labels of each series, and the series of each label.
//!
//! Used by the writer and the reader of blocks. Format: docs/format/block-index.md. A symbol is a label name with a
//! value. Symbols are numbered in ascending order of names and values, series in ascending order of their labels. So
//! the index consists of four tables of numbered entries. The `dictionary` contains the names and values of symbols.
//! The `series` table contains the symbols of each series, all except the first in shared `suffixes`. The `postings`
//! contain the series of each symbol. A `table` stores entries in small pages, found by number through a directory in
//! memory.
//!
//! The writer streams. Only postings must be sorted first: `runs` sorts them in bounded memory.
//!
//! Invariants
//! 1. Every page decodes independently, and so does each group of entries in a page.
//! 2. All data from disk is checked: numbers are in range, orders ascend, or the page is reported as damaged.
//! 3. An open index holds only its directories in memory, about a thousandth of its size.
//!
//! Threads: an open index is immutable and shared; cursors belong to one thread. Crash: a block is renamed into place
//! once it is complete. Spill files of the writer end in `.tmp`.

mod dictionary;
mod label_sets;
mod labels;
mod postings;
mod projection;
mod reader;
mod runs;
mod select;
mod series;
mod suffixes;
mod table;
mod verify;
mod writer;

pub(crate) use dictionary::SymbolCursor;
pub(crate) use projection::Projection;
pub(in crate::block) use reader::Index;
pub(crate) use series::SeriesCursor;
pub(in crate::block) use writer::IndexWriter;

/// Maximum number of series in a block. A bitmap of that many is half a page of the maximum size.
pub(in crate::block) const SERIES_MAX: u32 = 1 << 28;

#[cfg(test)]
mod tests;
