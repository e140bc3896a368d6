//! The store: shards, and what they have in common.
//!
//! ```text
//! <data>/lock                        held while the store is open
//! <data>/wal/000000-002/000/...      the log of shard 0 of 2 (`wal`)
//! <data>/quarantine/...              damaged bytes that replay skipped
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::batch::{SeriesHandle, WriteBatch};
use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::head::Bounds;
use crate::index::Texts;
use crate::labels::Labels;
use crate::matcher::Matcher;
use crate::metadata::Metadata;
use crate::options::{Options, WalSync};
use crate::sample::TimeRange;
use crate::select::{Order, SeriesSet};
use crate::shard::{Shard, shard_of};
use crate::syncer::Syncer;
use crate::wal::{self, Epoch, ReplayStats, SampleColumn, Target, Wal, WalOptions};

/// The largest label set, in bytes of names and values.
pub const LABELS_SIZE_MAX: usize = 1 << 20;
/// Most metric families whose metadata is kept.
pub const METADATA_FAMILIES_MAX: usize = 100_000;
/// The largest metadata of a family, in bytes of its four texts.
pub const METADATA_SIZE_MAX: usize = 1 << 16;

/// An open data directory. All methods may be called by any number of threads.
pub struct Db {
    shards: Arc<[Shard]>,
    options: Options,
    /// Shared with whoever reads it; copied when it changes meanwhile.
    metadata: Mutex<Arc<BTreeMap<String, Metadata>>>,
    next_ref: AtomicU64,
    newest_ms: AtomicI64,
    n_appended: AtomicU64,
    replayed: ReplayStats,
    /// Reused by appends.
    columns: Mutex<Vec<SampleColumn>>,
    _syncer: Option<Syncer>,
    /// Unlocked last, when all else is gone.
    _lock: File,
}

/// Figures of an open store.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    /// Series in memory.
    pub n_series: u64,
    /// Samples appended since the store was opened.
    pub n_appended: u64,
    /// Bytes that series and samples take in memory, about.
    pub head_size_bytes: u64,
    /// The newest sample's time; `None` while there is none.
    pub newest_ms: Option<i64>,
    /// Bytes of log records that wait to be written.
    pub wal_pending_bytes: u64,
    /// What the replay at open found.
    pub replayed: ReplayStats,
}

impl Db {
    /// Opens a data directory, makes it if need be, and replays its log.
    ///
    /// # Errors
    /// [`Error::Options`], [`Error::Locked`] if another process has it open, [`Error::Io`], [`Error::Version`] if a
    /// file is of a newer format, [`Error::Corrupt`] if a sound frame holds a record that this program does not know.
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        options.check()?;
        let fs = Arc::clone(&options.fs);
        fs.create_dir(path).map_err(Error::io("create", path))?;
        let lock = lock(&path.join("lock"))?;
        let wal_dir = path.join("wal");
        fs.create_dir(&wal_dir).map_err(Error::io("create", &wal_dir))?;
        let mut epochs: Vec<Epoch> = fs
            .list(&wal_dir)
            .map_err(Error::io("list", &wal_dir))?
            .iter()
            .filter_map(|name| Epoch::parse(name))
            .collect();
        epochs.sort_unstable();
        let epoch = current_epoch(&epochs, options.shards);
        let shards = open_shards(&wal_dir, epoch, &options)?;
        // New folders must outlive a power cut as well; the log syncs only the entries of its segments.
        for dir in [&epoch.dir(&wal_dir), &wal_dir, path] {
            fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        }

        let metadata = Mutex::default();
        let target = Target { shards: &shards, metadata: &metadata, quarantine: &path.join("quarantine"), fs: &*fs };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.wal_replay_concurrency)
            .build()
            .map_err(|e| Error::Options(format!("{} replay threads: {e}", options.wal_replay_concurrency)))?;
        let (replayed, next_ref) = pool.install(|| wal::replay(&wal_dir, &epochs, &target))?;
        let newest_ms =
            shards.iter().filter_map(|shard| shard.head().range()).map(|range| range.end_ms).max().unwrap_or(i64::MIN);
        let syncer = (options.wal_sync == WalSync::Interval).then(|| Syncer::start(Arc::clone(&shards)));
        Ok(Self {
            shards,
            metadata: Mutex::new(Arc::new(metadata.into_inner().unwrap_or_else(PoisonError::into_inner))),
            next_ref: AtomicU64::new(next_ref),
            newest_ms: AtomicI64::new(newest_ms),
            n_appended: AtomicU64::new(0),
            replayed,
            columns: Mutex::default(),
            _syncer: syncer.transpose().map_err(Error::io("start a thread for", path))?,
            _lock: lock,
            options,
        })
    }

    /// Returns where a series lives, and makes it if it is new. Durable with the next append to it.
    ///
    /// # Errors
    /// [`Error::Limit`] if the label set is too large or the head's memory is used up; [`Error::Poisoned`] or
    /// [`Error::Io`] if the series is new and its shard's log takes no appends.
    pub fn series(&self, labels: &Labels) -> Result<SeriesHandle> {
        if labels.size() > LABELS_SIZE_MAX {
            let (used, limit) = (labels.size() as u64, LABELS_SIZE_MAX as u64);
            return Err(Error::Limit { what: "bytes of a label set", used, limit });
        }
        self.shards[shard_of(labels, self.shards.len())].series(labels, &self.next_ref)
    }

    /// Appends samples. On return all of them but those in [`WriteBatch::rejected`] are visible to reads and in the
    /// operating system's hands, and synced under [`WalSync::Always`]. A sample that is there already, bit for bit, is
    /// accepted again.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Poisoned`] or [`Error::Limit`] (memory): some of the samples may have been stored. To
    /// append the same batch again is safe.
    pub fn append(&self, batch: &mut WriteBatch) -> Result<()> {
        batch.rejected.clear();
        let bounds = Bounds {
            oldest_ms: self.newest_ms.load(Ordering::Relaxed).saturating_sub(self.options.in_order_max_age_ms),
            newest_ms: self.options.clock.now_ms().saturating_add(self.options.ahead_max_ms),
        };
        let mut column = self.columns().pop().unwrap_or_default();
        let appended = self.append_all(bounds, batch, &mut column);
        self.columns().push(column);
        for (shard, position) in appended? {
            shard.wal().commit(position)?;
        }
        Ok(())
    }

    fn append_all(
        &self,
        bounds: Bounds,
        batch: &mut WriteBatch,
        column: &mut SampleColumn,
    ) -> Result<Vec<(&Shard, wal::Position)>> {
        let mut positions = Vec::with_capacity(self.shards.len());
        for (shard, appends) in self.shards.iter().zip(&batch.shards).filter(|(_, appends)| !appends.is_empty()) {
            let appended = shard.append(bounds, appends, column, &mut batch.rejected)?;
            self.newest_ms.fetch_max(appended.newest_ms, Ordering::Relaxed);
            self.n_appended.fetch_add(appended.n_new as u64, Ordering::Relaxed);
            positions.push((shard, appended.position));
        }
        Ok(positions)
    }

    /// Selects the series that pass all matchers (any series without matchers) and have samples in `range`.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or [`Error::Limit`] if the request's memory is used up.
    pub fn select(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
        range: TimeRange,
        order: Order,
    ) -> Result<SeriesSet> {
        SeriesSet::new(ctx, Arc::clone(&self.shards), matchers, range, order)
    }

    /// Returns the names of the labels of all series that pass all matchers, ascending.
    ///
    /// As in Prometheus' head, `range` only decides whether the store as a whole has samples in it.
    ///
    /// # Errors
    /// As [`Db::select`].
    pub fn label_names(&self, ctx: &QueryContext, matchers: &[Matcher], range: TimeRange) -> Result<Texts> {
        let mut names = Texts::new(ctx);
        for shard in self.shards_in(range) {
            shard.head().label_names(ctx, matchers, &mut names)?;
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
        let mut values = Texts::new(ctx);
        for shard in self.shards_in(range) {
            shard.head().label_values(ctx, name, matchers, &mut values)?;
        }
        Ok(values)
    }

    fn shards_in(&self, range: TimeRange) -> &[Shard] {
        let covered = self.shards.iter().any(|shard| shard.head().range().is_some_and(|head| head.overlaps(range)));
        if covered { &self.shards } else { &[] }
    }

    /// Stores metadata of metric families; the newest per family stands.
    ///
    /// # Errors
    /// [`Error::Limit`] above [`METADATA_FAMILIES_MAX`] or [`METADATA_SIZE_MAX`], [`Error::Io`] and
    /// [`Error::Poisoned`] as [`Db::append`]. Families before the refused one are stored.
    pub fn set_metadata<'a>(&self, families: impl IntoIterator<Item = (&'a str, Metadata)>) -> Result<()> {
        let wal = self.shards[0].wal();
        for (family, metadata) in families {
            let size = family.len() + metadata.kind.len() + metadata.help.len() + metadata.unit.len();
            limit("bytes of a metric family's metadata", size, METADATA_SIZE_MAX)?;
            let mut known = self.known_metadata();
            if known.get(family) == Some(&metadata) {
                continue;
            }
            limit("metric families with metadata", known.len(), METADATA_FAMILIES_MAX - 1)?;
            wal.ready()?;
            wal.append_metadata(family, &metadata);
            Arc::make_mut(&mut known).insert(family.to_owned(), metadata);
        }
        wal.commit(wal.end())
    }

    /// Returns the metadata of all metric families as it is now; nothing is copied.
    #[must_use]
    pub fn metadata(&self) -> Arc<BTreeMap<String, Metadata>> {
        Arc::clone(&self.known_metadata())
    }

    /// Returns figures of the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let newest_ms = self.newest_ms.load(Ordering::Relaxed);
        let mut stats = Stats {
            n_appended: self.n_appended.load(Ordering::Relaxed),
            newest_ms: (newest_ms != i64::MIN).then_some(newest_ms),
            replayed: self.replayed,
            ..Stats::default()
        };
        for shard in self.shards.iter() {
            let head = shard.head();
            stats.n_series += head.len() as u64;
            stats.head_size_bytes += head.size() as u64;
            stats.wal_pending_bytes += shard.wal().pending_size() as u64;
        }
        stats
    }

    /// Makes everything that was appended survive a power cut.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        for shard in self.shards.iter() {
            shard.wal().commit(shard.wal().end())?;
            shard.wal().sync()?;
        }
        Ok(())
    }

    fn known_metadata(&self) -> MutexGuard<'_, Arc<BTreeMap<String, Metadata>>> {
        self.metadata.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn columns(&self) -> MutexGuard<'_, Vec<SampleColumn>> {
        self.columns.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Takes the lock that keeps a second process out.
fn lock(path: &Path) -> Result<File> {
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(Error::io("open", path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(e)) => Err(Error::io("lock", path)(e)),
    }
}

/// Returns the epoch to write to: the newest one if it has as many shards, else a new one.
fn current_epoch(epochs: &[Epoch], shards: usize) -> Epoch {
    match epochs.last() {
        Some(last) if last.shards == shards => *last,
        Some(last) => Epoch { number: last.number + 1, shards },
        None => Epoch { number: 0, shards },
    }
}

fn open_shards(wal_dir: &Path, epoch: Epoch, options: &Options) -> Result<Arc<[Shard]>> {
    let seed = getrandom::u64().map_err(|e| Error::io("seed", wal_dir)(e.into()))?;
    let open = |idx: u16| {
        let wal = Wal::open(WalOptions {
            shard: idx.into(),
            dir: epoch.shard_dir(wal_dir, idx.into()),
            fs: Arc::clone(&options.fs),
            sync: options.wal_sync,
            segment_size_bytes: options.wal_segment_size_bytes,
        })?;
        Ok(Shard::new(idx, seed, wal, options.head_size_max_bytes / options.shards))
    };
    (0..options.shards as u16).map(open).collect()
}

#[cfg(test)]
mod tests;
