//! Ranks: the positions of all series of the heads in label order, over all shards.
//!
//! Used by flushes and the background task `label_order`. Reads sort the series of a shard, and
//! merge the shards, by ranks; series without one are compared label by label. If most series have
//! a rank, a ranking compares them by the ranks of the ranking before it, so only new series are
//! compared by their labels. Otherwise, it compares all series by the ranks of their strings.
//!
//! Threads: one ranking at a time, under the lock of flushes, so that no series is evicted
//! meanwhile. Heads are locked for a few hundred series at a time, and at the end, one after the
//! other, to set the ranks: meanwhile the ranks of two shards are not compared. Memory: 12 bytes
//! per series, and the buffers for sorting one shard; or 36 bytes per series, and another 64 bytes,
//! and 8 per label, for each series of the largest metric.

use std::sync::Arc;

use varve_context::QueryContext;

use super::symbol_ranks::SymbolRanks;
use crate::error::Result;
use crate::head::{HeadMerge, Ranks, SeriesOrder, SlotRef};
use crate::store::flushing::Flushing;
use crate::store::store::Store;

/// Number of series that are ranked per acquisition of the locks.
const BATCH_SERIES: usize = 512;
/// Series are compared by their strings if at least this fraction of them has no rank.
const UNRANKED_SHARE: usize = 4;

/// A series, and the ranks of its first name and value.
#[derive(Clone, Copy)]
struct Keyed {
    key: u64,
    shard: u32,
    slot_ref: SlotRef,
}

/// The series of a shard in label order, each with its rank.
#[derive(Default)]
struct Ranked {
    sorted: Vec<SlotRef>,
    ranks: Vec<u32>,
}

impl Store {
    /// Ranks all series, and returns the series of each shard in label order.
    ///
    /// # Errors
    /// The errors of [`Shard::sort_all`](crate::shard::Shard::sort_all). The ranks do not change
    /// then.
    pub(crate) fn rank_series(&self, flushing: &mut Flushing) -> Result<Vec<Arc<SeriesOrder>>> {
        let mut n_unranked = 0;
        let mut n_series = 0;
        for shard in &self.shards {
            let head = shard.head();
            n_unranked += head.n_unranked();
            n_series += head.len();
        }
        let (orders, ranks) = if n_unranked >= n_series / UNRANKED_SHARE {
            self.rank_by_strings()
        } else {
            self.rank_by_ranks()?
        };
        flushing.ranking += 1;
        for (shard, ranks) in self.shards.iter().zip(ranks) {
            shard.set_ranks(ranks, flushing.ranking);
        }
        Ok(orders)
    }

    fn rank_by_ranks(&self) -> Result<(Vec<Arc<SeriesOrder>>, Vec<Ranks>)> {
        let ctx = QueryContext::unbounded();
        let mut orders = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            orders.push(shard.sort_all(&ctx)?);
        }

        let mut ranks: Vec<Ranks> = orders.iter().map(|order| Ranks::new(order)).collect();
        let mut merge = HeadMerge::default();
        for (head, order) in orders.iter().enumerate() {
            merge.push(head, order.sorted().iter().copied());
        }
        // `u32::MAX` means that a series has no rank.
        let mut free_ranks = 0..u32::MAX;
        while !merge.is_empty() {
            let heads: Vec<_> = self.shards.iter().map(|shard| shard.head()).collect();
            merge.take(&heads, BATCH_SERIES, |head, slot_ref| {
                if let Some(rank) = free_ranks.next() {
                    ranks[head].set(slot_ref.slot, rank);
                }
            });
        }
        Ok((orders, ranks))
    }

    fn rank_by_strings(&self) -> (Vec<Arc<SeriesOrder>>, Vec<Ranks>) {
        let n_removed: Vec<_> = self
            .shards
            .iter()
            .map(|shard| shard.head().n_removed())
            .collect();
        let symbols = SymbolRanks::new(&self.shards);
        let mut series = self.keyed(&symbols);
        series.sort_unstable_by_key(|series| (series.key, series.shard));
        let mut ranked: Vec<Ranked> = self.shards.iter().map(|_| Ranked::default()).collect();
        let mut rank = 0;
        for group in series.chunk_by(|a, b| a.key == b.key) {
            for series in &self.sorted_group(group, &symbols) {
                let shard = &mut ranked[series.shard as usize];
                shard.sorted.push(series.slot_ref);
                shard.ranks.push(rank);
                rank += 1;
            }
        }
        drop(series);
        drop(symbols);

        let mut orders = Vec::with_capacity(self.shards.len());
        let mut ranks = Vec::with_capacity(self.shards.len());
        for (idx, ranked) in ranked.into_iter().enumerate() {
            let charge = QueryContext::unbounded().charge();
            let order = Arc::new(SeriesOrder::new(ranked.sorted, n_removed[idx], charge));
            let mut shard_ranks = Ranks::new(&order);
            for (slot_ref, rank) in order.sorted().iter().zip(ranked.ranks) {
                shard_ranks.set(slot_ref.slot, rank);
            }
            self.shards[idx].share_order(&order);
            orders.push(order);
            ranks.push(shard_ranks);
        }
        (orders, ranks)
    }

    /// Returns all series. Skips those with strings that were added after the strings were ranked.
    /// A flush needs none of these: a series with frozen samples is older.
    fn keyed(&self, symbols: &SymbolRanks) -> Vec<Keyed> {
        let mut series = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            for step in 0.. {
                let head = shard.head();
                let Some(slots) = head.slots_of_step(step) else {
                    break;
                };
                for slot_ref in head.slot_refs(slots) {
                    let key = match head.pairs(slot_ref.slot).next() {
                        Some(pair) => symbols.key(number, pair),
                        None => Some(0),
                    };
                    if let Some(key) = key {
                        series.push(Keyed {
                            key,
                            shard: number as u32,
                            slot_ref,
                        });
                    }
                }
            }
        }
        series
    }

    /// Sorts series with the same first label. Skips those that were created after the strings were
    /// ranked.
    fn sorted_group(&self, group: &[Keyed], symbols: &SymbolRanks) -> Vec<Keyed> {
        // Fast path: nothing to sort.
        if let [single] = group {
            return vec![*single];
        }
        let mut keys: Vec<u64> = Vec::new();
        let mut spans = Vec::with_capacity(group.len());
        let by_shard = group.chunk_by(|a, b| a.shard == b.shard);
        for batch in by_shard.flat_map(|series| series.chunks(BATCH_SERIES)) {
            let number = batch[0].shard as usize;
            let head = self.shards[number].head();
            for series in batch {
                let start = keys.len();
                let pairs = head.pairs(series.slot_ref.slot).skip(1);
                keys.extend(pairs.map_while(|pair| symbols.key(number, pair)));
                if keys.len() - start + 1 >= head.pairs(series.slot_ref.slot).count() {
                    spans.push((start..keys.len(), *series));
                }
            }
        }
        spans.sort_unstable_by(|(a, _), (b, _)| keys[a.clone()].cmp(&keys[b.clone()]));
        spans.into_iter().map(|(_, series)| series).collect()
    }
}
