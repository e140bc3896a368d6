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

mod admin;
mod analysis;
mod append;
pub(crate) mod cardinality;
pub(crate) mod costs;
mod open;
mod select;
mod stats;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use varve_fs::Lock;

use crate::background::{BackgroundTasks, Replayer};
use crate::store::Store;

pub use analysis::SeriesCost;
pub use stats::{BlockSummary, Stats};

/// An open data directory. All methods may be called from several threads at once.
pub struct Db {
    /// Dropped first, because flushes wait for the replay of the WAL.
    _replayer: Option<Replayer>,
    /// Threads that flush and merge.
    _tasks: Option<BackgroundTasks>,
    _wal_sync: Option<BackgroundTasks>,
    store: Arc<Store>,
    path: PathBuf,
    n_appended: AtomicU64,
    n_histograms: AtomicU64,
    /// Released last.
    _lock: Box<dyn Lock>,
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
