//! Blocks: immutable, self-contained files of samples that left the head.
//!
//! A flush writes small blocks (parts), and a merge combines them into large blocks. Each block is
//! a file, and all blocks have the same format. Used by `store::flush` and `compact`
//! ([`BlockWriter`], [`BlockScan`]) and by `select` ([`StoredBlock`]). Format: docs/format/block.md,
//! version 1.
//!
//! ```text
//! header                                                                           footer.rs
//! pages:  symbols, series table, postings                                          index/
//!         rows: the values of a group of neighboring series in a slice             rows/, varve_codec::values
//!         maps: which timestamp column each series of a group has in each slice    group.rs
//!         timestamp columns: distinct lists of timestamps, each stored once        timestamps.rs
//!         directory: the positions of groups and timestamp columns                 directory.rs
//!         footer: origin, statistics, the positions of directory and index         footer.rs
//! trailer                                                                          footer.rs
//! ```
//!
//! Terms: the *ordinal* of a series is its position in label order. A *group* is up to 256
//! neighboring series. A *slice* is at most 8 h of a window. A *timestamp column* is the ascending
//! list of timestamps of a series in a slice. The series of one scrape target share their timestamp
//! columns.
//!
//! Invariants
//! 1. A file with its final name is complete and synced; a file that is being written is named
//!    `*.tmp`.
//! 2. A file never changes. A checksum covers every byte and is verified before the byte is used.
//! 3. Series ascend by labels, the timestamps of a series ascend strictly, and both lie in the
//!    ranges of the directory.
//! 4. Memory for writing, scanning and verifying does not depend on the number of series, apart
//!    from the directory of an open block: about 60 bytes per group and slice.
//!
//! Threads: a writer or a scan belongs to one thread. Any number of threads may read a [`Block`].
//! Crash: a `*.tmp` file may remain, which `Db::open` removes.

mod copy;
mod directory;
mod footer;
mod group;
mod index;
mod meta;
mod page;
mod reader;
mod rows;
mod scan;
mod series_batch;
pub(crate) mod set;
mod slice;
mod symbol;
mod temporary_file;
mod timestamps;
pub(crate) mod tombstones;
mod verify;
mod version;
mod writer;

pub(crate) use index::{DictionaryCursor, Projection, SeriesCursor};
#[cfg(test)]
pub(crate) use meta::superseded;
pub(crate) use meta::{BlockId, BlockMeta, BlockOrigin, precedence};
pub(crate) use page::Access;
#[cfg(test)]
pub(crate) use page::PageCache;
pub(crate) use reader::{Block, ReadCache};
pub(crate) use rows::GROUP_SERIES_MAX;
pub(crate) use scan::BlockScan;
pub(crate) use series_batch::SeriesBatch;
pub(crate) use set::{BlockSet, Replaced, StoredBlock};
pub(crate) use symbol::Symbol;
pub(crate) use writer::{BlockWriter, INDEX_MEMORY_MAX};

#[cfg(test)]
mod tests;
