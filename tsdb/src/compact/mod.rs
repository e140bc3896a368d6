//! Compaction: selects blocks to merge (`plan`), merges them (`merge`), and selects blocks to
//! remove (`retention`).
//!
//! Used by `store::compaction`. A merge reads its sources page by page, writes a new block and
//! verifies it before it replaces the sources; a failure changes nothing.

mod merge;
mod plan;
pub(crate) mod retention;
mod throttle;

pub(crate) use merge::{Merging, merge};
pub(crate) use plan::{DataTime, Merge, full, plan, rewrite, window_of};
pub(crate) use throttle::Throttle;

/// Statistics of merges, and failures of the flush task, since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Number of merges that succeeded.
    pub n_merges: u64,
    /// Number of merges that failed, and of rounds of the flush task. A failed merge changes no
    /// block.
    pub n_failed: u64,
    /// Samples that were dropped because an earlier block has another value at their timestamp.
    pub n_conflicts: u64,
    /// Number of blocks that retention removed.
    pub n_expired: u64,
    /// Number of blocks that are too old and wait for
    /// [`Db::confirm_retention`](crate::Db::confirm_retention).
    pub n_held: u64,
    /// Number of other blocks that are too old for a retention rule and wait for it.
    pub n_held_by_rules: u64,
    /// Number of samples that blocks lost when they were rewritten for retention rules.
    pub n_removed_by_rules: u64,
}

impl CompactionStats {
    /// Returns the number of blocks that wait for
    /// [`Db::confirm_retention`](crate::Db::confirm_retention).
    #[must_use]
    pub fn n_held_blocks(&self) -> u64 {
        self.n_held + self.n_held_by_rules
    }
}
