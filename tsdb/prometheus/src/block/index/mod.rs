//! The index of a block.
//!
//! ```text
//! u32       magic 0xbaaad700, u8 version: 1 (read only) or 2
//! symbols   u32 size, u32 number, strings in ascending order, CRC
//! series    each at a multiple of 16, in label order: varint size, labels as symbols, chunks, CRC
//! postings  each at a multiple of 4: u32 size, u32 number, u32 series refs (offset / 16), CRC; the first has all series
//! table     postings offset table: u32 size, u32 number, then 2, name, value and offset of each postings, CRC
//! TOC       u64 offsets of symbols, series, two unused sections, postings and table; CRC
//! ```
//! CRC is CRC-32C. Version 1 refers to symbols by offset, version 2 by index. Source: Prometheus
//! `tsdb/docs/format/index.md`, `tsdb/index/index.go`.

mod reader;
mod writer;

pub(super) use reader::{IndexReader, IndexedSeries};
pub(crate) use writer::PostingsWriter;
pub(super) use writer::{IndexWriter, IndexedChunk, put_entry};

pub(super) const MAGIC: u32 = 0xbaaa_d700;
pub(super) const VERSION: u8 = 2;
/// Series start at multiples of it.
pub(super) const SERIES_ALIGN: u64 = 16;
