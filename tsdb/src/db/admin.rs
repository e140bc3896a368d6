//! Deletion, background work on demand, retention, snapshots and imports.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use varve_model::{Matcher, TimeRange};

use super::Db;
use crate::block::INDEX_MEMORY_MAX;
use crate::compact::retention::{Retention, RetentionSize, rules::RetentionRule};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::store::FlushStats;

/// Memory of a flush per series in bytes: it ranks all of them, and lists those with samples.
const MEMORY_PER_SERIES: usize = 40;
/// Memory of a flush and of a merge beside it per label value in bytes: both map the label values of
/// their sources to those of the block that they write. A merge has up to twelve sources.
const MEMORY_PER_LABEL_VALUE: usize = 80;
/// Memory per label value in bytes of an index that is written, up to [`INDEX_MEMORY_MAX`].
const INDEX_MEMORY_PER_LABEL_VALUE: usize = 64;

impl Db {
    /// Deletes the samples in `range` of the series that pass all matchers. After this returns, no
    /// read returns these samples, and the deletion survives a power cut. The next merge frees
    /// their space. Samples appended later are not affected.
    ///
    /// # Errors
    /// The errors of [`Db::flush`], [`Error::Limit`] if too many deletions wait for their merge,
    /// [`Error::Corrupt`] if the matching series of a block cannot be determined. Nothing is
    /// deleted then.
    pub fn delete(&self, matchers: Vec<Matcher>, range: TimeRange) -> Result<()> {
        self.store.delete(matchers, range)
    }

    /// Writes the samples in the heads to blocks and truncates the WAL.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`]: nothing is lost, and the next flush tries again.
    /// [`Error::ReplayFailed`] if the replay failed.
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

    /// Removes all blocks that exceed the retention limits. Without this call, retention keeps them
    /// if there are many, because the clock may be wrong. The next compactions rewrite all blocks
    /// that are too old for a rule.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be removed.
    pub fn confirm_retention(&self) -> Result<()> {
        self.store.confirm_retention()
    }

    /// Replaces the retention limits of the options, and the rules. The next compaction applies
    /// them. `None` is unlimited.
    pub fn set_retention(
        &self,
        time_ms: Option<i64>,
        size: Option<RetentionSize>,
        rules: Vec<RetentionRule>,
    ) {
        *self.store.retention.lock() = Retention {
            time_ms,
            size,
            rules: rules.into(),
        };
    }

    /// Estimates the memory in bytes that the next flush, and a merge at the same time, need besides
    /// the heads. It grows with the series and the label values in the heads.
    #[must_use]
    pub fn background_memory(&self) -> usize {
        let mut n_series = 0;
        let mut n_values = 0;
        for shard in &self.store.shards {
            let head = shard.head();
            n_series += head.len();
            n_values += head.n_label_values();
        }
        let of_index = INDEX_MEMORY_MAX.min(n_values * INDEX_MEMORY_PER_LABEL_VALUE);
        n_series * MEMORY_PER_SERIES + n_values * MEMORY_PER_LABEL_VALUE + 2 * of_index
    }

    /// Returns the number of blocks that are too old and wait for [`Db::confirm_retention`].
    #[must_use]
    pub fn n_held_blocks(&self) -> u64 {
        self.store.compaction_stats.lock().n_held_blocks()
    }

    /// Returns the time before which only imports add samples: all other samples are too old.
    /// `None` if the store is empty. A sender that lags behind by more than a day is not waited
    /// for.
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

    /// Creates a snapshot: a data directory below `snapshots` with all data acknowledged before the
    /// call, consistent at one instant. Blocks are hard links. Metadata and exemplars are included.
    /// With `skip_head`, the snapshot contains only samples that are in blocks already. Returns the
    /// path of the snapshot.
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

    /// Imports the blocks in the directory `import` of the data directory and its subdirectories,
    /// all of them or none. Removes their files and returns their number. Retention applies to
    /// imported samples, out-of-order limits do not. If the store has a sample at the same
    /// timestamp when the import begins, that sample wins. A deletion during the import affects all
    /// imported samples.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`], [`Error::Version`]: nothing was imported.
    pub fn import(&self) -> Result<usize> {
        self.store.import(&self.path.join("import"))
    }

    /// Returns the number of blocks in the directory `import`, which an import would add.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn waiting_imports(&self) -> Result<usize> {
        self.store.waiting_imports(&self.path.join("import"))
    }

    /// Returns the number of blocks in the directory `import` whose samples are all older than the
    /// retention, so that it would remove them soon after their import.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`], [`Error::Version`].
    pub fn expired_imports(&self) -> Result<u64> {
        self.store.expired_imports(&self.path.join("import"))
    }
}
