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

mod entries;
mod reader;
mod writer;

pub(crate) use entries::IndexEntries;
pub(super) use entries::{IndexedChunk, SERIES_ALIGN, put_entry};
pub(super) use reader::{IndexReader, IndexedSeries};
pub(super) use writer::IndexWriter;
pub(crate) use writer::PostingsWriter;
