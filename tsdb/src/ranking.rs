//! Brings series into label order in the background once their coming has ceased.
//!
//! Selections come in label order. Series that have a rank are sorted by it; others are compared by their texts, at each
//! selection. A flush ranks all; after a start, and after many new series, that may be minutes away. The flush task looks
//! here each second: while many series come it waits, so that they are ranked once and not each second.

use crate::context::QueryContext;
use crate::error::Result;
use crate::store::Store;

/// Fewer series without a rank are left to the next flush.
const UNRANKED_MIN: usize = 1024;
/// So are those that are less than one of so many; and if more than that came since the last look, others are on their way.
const SHARE: usize = 16;

/// What was seen at the last look.
#[derive(Debug, Default)]
pub(crate) struct Ranking {
    /// By shard: series that had no rank.
    n_unranked: Vec<usize>,
}

impl Ranking {
    /// Ranks the series of the shards where that is worth it, unless a flush is about to.
    ///
    /// # Errors
    /// As [`Shard::rank_series`](crate::shard::Shard::rank_series).
    pub(crate) fn look(&mut self, store: &Store) -> Result<()> {
        let Some(_flushing) = store.flushing_if_free() else { return Ok(()) };
        self.n_unranked.resize(store.shards.len(), 0);
        for (shard, before) in store.shards.iter().zip(&mut self.n_unranked) {
            let (n_unranked, n_series) = {
                let head = shard.head();
                (head.n_unranked(), head.len())
            };
            let n_new = n_unranked.saturating_sub(std::mem::replace(before, n_unranked));
            if n_unranked >= UNRANKED_MIN.max(n_series / SHARE) && n_new <= n_unranked / SHARE {
                shard.rank_series(&QueryContext::unbounded())?;
                *before = 0;
            }
        }
        Ok(())
    }
}
