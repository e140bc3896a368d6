//! Metadata of blocks.

use std::collections::BTreeSet;

use crate::sample::TimeRange;

/// The highest accepted id of a block, a flush or a delete rule: there is always a next one.
pub(crate) const NUMBER_MAX: u64 = u64::MAX / 2;

/// The id of a block: unique in a store and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(pub(crate) u64);

impl BlockId {
    /// Returns the id of a block file, or `None` if the name is not that of a block.
    pub(crate) fn parse(file_name: &str) -> Option<Self> {
        let id = Self(file_name.strip_suffix(".block")?.parse().ok()?);
        (id.file_name() == file_name && id.0 <= NUMBER_MAX).then_some(id)
    }

    /// Returns `true` if the file name is that of an unfinished block or of a spill file of its index.
    pub(crate) fn is_unfinished(file_name: &str) -> bool {
        let Some(name) = file_name.strip_suffix(".tmp") else { return false };
        let is_spill_file = || {
            let (block, spill) = name.split_once('.')?;
            spill.parse::<u32>().ok()?;
            Self::parse(&format!("{block}.block"))
        };
        Self::parse(name).or_else(is_spill_file).is_some()
    }

    /// Returns the name of the block's file.
    pub(crate) fn file_name(self) -> String {
        format!("{:08}.block", self.0)
    }
}

/// How a block was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockOrigin {
    /// The id of the block.
    pub(crate) id: BlockId,
    /// The time range that the block belongs to, including both ends. All its samples lie inside.
    pub(crate) window: TimeRange,
    /// 0 for a part that a flush wrote, otherwise one more than the highest level of its sources.
    pub(crate) level: u8,
    /// The first and the last flush whose samples it holds. Of two samples with one timestamp, that of the earlier
    /// flush wins.
    pub(crate) flushes: (u64, u64),
    /// The blocks that it was merged from and replaces.
    pub(crate) sources: Vec<BlockId>,
    /// Delete rules up to this id have been applied to its samples.
    pub(crate) deletions: u64,
}

/// Origin and statistics of a finished block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockMeta {
    /// Origin of the block.
    pub(crate) origin: BlockOrigin,
    /// Time range from the oldest to the newest sample.
    pub(crate) range: TimeRange,
    /// Series.
    pub(crate) n_series: u64,
    /// Samples.
    pub(crate) n_samples: u64,
    /// Size of the file in bytes: the sizes below, plus header, directory and footer.
    pub(crate) size: u64,
    /// Size of the pages of values in bytes.
    pub(crate) values_size: u64,
    /// Size of the pages of timestamps, and of the maps from series to timestamp columns, in bytes.
    pub(crate) timestamps_size: u64,
    /// Size of dictionary, series table and postings in bytes.
    pub(crate) index_size: u64,
}

/// Returns the blocks that another block replaces, ascending.
///
/// Sources that are not older than the block are ignored; a merge never lists such sources. So two blocks with corrupt
/// lists cannot replace each other.
pub(crate) fn superseded(blocks: &[BlockMeta]) -> Vec<BlockId> {
    let present: BTreeSet<BlockId> = blocks.iter().map(|block| block.origin.id).collect();
    let origins = blocks.iter().map(|block| &block.origin);
    let older = |origin: &'_ BlockOrigin| {
        let id = origin.id;
        origin.sources.clone().into_iter().filter(move |source| *source < id)
    };
    origins.flat_map(older).collect::<BTreeSet<_>>().intersection(&present).copied().collect()
}

/// Returns the precedence of a block: of two samples with one timestamp, that of the block with the smaller one wins.
pub(crate) fn precedence(block: &BlockMeta) -> (u64, BlockId) {
    (block.origin.flushes.0, block.origin.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_file_names_round_trip_and_others_are_ignored() {
        for (name, id) in [("00000012.block", 12), ("123456789.block", 123_456_789)] {
            assert_eq!(BlockId::parse(name), Some(BlockId(id)));
            assert_eq!(BlockId(id).file_name(), name);
        }
        for bad in ["12.block", "00000012.block.tmp", "x.block", "00000012", "18446744073709551615.block"] {
            assert_eq!(BlockId::parse(bad), None, "{bad}");
        }
        for (name, expected) in [
            ("00000012.block.tmp", true),
            ("00000012.0.tmp", true),
            ("00000012.17.tmp", true),
            ("00000012.block", false),
            ("notes.tmp", false),
            ("00000012.x.tmp", false),
            ("12.block.tmp", false),
        ] {
            assert_eq!(BlockId::is_unfinished(name), expected, "{name}");
        }
    }
}
