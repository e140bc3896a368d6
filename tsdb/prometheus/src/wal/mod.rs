//! Prometheus' write-ahead log (WAL), and its write-behind log (WBL) of out-of-order samples, which
//! has the same format.
//!
//! ```text
//! wal/00000007             segments, numbered without gaps
//! wal/checkpoint.00000006  a directory of segments that replace all segments up to this number
//! segment                  pages of 32 KiB
//! page                     fragments, then zeros
//! fragment                 u8   bits 0-2: 1 full record, 2 first, 3 middle, 4 last fragment; bit 3 snappy, bit 4 zstd
//!                          u16  size of the data
//!                          u32  CRC-32C of the data
//!                          data
//! ```
//! Source: Prometheus `tsdb/docs/format/wal.md` and `tsdb/wlog`.

mod compression;
mod files;
mod page_writer;
mod reader;
mod record;
mod segment;
#[cfg(test)]
pub(crate) mod tests;

pub use compression::{RECORD_SIZE_MAX, WalCompression};
pub use files::{LogKind, WalFiles};
pub(crate) use page_writer::PageWriter;
pub(crate) use reader::{BufferPool, HEADER_SIZE};
pub use reader::{PAGE_SIZE, RawRecord, SegmentReader};
pub(crate) use record::{
    DefinedLabel, decode_histograms, decode_tombstones, for_each_definition, for_each_sample,
};
pub use record::{
    RecordContent, RecordError, RecordType, RefExemplar, RefHistogram, RefMetadata, RefSample,
    RefTombstone, SeriesDefinition,
};
pub use segment::Segment;
