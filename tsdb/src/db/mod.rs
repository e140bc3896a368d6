//! The API of the store.
//!
//! | path in the data directory | contents |
//! | --- | --- |
//! | `lock` | held while the store is open |
//! | `wal/000000-002/000/...` | the first of two logs of the WAL (`wal`) |
//! | `blocks/00000007.block` | samples that left the heads (`block`) |
//! | `tombstones` | delete rules for samples that are still in blocks |
//! | `quarantine/...` | damaged bytes that replay skipped |
//! | `snapshots/<name>/...` | data directories, each a copy of the store |
//! | `import/*.block` | blocks for the next import |

mod analysis;
pub(crate) mod cardinality;
pub(crate) mod costs;
mod stats;

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::background::{BackgroundTasks, ReplaySource, Replayer, WalSyncTask, replay};
use crate::block::BlockSet;
use crate::compact::retention::Retention;
use crate::compact::retention::rules::RetentionRule;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::fs::{Fs, Lock, list_if_exists};
use crate::head::{GroupCounts, SeriesGroup};
use crate::isolation::Reader;
use crate::isolation::changes::{NameGroups, ReadVersion};
use crate::labels::{Families, LABELS_SIZE_MAX, Labels, METADATA_SIZE_MAX, Matcher, Metadata, NAME_LABELS, StringSet};
use crate::options::{Options, WalSync};
use crate::replay::{ReplayStatus, check_versions};
use crate::sample::{Rejected, SeriesHandle, TimeRange, WriteBatch};
use crate::select::{Need, SelectHints, SeriesSet};
use crate::shard::ShardLog;
use crate::shard::exemplars::ExemplarSet;
use crate::shard::{AppendContext, Shard, ShardAppend, shard_of};
use crate::store::Store;
use crate::store::flush_state::FlushStats;
use crate::wal::{Epoch, Health, Position, Wal, WalOptions};

pub use analysis::SeriesCost;
pub use stats::{BlockSummary, Stats};

/// An open data directory. All methods may be called from several threads at once.
pub struct Db {
    /// Dropped first, because flushes wait for the replay of the WAL.
    _replayer: Option<Replayer>,
    /// Threads that flush and merge.
    _tasks: Option<BackgroundTasks>,
    _wal_sync: Option<WalSyncTask>,
    store: Arc<Store>,
    path: PathBuf,
    n_appended: AtomicU64,
    n_histograms: AtomicU64,
    /// Released last.
    _lock: Box<dyn Lock>,
}

impl Db {
    /// Opens a data directory and replays its WAL. Creates the directory if it does not exist.
    ///
    /// Returns when the WAL is replayed. With [`Options::wal_replay_in_background`] it returns as soon as the WAL's
    /// series are known. Appends are then accepted and acknowledged as usual, and become visible when the WAL is
    /// replayed. Reads of a range for which the WAL may have samples wait for the replay until their deadline
    /// ([`Error::Replaying`]), or return partial results ([`QueryContext::with_partial_results`]). Flushes, deletions,
    /// snapshots and [`Db::compact_fully`] wait. If the replay fails, all these operations fail with
    /// [`Error::ReplayFailed`]. See [`Db::wait_replayed`] and [`Db::replay_status`].
    ///
    /// # Errors
    /// [`Error::Options`], [`Error::Locked`] if another process has the directory open, [`Error::Io`],
    /// [`Error::Version`] if a file has a newer format, [`Error::Corrupt`] if a log frame with a correct checksum holds
    /// an unknown record or the file of delete rules is damaged.
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        options.check()?;
        let fs = Arc::clone(&options.fs);
        create_data_dir(&*fs, path)?;
        let lock = lock(&*fs, &path.join("lock"))?;
        let wal_dir = path.join("wal");
        let epochs = epochs(&*fs, &wal_dir)?;
        let epoch = current_epoch(&epochs, options.n_logs())?;
        // Checked before the first change, so that files of a newer version stay unchanged.
        check_versions(&*fs, &wal_dir, &epochs)?;
        let blocks = BlockSet::open(&fs, path, options.page_cache_size_bytes)?;
        let logs = open_logs(&wal_dir, epoch, &options)?;
        let group_counts = GroupCounts::default();
        let shards = make_shards(&wal_dir, &logs, &options, &group_counts)?;
        // New directories must survive a power cut. The log syncs only the entries of its segments.
        for dir in [&epoch.dir(&wal_dir), &wal_dir, blocks.dir(), path] {
            fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        }

        let source = ReplaySource { wal_dir: wal_dir.clone(), epochs, quarantine: path.join("quarantine") };
        let store = Arc::new(Store::new(options, (wal_dir, epoch), (logs, shards), group_counts, blocks));
        let replayer = if store.options.wal_replay_in_background {
            Some(Replayer::start(&store, source)?)
        } else {
            replay(&store, &source, || {})?;
            None
        };
        let interval = store.options.wal_sync == WalSync::Interval;
        let wal_sync = interval.then(|| WalSyncTask::start(Arc::clone(&store))).transpose();
        let tasks = store.options.background.then(|| BackgroundTasks::start(&store)).transpose();
        Ok(Self {
            _replayer: replayer,
            _tasks: tasks.map_err(Error::io("start a thread for", path))?,
            _wal_sync: wal_sync.map_err(Error::io("start a thread for", path))?,
            store,
            path: path.to_owned(),
            n_appended: AtomicU64::new(0),
            n_histograms: AtomicU64::new(0),
            _lock: lock,
        })
    }

    /// Waits until the WAL is replayed. Returns at once unless the replay runs in the background.
    ///
    /// # Errors
    /// [`Error::ReplayFailed`], [`Error::Replaying`] at the deadline of `ctx`, [`Error::Interrupted`].
    pub fn wait_replayed(&self, ctx: &QueryContext) -> Result<()> {
        self.store.replay.wait(ctx)
    }

    /// Returns the progress of the replay.
    #[must_use]
    pub fn replay_status(&self) -> ReplayStatus {
        self.store.replay.status()
    }

    /// Returns the handle of a series. Creates the series if it is new. The next append to a new series makes it
    /// durable.
    ///
    /// # Errors
    /// [`Error::Limit`] if the label set or the head is too large. [`Error::Poisoned`] or [`Error::Io`] if the series
    /// is new and its shard's log accepts no appends. [`Error::ReplayFailed`] if the replay failed.
    pub fn series(&self, labels: &Labels) -> Result<SeriesHandle> {
        self.series_for(labels, SeriesGroup::NONE)
    }

    /// Returns the handle of a series as [`Db::series`] does, and assigns the series to `group` if it has no group.
    ///
    /// # Errors
    /// The errors of [`Db::series`].
    pub fn series_for(&self, labels: &Labels, group: SeriesGroup) -> Result<SeriesHandle> {
        if labels.size() > LABELS_SIZE_MAX {
            let (used, limit) = (labels.size() as u64, LABELS_SIZE_MAX as u64);
            return Err(Error::Limit { what: "bytes of a label set", used, limit });
        }
        self.store.replay.check()?;
        let shards = &self.store.shards;
        shards[shard_of(labels, shards.len())].series(labels, group, &self.store.next_ref)
    }

    /// Returns the handle of a series, or `None` if the series is not in memory.
    #[must_use]
    pub fn find(&self, labels: &Labels) -> Option<SeriesHandle> {
        let shards = &self.store.shards;
        shards[shard_of(labels, shards.len())].find(labels)
    }

    /// Returns the handle of a series as [`Db::find`] does, and assigns the series to `group` if it has no group.
    #[must_use]
    pub fn find_for(&self, labels: &Labels, group: SeriesGroup) -> Option<SeriesHandle> {
        let shards = &self.store.shards;
        shards[shard_of(labels, shards.len())].find_for(labels, group)
    }

    /// Returns the number of series in memory that belong to a group.
    #[must_use]
    pub fn n_series_of(&self, group: SeriesGroup) -> u64 {
        self.store.group_counts.of(group)
    }

    /// Returns the number of series in memory.
    #[must_use]
    pub fn n_series(&self) -> u64 {
        self.store.group_counts.total()
    }

    /// Assigns each series in memory to the group that `group_of` returns for its value of `label`. Series without the
    /// label have no group. If `label` is `None`, no series has a group. Locks one shard at a time while visiting its
    /// series.
    pub fn set_group_label(&self, label: Option<&str>, mut group_of: impl FnMut(&str) -> SeriesGroup) {
        for shard in &self.store.shards {
            shard.head_mut().set_group_label(label, &mut group_of);
        }
    }

    /// Checks that the logs accept appends. Accesses the disk only if an earlier write failed.
    ///
    /// # Errors
    /// [`Error::Poisoned`] until a restart, [`Error::Io`] while the disk is full.
    pub fn ready(&self) -> Result<()> {
        self.store.logs.iter().try_for_each(|log| log.wal().ready())
    }

    /// Appends samples and exemplars. On return all of them, except those in [`WriteBatch::rejected`] and
    /// [`WriteBatch::rejected_exemplars`], are visible to reads and written to the operating system, and synced under
    /// [`WalSync::Always`]. A sample that the store already has, bit for bit, is accepted and not stored again.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`] or [`Error::Limit`] (memory): some of the samples may have been stored. The
    /// same batch may be appended again. [`Error::ReplayFailed`] if the replay failed.
    pub fn append(&self, batch: &mut WriteBatch) -> Result<()> {
        let mut rejected = std::mem::take(&mut batch.rejected);
        rejected.clear();
        batch.rejected_exemplars.clear();
        let appended = self.append_all(batch, &mut rejected);
        batch.rejected = rejected;
        for (log, position) in appended? {
            log.wal().commit(position)?;
        }
        Ok(())
    }

    fn append_all(&self, batch: &mut WriteBatch, rejected: &mut Vec<Rejected>) -> Result<Vec<(&ShardLog, Position)>> {
        // Checks all shards before changing one: a request is stored entirely or not at all.
        let shards = self.store.shards.iter().enumerate();
        shards.filter(|(idx, _)| batch.of_shard(*idx).is_some()).try_for_each(|(_, shard)| shard.check_ready())?;
        batch
            .exemplars
            .iter()
            .try_for_each(|exemplar| self.store.shards[usize::from(exemplar.series.shard)].check_ready())?;
        let append_guard = self.store.isolation.begin_append();
        // Read inside the append: an append after a freeze is checked against the newest timestamp at the freeze or a
        // newer one, which bounds the age of the oldest sample in the log.
        let bounds = self.store.bounds(batch.is_own)?;
        let buffered = self.store.replay.reserve_buffer(batch.len() + batch.n_starts(), batch.histograms_size())?;
        // Before the first change, so that a read that sees the append finds it in the change log.
        self.store.changes.note_append(append_guard.full_id(), &batch.touched, bounds.future_max_ms);
        let horizon = self.store.isolation.horizon();
        let context = AppendContext { bounds, append_id: append_guard.id(), horizon };
        let mut positions = Vec::with_capacity(self.store.logs.len());
        for (idx, log) in self.store.logs.iter().enumerate() {
            let shards = self.store.shards_of(idx);
            let mut affected = shards.filter_map(|(idx, shard)| Some((shard, batch.of_shard(idx)?))).peekable();
            if affected.peek().is_none() {
                continue;
            }
            let mut appending = log.append();
            for (shard, shard_batch) in affected {
                let log_batch = appending.batch();
                let appended = match buffered {
                    None => shard.append(&context, shard_batch, log_batch, rejected),
                    Some(_) => shard.buffer_samples(&bounds, shard_batch, log_batch, rejected),
                };
                self.count_appended(appended, batch.is_own);
            }
            positions.push((&**log, appending.finish()));
        }
        if let Some(charge) = buffered {
            self.store.replay.retain_buffer(charge, rejected.len());
        }
        positions.extend(self.store.append_exemplars(batch, bounds.future_max_ms));
        Ok(positions)
    }

    /// Returns the timestamp for samples of this process ([`WriteBatch::own`]). If the wall clock has jumped ahead, it
    /// is the time that was expected instead, for at most an hour: the samples remain when the clock is set right.
    #[must_use]
    pub fn own_now_ms(&self) -> i64 {
        self.store.newest.own_now_ms()
    }

    fn count_appended(&self, appended: ShardAppend, is_own: bool) {
        self.store.newest.raise(appended.newest_ms, is_own);
        self.n_appended.fetch_add(appended.n_new as u64, Ordering::Relaxed);
        // Fast path: no histograms.
        if appended.n_histograms > 0 {
            self.n_histograms.fetch_add(appended.n_histograms as u64, Ordering::Relaxed);
        }
    }

    /// Returns the current read version. Reads that begin after this call see at least every change before it. Returns
    /// `None` until the WAL is replayed.
    #[must_use]
    pub fn read_version(&self) -> Option<ReadVersion> {
        self.store.replay.is_done().then(|| ReadVersion(self.store.isolation.all_ended_before()))
    }

    /// Returns the parts of `range` in which samples of metrics in `names` may have changed: a read that began after
    /// `since` was taken may return other samples than a read that begins after this call. Samples in other parts are
    /// the same for both.
    #[must_use]
    pub fn changes(&self, since: ReadVersion, names: NameGroups, range: TimeRange) -> Vec<TimeRange> {
        self.store.changes.since(since, names, range)
    }

    /// Selects the series that pass all matchers (all series if there are none) and have samples in `range`, ascending
    /// by labels. Sees all requests that were acknowledged before the call, and no part of later ones.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Limit`] if the request exceeds a limit of its context, [`Error::Io`] and
    /// [`Error::Corrupt`] if a block cannot be read, [`Error::Replaying`] and [`Error::ReplayFailed`].
    pub fn select(&self, ctx: &QueryContext, matchers: &[Matcher], range: TimeRange) -> Result<SeriesSet> {
        self.select_with(ctx, matchers, range, SelectHints::default())
    }

    /// Selects series as [`Db::select`] does, for callers that need only some labels or samples.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn select_with(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
        range: TimeRange,
        hints: SelectHints,
    ) -> Result<SeriesSet> {
        self.select_as(&mut None, ctx, matchers, range, hints)
    }

    /// Selects series as [`Db::select`] does, by each of the `selectors`.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn select_each(
        &self,
        ctx: &QueryContext,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<Vec<SeriesSet>> {
        let mut reader = None;
        let mut select = |matchers| self.select_as(&mut reader, ctx, matchers, range, SelectHints::default());
        selectors.iter().map(|matchers| select(matchers)).collect()
    }

    /// Selects series as [`Db::select_with`] does, for `reader`. Registers it if it is `None`.
    fn select_as(
        &self,
        reader: &mut Option<Arc<Reader>>,
        ctx: &QueryContext,
        matchers: &[Matcher],
        range: TimeRange,
        hints: SelectHints,
    ) -> Result<SeriesSet> {
        ctx.check_range(range)?;
        let matchers = &*ctx.restricted(matchers);
        self.prepare(ctx, matchers, range)?;
        let need = if hints.only_newest { Need::Newest } else { Need::Samples };
        let reader = match reader {
            Some(reader) => reader,
            None => reader.insert(self.reader(ctx)?),
        };
        SeriesSet::new(ctx, (&self.store, reader), matchers, range, need, hints)
    }

    /// Registers a reader of series.
    fn reader(&self, ctx: &QueryContext) -> Result<Arc<Reader>> {
        self.store.series_readers.enter(ctx).map(Arc::new)
    }

    /// Selects series as [`Db::select`] does, for callers that need only labels. Does not copy samples of the heads.
    /// The caller must not read the samples of the returned series.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn select_labels(&self, ctx: &QueryContext, matchers: &[Matcher], range: TimeRange) -> Result<SeriesSet> {
        let (matchers, range) = (&*ctx.restricted(matchers), ctx.clamp_range(range, self.own_now_ms()));
        self.prepare(ctx, matchers, range)?;
        let reader = self.reader(ctx)?;
        SeriesSet::new(ctx, (&self.store, &reader), matchers, range, Need::Labels, SelectHints::default())
    }

    /// Returns the exemplars in `range` of the series that pass all matchers of one of the `selectors`.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Limit`] if the request exceeds its memory limit, [`Error::Replaying`] and
    /// [`Error::ReplayFailed`].
    pub fn exemplars(&self, ctx: &QueryContext, selectors: &[Vec<Matcher>], range: TimeRange) -> Result<ExemplarSet> {
        ctx.check_range(range)?;
        let selectors: Vec<_> = selectors.iter().map(|matchers| ctx.restricted(matchers).into_owned()).collect();
        // The WAL may have exemplars of any time.
        self.prepare(ctx, selectors.iter().flatten(), TimeRange::ALL)?;
        self.store.exemplars.select(ctx, &selectors, range)
    }

    /// Returns the label names of all series that pass all matchers, ascending.
    ///
    /// As in Prometheus, `range` only selects the heads and blocks to read: those with samples in `range`.
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn label_names(&self, ctx: &QueryContext, matchers: &[Matcher], range: TimeRange) -> Result<StringSet> {
        let (matchers, range) = (&*ctx.restricted(matchers), ctx.clamp_range(range, self.own_now_ms()));
        self.prepare(ctx, matchers, range)?;
        let mut names = StringSet::new(ctx);
        for shard in self.shards_in(range) {
            shard.head().label_names(ctx, matchers, &mut names)?;
        }
        for stored in self.store.blocks.list().iter().filter(|stored| stored.meta().range.overlaps(range)) {
            stored.label_names(ctx, matchers, &mut names)?;
        }
        Ok(names)
    }

    /// Returns the values of a label in all series that pass all matchers, ascending. `range` has the same meaning as
    /// in [`Db::label_names`].
    ///
    /// # Errors
    /// The errors of [`Db::select`].
    pub fn label_values(
        &self,
        ctx: &QueryContext,
        name: &str,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<StringSet> {
        let (matchers, range) = (&*ctx.restricted(matchers), ctx.clamp_range(range, self.own_now_ms()));
        self.prepare(ctx, matchers, range)?;
        let mut values = StringSet::new(ctx);
        for shard in self.shards_in(range) {
            shard.head().label_values(ctx, name, matchers, &mut values)?;
        }
        for stored in self.store.blocks.list().iter().filter(|stored| stored.meta().range.overlaps(range)) {
            stored.label_values(ctx, name, matchers, &mut values)?;
        }
        Ok(values)
    }

    /// Returns `true` if a series may have one of [`NAME_LABELS`]: without them, several series of a metric may have
    /// the same labels.
    #[must_use]
    pub fn has_name_labels(&self) -> bool {
        let in_head = |shard: &Shard| {
            let head = shard.head();
            NAME_LABELS.iter().any(|name| head.has_label(name))
        };
        self.store.shards.iter().any(in_head)
            || self.store.blocks.list().iter().any(|stored| stored.block.has_name_labels())
    }

    /// Compiles the matchers, before any lock is taken, and waits for the replay of a range.
    fn prepare<'a>(
        &self,
        ctx: &QueryContext,
        matchers: impl IntoIterator<Item = &'a Matcher>,
        range: TimeRange,
    ) -> Result<()> {
        matchers.into_iter().try_for_each(|matcher| matcher.compile(ctx))?;
        self.store.replay.wait_for(ctx, range)
    }

    fn shards_in(&self, range: TimeRange) -> &[Shard] {
        let shards = &self.store.shards;
        let covered = shards.iter().any(|shard| shard.head().range().is_some_and(|head| head.overlaps(range)));
        if covered { shards } else { &[] }
    }

    /// Stores metadata of metric families. Replaces their earlier metadata. Above
    /// [`METADATA_FAMILIES_MAX`](crate::labels::METADATA_FAMILIES_MAX) and [`Options::metadata_size_max_bytes`], the
    /// families that were added first are evicted.
    ///
    /// # Errors
    /// [`Error::Limit`] above [`METADATA_SIZE_MAX`], [`Error::Io`] and [`Error::Poisoned`] as for [`Db::append`].
    /// Families that precede the rejected one are stored.
    pub fn set_metadata<'a>(&self, families: impl IntoIterator<Item = (&'a str, Metadata)>) -> Result<()> {
        self.store.replay.check()?;
        let wal = self.store.logs[0].wal();
        for (family, metadata) in families {
            let size = family.len() + metadata.kind.len() + metadata.help.len() + metadata.unit.len();
            limit("bytes of a metric family's metadata", size, METADATA_SIZE_MAX)?;
            // The lock is held until the record is buffered, so that the log has the same order.
            let mut table = self.store.family_table();
            if !table.contains(family, &metadata) {
                wal.ready()?;
                wal.append_metadata(family, &metadata);
                table.set(family, metadata);
            }
        }
        wal.commit(wal.end())
    }

    /// Returns the current metadata of all metric families without copying it.
    #[must_use]
    pub fn metadata(&self) -> Arc<Families> {
        self.store.metadata()
    }

    /// Deletes the samples in `range` of the series that pass all matchers. After this returns, no read returns these
    /// samples, and the deletion survives a power cut. The next merge frees their space. Samples appended later are not
    /// affected.
    ///
    /// # Errors
    /// The errors of [`Db::flush`], [`Error::Limit`] if too many deletions wait for their merge, [`Error::Corrupt`] if
    /// the matching series of a block cannot be determined. Nothing is deleted then.
    pub fn delete(&self, matchers: Vec<Matcher>, range: TimeRange) -> Result<()> {
        self.store.delete(matchers, range)
    }

    /// Writes the samples in the heads to blocks and truncates the WAL.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`]: nothing is lost, and the next flush tries again. [`Error::ReplayFailed`]
    /// if the replay failed.
    pub fn flush(&self) -> Result<FlushStats> {
        self.store.flush()
    }

    /// Runs the merges that are due and applies retention. Background tasks do this automatically.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corrupt`]: the blocks of a failed merge stay.
    pub fn compact(&self) -> Result<()> {
        self.store.compact(&AtomicBool::new(false))
    }

    /// Removes all blocks that exceed the retention limits. Without this call, retention keeps them if there are many,
    /// because the clock may be wrong. The next compactions rewrite all blocks that are too old for a rule.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be removed.
    pub fn confirm_retention(&self) -> Result<()> {
        self.store.confirm_retention()
    }

    /// Replaces the retention limits of the options, and the rules. The next compaction applies them. `None` is
    /// unlimited.
    pub fn set_retention(&self, time_ms: Option<i64>, size_bytes: Option<u64>, rules: Vec<RetentionRule>) {
        *self.store.retention() = Retention { time_ms, size: size_bytes, rules: rules.into() };
    }

    /// Returns the number of blocks that are too old and wait for [`Db::confirm_retention`].
    #[must_use]
    pub fn n_held_blocks(&self) -> u64 {
        self.store.compaction_stats().n_held_blocks()
    }

    /// Returns the time before which only imports add samples: all other samples are too old. `None` if the store is
    /// empty. A sender that lags behind by more than a day is not waited for.
    #[must_use]
    pub fn settled_ms(&self) -> Option<i64> {
        self.store.settled_ms()
    }

    /// Returns the time from which retention counts back, or `None` if the store is empty.
    #[must_use]
    pub fn retention_now_ms(&self) -> Option<i64> {
        self.store.newest.retention_ms()
    }

    /// Removes blocks by number. Ignores numbers without a block: a merge may have replaced it.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be removed.
    pub fn remove_blocks(&self, numbers: &[u64]) -> Result<()> {
        self.store.remove_blocks(numbers)
    }

    /// Flushes, then merges as much as possible to minimize disk space.
    ///
    /// # Errors
    /// The errors of [`Db::flush`] and [`Db::compact`].
    pub fn compact_fully(&self) -> Result<()> {
        self.flush()?;
        self.store.compact_fully(&AtomicBool::new(false))
    }

    /// Rewrites the blocks that hold deleted samples.
    ///
    /// # Errors
    /// The errors of [`Db::compact`].
    pub fn clean_tombstones(&self) -> Result<()> {
        self.store.clean_tombstones(&AtomicBool::new(false))
    }

    /// Creates a snapshot: a data directory below `snapshots` with all data acknowledged before the call, consistent at
    /// one instant. Blocks are hard links. Metadata and exemplars are included. With `skip_head`, the snapshot contains
    /// only samples that are in blocks already. Returns the path of the snapshot.
    ///
    /// # Errors
    /// The errors of [`Db::flush`], and [`Error::Io`] if a snapshot of this name exists.
    pub fn snapshot(&self, name: &str, skip_head: bool) -> Result<PathBuf> {
        let dir = self.snapshot_path(name);
        self.store.snapshot(&dir, skip_head)?;
        Ok(dir)
    }

    /// Returns the directory of the snapshot `name`, which need not exist.
    pub fn snapshot_path(&self, name: &str) -> PathBuf {
        self.path.join("snapshots").join(name)
    }

    /// Imports the blocks in the directory `import` of the data directory and its subdirectories, all of them or none.
    /// Removes their files and returns their number. Retention applies to imported samples, out-of-order limits do not.
    /// If the store already has a sample at the same timestamp, the stored sample wins.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`], [`Error::Version`]: nothing was imported.
    pub fn import(&self) -> Result<usize> {
        self.store.import(&self.path.join("import"))
    }

    /// Returns the time range of the samples. It may include deleted samples.
    pub fn time_range(&self) -> Option<TimeRange> {
        let blocks = self.store.blocks.list();
        let block_ranges = blocks.iter().map(|stored| stored.meta().range);
        let head_ranges = self.store.shards.iter().filter_map(|shard| shard.head().range());
        block_ranges.chain(head_ranges).reduce(TimeRange::hull)
    }

    /// Returns statistics of the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.store, self.n_appended.load(Ordering::Relaxed), self.n_histograms.load(Ordering::Relaxed))
    }

    /// Returns the reasons why writes are rejected, for the store and per log. Empty if writes are accepted.
    #[must_use]
    pub fn write_refusals(&self) -> Vec<String> {
        let log_rejection = |(idx, log): (usize, &Arc<ShardLog>)| match log.wal().health() {
            Health::Ok => None,
            Health::Blocked(reason) => Some(format!("the store cannot write its log {idx}: {reason}")),
            Health::Poisoned(reason) => Some(format!("log {idx} accepts no writes until a restart: {reason}")),
        };
        let replay_rejection = self.store.replay.write_rejection();
        replay_rejection.into_iter().chain(self.store.logs.iter().enumerate().filter_map(log_rejection)).collect()
    }

    /// Writes buffered log records to the operating system. Call this after creating many series. Otherwise the next
    /// append, from any sender, compresses and writes all their definitions.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`].
    pub fn write_out(&self) -> Result<()> {
        self.store.logs.iter().try_for_each(|log| log.wal().write_out())
    }

    /// Syncs all appended data to the disk.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        for log in &self.store.logs {
            log.wal().commit(log.wal().end())?;
            log.wal().sync()?;
        }
        Ok(())
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn limit(what: &'static str, used: usize, limit: usize) -> Result<()> {
    if used > limit { Err(Error::Limit { what, used: used as u64, limit: limit as u64 }) } else { Ok(()) }
}

/// Creates the data directory and its missing parents durably.
fn create_data_dir(fs: &dyn Fs, path: &Path) -> Result<()> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && fs.list(dir).is_err();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    fs.create_dir(path).map_err(Error::io("create", path))?;
    for dir in missing {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs.sync_dir(parent).map_err(Error::io("sync", parent))?;
    }
    Ok(())
}

/// Acquires the lock that excludes other processes.
fn lock(fs: &dyn Fs, path: &Path) -> Result<Box<dyn Lock>> {
    fs.lock(path).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Error::Locked { path: path.to_owned() },
        _ => Error::io("lock", path)(error),
    })
}

/// Returns the epochs of the log, oldest first.
fn epochs(fs: &dyn Fs, wal_dir: &Path) -> Result<Vec<Epoch>> {
    let names = list_if_exists(fs, wal_dir).map_err(Error::io("list", wal_dir))?;
    let mut epochs: Vec<Epoch> = names.iter().filter_map(|name| Epoch::parse(name)).collect();
    epochs.sort_unstable();
    Ok(epochs)
}

/// Returns the epoch to write to: the newest epoch if it has `logs` logs, otherwise a new one.
fn current_epoch(epochs: &[Epoch], logs: usize) -> Result<Epoch> {
    match epochs.last() {
        Some(last) if last.logs == logs => Ok(*last),
        Some(last) => last.next(logs),
        None => Ok(Epoch { number: 0, logs }),
    }
}

fn open_logs(wal_dir: &Path, epoch: Epoch, options: &Options) -> Result<Box<[Arc<ShardLog>]>> {
    let open = |number| {
        let wal = Wal::open(WalOptions {
            number,
            dir: epoch.log_dir(wal_dir, number),
            fs: Arc::clone(&options.fs),
            sync: options.wal_sync,
            segment_size_bytes: options.wal_segment_size_bytes,
        })?;
        Ok(ShardLog::new(wal))
    };
    (0..epoch.logs).map(open).collect()
}

fn make_shards(
    wal_dir: &Path,
    logs: &[Arc<ShardLog>],
    options: &Options,
    counts: &GroupCounts,
) -> Result<Box<[Shard]>> {
    let seed = getrandom::u64().map_err(|e| Error::io("seed", wal_dir)(e.into()))?;
    let size_max = options.head_size_max_bytes / options.shards;
    let log = |idx: u16| Arc::clone(&logs[usize::from(idx) % logs.len()]);
    Ok((0..options.shards as u16)
        .map(|idx| Shard::new(idx, seed, log(idx), size_max).with_group_counts(counts))
        .collect())
}

#[cfg(test)]
mod tests;
