//! Prometheus' write-ahead log, and its log of out-of-order samples, which has the same form.
//!
//! ```text
//! wal/00000007             segments, numbered without a gap
//! wal/checkpoint.00000006  a folder of segments: what still counts of the segments up to that number
//! segment                  pages of 32 KiB
//! page                     fragments, then zeros
//! fragment                 u8   bits 0-2: 1 whole record, 2 first, 3 middle, 4 last fragment; bit 3 snappy, bit 4 zstd
//!                          u16  size of the data
//!                          u32  CRC-32C of the data
//!                          data
//! ```
//! Source: Prometheus `tsdb/docs/format/wal.md` and `tsdb/wlog`.

mod compression;
mod record;
mod segments;
mod stream;
#[cfg(test)]
pub(crate) mod tests;

pub use compression::{Compression, RECORD_SIZE_MAX};
pub use record::{
    BadRecord, Definition, RecordType, RefExemplar, RefHistogram, RefMetadata, RefSample, RefTombstone,
    decode_definitions, decode_exemplars, decode_histograms, decode_metadata, decode_samples, decode_tombstones,
};
pub(crate) use record::{DefinedLabel, for_each_definition, for_each_sample};
pub use segments::{Segment, WalFiles};
pub(crate) use stream::SpareMemory;
pub use stream::{PAGE_SIZE, RawRecord, SegmentReader};
