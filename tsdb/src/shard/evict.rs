//! Eviction of a shard's series, in steps that hold the lock of the head briefly.
//!
//! Used by flushes and deletions.

use varve_context::QueryContext;
use varve_model::{Matcher, TimeRange};

use super::shard::Shard;
use crate::error::Result;
use crate::head::{ShrinkTarget, StaleSeries};

/// Number of stale series evicted per acquisition of the head lock.
const BATCH_STALE: usize = 512;

/// Time limits for evicting and forgetting series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvictionLimits {
    /// Evicts series whose newest sample is older than this.
    pub(crate) idle_before_ms: i64,
    /// Evicts series whose newest sample is a staleness marker older than this.
    pub(crate) stale_before_ms: i64,
    /// Forgets evicted series whose newest sample is older than this. No sample that old is
    /// accepted any more.
    pub(crate) forget_before_ms: i64,
}

impl Shard {
    /// Returns the series that pass all matchers, have their newest sample in `range`, and have no
    /// samples in memory.
    ///
    /// # Errors
    /// If the request is interrupted.
    pub(crate) fn ended_in(
        &self,
        ctx: &QueryContext,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<StaleSeries>> {
        let head = self.head();
        Ok(head.ended_in(&head.select(ctx, matchers)?, range))
    }

    /// Evicts series, reclaims their memory, removes them from `stale` and `deleted` and returns
    /// their number. Locks the head for a few hundred series at a time. The caller holds the lock
    /// of flushes, because writing parts and checkpoints relies on the ids of labels.
    pub(crate) fn evict(
        &self,
        limits: EvictionLimits,
        stale: &mut Vec<StaleSeries>,
        deleted: &mut Vec<StaleSeries>,
    ) -> usize {
        let EvictionLimits {
            idle_before_ms,
            stale_before_ms,
            forget_before_ms,
        } = limits;
        let mut n_removed = 0;
        for batch in std::mem::take(deleted).chunks(BATCH_STALE) {
            n_removed += self.head_mut().evict_stale(i64::MAX, batch, deleted);
        }
        let mut piece = 0;
        while self.head_mut().forget_evicted(piece, forget_before_ms) {
            piece += 1;
        }
        for batch in std::mem::take(stale).chunks(BATCH_STALE) {
            n_removed += self.head_mut().evict_stale(stale_before_ms, batch, stale);
        }
        for step in 0.. {
            let mut head = self.head_mut();
            let Some(slots) = head.slots_of_step(step) else {
                break;
            };
            n_removed += head.evict(idle_before_ms, slots);
        }
        // Fast path: nothing was evicted.
        if n_removed > 0 {
            self.reclaim_memory();
        }
        n_removed
    }

    fn reclaim_memory(&self) {
        let tables = [
            ShrinkTarget::Tails,
            ShrinkTarget::LabelSets,
            ShrinkTarget::Strings,
            ShrinkTarget::Series,
            ShrinkTarget::Symbols,
        ];
        let names = self.head().names();
        let values = names.into_iter().map(ShrinkTarget::Values);
        for target in tables.into_iter().chain(values) {
            let mut step = 0;
            while self.head_mut().shrink(target, step) {
                step += 1;
            }
        }
    }
}
