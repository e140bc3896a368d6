//! What an open store consists of; shared by [`Db`](crate::Db), running selections and background tasks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::blocks::Blocks;
use crate::compact::{CompactionStats, Throttle};
use crate::error::Result;
use crate::exemplars::Exemplars;
use crate::flush::Flushing;
use crate::groups::GroupCounts;
use crate::head::Bounds;
use crate::logs::Log;
use crate::metadata::Metadata;
use crate::options::Options;
use crate::replaying::Replaying;
use crate::requests::{Readers, Requests};
use crate::shard::Shard;
use crate::wal::{self, Epoch, Health, Reserve};

/// Metadata by metric family.
pub(crate) type Families = BTreeMap<String, Metadata>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) options: Options,
    pub(crate) shards: Box<[Shard]>,
    /// How many series the shards have together.
    pub(crate) group_counts: GroupCounts,
    /// Shard by shard in turn: there are at most as many.
    pub(crate) logs: Box<[Arc<Log>]>,
    pub(crate) blocks: Blocks,
    pub(crate) exemplars: Exemplars,
    pub(crate) requests: Requests,
    /// Whether the heads have all that the log holds.
    pub(crate) replaying: Replaying,
    /// Selections that took the list of blocks and are still copying from the heads.
    pub(crate) copying: Arc<Readers>,
    /// Selections that may still look up series in the heads.
    pub(crate) reading: Arc<Readers>,
    pub(crate) next_ref: AtomicU64,
    pub(crate) throttle: Throttle,
    /// Room for a flush when the disk is full.
    pub(crate) reserve: Reserve,
    wal_dir: PathBuf,
    /// The logs that are written; older ones go once all shards have been flushed.
    epoch: Epoch,
    /// `i64::MIN` while there is none.
    pub(crate) newest_ms: AtomicI64,
    /// Shared with whoever reads it; copied when it changes meanwhile.
    metadata: Mutex<Arc<Families>>,
    flushing: Mutex<Flushing>,
    compacting: Mutex<()>,
    compaction_stats: Mutex<CompactionStats>,
    /// Times that background work panicked.
    pub(crate) n_background_panics: AtomicU64,
}

impl Store {
    /// Puts the parts of a store together. What its log holds is to be replayed.
    pub(crate) fn new(
        options: Options,
        (wal_dir, epoch): (PathBuf, Epoch),
        (logs, shards): (Box<[Arc<Log>]>, Box<[Shard]>),
        group_counts: GroupCounts,
        blocks: Blocks,
    ) -> Self {
        Self {
            replaying: Replaying::new(&options),
            exemplars: Exemplars::new(options.exemplars_max),
            throttle: Throttle::new(options.compaction_bytes_per_second),
            reserve: Reserve::new(Arc::clone(&options.fs), &wal_dir),
            options,
            wal_dir,
            epoch,
            shards,
            group_counts,
            logs,
            blocks,
            requests: Requests::new(),
            copying: Readers::new(),
            reading: Readers::new(),
            next_ref: AtomicU64::new(0),
            newest_ms: AtomicI64::new(i64::MIN),
            metadata: Mutex::default(),
            flushing: Mutex::default(),
            compacting: Mutex::default(),
            compaction_stats: Mutex::default(),
            n_background_panics: AtomicU64::new(0),
        }
    }

    /// Iterates over the shards whose series are in a log, with their numbers.
    pub(crate) fn shards_of(&self, log: usize) -> impl Iterator<Item = (usize, &Shard)> + Clone {
        self.shards.iter().enumerate().skip(log).step_by(self.logs.len())
    }

    /// Returns the time of the newest sample that was ever taken, or `None` if there is none.
    pub(crate) fn newest_ms(&self) -> Option<i64> {
        let newest_ms = self.newest_ms.load(Ordering::Relaxed);
        (newest_ms != i64::MIN).then_some(newest_ms)
    }

    /// Returns the newest time that a series in the heads has ever had. Looks at all of them.
    pub(crate) fn heads_newest_ms(&self) -> Option<i64> {
        self.shards.iter().filter_map(|shard| shard.head().newest_ms()).max()
    }

    /// Notes that a sample was taken.
    pub(crate) fn raise_newest(&self, timestamp_ms: i64) {
        self.newest_ms.fetch_max(timestamp_ms, Ordering::Relaxed);
    }

    /// Returns the bounds of new samples as of now.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            newest_ms: self.newest_ms(),
            in_order_max_age_ms: self.options.in_order_max_age_ms,
            out_of_order_window_ms: self.options.out_of_order_window_ms,
            future_max_ms: self.options.clock.now_ms().saturating_add(self.options.ahead_max_ms),
        }
    }

    /// Returns about how many bytes the samples in the heads take.
    pub(crate) fn samples_size(&self) -> usize {
        self.shards.iter().map(|shard| shard.head().samples_size()).sum()
    }

    /// Tells whether a log waits for room on the disk.
    pub(crate) fn is_blocked(&self) -> bool {
        self.logs.iter().any(|log| matches!(log.wal().health(), Health::Blocked(_)))
    }

    /// Removes the logs of an earlier number of logs: all that they hold is in blocks and checkpoints.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn remove_old_epochs(&self) -> Result<()> {
        wal::remove_epochs_before(&*self.options.fs, &self.wal_dir, self.epoch)
    }

    /// Returns the bytes that the logs take on the disk.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn log_size(&self) -> Result<u64> {
        self.logs.iter().map(|log| log.wal().size()).sum()
    }

    /// Returns the metadata as it is now; nothing is copied.
    pub(crate) fn metadata(&self) -> Arc<Families> {
        Arc::clone(&self.known_metadata())
    }

    // A panic under one of these locks leaves what it guards whole: it is replaced or counted up in one step.

    /// Locks the metadata.
    pub(crate) fn known_metadata(&self) -> MutexGuard<'_, Arc<Families>> {
        self.metadata.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no flush runs, and keeps others out.
    pub(crate) fn flushing(&self) -> MutexGuard<'_, Flushing> {
        self.flushing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps flushes out, unless one runs.
    pub(crate) fn flushing_if_free(&self) -> Option<MutexGuard<'_, Flushing>> {
        match self.flushing.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until no merge runs, and keeps others out.
    pub(crate) fn compacting(&self) -> MutexGuard<'_, ()> {
        self.compacting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the figures of merging.
    pub(crate) fn compaction_stats(&self) -> MutexGuard<'_, CompactionStats> {
        self.compaction_stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
