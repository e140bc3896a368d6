//! Metadata of blocks.

use std::collections::BTreeSet;

use varve_model::TimeRange;

/// The time range of no samples, which [`TimeRange::hull`] does not extend.
pub(crate) const EMPTY_RANGE: TimeRange = TimeRange {
    start_ms: i64::MAX,
    end_ms: i64::MIN,
};

/// The highest accepted id of a block, a flush or a tombstone. There is always a next id.
pub(crate) const NUMBER_MAX: u64 = u64::MAX / 2;

/// The id of a block: unique in a store and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(pub(crate) u64);

impl BlockId {
    /// Returns the id of a block file, or `None` if the file name is not the name of a block.
    pub(crate) fn parse(file_name: &str) -> Option<Self> {
        let id = Self(file_name.strip_suffix(".block")?.parse().ok()?);
        (id.file_name() == file_name && id.0 <= NUMBER_MAX).then_some(id)
    }

    /// Returns `true` if the file name is the name of an unfinished block, or of a spill file of
    /// its index.
    pub(crate) fn is_unfinished(file_name: &str) -> bool {
        let Some(name) = file_name.strip_suffix(".tmp") else {
            return false;
        };
        if Self::parse(name).is_some() {
            return true;
        }
        // A spill file is called `<block>.<number>.tmp`.
        let Some((block, spill)) = name.split_once('.') else {
            return false;
        };
        spill.parse::<u32>().is_ok() && Self::parse(&format!("{block}.block")).is_some()
    }

    /// Returns the name of the file of the block.
    pub(crate) fn file_name(self) -> String {
        format!("{:08}.block", self.0)
    }
}

/// The origin of a block: how it was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockOrigin {
    /// The id of the block.
    pub(crate) id: BlockId,
    /// The time range that the block belongs to, including both ends. All samples are inside.
    pub(crate) window: TimeRange,
    /// 0 for a part that a flush wrote, otherwise one more than the highest level of the sources.
    pub(crate) level: u8,
    /// The first and the last flush whose samples the block contains. Of two samples with the same
    /// timestamp, the sample of the earlier flush wins.
    pub(crate) flushes: (u64, u64),
    /// The blocks that the block was merged from and replaces.
    pub(crate) sources: Vec<BlockId>,
    /// Tombstones up to this id have been applied to the samples.
    pub(crate) deletions: u64,
}

/// Origin and statistics of a finished block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockMeta {
    /// Origin of the block.
    pub(crate) origin: BlockOrigin,
    /// Time range from the oldest to the newest sample.
    pub(crate) range: TimeRange,
    /// Number of series.
    pub(crate) n_series: u64,
    /// Number of samples.
    pub(crate) n_samples: u64,
    /// Size of the file in bytes: the sizes below, plus header, directory and footer.
    pub(crate) size: u64,
    /// Size of the pages of values in bytes.
    pub(crate) values_size: u64,
    /// Size of the pages of timestamps, and of the maps from series to timestamp columns, in bytes.
    pub(crate) timestamps_size: u64,
    /// Size of the index in bytes: dictionary, suffixes, series table and postings.
    pub(crate) index_size: u64,
}

impl BlockMeta {
    /// Returns the metadata of a block without samples.
    pub(crate) fn new(origin: BlockOrigin) -> Self {
        let range = EMPTY_RANGE;
        Self {
            origin,
            range,
            n_series: 0,
            n_samples: 0,
            size: 0,
            values_size: 0,
            timestamps_size: 0,
            index_size: 0,
        }
    }
}

/// Returns the ids of those blocks that are a source of another block in the list.
///
/// A source with a higher id than the merged block is ignored: a merge never has such a source. So
/// two blocks with wrong lists cannot replace each other.
pub(crate) fn superseded<'a>(
    blocks: impl Iterator<Item = &'a BlockMeta> + Clone,
) -> BTreeSet<BlockId> {
    let present: BTreeSet<BlockId> = blocks.clone().map(|block| block.origin.id).collect();
    let sources = blocks.flat_map(|block| {
        block
            .origin
            .sources
            .iter()
            .filter(|source| **source < block.origin.id)
    });
    sources
        .filter(|source| present.contains(source))
        .copied()
        .collect()
}

/// Returns the precedence of a block: of two samples with the same timestamp, the sample of the
/// block with the smaller precedence wins.
pub(crate) fn precedence(block: &BlockMeta) -> (u64, BlockId) {
    (block.origin.flushes.0, block.origin.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_block_files_round_trip_and_other_names_are_ignored() {
        for (name, id) in [("00000012.block", 12), ("123456789.block", 123_456_789)] {
            assert_eq!(BlockId::parse(name), Some(BlockId(id)));
            assert_eq!(BlockId(id).file_name(), name);
        }
        for bad in [
            "12.block",
            "00000012.block.tmp",
            "x.block",
            "00000012",
            "18446744073709551615.block",
        ] {
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
