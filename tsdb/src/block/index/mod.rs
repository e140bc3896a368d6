//! The index of a block: its label names and values, the labels of each series, and the series of
//! each label.
//!
//! Used by the writer and the reader of blocks. Format: docs/format/block-index.md. A symbol is a
//! label name with a value. Symbols are numbered in ascending order of names and values, series in
//! ascending order of their labels. The index consists of four tables of numbered entries. The
//! `dictionary` contains the names and values of symbols. The `series` table contains the first
//! symbol of each series, and refers to the other symbols in the table of `suffixes`, which series
//! share. The `postings` contain the series of each symbol. A `table` stores entries in small
//! pages, which are found by number through a directory in memory.
//!
//! The writer streams. Only postings must be sorted first: `runs` sorts them in bounded memory.
//!
//! Invariants
//! 1. Every page decodes independently, and so does each run of entries from one restart point of a
//!    page to the next.
//! 2. All data from disk is checked. If a number is out of range, or entries do not ascend, the
//!    page is reported as damaged.
//! 3. An open index holds only its directories in memory, about a thousandth of its size.
//!
//! Threads: an open index is immutable and shared; a cursor belongs to one thread. Crash: an index
//! is part of a block. Spill files of the writer end in `.tmp`, and `Db::open` removes them.

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

pub(crate) use dictionary::DictionaryCursor;
pub(crate) use projection::Projection;
pub(crate) use reader::Index;
pub(crate) use series::SeriesCursor;
pub(crate) use writer::IndexWriter;

#[cfg(test)]
mod tests;
