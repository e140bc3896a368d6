//! Running planned merges, each verified before it replaces its sources.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::block::{Block, BlockId, Replaced, StoredBlock};
use crate::compact::retention::{Expired, Hold};
use crate::compact::{Horizon, Merge, Merging, full, merge, plan, rewrite};
use crate::context::QueryContext;
use crate::error::Result;
use crate::sample::TimeRange;
use crate::store::Store;

/// What the thread that compacts owns.
#[derive(Debug, Default)]
pub(crate) struct Compacting {
    /// [`Expired::held_ms`] of the last round of retention.
    held_ms: Option<i64>,
}

impl Store {
    /// Runs all due merges, then applies retention.
    ///
    /// # Errors
    /// The errors of [`merge`]. Completed merges stay.
    pub(crate) fn compact(&self, stop: &AtomicBool) -> Result<()> {
        let mut compacting = self.compacting();
        while let Some(newest_ms) = self.newest.accepted() {
            let horizon = Horizon {
                newest_ms,
                out_of_order_window_ms: self.options.out_of_order_window_ms,
                in_order_max_age_ms: self.options.in_order_max_age_ms,
            };
            let Some(next) = plan(&self.blocks.metas(), horizon) else { break };
            self.run(&next, stop)?;
        }
        self.expire(&mut compacting, false)
    }

    /// Merges as much as possible, including windows and days that are still open.
    ///
    /// # Errors
    /// The errors of [`Store::compact`].
    pub(crate) fn compact_fully(&self, stop: &AtomicBool) -> Result<()> {
        let mut compacting = self.compacting();
        while let Some(next) = full(&self.blocks.metas()) {
            self.run(&next, stop)?;
        }
        self.expire(&mut compacting, false)
    }

    /// Rewrites all blocks that contain deleted samples.
    ///
    /// # Errors
    /// The errors of [`Store::compact`].
    pub(crate) fn clean_tombstones(&self, stop: &AtomicBool) -> Result<()> {
        let _one_at_a_time = self.compacting();
        let list = self.blocks.list();
        for stored in list.iter().filter(|stored| stored.has_deleted()) {
            self.run(&rewrite(stored.meta()), stop)?;
        }
        Ok(())
    }

    fn run(&self, next: &Merge, stop: &AtomicBool) -> Result<()> {
        let merged = self.run_merge(next, stop);
        let mut stats = self.compaction_stats();
        match &merged {
            Ok(n_conflicts) => {
                stats.n_merges += 1;
                stats.n_conflicts += n_conflicts;
            }
            Err(_) => stats.n_failed += 1,
        }
        merged.map(drop)
    }

    /// Runs a merge. Returns the number of conflicting samples.
    fn run_merge(&self, next: &Merge, stop: &AtomicBool) -> Result<u64> {
        // Read before the block list: a concurrent rule is applied twice rather than not at all.
        let deletions = self.blocks.last_deletion();
        let list = self.blocks.list();
        let is_source = |stored: &&Arc<StoredBlock>| next.sources.contains(&stored.meta().origin.id);
        // In order of acceptance, like the list.
        let sources: Vec<_> = list.iter().filter(is_source).cloned().collect();
        let id = self.blocks.next_id();
        let origin = next.origin(id, deletions);
        let merging =
            Merging { fs: Arc::clone(&self.options.fs), dir: self.blocks.dir(), throttle: &self.throttle, stop };
        let started = Instant::now();
        let merged = merge(&sources, origin, &merging)?;
        let (n_sources, from) = (sources.len(), sources.iter().map(|source| source.meta().size).sum::<u64>());
        let bytes = merged.meta.as_ref().map_or(0, |meta| meta.size);
        tracing::info!(n_sources, from, bytes, duration = ?started.elapsed(), "merged blocks");
        let new = merged.meta.map(|_| self.verified(id)).transpose()?;
        if self.blocks.replace(&sources, new, deletions)? == Replaced::Outdated {
            tracing::info!(?id, "samples were deleted while their blocks were merged; the merge is repeated");
        }
        Ok(merged.n_conflicts)
    }

    /// Opens and verifies a finished block. Removes the block if it is damaged.
    fn verified(&self, id: BlockId) -> Result<Arc<Block>> {
        let opened = self.blocks.open_block(id).and_then(|block| {
            block.verify(&QueryContext::unbounded())?;
            Ok(block)
        });
        if opened.is_err() {
            let path = self.blocks.dir().join(id.file_name());
            let removed = self.options.fs.remove(&path);
            tracing::error!(?path, ?removed, "a merged block is damaged; its sources stay");
        }
        opened
    }

    /// Removes blocks by number. See [`Db::remove_blocks`](crate::Db::remove_blocks).
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn remove_blocks(&self, numbers: &[u64]) -> Result<()> {
        let _no_merge = self.compacting();
        let list = self.blocks.list();
        let ids = list.iter().map(|stored| stored.meta().origin.id).filter(|id| numbers.contains(&id.0));
        let ids: Vec<BlockId> = ids.collect();
        self.remove(&ids)?;
        self.compaction_stats().n_expired += ids.len() as u64;
        Ok(())
    }

    /// Removes all blocks that exceed the retention limits, held ones too.
    ///
    /// # Errors
    /// The errors of [`Store::compact`].
    pub(crate) fn confirm_retention(&self) -> Result<()> {
        self.expire(&mut self.compacting(), true)
    }

    /// Removes the blocks that exceed the retention limits, except held ones unless it `is_confirmed`.
    pub(super) fn expire(&self, compacting: &mut Compacting, is_confirmed: bool) -> Result<()> {
        let Some(now_ms) = self.newest.retention_ms() else { return Ok(()) };
        let retention = *self.retention();
        let hold = if is_confirmed { Hold::Confirmed } else { Hold::Unconfirmed { held_ms: compacting.held_ms } };
        let Expired { blocks, n_held, held_ms } =
            retention.expired(&self.blocks.metas(), now_ms, self.log_size()?, hold);
        compacting.held_ms = held_ms;
        let n_held_before = {
            let mut stats = self.compaction_stats();
            stats.n_expired += blocks.len() as u64;
            std::mem::replace(&mut stats.n_held, n_held as u64)
        };
        if n_held as u64 > n_held_before {
            tracing::warn!(blocks = n_held, now_ms, "retention keeps blocks that are too old until it is confirmed");
        }
        if blocks.is_empty() {
            return Ok(());
        }
        tracing::info!(blocks = blocks.len(), "retention removes blocks");
        self.remove(&blocks)
    }

    /// Removes blocks, and records the change of their range.
    fn remove(&self, blocks: &[BlockId]) -> Result<()> {
        let list = self.blocks.list();
        let removed = list.iter().map(|stored| stored.meta()).filter(|meta| blocks.contains(&meta.origin.id));
        match removed.map(|meta| meta.range).reduce(TimeRange::hull) {
            Some(range) => self.blocks.remove(blocks, || self.begin_block_change(range)),
            None => Ok(()),
        }
    }
}
