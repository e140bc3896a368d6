//! The store's front: what embedders call.
//!
//! ```text
//! <data>/lock                        held while the store is open
//! <data>/wal/000000-002/000/...      the first of two logs (`wal`)
//! <data>/blocks/00000007.block       samples that left the heads (`block`)
//! <data>/tombstones                  what was deleted and is still in blocks
//! <data>/quarantine/...              damaged bytes that replay skipped
//! <data>/snapshots/<name>/...        data directories of their own
//! <data>/import/*.block              blocks that the next import takes in
//! ```

mod analysis;
mod stats;

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::background::{BackgroundTasks, WalSyncTask};
use crate::batch::{Rejected, SeriesHandle, WriteBatch};
use crate::blocks::Blocks;
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::exemplars::ExemplarSet;
use crate::flush::FlushStats;
use crate::fs::{Fs, Lock};
use crate::groups::{GroupCounts, SeriesGroup};
use crate::index::Texts;
use crate::labels::Labels;
use crate::logs::Log;
use crate::matcher::Matcher;
use crate::metadata::Metadata;
use crate::options::{Options, WalSync};
use crate::replaying::{ReplayStatus, Replayer, Source, replay};
use crate::sample::TimeRange;
use crate::select::{Need, SelectHints, SeriesSet};
use crate::shard::{Appending, Shard, ShardAppend, shard_of};
use crate::store::Store;
use crate::wal::{Epoch, Health, Position, Wal, WalOptions, check_versions};

pub use analysis::SeriesCost;
pub use stats::{BlockSummary, Stats};

/// The largest label set, in bytes of names and values.
pub const LABELS_SIZE_MAX: usize = 1 << 20;
/// Most metric families whose metadata is kept.
pub const METADATA_FAMILIES_MAX: usize = 100_000;
/// The largest metadata of a family, in bytes of its four texts.
pub const METADATA_SIZE_MAX: usize = 1 << 16;

/// An open data directory. All methods may be called by any number of threads.
pub struct Db {
    /// Ended first, as flushes wait for it.
    _replayer: Option<Replayer>,
    /// They work on the store.
    _tasks: Option<BackgroundTasks>,
    _wal_sync: Option<WalSyncTask>,
    store: Arc<Store>,
    path: PathBuf,
    n_appended: AtomicU64,
    n_histograms: AtomicU64,
    /// Unlocked last, when all else is gone.
    _lock: Box<dyn Lock>,
}

impl Db {
    /// Opens a data directory, makes it if need be, and replays its log.
    ///
    /// Returns when all that the log holds is there. With [`Options::wal_replay_in_background`] it returns as soon as
    /// the log's series are known. Appends are then taken and acknowledged as always; what they append is shown once the
    /// log is through. Reads of a range that the log may have samples of wait for that, within their time
    /// ([`Error::Replaying`]), or take what is there ([`QueryContext::taking_partial`]). Flushes, deletions, snapshots and
    /// [`Db::compact_fully`] wait. If the replay fails, all of them fail ([`Error::ReplayFailed`]); see
    /// [`Db::wait_replayed`] and [`Db::replay_status`].
    ///
    /// # Errors
    /// [`Error::Options`], [`Error::Locked`] if another process has it open, [`Error::Io`], [`Error::Version`] if a
    /// file is of a newer format, [`Error::Corrupt`] if a sound frame holds a record that this program does not know or
    /// the file of delete rules is damaged.
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        options.check()?;
        let fs = Arc::clone(&options.fs);
        create_data_dir(&*fs, path)?;
        let lock = lock(&*fs, &path.join("lock"))?;
        let wal_dir = path.join("wal");
        let epochs = epochs(&*fs, &wal_dir)?;
        let epoch = current_epoch(&epochs, options.n_logs())?;
        // What a newer version wrote is left as it is: this comes before the first change.
        check_versions(&*fs, &wal_dir, &epochs)?;
        let blocks = Blocks::open(&fs, path, options.page_cache_size_bytes)?;
        let logs = open_logs(&wal_dir, epoch, &options)?;
        let group_counts = GroupCounts::default();
        let shards = make_shards(&wal_dir, &logs, &options, &group_counts)?;
        // New folders must outlive a power cut as well; the log syncs only the entries of its segments.
        for dir in [&epoch.dir(&wal_dir), &wal_dir, blocks.dir(), path] {
            fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        }

        let source = Source { wal_dir: wal_dir.clone(), epochs, quarantine: path.join("quarantine") };
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

    /// Waits until all that the log held is there, which is at once unless it is replayed in the background.
    ///
    /// # Errors
    /// [`Error::ReplayFailed`], [`Error::Replaying`] when the time of `ctx` is over, [`Error::Interrupted`].
    pub fn wait_replayed(&self, ctx: &QueryContext) -> Result<()> {
        self.store.replaying.wait(ctx)
    }

    /// Returns how far the replay of the log is.
    #[must_use]
    pub fn replay_status(&self) -> ReplayStatus {
        self.store.replaying.status()
    }

    /// Returns where a series lives, and makes it if it is new. Durable with the next append to it.
    ///
    /// # Errors
    /// [`Error::Limit`] if the label set is too large or the head's memory is used up; [`Error::Poisoned`] or
    /// [`Error::Io`] if the series is new and its shard's log takes no appends; [`Error::ReplayFailed`].
    pub fn series(&self, labels: &Labels) -> Result<SeriesHandle> {
        self.series_for(labels, SeriesGroup::NONE)
    }

    /// As [`Db::series`]; the group gets the series if no other has it.
    ///
    /// # Errors
    /// As [`Db::series`].
    pub fn series_for(&self, labels: &Labels, group: SeriesGroup) -> Result<SeriesHandle> {
        if labels.size() > LABELS_SIZE_MAX {
            let (used, limit) = (labels.size() as u64, LABELS_SIZE_MAX as u64);
            return Err(Error::Limit { what: "bytes of a label set", used, limit });
        }
        self.store.replaying.check()?;
        let shards = &self.store.shards;
        shards[shard_of(labels, shards.len())].series(labels, group, &self.store.next_ref)
    }

    /// Returns where a series lives, or `None` if it is not in memory.
    #[must_use]
    pub fn find(&self, labels: &Labels) -> Option<SeriesHandle> {
        let shards = &self.store.shards;
        shards[shard_of(labels, shards.len())].find(labels)
    }

    /// As [`Db::find`]; the group gets the series if no other has it.
    #[must_use]
    pub fn find_for(&self, labels: &Labels, group: SeriesGroup) -> Option<SeriesHandle> {
        let shards = &self.store.shards;
        shards[shard_of(labels, shards.len())].find_for(labels, group)
    }

    /// Counts the series in memory that belong to a group.
    #[must_use]
    pub fn n_series_of(&self, group: SeriesGroup) -> u64 {
        self.store.group_counts.of(group)
    }

    /// Counts the series in memory.
    #[must_use]
    pub fn n_series(&self) -> u64 {
        self.store.group_counts.total()
    }

    /// Has each series in memory belong to the group that `group_of` gives to its value of `label`, and all others to
    /// none; without a label all belong to none. Locks one shard after the other while it looks at all their series.
    pub fn regroup(&self, label: Option<&str>, mut group_of: impl FnMut(&str) -> SeriesGroup) {
        for shard in &self.store.shards {
            match label {
                Some(label) => shard.head_mut().regroup(label, &mut group_of),
                None => shard.head_mut().ungroup(),
            }
        }
    }

    /// Tells whether the logs take appends, as far as is known; asks the disk only after it has failed.
    ///
    /// # Errors
    /// [`Error::Poisoned`] for good, [`Error::Io`] while the disk is full.
    pub fn ready(&self) -> Result<()> {
        self.store.logs.iter().try_for_each(|log| log.wal().ready())
    }

    /// Appends samples and exemplars. On return all of them but those in [`WriteBatch::rejected`] and
    /// [`WriteBatch::rejected_exemplars`] are visible to reads and in the operating system's hands, and synced under
    /// [`WalSync::Always`]. A sample that is there already, bit for bit, is accepted again.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`] or [`Error::Limit`] (memory): some of the samples may have been stored. To
    /// append the same batch again is safe. [`Error::ReplayFailed`].
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

    fn append_all(&self, batch: &mut WriteBatch, rejected: &mut Vec<Rejected>) -> Result<Vec<(&Log, Position)>> {
        // All are asked before one is changed: a request is stored whole or not at all.
        let shards = self.store.shards.iter().enumerate();
        shards.filter(|(idx, _)| batch.of_shard(*idx).is_some()).try_for_each(|(_, shard)| shard.ready())?;
        batch.exemplars.iter().try_for_each(|of| self.store.shards[usize::from(of.series.shard)].ready())?;
        let request = self.store.requests.begin();
        // Within the request: one that comes after a freeze is judged by the newest time of the freeze or a newer one, so
        // that it can be said how old the oldest sample of the log may be.
        let bounds = self.store.bounds();
        let held = self.store.replaying.hold(batch.len() + batch.n_starts(), batch.histograms_size())?;
        let horizon = self.store.requests.horizon();
        let of = Appending { bounds, request: request.sequence(), horizon };
        let mut positions = Vec::with_capacity(self.store.logs.len());
        for (idx, log) in self.store.logs.iter().enumerate() {
            let shards = self.store.shards_of(idx);
            let mut concerned = shards.filter_map(|(idx, shard)| Some((shard, batch.of_shard(idx)?))).peekable();
            if concerned.peek().is_none() {
                continue;
            }
            let mut appending = log.append();
            for (shard, of_shard) in concerned {
                let gathered = appending.gathered();
                let appended = match held {
                    None => shard.append(&of, of_shard, gathered, rejected),
                    Some(_) => shard.hold(&bounds, of_shard, gathered, rejected),
                };
                self.note(appended);
            }
            positions.push((&**log, appending.finish()));
        }
        if let Some(charge) = held {
            self.store.replaying.keep(charge, rejected.len());
        }
        positions.extend(self.store.append_exemplars(batch, bounds.future_max_ms));
        Ok(positions)
    }

    fn note(&self, appended: ShardAppend) {
        self.store.raise_newest(appended.newest_ms);
        self.n_appended.fetch_add(appended.n_new as u64, Ordering::Relaxed);
        // Fast path: most requests have none.
        if appended.n_histograms > 0 {
            self.n_histograms.fetch_add(appended.n_histograms as u64, Ordering::Relaxed);
        }
    }

    /// Selects the series that pass all matchers (any series without matchers) and have samples in `range`, ascending by
    /// labels. Sees all requests that were acknowledged before, whole, and nothing of any that comes later.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Limit`] if the request's memory is used up, [`Error::Io`] and
    /// [`Error::Corrupt`] if a block cannot be read, [`Error::Replaying`] and [`Error::ReplayFailed`].
    pub fn select(&self, ctx: &QueryContext, matchers: &[Matcher], range: TimeRange) -> Result<SeriesSet> {
        self.select_with(ctx, matchers, range, SelectHints::default())
    }

    /// Selects as [`Db::select`] for callers that can do without some labels or samples.
    ///
    /// # Errors
    /// As [`Db::select`].
    pub fn select_with(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
        range: TimeRange,
        hints: SelectHints,
    ) -> Result<SeriesSet> {
        self.store.replaying.wait_for(ctx, range)?;
        let need = if hints.only_newest { Need::Newest } else { Need::Samples };
        SeriesSet::new(ctx, &self.store, matchers, range, need, hints)
    }

    /// Selects as [`Db::select`] for callers that want labels only: samples of the heads are not copied, and a series'
    /// samples must not be read.
    ///
    /// # Errors
    /// As [`Db::select`].
    pub fn select_labels(&self, ctx: &QueryContext, matchers: &[Matcher], range: TimeRange) -> Result<SeriesSet> {
        self.store.replaying.wait_for(ctx, range)?;
        SeriesSet::new(ctx, &self.store, matchers, range, Need::Labels, SelectHints::default())
    }

    /// Returns the exemplars in `range` of the series that pass all matchers of one of the `selectors`.
    ///
    /// # Errors
    /// [`Error::Interrupted`], [`Error::Limit`] if the request's memory is used up, [`Error::Replaying`] and
    /// [`Error::ReplayFailed`].
    pub fn exemplars(&self, ctx: &QueryContext, selectors: &[Vec<Matcher>], range: TimeRange) -> Result<ExemplarSet> {
        // The log may have exemplars of any time.
        self.store.replaying.wait_for(ctx, TimeRange::ALL)?;
        self.store.exemplars.select(ctx, selectors, range)
    }

    /// Returns the names of the labels of all series that pass all matchers, ascending.
    ///
    /// As in Prometheus, `range` only decides which heads and blocks are asked: those that have samples in it.
    ///
    /// # Errors
    /// As [`Db::select`].
    pub fn label_names(&self, ctx: &QueryContext, matchers: &[Matcher], range: TimeRange) -> Result<Texts> {
        self.store.replaying.wait_for(ctx, range)?;
        let mut names = Texts::new(ctx);
        for shard in self.shards_in(range) {
            shard.head().label_names(ctx, matchers, &mut names)?;
        }
        for stored in self.store.blocks.list().iter().filter(|stored| stored.meta().range.overlaps(range)) {
            stored.label_names(ctx, matchers, &mut names)?;
        }
        Ok(names)
    }

    /// Returns the values of a label of all series that pass all matchers, ascending; `range` as in
    /// [`Db::label_names`].
    ///
    /// # Errors
    /// As [`Db::select`].
    pub fn label_values(
        &self,
        ctx: &QueryContext,
        name: &str,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Texts> {
        self.store.replaying.wait_for(ctx, range)?;
        let mut values = Texts::new(ctx);
        for shard in self.shards_in(range) {
            shard.head().label_values(ctx, name, matchers, &mut values)?;
        }
        for stored in self.store.blocks.list().iter().filter(|stored| stored.meta().range.overlaps(range)) {
            stored.label_values(ctx, name, matchers, &mut values)?;
        }
        Ok(values)
    }

    fn shards_in(&self, range: TimeRange) -> &[Shard] {
        let shards = &self.store.shards;
        let covered = shards.iter().any(|shard| shard.head().range().is_some_and(|head| head.overlaps(range)));
        if covered { shards } else { &[] }
    }

    /// Stores metadata of metric families; the newest per family stands.
    ///
    /// # Errors
    /// [`Error::Limit`] above [`METADATA_FAMILIES_MAX`] or [`METADATA_SIZE_MAX`], [`Error::Io`] and
    /// [`Error::Poisoned`] as [`Db::append`]. Families before the refused one are stored.
    pub fn set_metadata<'a>(&self, families: impl IntoIterator<Item = (&'a str, Metadata)>) -> Result<()> {
        self.store.replaying.check()?;
        let wal = self.store.logs[0].wal();
        for (family, metadata) in families {
            let size = family.len() + metadata.kind.len() + metadata.help.len() + metadata.unit.len();
            limit("bytes of a metric family's metadata", size, METADATA_SIZE_MAX)?;
            let mut known = self.store.known_metadata();
            if known.get(family) == Some(&metadata) {
                continue;
            }
            if !known.contains_key(family) {
                limit("metric families with metadata", known.len() + 1, METADATA_FAMILIES_MAX)?;
            }
            wal.ready()?;
            wal.append_metadata(family, &metadata);
            Arc::make_mut(&mut known).insert(family.to_owned(), metadata);
        }
        wal.commit(wal.end())
    }

    /// Returns the metadata of all metric families as it is now; nothing is copied.
    #[must_use]
    pub fn metadata(&self) -> Arc<BTreeMap<String, Metadata>> {
        self.store.metadata()
    }

    /// Deletes the samples in `range` of the series that pass all matchers. On return no read shows them any more, and
    /// the deletion survives a power cut; the bytes go with the next merge. What is appended later stays.
    ///
    /// # Errors
    /// As [`Db::flush`]; [`Error::Limit`] if too many deletions wait for their merge; [`Error::Corrupt`] if a block that
    /// is concerned cannot say which of its series match. Nothing is deleted then.
    pub fn delete(&self, matchers: Vec<Matcher>, range: TimeRange) -> Result<()> {
        self.store.delete(matchers, range)
    }

    /// Flushes: writes what the heads hold to blocks and cuts the logs.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`]; nothing is lost, and the next flush tries again. [`Error::ReplayFailed`].
    pub fn flush(&self) -> Result<FlushStats> {
        self.store.flush()
    }

    /// Does the merging that is due, and applies retention. The background does this by itself.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corrupt`]; what could not be merged stays as it is.
    pub fn compact(&self) -> Result<()> {
        self.store.compact(&AtomicBool::new(false))
    }

    /// Flushes, then merges everything as far as it goes, so that the store takes the least space.
    ///
    /// # Errors
    /// As [`Db::flush`] and [`Db::compact`].
    pub fn compact_fully(&self) -> Result<()> {
        self.flush()?;
        self.store.compact_fully(&AtomicBool::new(false))
    }

    /// Rewrites the blocks that hold deleted samples.
    ///
    /// # Errors
    /// As [`Db::compact`].
    pub fn clean_tombstones(&self) -> Result<()> {
        self.store.clean_tombstones(&AtomicBool::new(false))
    }

    /// Makes a data directory of its own below `snapshots`, with all that was acknowledged before, consistent at one
    /// instant; blocks are hard links. Metadata and exemplars come with it. Returns its path. With `skip_head` only those
    /// samples that are in blocks already.
    ///
    /// # Errors
    /// As [`Db::flush`]; [`Error::Io`] if the name is taken.
    pub fn snapshot(&self, name: &str, skip_head: bool) -> Result<PathBuf> {
        let dir = self.snapshot_path(name);
        self.store.snapshot(&dir, skip_head)?;
        Ok(dir)
    }

    /// Returns the folder of the snapshot of a name, whether there is one or not.
    pub fn snapshot_path(&self, name: &str) -> PathBuf {
        self.path.join("snapshots").join(name)
    }

    /// Takes in the blocks that were put into the folder `import` of the data directory, or into folders in it, all of them
    /// or none, removes their files, and returns how many there were. Rules of order do not apply to their samples, retention does;
    /// where the store has a sample at the same time, the store's stands.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`], [`Error::Version`]: nothing was taken in.
    pub fn import(&self) -> Result<usize> {
        self.store.import(&self.path.join("import"))
    }

    /// Returns the times that the samples span; deleted ones may be among them.
    pub fn time_range(&self) -> Option<TimeRange> {
        let blocks = self.store.blocks.list();
        let of_blocks = blocks.iter().map(|stored| stored.meta().range);
        let of_heads = self.store.shards.iter().filter_map(|shard| shard.head().range());
        of_blocks.chain(of_heads).reduce(TimeRange::hull)
    }

    /// Returns figures of the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.store, self.n_appended.load(Ordering::Relaxed), self.n_histograms.load(Ordering::Relaxed))
    }

    /// Returns why writes are refused, of all and log by log; empty while all is well.
    #[must_use]
    pub fn write_refusals(&self) -> Vec<String> {
        let of_log = |(idx, log): (usize, &Arc<Log>)| match log.wal().health() {
            Health::Ok => None,
            Health::Blocked(reason) => Some(format!("the store cannot write its log {idx}: {reason}")),
            Health::Poisoned(reason) => Some(format!("log {idx} accepts no writes until a restart: {reason}")),
        };
        let of_replay = self.store.replaying.write_refusal();
        of_replay.into_iter().chain(self.store.logs.iter().enumerate().filter_map(of_log)).collect()
    }

    /// Hands what was logged to the operating system, for those who make many series: else the next append, whoever it is of,
    /// compresses and writes all of their definitions.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`].
    pub fn write_out(&self) -> Result<()> {
        self.store.logs.iter().try_for_each(|log| log.wal().write_out())
    }

    /// Makes everything that was appended survive a power cut.
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

/// Makes the data directory and what is missing above it, so that a power cut leaves them.
fn create_data_dir(fs: &dyn Fs, path: &Path) -> Result<()> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && fs.list(dir).is_err();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    fs.create_dir(path).map_err(Error::io("create", path))?;
    for dir in missing {
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs.sync_dir(above).map_err(Error::io("sync", above))?;
    }
    Ok(())
}

/// Takes the lock that keeps a second process out.
fn lock(fs: &dyn Fs, path: &Path) -> Result<Box<dyn Lock>> {
    fs.lock(path).map_err(|refused| match refused.kind() {
        ErrorKind::WouldBlock => Error::Locked { path: path.to_owned() },
        _ => Error::io("lock", path)(refused),
    })
}

/// Returns the epochs of the log, oldest first.
fn epochs(fs: &dyn Fs, wal_dir: &Path) -> Result<Vec<Epoch>> {
    let names = match fs.list(wal_dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
        names => names.map_err(Error::io("list", wal_dir))?,
    };
    let mut epochs: Vec<Epoch> = names.iter().filter_map(|name| Epoch::parse(name)).collect();
    epochs.sort_unstable();
    Ok(epochs)
}

/// Returns the epoch to write to: the newest one if it has as many logs, else a new one.
fn current_epoch(epochs: &[Epoch], logs: usize) -> Result<Epoch> {
    match epochs.last() {
        Some(last) if last.logs == logs => Ok(*last),
        Some(last) => last.next(logs),
        None => Ok(Epoch { number: 0, logs }),
    }
}

fn open_logs(wal_dir: &Path, epoch: Epoch, options: &Options) -> Result<Box<[Arc<Log>]>> {
    let open = |number| {
        let wal = Wal::open(WalOptions {
            number,
            dir: epoch.log_dir(wal_dir, number),
            fs: Arc::clone(&options.fs),
            sync: options.wal_sync,
            segment_size_bytes: options.wal_segment_size_bytes,
        })?;
        Ok(Log::new(wal))
    };
    (0..epoch.logs).map(open).collect()
}

fn make_shards(wal_dir: &Path, logs: &[Arc<Log>], options: &Options, counts: &GroupCounts) -> Result<Box<[Shard]>> {
    let seed = getrandom::u64().map_err(|e| Error::io("seed", wal_dir)(e.into()))?;
    let size_max = options.head_size_max_bytes / options.shards;
    let log = |idx: u16| Arc::clone(&logs[usize::from(idx) % logs.len()]);
    Ok((0..options.shards as u16).map(|idx| Shard::new(idx, seed, log(idx), size_max).counting_in(counts)).collect())
}

#[cfg(test)]
mod tests;
