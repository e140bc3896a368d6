//! Write-ahead log: what shards have accepted and no block holds yet.
//!
//! Used by `logs` (append, commit, sync), the flush (rotate, checkpoint) and `Db::open` (replay). Format:
//! docs/format/wal.md, version 3.
//!
//! Each log has two sequences of segments: `series-*` with series definitions and metadata, `samples-*` with samples and
//! exemplars. A segment is a header and frames ([`frame`]); a frame holds one record ([`record`]). Appends encode into
//! memory; [`Wal::commit`] then hands everything that has gathered to the operating system, so
//! that requests that come at the same time share one write and one sync. A flush cuts the log ([`Wal::rotate`]), makes
//! the samples before the cut durable elsewhere and replaces the segments before it by a [`checkpoint`].
//!
//! Invariants
//! 1. A commit returns only when all that was appended before is in the operating system's hands; under
//!    [`WalSync::Always`](crate::WalSync::Always) it survives a power cut as well.
//! 2. Definitions are written before the samples that need them, and synced before them.
//! 3. What a full disk left half written is cut off before anything else is written; it is written again from memory.
//! 4. After a failed sync, or a cut that failed, every later append is `Error::Poisoned`: a retry could lie.
//! 5. A file that an earlier process wrote is never appended to.
//! 6. Replay cuts a torn tail; damage before that is set aside, counted and skipped to the next valid frame.
//! 7. A segment is removed only when a checkpoint behind it is durable; where an older checkpoint is still there, so are
//!    all segments that it needs.
//!
//! Threads: appends of samples come one after the other (`logs`), definitions under a shard's lock; commits and syncs have locks
//! of their own (`writer`). Crash: whole frames, then possibly a torn one; a checkpoint is there whole or not at all.

mod bits;
mod checkpoint;
mod epoch;
mod exemplars;
mod frame;
mod histograms;
mod payload;
mod prefix;
mod quarantine;
mod reader;
mod record;
mod refs;
mod replay;
mod reserve;
mod samples;
mod snapshot;
mod starts;
mod stream;
pub mod survey;
mod times;
mod values;
mod writer;

pub(crate) use epoch::{Epoch, remove_epochs_before};
pub(crate) use histograms::LoggedHistogram;
pub(crate) use record::SampleColumn;
pub use replay::ReplayStats;
pub(crate) use replay::{Replay, ReplayProgress, Target, check_versions, gathered_bytes, replay_share, replay_workers};
pub(crate) use reserve::Reserve;
pub(crate) use snapshot::write_snapshot_log;
pub(crate) use starts::{Start, ToldStarts};
pub(crate) use writer::{Position, Wal, WalOptions};

/// Where a log was cut: the number of the first series segment and of the first samples segment that still count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cut(u64);

/// Whether a log takes appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// It does.
    Ok,
    /// Not until the disk takes what is waiting, which each append tries; the last error.
    Blocked(String),
    /// Not until a restart; the failure behind it.
    Poisoned(String),
}

/// What a file of the log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// Samples and exemplars.
    Samples,
    /// Series definitions and metadata.
    Series,
    /// Definitions, metadata and exemplars, in place of all segments before its number.
    Checkpoint,
}

impl SegmentKind {
    /// Returns its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.prefix().trim_end_matches('-')
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Samples => "samples-",
            Self::Series => "series-",
            Self::Checkpoint => "checkpoint-",
        }
    }

    /// Returns the name of the file of a number, for instance `samples-00000007`.
    fn file_name(self, number: u64) -> String {
        format!("{}{number:08}", self.prefix())
    }

    /// Returns the number of the file of a name, or `None` if it is not one of this kind.
    fn parse(self, file_name: &str) -> Option<u64> {
        let digits = file_name.strip_prefix(self.prefix())?;
        (digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
    }

    /// Tells whether a name is one of this kind, or of one that is being written.
    fn is_ours(self, file_name: &str) -> bool {
        self.parse(file_name.strip_suffix(checkpoint::TMP_SUFFIX).unwrap_or(file_name)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_come_back_and_others_are_refused() {
        for (kind, number, name) in [
            (SegmentKind::Samples, 7, "samples-00000007"),
            (SegmentKind::Series, 123_456_789, "series-123456789"),
            (SegmentKind::Checkpoint, 0, "checkpoint-00000000"),
        ] {
            assert_eq!((kind.file_name(number).as_str(), kind.parse(name)), (name, Some(number)));
        }
        for bad in ["samples-7", "samples-0000000x", "series-00000007", "samples-", "samples-99999999999999999999999"] {
            assert_eq!(SegmentKind::Samples.parse(bad), None, "{bad}");
        }
        assert_eq!(SegmentKind::Checkpoint.parse("checkpoint-00000007.tmp"), None);
        assert!(SegmentKind::Checkpoint.is_ours("checkpoint-00000007.tmp"));
    }
}
