//! Blocks: samples that left the head, in immutable files that need nothing else to be read.
//!
//! A flush writes small ones (parts), a merge makes large ones of them; both are this one format, one file each. Used by
//! `flush` and `compact` ([`BlockWriter`], [`BlockScan`]) and by `select` ([`Block`]). Format: docs/format/block.md,
//! version 1.
//!
//! ```text
//! header                                                                       footer.rs
//! pages:  symbols, series table, postings                                      index/
//!         rows: the values of a group of neighbouring series in a slice        rows.rs, values/, histograms.rs
//!         maps: which timeline each series of a group has in each slice        group.rs
//!         timelines: distinct lists of timestamps, each stored once            timelines.rs, timestamps.rs
//!         directory: where groups and timelines lie                            directory.rs
//!         footer: origin, figures, where directory and index begin             footer.rs
//! trailer                                                                      footer.rs
//! ```
//!
//! Words: a series' *ordinal* is its place in the order of labels. A *group* is up to 256 neighbours. A *slice* is at most
//! 8 h of a window. A *timeline* is the ascending list of timestamps that a series has in a slice; the series of one
//! scrape target share theirs.
//!
//! Invariants
//! 1. A file that has its final name is whole and synced; what is still being written is named `*.tmp`.
//! 2. A file never changes. Every byte of it is under a checksum, which is verified before anything in it is believed.
//! 3. Series ascend by labels, the timestamps of a series ascend strictly, and both lie in what the directory says.
//! 4. Memory of writing, scanning and checking does not depend on the number of series, apart from the directory of an
//!    open block: some 60 bytes per group and slice.
//!
//! Threads: a writer or a scan belongs to one thread; a [`Block`] is read by any number.
//! Crash: a `*.tmp` is left behind, which `Db::open` removes.

mod bucket_columns;
mod directory;
mod footer;
mod group;
mod histograms;
mod index;
mod meta;
mod page;
mod planes;
mod reader;
mod recent;
#[cfg(feature = "testing")]
mod row_codec;
mod rows;
mod scan;
mod starts;
mod timelines;
mod timestamps;
mod values;
mod verify;
mod writer;

pub(crate) use index::{Projection, SeriesCursor, SymbolCursor};
pub(crate) use meta::{BlockId, BlockMeta, BlockOrigin, NUMBER_MAX};
pub(crate) use page::PageCache;
pub(crate) use reader::Block;
pub(crate) use recent::Recent;
#[cfg(feature = "testing")]
pub use row_codec::RowCodec;
pub(crate) use scan::BlockScan;
pub(crate) use writer::BlockWriter;

/// The newest version of the format that is read, and the one that is written.
const VERSION: u8 = 1;

/// The number of a label name and value in one block; ascends with name and value in byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Symbol(pub(crate) u32);

/// Bytes do not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

/// Why the payload of a sound page is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    /// It does not decode, or contradicts what points to it.
    Damaged,
    /// It has flags or kinds of rows that only a later version writes.
    Newer,
}

impl From<Damaged> for Unreadable {
    fn from(_: Damaged) -> Self {
        Self::Damaged
    }
}

#[cfg(test)]
pub(crate) mod tests;
