//! The type [`Store`]: its parts, and what concerns several of them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use varve_model::TimeRange;
use varve_model::metadata::Families;

use super::family_table::FamilyTable;
use super::flushing::Flushing;
use super::newest::Newest;
use crate::batch::SampleSource;
use crate::block::BlockSet;
use crate::compact::retention::{Retention, RetentionProgress, RetentionSize};
use crate::compact::{CompactionStats, Throttle};
use crate::error::Result;
use crate::head::{Bounds, HeadTotals};
use crate::isolation::{AppendGuard, Isolation, Readers, changes::ChangeLog};
use crate::options::Options;
use crate::replay::ReplayGate;
use crate::shard::exemplars::Exemplars;
use crate::shard::{Shard, SharedLog};
use crate::wal::{self, Epoch, Health, Reserve};

/// The state of an open store.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) options: Options,
    pub(crate) shards: Box<[Shard]>,
    pub(crate) head_totals: HeadTotals,
    /// Shards are assigned to logs round robin. There are at most as many logs as shards.
    pub(crate) logs: Box<[Arc<SharedLog>]>,
    pub(crate) blocks: BlockSet,
    pub(crate) exemplars: Exemplars,
    pub(crate) isolation: Isolation,
    pub(crate) changes: ChangeLog,
    /// State of the replay: whether the heads contain the whole WAL.
    pub(crate) replay: ReplayGate,
    /// Selections that have taken the block list and still copy from the heads.
    pub(crate) block_list_readers: Arc<Readers>,
    /// Selections that may still look up series in the heads.
    pub(crate) series_readers: Arc<Readers>,
    pub(crate) next_ref: AtomicU64,
    pub(crate) throttle: Throttle,
    /// Reserved disk space, for a flush when the disk is full.
    pub(crate) reserve: Reserve,
    pub(super) wal_dir: PathBuf,
    /// The logs being written. Older epochs are removed once all shards have been flushed.
    pub(super) epoch: Epoch,
    pub(crate) newest: Newest,
    pub(crate) metadata: Mutex<FamilyTable>,
    /// Held by flushes and by the ranking of series.
    pub(crate) flushing: Mutex<Flushing>,
    /// Held by merges, retention and imports.
    pub(crate) compacting: Mutex<RetentionProgress>,
    pub(crate) compaction_stats: Mutex<CompactionStats>,
    pub(crate) retention: Mutex<Retention>,
    /// Number of panics of background tasks.
    pub(crate) n_background_panics: AtomicU64,
}

impl Store {
    /// Creates a store whose WAL is not replayed yet.
    pub(crate) fn new(
        options: Options,
        wal_dir: PathBuf,
        epoch: Epoch,
        logs: Box<[Arc<SharedLog>]>,
        shards: Box<[Shard]>,
        head_totals: HeadTotals,
        blocks: BlockSet,
    ) -> Self {
        Self {
            replay: ReplayGate::new(&options),
            metadata: Mutex::new(FamilyTable::new(options.metadata_size_max_bytes)),
            exemplars: Exemplars::new(options.exemplars_max, options.exemplars_size_max_bytes),
            throttle: Throttle::new(options.compaction_bytes_per_second),
            reserve: Reserve::new(Arc::clone(&options.fs), &wal_dir),
            newest: Newest::new(&options, &wal_dir),
            retention: Mutex::new(Retention {
                time_ms: options.retention_ms,
                size: options.retention_size_bytes.map(RetentionSize::Bytes),
                ..Retention::default()
            }),
            options,
            wal_dir,
            epoch,
            shards,
            head_totals,
            logs,
            blocks,
            isolation: Isolation::new(),
            changes: ChangeLog::default(),
            block_list_readers: Readers::new(),
            series_readers: Readers::new(),
            next_ref: AtomicU64::new(0),
            flushing: Mutex::default(),
            compacting: Mutex::default(),
            compaction_stats: Mutex::default(),
            n_background_panics: AtomicU64::new(0),
        }
    }

    /// Iterates over the shards of a log, with their indexes.
    pub(crate) fn shards_of(&self, log: usize) -> impl Iterator<Item = (usize, &Shard)> + Clone {
        self.shards
            .iter()
            .enumerate()
            .skip(log)
            .step_by(self.logs.len())
    }

    /// Begins a change of the block list that changes the samples in `range` for reads. The change
    /// ends when the guard is dropped. Until then, no flush freezes the heads.
    pub(crate) fn begin_block_change(&self, range: TimeRange) -> AppendGuard<'_> {
        let change = self.isolation.begin_append();
        self.changes.note_range(change.full_id(), range);
        change
    }

    /// Returns `true` if a series of the heads has a label of one of these names.
    pub(crate) fn heads_have_label(&self, names: &[&str]) -> bool {
        let mut heads = self.shards.iter().map(|shard| shard.head());
        heads.any(|head| names.iter().any(|name| head.has_label(name)))
    }

    /// Returns the newest in-order timestamp of the series in the heads, including samples that are
    /// no longer in memory. Visits all series.
    pub(crate) fn heads_newest_ms(&self) -> Option<i64> {
        self.shards
            .iter()
            .filter_map(|shard| shard.head().newest_ms())
            .max()
    }

    /// Returns the current bounds for new samples.
    ///
    /// # Errors
    /// The errors of [`Newest::bounds`].
    pub(crate) fn bounds(&self, source: SampleSource) -> Result<Bounds> {
        let (newest_ms, future_max_ms) = self.newest.bounds(source)?;
        Ok(Bounds {
            newest_ms,
            future_max_ms,
            ..self.age_bounds()
        })
    }

    /// Returns the bounds for the age of samples in an empty store.
    pub(crate) fn age_bounds(&self) -> Bounds {
        Bounds {
            newest_ms: None,
            in_order_max_age_ms: self.options.in_order_max_age_ms,
            out_of_order_window_ms: self.options.out_of_order_window_ms,
            future_max_ms: i64::MAX,
            ahead_max_ms: self.options.ahead_max_ms,
        }
    }

    /// Returns the time before which samples are too old to be appended.
    pub(crate) fn settled_ms(&self) -> Option<i64> {
        let age_max_ms = self
            .options
            .in_order_max_age_ms
            .max(self.options.out_of_order_window_ms);
        Some(self.newest.caught_up()?.saturating_sub(age_max_ms))
    }

    /// Returns the approximate size of the samples in the heads in bytes.
    pub(crate) fn samples_size(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.head().samples_size())
            .sum()
    }

    /// Returns `true` if a log waits for disk space.
    pub(crate) fn is_blocked(&self) -> bool {
        self.logs
            .iter()
            .any(|shared_log| matches!(shared_log.log().health(), Health::Blocked(_)))
    }

    /// Removes the logs of earlier epochs: their contents are in blocks and checkpoints.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn remove_old_epochs(&self) -> Result<()> {
        wal::remove_epochs_before(&*self.options.fs, &self.wal_dir, self.epoch)
    }

    /// Returns the size of the logs on disk in bytes.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn log_size(&self) -> Result<u64> {
        self.logs
            .iter()
            .map(|shared_log| shared_log.log().size())
            .sum()
    }

    /// Returns the current metadata without copying it.
    pub(crate) fn metadata(&self) -> Arc<Families> {
        Arc::clone(self.metadata.lock().families())
    }
}
