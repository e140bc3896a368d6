//! Prometheus' blocks: directories with an index, chunks, tombstones and a description.
//!
//! ```text
//! 01M7YQJC6W0PH11YAGQNK9T4Z6/
//!   meta.json      time range, statistics, compaction level and sources; without it the directory is not a block
//!   index          symbols, series, postings: see `index`
//!   chunks/000001  chunks
//!   tombstones     deletions since the block was written
//! ```
//! Sources: Prometheus `tsdb/docs/format`, `tsdb/index`, `tsdb/chunks`, `tsdb/block.go`.

pub(super) mod buffered_file;
mod chunks;
mod group;
mod index;
mod labeled;
mod merged;
mod meta;
mod reader;
#[cfg(test)]
mod tests;
mod tombstones;
mod ulid;
mod writer;

pub use chunks::CHUNK_SEGMENT_SIZE_MAX;
pub(crate) use group::SeriesGroup;
pub(crate) use index::{IndexEntries, PostingsWriter};
pub(crate) use labeled::LabeledCursor;
pub use merged::{MergedBlocks, MergedSeries};
pub use meta::{
    BlockMeta, BlockStats, FROM_OUT_OF_ORDER, META_SIZE_MAX, ThanosMeta, have_overlaps,
};
pub use reader::{BlockCursor, BlockReader, BlockSeries};
pub use ulid::Ulid;
pub use writer::{BlockWriter, Description};
