//! Opens a data directory: its lock, its WAL and blocks, and the replay.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use varve_context::QueryContext;
use varve_env::{Fs, Lock, create_dir_durably};

use super::Db;
use super::disk_probe::DiskProbe;
use crate::background::{BackgroundTasks, ReplaySource, Replayer, replay};
use crate::block::BlockSet;
use crate::error::{Error, Result};
use crate::head::HeadTotals;
use crate::options::{Options, WalSync};
use crate::replay::{ReplayStatus, check_directories, check_versions};
use crate::select::KeptSelections;
use crate::shard::{Shard, SharedLog};
use crate::store::Store;
use crate::wal::{Epoch, Log, LogOptions, Reserve};

impl Db {
    /// Opens a data directory and replays its WAL. Creates the directory if it does not exist.
    ///
    /// Returns when the WAL is replayed. With [`Options::wal_replay_in_background`] it returns as
    /// soon as the WAL's series are known. Appends are then accepted and acknowledged as usual, and
    /// become visible when the WAL is replayed. Reads of a range for which the WAL may have samples
    /// wait for the replay until their deadline ([`Error::Replaying`]), or return partial results
    /// ([`ReadOptions::takes_partial`](varve_context::ReadOptions::takes_partial)). Flushes,
    /// deletions, snapshots and [`Db::compact_fully`] wait. If the replay fails, all these
    /// operations fail with [`Error::ReplayFailed`]. See [`Db::wait_replayed`] and
    /// [`Db::replay_status`].
    ///
    /// # Errors
    /// [`Error::Options`], [`Error::Locked`] if another process has the directory open,
    /// [`Error::Io`], [`Error::Version`] if a file has a newer format, [`Error::Corrupt`] if a log
    /// frame with a correct checksum holds an unknown record or the file of tombstones is
    /// damaged.
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        options.check()?;
        let fs = Arc::clone(&options.fs);
        create_dir_durably(&*fs, path)?;

        let lock = lock(&*fs, path)?;

        let wal_dir = path.join("wal");
        let epochs = Epoch::list(&*fs, &wal_dir)?;
        let epoch = current_epoch(&epochs, options.n_logs())?;
        let source = checked_source(path, epochs, &options)?;
        if options.background {
            Reserve::new(Arc::clone(&fs), &wal_dir).ensure_usable()?;
        }

        let blocks = BlockSet::open(&fs, path, options.page_cache_size_bytes, options.verified)?;
        let logs = open_logs(&wal_dir, epoch, &options)?;
        let head_totals = HeadTotals::default();
        let shards = make_shards(&wal_dir, &logs, &options, &head_totals)?;
        // New directories must survive a power cut. The log syncs only the entries of its segments.
        for dir in [&epoch.dir(&wal_dir), &wal_dir, blocks.dir(), path] {
            fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        }

        let store = Arc::new(Store::new(
            options,
            wal_dir,
            epoch,
            logs,
            shards,
            head_totals,
            blocks,
        ));
        let mut replayer = None;
        if store.options.wal_replay_in_background {
            replayer = Some(Replayer::start(&store, source)?);
        } else {
            replay(&store, &source, || {})?;
        }

        let mut wal_sync = None;
        if store.options.wal_sync == WalSync::Interval {
            wal_sync = Some(started(BackgroundTasks::start_wal_sync(&store), path)?);
        }
        let mut tasks = None;
        if store.options.background {
            tasks = Some(started(BackgroundTasks::start(&store), path)?);
        }
        Ok(Self {
            _replayer: replayer,
            _tasks: tasks,
            _wal_sync: wal_sync,
            kept_selections: KeptSelections::new(store.options.kept_selections_size_bytes),
            store,
            path: path.to_owned(),
            disk_probe: DiskProbe::new(path),
            n_appended: AtomicU64::new(0),
            n_histograms: AtomicU64::new(0),
            _lock: lock,
        })
    }

    /// Waits until the WAL is replayed. Returns at once unless the replay runs in the background.
    ///
    /// # Errors
    /// [`Error::ReplayFailed`], [`Error::Replaying`] at the deadline of `ctx`,
    /// [`Error::Interrupted`].
    pub fn wait_replayed(&self, ctx: &QueryContext) -> Result<()> {
        self.store.replay.wait(ctx)
    }

    /// Returns the progress of the replay.
    #[must_use]
    pub fn replay_status(&self) -> ReplayStatus {
        self.store.replay.status()
    }
}

/// Returns the tasks of the store in `path` if their threads were started.
fn started(tasks: io::Result<BackgroundTasks>, path: &Path) -> Result<BackgroundTasks> {
    tasks.map_err(Error::io("start a thread for", path))
}

/// Locks a data directory for this process.
fn lock(fs: &dyn Fs, path: &Path) -> Result<Box<dyn Lock>> {
    let lock_path = path.join("lock");
    fs.lock(&lock_path).map_err(Error::lock(&lock_path))
}

/// Returns the WAL to replay. Checks it before the first change, so that files of a newer version and
/// damage that is refused stay unchanged.
fn checked_source(path: &Path, epochs: Vec<Epoch>, options: &Options) -> Result<ReplaySource> {
    let fs = &*options.fs;
    let wal_dir = path.join("wal");
    check_versions(fs, &wal_dir, &epochs)?;
    let n_missing_directories =
        check_directories(fs, &wal_dir, &epochs, options.wal_on_corruption)?;
    Ok(ReplaySource {
        wal_dir,
        epochs,
        n_missing_directories,
        quarantine: path.join("quarantine"),
    })
}

/// Returns the epoch to write to: the newest epoch if it has `logs` logs, otherwise a new one.
fn current_epoch(epochs: &[Epoch], logs: usize) -> Result<Epoch> {
    match epochs.last() {
        Some(last) if last.logs == logs => Ok(*last),
        Some(last) => last.next(logs),
        None => Ok(Epoch { number: 0, logs }),
    }
}

fn open_logs(wal_dir: &Path, epoch: Epoch, options: &Options) -> Result<Box<[Arc<SharedLog>]>> {
    let mut logs = Vec::with_capacity(epoch.logs);
    for number in 0..epoch.logs {
        let log = Log::open(LogOptions {
            number,
            dir: epoch.log_dir(wal_dir, number),
            fs: Arc::clone(&options.fs),
            sync: options.wal_sync,
            segment_size_bytes: options.wal_segment_size_bytes,
        })?;
        logs.push(SharedLog::new(log));
    }
    Ok(logs.into())
}

fn make_shards(
    wal_dir: &Path,
    logs: &[Arc<SharedLog>],
    options: &Options,
    totals: &HeadTotals,
) -> Result<Box<[Shard]>> {
    let seed = getrandom::u64().map_err(|e| Error::io("seed", wal_dir)(e.into()))?;
    let size_max = options.head_size_max_bytes / options.shards;
    let mut shards = Vec::with_capacity(options.shards);
    for idx in 0..options.shards as u16 {
        let log = Arc::clone(&logs[usize::from(idx) % logs.len()]);
        shards.push(Shard::new(idx, seed, log, size_max).with_totals(totals));
    }
    Ok(shards.into())
}
