//! Replay: from the log back to the head.
//!
//! Two steps. [`Replay::definitions`] loads the checkpoints and then the series segments of all epochs, and indexes what
//! they hold at once (`head::load`); from then on every series is known and the store takes writes (`replaying`).
//! [`Replay::samples`] replays the samples segments, epoch by epoch, and gathers the samples of many requests by series
//! (`gathered`). In both, the logs of an epoch are read at the same time by the workers of the thread pool that it is
//! called in, each of which holds a window of one file, the columns of one record, and what it has gathered. As long as
//! the number of logs has not changed, each log leads to shards of its own and workers share nothing; after a change
//! several may lead to one shard, whose lock sorts that out.
//!
//! Nothing of the log is changed before the end, and beside it only the quarantine, which only grows; what is written
//! meanwhile goes to new segments, which this replay does not look at. Torn tails are cut last; under
//! [`WalOnCorruption::Refuse`](crate::WalOnCorruption::Refuse) the first damage ends the replay, so nothing is changed at
//! all. Crash: a replay that did not end is repeated.

mod definitions;
mod gathered;
mod log;
mod places;
mod progress;
mod starts;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64};

use rayon::prelude::*;

use self::log::Log;
use self::places::Places;
pub(crate) use self::progress::{ReplayProgress, gathered_bytes, replay_share, replay_workers};
use super::reader::{LargeFrames, check_version};
use super::{Epoch, SegmentKind};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::head::Replayed;
use crate::labels::Metadata;
use crate::options::WalOnCorruption;
use crate::shard::Shard;
use crate::store::exemplars::Exemplars;

/// What a replay found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Series defined.
    pub n_series: u64,
    /// Samples restored.
    pub n_samples: u64,
    /// Exemplars restored, also those that were forgotten again because newer ones came.
    pub n_exemplars: u64,
    /// Samples that were there already.
    pub n_repeated: u64,
    /// Samples that contradict one that was accepted before them: another value at the same time. They were left out.
    pub n_conflicting: u64,
    /// Samples and exemplars whose series is not defined: their definition was damaged, or lost in a power cut.
    pub n_orphaned: u64,
    /// Bytes cut off the ends of segments: what was being written when the process ended.
    pub torn_bytes: u64,
    /// Bytes inside files that are no sound record. They were copied to the quarantine folder.
    pub damaged_bytes: u64,
    /// Frames that are missing, going by the numbers of those around; those in damaged bytes are among them.
    pub n_missing_frames: u64,
    /// Checkpoints that were damaged. An older one, or what was sound of it, took its place.
    pub n_damaged_checkpoints: u64,
    /// Series that were lost with a damaged checkpoint, as far as it tells.
    pub n_lost_series: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Samples that came while the replay ran and waited for its end.
    pub n_held: u64,
    /// Of these, samples that the log had already.
    pub n_held_repeated: u64,
    /// Of these, samples that contradict one that was accepted before them. They were left out.
    pub n_held_conflicting: u64,
    /// Of these, samples that would have been refused for their time, had all of the log been known. They were
    /// acknowledged, so they are kept.
    pub n_held_refusable: u64,
}

/// Where a replay leads.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// The shards of the store that is being opened. No series may leave them meanwhile.
    pub(crate) shards: &'a [Shard],
    /// Metadata by metric family.
    pub(crate) metadata: &'a Mutex<BTreeMap<String, Metadata>>,
    /// The exemplars.
    pub(crate) exemplars: &'a Exemplars,
    /// The folder for damaged bytes.
    pub(crate) quarantine: &'a Path,
    /// The disk.
    pub(crate) fs: &'a dyn Fs,
    /// What to do about damage.
    pub(crate) on_corruption: WalOnCorruption,
    /// What a worker may take to gather samples before they go to their series.
    pub(crate) gathered_bytes: usize,
    /// Counts along.
    pub(crate) progress: &'a ReplayProgress,
    /// The newest time of the store; raised along.
    pub(crate) newest_ms: &'a AtomicI64,
    /// Ends the replay before it is through.
    pub(crate) stop: &'a AtomicBool,
}

/// A replay whose definitions are loaded.
pub(crate) struct Replay<'a> {
    target: &'a Target<'a>,
    /// By epoch, oldest first.
    logs: Vec<Vec<Log>>,
    /// The series of all epochs but the newest: one is defined once, in whatever epoch it first came.
    earlier: Places,
    next_ref: u64,
    stats: ReplayStats,
}

/// What all workers share.
struct Shared<'a> {
    target: &'a Target<'a>,
    large: LargeFrames,
}

/// Looks at the headers of all files of some epochs, before anything on the disk is changed.
///
/// # Errors
/// [`Error::Version`] if a format version is not supported, [`Error::Io`].
pub(crate) fn check_versions(fs: &dyn Fs, wal_dir: &Path, epochs: &[Epoch]) -> Result<()> {
    for epoch in epochs {
        for dir in (0..epoch.logs).map(|log| epoch.log_dir(wal_dir, log)) {
            let names = match fs.list(&dir) {
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                names => names.map_err(Error::io("list", &dir))?,
            };
            for kind in [SegmentKind::Checkpoint, SegmentKind::Series, SegmentKind::Samples] {
                let ours = names.iter().filter(|name| kind.parse(name).is_some());
                ours.map(|name| dir.join(name)).try_for_each(|path| check_version(fs, &path, kind))?;
            }
        }
    }
    Ok(())
}

impl<'a> Replay<'a> {
    /// Loads the definitions of all epochs below `wal_dir`, oldest first.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::Version`] if a format version is not supported, [`Error::Corrupt`] if a
    /// sound frame holds what this program does not know; with damage under `Refuse`.
    pub(crate) fn definitions(wal_dir: &Path, epochs: &[Epoch], target: &'a Target<'a>) -> Result<Self> {
        let mut replay =
            Self { target, logs: Vec::new(), earlier: Places::default(), next_ref: 0, stats: ReplayStats::default() };
        let shared = Shared::new(target);
        for epoch in epochs {
            let is_same = epoch.logs == target.shards.len();
            let open = |log| Log::open(epoch.log_dir(wal_dir, log), is_same.then_some(log), &shared);
            replay.logs.push((0..epoch.logs).into_par_iter().map(open).collect::<Result<_>>()?);
        }
        for logs in &mut replay.logs {
            logs.par_iter_mut().try_for_each(|log| log.definitions(&shared))?;
        }
        target.shards.par_iter().try_for_each(|shard| shard.head_mut().finish_loading())?;
        let n_earlier = replay.logs.len().saturating_sub(1);
        for log in replay.logs[..n_earlier].iter_mut().flatten() {
            replay.earlier.extend(std::mem::take(&mut log.places));
        }
        replay.earlier.sort();
        replay.next_ref = replay.logs.iter().flatten().map(|log| log.next_ref).max().unwrap_or(0);
        Ok(replay)
    }

    /// Returns the least number that no definition names. A sample may, if its definition is lost.
    pub(crate) fn next_ref(&self) -> u64 {
        self.next_ref
    }

    /// Counts the files of samples that the logs have, and had.
    pub(crate) fn n_samples_files_ever(&self) -> u64 {
        self.logs.iter().flatten().map(|log| log.next_samples).fold(0, u64::saturating_add)
    }

    /// Replays the samples, and returns what was found in all and the least number that nothing on the disk names.
    ///
    /// # Errors
    /// As [`Replay::definitions`]; [`Error::Interrupted`] when it is stopped.
    pub(crate) fn samples(mut self) -> Result<(ReplayStats, u64)> {
        let shared = Shared::new(self.target);
        for logs in &mut self.logs {
            logs.par_iter_mut().try_for_each(|log| log.samples(&shared, &self.earlier))?;
        }
        for log in self.logs.iter().flatten() {
            log.cut_torn_tails(self.target.fs)?;
            self.stats.add(log.stats);
            self.next_ref = self.next_ref.max(log.next_ref);
        }
        Ok((self.stats, self.next_ref))
    }
}

impl<'a> Shared<'a> {
    fn new(target: &'a Target<'a>) -> Self {
        Self { target, large: LargeFrames::default() }
    }
}

impl ReplayStats {
    /// Counts `n` samples with which the same was done.
    fn count(&mut self, replayed: Replayed, n: usize) {
        let n = n as u64;
        match replayed {
            Replayed::New(_) => self.n_samples += n,
            Replayed::Repeated => self.n_repeated += n,
            Replayed::Conflicting => self.n_conflicting += n,
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.n_series += other.n_series;
        self.n_samples += other.n_samples;
        self.n_exemplars += other.n_exemplars;
        self.n_repeated += other.n_repeated;
        self.n_conflicting += other.n_conflicting;
        self.n_orphaned += other.n_orphaned;
        self.torn_bytes += other.torn_bytes;
        self.damaged_bytes += other.damaged_bytes;
        self.n_missing_frames += other.n_missing_frames;
        self.n_damaged_checkpoints += other.n_damaged_checkpoints;
        self.n_lost_series += other.n_lost_series;
        self.read_bytes += other.read_bytes;
        self.n_held += other.n_held;
        self.n_held_repeated += other.n_held_repeated;
        self.n_held_conflicting += other.n_held_conflicting;
        self.n_held_refusable += other.n_held_refusable;
    }
}

fn corrupt(path: PathBuf, offset: u64, reason: impl Into<String>) -> Error {
    Error::Corrupt { path, offset, reason: reason.into() }
}

#[cfg(test)]
mod tests;
