//! Ranks new series in label order in the background, once queries sort them and series creation
//! has slowed down. Sorts the label values then, too.
//!
//! Selections are sorted by labels. Series with a rank are sorted by it; others are compared as
//! strings, in every selection. A flush ranks all series; after a start, or after many series were
//! created, the next flush may be minutes away. The flush task checks ten times a second. It waits
//! while many series are being created, so that they are ranked once and not at each check. Then it
//! waits until queries have sorted a share of the unranked series, or for ten seconds: a ranking
//! takes CPU time and memory from the writes that follow a burst of new series.

use crate::error::Result;
use crate::store::Store;

/// Minimum number of unranked series for a ranking. Fewer are left to the next flush.
const UNRANKED_MIN: usize = 1024;
/// Unranked series are also left to the flush if they are less than this fraction of all.
const UNRANKED_SHARE: usize = 16;
/// Series are ranked once queries have sorted this fraction of the unranked ones.
const SORTED_SHARE: usize = 64;
/// If more than this fraction of the unranked series are new since the last check, creation is
/// still going on.
const NEW_SHARE: usize = 160;

/// Number of checks without many new series after which they are ranked, even if no query has
/// sorted them.
const QUIET_CHECKS: u32 = 100;

/// State of the last check.
#[derive(Debug, Default)]
pub(crate) struct LabelOrder {
    n_unranked: usize,
    /// Number of consecutive checks that found many unranked series, but few new ones.
    n_quiet: u32,
}

impl LabelOrder {
    /// Ranks all series and sorts label values if many series have no rank, few are new, and queries
    /// have sorted some of them or [`QUIET_CHECKS`] checks have passed. Does nothing while a flush is
    /// running.
    ///
    /// # Errors
    /// The errors of [`Store::rank_series`].
    pub(crate) fn update(&mut self, store: &Store) -> Result<()> {
        let Some(mut flushing) = store.flushing.try_lock() else {
            return Ok(());
        };
        let mut n_unranked = 0;
        let mut n_series = 0;
        let mut n_sorted = 0;
        for shard in &store.shards {
            let head = shard.head();
            n_unranked += head.n_unranked();
            n_series += head.len();
            n_sorted += shard.n_unranked_sorted();
        }
        let n_new = n_unranked.saturating_sub(std::mem::replace(&mut self.n_unranked, n_unranked));
        let are_many = n_unranked >= UNRANKED_MIN.max(n_series / UNRANKED_SHARE);
        self.n_quiet = if are_many && n_new <= n_unranked / NEW_SHARE {
            self.n_quiet + 1
        } else {
            0
        };
        if self.n_quiet > QUIET_CHECKS || self.n_quiet > 0 && n_sorted >= n_unranked / SORTED_SHARE
        {
            store.rank_series(&mut flushing)?;
            // No flush is running, which is what evicts series.
            for shard in &store.shards {
                shard.sort_label_values();
            }
            *self = Self::default();
        }
        Ok(())
    }
}
