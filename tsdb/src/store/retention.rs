//! Retention: removal of blocks, and of series inside of blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use roaring::{MultiOps, RoaringBitmap};
use varve_context::{Interrupt, QueryContext};
use varve_model::TimeRange;

use crate::block::{BlockId, BlockMeta, StoredBlock};
use crate::compact::retention::rules::{Due, RetentionRule, first_matches};
use crate::compact::retention::{Expired, Hold, RetentionProgress, RetentionSize, ends_by};
use crate::compact::rewrite;
use crate::error::{Error, Result};
use crate::store::store::Store;

impl Store {
    /// Removes blocks by number. See [`Db::remove_blocks`](crate::Db::remove_blocks).
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub(crate) fn remove_blocks(&self, numbers: &[u64]) -> Result<()> {
        let _no_merge = self.compacting.lock();
        let list = self.blocks.list();
        let ids = list
            .iter()
            .map(|stored| stored.meta().origin.id)
            .filter(|id| numbers.contains(&id.0));
        let ids: Vec<BlockId> = ids.collect();
        self.remove(&ids)?;
        self.compaction_stats.lock().n_expired += ids.len() as u64;
        Ok(())
    }

    /// Removes all blocks that exceed the retention limits, held ones too. Later calls of
    /// [`Store::compact`] rewrite the blocks that are too old for rules.
    ///
    /// # Errors
    /// The errors of [`Store::compact`].
    pub(crate) fn confirm_retention(&self) -> Result<()> {
        let mut compacting = self.compacting.lock();
        self.expire(&mut compacting, true)?;
        let Some(now_ms) = self.newest.retention_ms() else {
            return Ok(());
        };
        self.next_for_rules(&mut compacting, now_ms, true, &AtomicBool::new(false))
            .map(drop)
    }

    /// Removes the blocks that exceed the retention limits, except held ones unless it
    /// `is_confirmed`.
    pub(super) fn expire(
        &self,
        compacting: &mut RetentionProgress,
        is_confirmed: bool,
    ) -> Result<()> {
        let Some(now_ms) = self.newest.retention_ms() else {
            return Ok(());
        };
        let retention = self.retention.lock().clone();
        let hold = if is_confirmed {
            Hold::Confirmed
        } else {
            Hold::Unconfirmed {
                held_ms: compacting.held_ms,
            }
        };
        let Expired {
            blocks,
            n_held,
            held_ms,
        } = retention.expired(
            &self.blocks.metas(),
            now_ms,
            self.log_size()?,
            self.retained_bytes_max(retention.size),
            hold,
        );
        compacting.held_ms = held_ms;
        let n_held_before = {
            let mut stats = self.compaction_stats.lock();
            stats.n_expired += blocks.len() as u64;
            std::mem::replace(&mut stats.n_held, n_held as u64)
        };
        if n_held as u64 > n_held_before {
            tracing::warn!(
                blocks = n_held,
                now_ms,
                "retention keeps blocks that are too old until it is confirmed"
            );
        }
        if blocks.is_empty() {
            return Ok(());
        }
        tracing::info!(blocks = blocks.len(), "retention removes blocks");
        self.remove(&blocks)
    }

    /// Returns the maximum size of blocks and log in bytes.
    fn retained_bytes_max(&self, size: Option<RetentionSize>) -> Option<u64> {
        match size? {
            RetentionSize::Bytes(size) => Some(size),
            RetentionSize::VolumePercent { percent, otherwise } => {
                match self.options.fs.volume(self.blocks.dir()) {
                    Ok(volume) => Some((volume.size as f64 * percent / 100.0) as u64),
                    Err(error) => {
                        tracing::error!(%error, "retention does not know the size of the volume");
                        otherwise
                    }
                }
            }
        }
    }

    /// Removes blocks, and records the change of their range.
    fn remove(&self, blocks: &[BlockId]) -> Result<()> {
        let list = self.blocks.list();
        let removed = list
            .iter()
            .map(|stored| stored.meta())
            .filter(|meta| blocks.contains(&meta.origin.id));
        match removed.map(|meta| meta.range).reduce(TimeRange::hull) {
            Some(range) => self
                .blocks
                .remove(blocks, || self.begin_block_change(range)),
            None => Ok(()),
        }
    }

    /// Rewrites the oldest block that contains series that a retention rule removes. Returns
    /// `false` if there is none.
    ///
    /// # Errors
    /// The errors of [`Store::compact`]. The next call begins with another block.
    pub(super) fn apply_next_rule(
        &self,
        compacting: &mut RetentionProgress,
        stop: &AtomicBool,
    ) -> Result<bool> {
        let Some(now_ms) = self.newest.retention_ms() else {
            return Ok(false);
        };
        let Some((stored, rules)) = self.next_for_rules(compacting, now_ms, false, stop)? else {
            return Ok(false);
        };
        let id = stored.meta().origin.id;
        let all = compacting.rules.rules();
        let rewritten = matches_in(&stored, all).and_then(|found| {
            let due = found.into_iter().filter(|(rule, _)| rules.contains(rule));
            let removed = due.map(|(_, series)| series).union();
            tracing::info!(
                ?id,
                series = removed.len(),
                ?rules,
                "retention rules remove series from a block"
            );
            self.run(&rewrite(stored.meta()), &removed, stop)
        });
        if rewritten.is_err() {
            compacting.rules.failed(id, now_ms);
        }
        rewritten.map(|_| true)
    }

    /// Returns the block to rewrite next, and the rules whose series it loses. Searches blocks that
    /// are old enough.
    fn next_for_rules(
        &self,
        compacting: &mut RetentionProgress,
        now_ms: i64,
        is_confirmed: bool,
        stop: &AtomicBool,
    ) -> Result<Option<(Arc<StoredBlock>, Vec<usize>)>> {
        let RetentionProgress {
            held_ms,
            rules: progress,
        } = compacting;
        progress.set_rules(&self.retention.lock().rules);
        let list = self.blocks.list();
        let find = |id: BlockId| list.iter().find(|stored| stored.meta().origin.id == id);
        // Blocks that retention holds as a whole wait for the same confirmation.
        let metas = list
            .iter()
            .map(|stored| stored.meta())
            .filter(|meta| !ends_by(meta, *held_ms));
        let metas: Vec<BlockMeta> = metas.cloned().collect();
        let mut searched = Ok(());
        for stored in progress
            .unsearched(&metas, now_ms)
            .into_iter()
            .filter_map(find)
        {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted(Interrupt::Shutdown));
            }
            match matches_in(stored, progress.rules()) {
                Ok(found) => {
                    progress.searched(
                        stored.meta().origin.id,
                        found.into_iter().map(|(rule, _)| rule).collect(),
                    );
                }
                Err(error) => {
                    progress.failed(stored.meta().origin.id, now_ms);
                    self.compaction_stats.lock().n_failed += 1;
                    searched = Err(error);
                }
            }
        }
        let Due { next, n_held } = progress.due(&metas, now_ms, is_confirmed);
        let n_held_before = std::mem::replace(
            &mut self.compaction_stats.lock().n_held_by_rules,
            n_held as u64,
        );
        if n_held as u64 > n_held_before {
            tracing::warn!(
                blocks = n_held,
                now_ms,
                "retention rules wait for a confirmation: many blocks are too old"
            );
        }
        match next.and_then(|(id, rules)| Some((Arc::clone(find(id)?), rules))) {
            // The damaged block does not delay the others.
            None => searched.map(|()| None),
            next => Ok(next),
        }
    }
}

/// Returns the rules with a time that are the first to match a series of a block, with these
/// series.
fn matches_in(
    stored: &StoredBlock,
    rules: &[RetentionRule],
) -> Result<Vec<(usize, RoaringBitmap)>> {
    first_matches(rules, |matchers| {
        stored
            .block
            .index
            .select(&QueryContext::unbounded(), matchers)
    })
}
