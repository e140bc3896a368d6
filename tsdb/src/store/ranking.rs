//! Ranks: the positions of all series of the heads in label order, over all shards.
//!
//! Used by flushes and the background task `label_order`. Reads sort the series of a shard, and merge the shards, by
//! ranks; series without one are compared label by label. A ranking compares series by the ranks of the ranking before
//! it, so only new series are compared by their labels.
//!
//! Threads: one ranking at a time, under the lock of flushes. Heads are locked for a few hundred series at a time, and
//! at the end, one after the other, to set the ranks: meanwhile the ranks of two shards are not compared. Memory: 12
//! bytes per series, and the buffers for sorting one shard.

use std::sync::Arc;

use crate::context::QueryContext;
use crate::error::Result;
use crate::head::{HeadMerge, Ranks, SeriesOrder};
use crate::store::Store;
use crate::store::flush_state::Flushing;

/// Number of series that are ranked per acquisition of the locks.
const BATCH_SERIES: usize = 512;

impl Store {
    /// Ranks all series, and returns the series of each shard in label order.
    ///
    /// # Errors
    /// The errors of [`Shard::sort_all`](crate::shard::Shard::sort_all). The ranks do not change then.
    pub(crate) fn rank_series(&self, flushing: &mut Flushing) -> Result<Vec<Arc<SeriesOrder>>> {
        let ctx = QueryContext::unbounded();
        let orders = self.shards.iter().map(|shard| shard.sort_all(&ctx)).collect::<Result<Vec<_>>>()?;
        let mut ranks: Vec<Ranks> = orders.iter().map(|order| Ranks::new(order)).collect();
        let mut merge = HeadMerge::default();
        orders.iter().enumerate().for_each(|(head, order)| merge.push(head, order.sorted().iter().copied()));
        // `u32::MAX` means that a series has no rank.
        let mut free_ranks = 0..u32::MAX;
        while !merge.is_empty() {
            let heads: Vec<_> = self.shards.iter().map(|shard| shard.head()).collect();
            merge.take(&heads, BATCH_SERIES, |head, of| {
                if let Some(rank) = free_ranks.next() {
                    ranks[head].set(of.slot, rank);
                }
            });
        }
        flushing.ranking += 1;
        for (shard, ranks) in self.shards.iter().zip(ranks) {
            shard.set_ranks(ranks, flushing.ranking);
        }
        Ok(orders)
    }
}
