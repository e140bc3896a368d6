//! What a block says of itself.

use crate::sample::TimeRange;

/// The highest number of a block, a flush or a delete rule that is believed: there is always a next one.
pub(crate) const NUMBER_MAX: u64 = u64::MAX / 2;

/// The number of a block: unique in a store, never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(pub(crate) u64);

impl BlockId {
    /// Returns the block whose file has this name, or `None` if it is not a block's.
    pub(crate) fn parse(file_name: &str) -> Option<Self> {
        let id = Self(file_name.strip_suffix(".block")?.parse().ok()?);
        (id.file_name() == file_name && id.0 <= NUMBER_MAX).then_some(id)
    }

    /// Tells whether a file of this name is what the writer of a block leaves when it does not come to its end: the block
    /// itself or a spill file of its index.
    pub(crate) fn is_unfinished(file_name: &str) -> bool {
        let Some(name) = file_name.strip_suffix(".tmp") else { return false };
        let of_spill = || {
            let (block, spill) = name.split_once('.')?;
            spill.parse::<u32>().ok()?;
            Self::parse(&format!("{block}.block"))
        };
        Self::parse(name).or_else(of_spill).is_some()
    }

    /// Returns the name of the block's file.
    pub(crate) fn file_name(self) -> String {
        format!("{:08}.block", self.0)
    }
}

/// Where a block comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockOrigin {
    /// The number of the block.
    pub(crate) id: BlockId,
    /// The span of time that the block belongs to; both ends included. Its samples lie inside.
    pub(crate) window: TimeRange,
    /// 0 for a part that a flush wrote, else one more than the highest of its sources.
    pub(crate) level: u8,
    /// The first and the last flush whose samples it holds. Of two samples with one timestamp, that of the earlier
    /// flush stands.
    pub(crate) flushes: (u64, u64),
    /// The blocks that it was merged from: where it is, they are no longer needed.
    pub(crate) sources: Vec<BlockId>,
    /// Delete rules up to this number have been applied to its samples.
    pub(crate) deletions: u64,
}

/// Origin and figures of a finished block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockMeta {
    /// Where it comes from.
    pub(crate) origin: BlockOrigin,
    /// From the oldest to the newest sample.
    pub(crate) range: TimeRange,
    /// Series.
    pub(crate) n_series: u64,
    /// Samples.
    pub(crate) n_samples: u64,
    /// Bytes of the file: those below, and some for header, directory and footer.
    pub(crate) size: u64,
    /// Bytes of the pages of values.
    pub(crate) values_size: u64,
    /// Bytes of the pages of timestamps, and of those that say which series has which.
    pub(crate) timestamps_size: u64,
    /// Bytes of dictionaries, series table and postings.
    pub(crate) index_size: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_come_back_and_those_of_others_are_left_alone() {
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
