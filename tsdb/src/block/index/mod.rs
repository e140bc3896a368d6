//! The index of a block: which label names and values it has, which labels each series, and which series each label.
//!
//! Used by the writer and the reader of blocks. Format: docs/format/block-index.md. A symbol is a label name with a
//! value; symbols are numbered in ascending order of names and values, series in ascending order of their labels. So
//! both are dense numbers, and four tables of numbered entries make the index: the `dictionary` says what a symbol
//! stands for, the `series` table which symbols a series has, all but the first in the `stems` that series share, the
//! `postings` which series a symbol is in. `table` is what these are made of: entries in small pages, found by number
//! through a directory that stays in memory.
//!
//! The writer streams. What cannot be written as it comes are the postings: `runs` sorts them, in bounded memory.
//!
//! Invariants
//! 1. Every page decodes alone; a decoder starts anew at each group of entries in it.
//! 2. Nothing read from disk is believed: numbers are below what they count, orders ascend, or the page is reported.
//! 3. An index that is open holds its directories in memory, about a thousandth of its size, and nothing else.
//!
//! Threads: an open index is immutable and shared; cursors belong to one thread. Crash: a block is renamed into place
//! once it is whole; spill files of the writer end in `.tmp`.

mod dictionary;
mod labels;
mod postings;
mod projection;
mod reader;
mod runs;
mod select;
mod series;
mod stems;
mod table;
mod texts;
mod verify;
mod writer;

pub(crate) use dictionary::SymbolCursor;
pub(crate) use projection::Projection;
pub(in crate::block) use reader::Index;
pub(crate) use series::SeriesCursor;
pub(in crate::block) use writer::IndexWriter;

#[cfg(test)]
mod tests;
