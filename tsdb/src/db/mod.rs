//! The API of the store.
//!
//! | path in the data directory | contents |
//! | --- | --- |
//! | `lock` | held while the store is open |
//! | `wal/000000-002/000/...` | the first of two logs of the WAL (`wal`) |
//! | `blocks/00000007.block` | samples that left the heads (`block`) |
//! | `tombstones` | tombstones for samples that are still in blocks |
//! | `quarantine/...` | damaged bytes that replay skipped |
//! | `snapshots/<name>/...` | data directories, each a copy of the store |
//! | `import/*.block` | blocks for the next import |

mod admin;
mod analysis;
mod append;
pub(crate) mod cardinality;
pub(crate) mod costs;
mod disk_probe;
mod open;
mod select;
mod stats;
mod stored_series;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use varve_context::QueryContext;
use varve_env::Lock;
use varve_env::damage::DamageReport;
use varve_model::{Labels, TimeRange};

use crate::background::{BackgroundTasks, Replayer};
use crate::error::Result;
use crate::head::BudgetGroup;
use crate::select::KeptSelections;
use crate::store::Store;

use cardinality::Cardinality;
use disk_probe::DiskProbe;

pub use stats::{BlockSummary, SeriesCost, Stats};

/// An open data directory. All methods may be called from several threads at once.
pub struct Db {
    /// Dropped first, because flushes wait for the replay of the WAL.
    _replayer: Option<Replayer>,
    /// Threads that flush and merge.
    _tasks: Option<BackgroundTasks>,
    _wal_sync: Option<BackgroundTasks>,
    store: Arc<Store>,
    /// Series of the heads that recent selections found.
    kept_selections: KeptSelections,
    path: PathBuf,
    disk_probe: DiskProbe,
    n_appended: AtomicU64,
    n_histograms: AtomicU64,
    /// Released last.
    _lock: Box<dyn Lock>,
}

impl Db {
    /// Returns the number of series in memory.
    #[must_use]
    pub fn n_series(&self) -> u64 {
        self.store.head_totals.groups.total()
    }

    /// Returns the number of series in memory that belong to a group.
    #[must_use]
    pub fn n_series_of(&self, group: BudgetGroup) -> u64 {
        self.store.head_totals.groups.of(group)
    }

    /// Returns the number of label names of the series in memory.
    #[must_use]
    pub fn n_label_names(&self) -> usize {
        self.store.head_totals.label_names.len()
    }

    /// Returns how many names of a label set no series in memory has.
    #[must_use]
    pub fn n_new_label_names(&self, labels: &Labels) -> usize {
        let names = labels.into_iter().map(|(name, _)| name);
        self.store.head_totals.label_names.n_unknown(names)
    }

    /// Returns the number of series in memory with a value of a label.
    #[must_use]
    pub fn n_series_with(&self, name: &str, value: &str) -> u64 {
        let shards = self.store.shards.iter();
        shards
            .map(|shard| shard.head().n_series_with(name, value))
            .sum()
    }

    /// Returns the time range of the samples. It may include deleted samples.
    pub fn time_range(&self) -> Option<TimeRange> {
        // Heads first: meanwhile a flush may move samples from heads to blocks.
        let heads = self
            .store
            .shards
            .iter()
            .filter_map(|shard| shard.head().range())
            .reduce(TimeRange::hull);
        let blocks = self.store.blocks.list();
        let block_ranges = blocks.iter().map(|stored| stored.meta().range);
        block_ranges.chain(heads).reduce(TimeRange::hull)
    }

    /// Returns statistics of the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            n_appended: self.n_appended.load(Ordering::Relaxed),
            n_histograms_appended: self.n_histograms.load(Ordering::Relaxed),
            kept_selections: self.kept_selections.stats(),
            ..Stats::of(&self.store)
        }
    }

    /// Computes the label cardinality of the series in memory, with the `limit` largest counts of
    /// each kind. Waits for the replay of the WAL.
    ///
    /// # Errors
    /// If the request is interrupted or exceeds its memory limit,
    /// [`Error::Replaying`](crate::Error::Replaying) and
    /// [`Error::ReplayFailed`](crate::Error::ReplayFailed).
    pub fn cardinality(&self, ctx: &QueryContext, limit: usize) -> Result<Cardinality> {
        self.store.replay.wait_for(ctx, TimeRange::ALL)?;
        cardinality::count(ctx, &self.store.shards, limit)
    }

    /// Returns the state that selections read.
    #[cfg(test)]
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the blocks that are damaged or unreadable, and are not used.
    #[must_use]
    pub fn damaged_blocks(&self) -> &DamageReport {
        self.store.blocks.damage()
    }

    /// Returns a warning for results of all times, which lack the samples of damaged blocks. `None`
    /// if all blocks can be read.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        self.store.blocks.missing_in(TimeRange::ALL)
    }

    /// Lists the blocks and parts, ascending by time.
    #[must_use]
    pub fn blocks(&self) -> Vec<BlockSummary> {
        BlockSummary::in_order(&self.store.blocks.metas())
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
