//! Write-ahead log: what a shard has accepted and no block holds yet.
//!
//! Used by `shard` (append, commit, sync) and `Db::open` (replay). Format: docs/format/wal.md, version 1.
//!
//! Each shard has two sequences of segments: `series-*` with series definitions and metadata, `samples-*` with samples.
//! A segment is a header and frames ([`frame`]); a frame holds one record ([`record`]). Appends encode into memory under
//! the shard's lock; [`Wal::commit`] then hands everything that has gathered to the operating system, so that requests
//! that come at the same time share one write and one sync.
//!
//! Invariants
//! 1. A commit returns only when all that was appended before is in the operating system's hands; under
//!    [`WalSync::Always`](crate::WalSync::Always) it survives a power cut as well.
//! 2. Definitions are written before the samples that need them, and synced before them.
//! 3. What a full disk left half written is cut off before anything else is written; it is written again from memory.
//! 4. After a failed sync, or a cut that failed, every later append is `Error::Poisoned`: a retry could lie.
//! 5. A file that an earlier process wrote is never appended to.
//! 6. Replay cuts a torn tail; damage before that is set aside, counted and skipped to the next valid frame.
//!
//! Threads: one [`Wal`] per shard; appends come under the shard's lock, commits and syncs under a lock of their own.

mod frame;
mod reader;
mod record;
mod replay;
mod writer;

use std::path::{Path, PathBuf};

pub(crate) use record::SampleColumn;
pub use replay::ReplayStats;
pub(crate) use replay::{Target, replay};
pub(crate) use writer::{Position, Wal, WalOptions};

/// What a segment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentKind {
    /// Samples.
    Samples,
    /// Series definitions and metadata.
    Series,
}

impl SegmentKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Samples => "samples-",
            Self::Series => "series-",
        }
    }

    /// Returns the name of the segment of a number, for instance `samples-00000007`.
    fn file_name(self, number: u64) -> String {
        format!("{}{number:08}", self.prefix())
    }

    /// Returns the number of the segment of a name, or `None` if it is not one of this kind.
    fn parse(self, file_name: &str) -> Option<u64> {
        let digits = file_name.strip_prefix(self.prefix())?;
        (digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
    }
}

/// The logs of one choice of the number of shards: a folder `<number>-<shards>`, with a folder per shard.
///
/// When a store is opened with another number of shards, the next epoch begins; the old ones are only read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch {
    /// Counts up from 0.
    pub(crate) number: u32,
    /// How many logs it has.
    pub(crate) shards: usize,
}

impl Epoch {
    /// Returns the epoch that a folder name stands for, or `None` if it is none.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (number, shards) = name.split_once('-')?;
        let epoch = Self { number: number.parse().ok()?, shards: shards.parse().ok()? };
        (epoch.name() == name).then_some(epoch)
    }

    fn name(self) -> String {
        format!("{:06}-{:03}", self.number, self.shards)
    }

    /// Returns the folder of the epoch.
    pub(crate) fn dir(self, wal_dir: &Path) -> PathBuf {
        wal_dir.join(self.name())
    }

    /// Returns the folder of a shard's log.
    pub(crate) fn shard_dir(self, wal_dir: &Path, shard: usize) -> PathBuf {
        self.dir(wal_dir).join(format!("{shard:03}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_and_epochs_come_back_and_others_are_refused() {
        for (kind, number, name) in
            [(SegmentKind::Samples, 7, "samples-00000007"), (SegmentKind::Series, 123_456_789, "series-123456789")]
        {
            assert_eq!((kind.file_name(number).as_str(), kind.parse(name)), (name, Some(number)));
        }
        for bad in ["samples-7", "samples-0000000x", "series-00000007", "samples-", "samples-99999999999999999999999"] {
            assert_eq!(SegmentKind::Samples.parse(bad), None, "{bad}");
        }
        assert_eq!(Epoch::parse("000003-016"), Some(Epoch { number: 3, shards: 16 }));
        for bad in ["3-16", "000003", "000003-016.tmp", "x-y"] {
            assert_eq!(Epoch::parse(bad), None, "{bad}");
        }
    }
}
