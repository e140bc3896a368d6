//! The index of a block.
//!
//! ```text
//! u32       magic 0xbaaad700, u8 version: 1 (read alone) or 2
//! symbols   u32 size, u32 number, texts in ascending order, CRC
//! series    each at a multiple of 16, by labels: varint size, labels as symbols, chunks, CRC
//! postings  each at a multiple of 4: u32 size, u32 number, u32 series (offset / 16), CRC; the first one names all series
//! table     u32 size, u32 number, then 2, name, value and offset of each postings, CRC
//! contents  u64 offsets of symbols, series, two that are not used any more, postings and table; CRC
//! ```
//! All CRCs are CRC-32C. Version 1 names symbols by their offset, version 2 by their place. Source: Prometheus
//! `tsdb/docs/format/index.md`, `tsdb/index/index.go`.

mod reader;
mod writer;

pub(super) use reader::{IndexReader, IndexedSeries};
pub(crate) use writer::PostingsWriter;
pub(super) use writer::{IndexWriter, IndexedChunk, put_entry};

pub(super) const MAGIC: u32 = 0xbaaa_d700;
pub(super) const VERSION: u8 = 2;
/// Series begin at multiples of it.
pub(super) const SERIES_ALIGN: u64 = 16;
