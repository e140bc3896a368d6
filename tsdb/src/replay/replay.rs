//! Replay of all logs of a store.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;

use rayon::prelude::*;
use varve_context::Interrupt;
use varve_env::{Fs, list_if_exists};

use super::context::ReplayContext;
use super::locations::SeriesLocations;
use super::log::{LogReplay, check_policy, file_size};
use super::stats::ReplayStats;
use crate::error::{Error, Result};
use crate::options::WalOnCorruption;
use crate::wal::reader::check_version;
use crate::wal::{Epoch, MissingFiles, SegmentKind, missing_directories, n_replaced_epochs};

/// A replay whose definitions are loaded.
pub(crate) struct Replay<'a> {
    context: &'a ReplayContext<'a>,
    /// By epoch, oldest first.
    logs: Vec<Vec<LogReplay>>,
    /// Series of all epochs except the newest. Each series is defined once, in the epoch that
    /// created it.
    earlier: SeriesLocations,
    next_ref: u64,
}

/// Checks the headers of all files of `epochs` before anything on the disk is changed.
///
/// # Errors
/// [`Error::Version`] if a format version is not supported, [`Error::Io`].
pub(crate) fn check_versions(fs: &dyn Fs, wal_dir: &Path, epochs: &[Epoch]) -> Result<()> {
    for epoch in epochs {
        for dir in (0..epoch.logs).map(|log| epoch.log_dir(wal_dir, log)) {
            let names = list_if_exists(fs, &dir)?;
            for kind in SegmentKind::ALL {
                let ours = names.iter().filter(|name| kind.parse(name).is_some());
                ours.map(|name| dir.join(name))
                    .try_for_each(|path| check_version(fs, &path, kind))?;
            }
        }
    }
    Ok(())
}

/// Logs the directories of logs and epochs that are missing, before new ones are created in their
/// place. Returns their number.
///
/// # Errors
/// [`Error::Corrupt`] under [`WalOnCorruption::Refuse`], [`Error::Io`].
pub(crate) fn check_directories(
    fs: &dyn Fs,
    wal_dir: &Path,
    epochs: &[Epoch],
    on_corruption: WalOnCorruption,
) -> Result<u64> {
    let missing = missing_directories(fs, wal_dir, epochs)?;
    for MissingFiles { path, reason } in &missing {
        tracing::error!(?path, "files of the WAL are missing: {reason}");
        check_policy(on_corruption, path, 0, reason)?;
    }
    Ok(missing.len() as u64)
}

/// Makes segments survive a power cut, before a new record refers to a series in them or a repeated
/// sample is not logged again: the process that wrote them may have ended before their sync.
/// Nothing is appended to them any more.
fn sync(context: &ReplayContext<'_>, segments: &[PathBuf]) -> Result<()> {
    for path in segments {
        if context.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted(Interrupt::Shutdown));
        }
        // This also syncs the file.
        context
            .fs
            .truncate(path, file_size(context.fs, path)?)
            .map_err(Error::io("sync", path))?;
    }
    let dirs: BTreeSet<&Path> = segments.iter().filter_map(|path| path.parent()).collect();
    dirs.into_iter()
        .try_for_each(|dir| context.fs.sync_dir(dir).map_err(Error::io("sync", dir)))
}

impl<'a> Replay<'a> {
    /// Loads the definitions of all epochs below `wal_dir`, oldest first.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::Version`] if a format version is not
    /// supported, [`Error::Corrupt`] if a valid frame holds an unknown record, and for damage under
    /// `Refuse`.
    pub(crate) fn load_definitions(
        wal_dir: &Path,
        epochs: &[Epoch],
        context: &'a ReplayContext<'a>,
    ) -> Result<Self> {
        let mut logs: Vec<Vec<LogReplay>> = Vec::new();
        let n_replaced = n_replaced_epochs(context.fs, wal_dir, epochs)?;
        for (idx, epoch) in epochs.iter().enumerate() {
            let is_current_layout = epoch.logs == context.shards.len();
            let open = |log| {
                LogReplay::open(
                    epoch.log_dir(wal_dir, log),
                    is_current_layout.then_some(log),
                    idx < n_replaced,
                    context,
                )
            };
            logs.push(
                (0..epoch.logs)
                    .into_par_iter()
                    .map(open)
                    .collect::<Result<_>>()?,
            );
        }
        let segments: Vec<PathBuf> = logs
            .iter()
            .flatten()
            .flat_map(LogReplay::segments)
            .collect();
        thread::scope(|scope| {
            // Waits for the disk, while the definitions need the cores.
            let sync = || sync(context, &segments);
            let started = thread::Builder::new()
                .name("replay-sync".into())
                .spawn_scoped(scope, sync);
            let syncing = started.map_err(Error::io("start a thread for", wal_dir))?;
            for logs in &mut logs {
                logs.par_iter_mut()
                    .try_for_each(|log| log.load_definitions(context))?;
            }
            syncing.join().unwrap_or_else(|panic| resume_unwind(panic))
        })?;
        context
            .shards
            .par_iter()
            .try_for_each(|shard| shard.head_mut().finish_loading())?;
        let earlier = take_earlier_locations(&mut logs);
        let next_ref = logs
            .iter()
            .flatten()
            .map(|log| log.next_ref)
            .max()
            .unwrap_or(0);
        Ok(Self {
            context,
            logs,
            earlier,
            next_ref,
        })
    }

    /// Returns the next series ref after all definitions. Samples of unknown series may have higher
    /// refs.
    pub(crate) fn next_ref(&self) -> u64 {
        self.next_ref
    }

    /// Returns an upper bound on the number of samples segments that the logs ever had, including
    /// removed ones.
    pub(crate) fn n_samples_segments_created(&self) -> u64 {
        self.logs
            .iter()
            .flatten()
            .map(|log| log.next_samples)
            .fold(0, u64::saturating_add)
    }

    /// Replays the samples. Returns the statistics and the next free series ref.
    ///
    /// # Errors
    /// The errors of [`Replay::load_definitions`], and [`Error::Interrupted`] if the replay is
    /// stopped.
    pub(crate) fn replay_samples(mut self) -> Result<(ReplayStats, u64)> {
        for logs in &mut self.logs {
            logs.par_iter_mut()
                .try_for_each(|log| log.replay_samples(self.context, &self.earlier))?;
        }
        let mut stats = ReplayStats::default();
        for log in self.logs.iter().flatten() {
            log.truncate_torn_tails(self.context.fs)?;
            stats.add(log.stats);
            self.next_ref = self.next_ref.max(log.next_ref);
        }
        Ok((stats, self.next_ref))
    }
}

/// Takes the locations of the series of all epochs but the last.
fn take_earlier_locations(logs: &mut [Vec<LogReplay>]) -> SeriesLocations {
    let mut earlier = SeriesLocations::default();
    let n_earlier = logs.len().saturating_sub(1);
    for log in logs[..n_earlier].iter_mut().flatten() {
        earlier.extend(std::mem::take(&mut log.locations));
    }
    earlier.sort();
    earlier
}
