//! Running planned merges, each verified before it replaces its sources.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::MutexGuard;
use roaring::RoaringBitmap;
use varve_context::QueryContext;
use varve_model::TimeRange;

use crate::block::{Block, BlockId, Replaced};
use crate::compact::{DataTime, Merge, Merging, full, merge, plan, rewrite};
use crate::error::{Error, Result};
use crate::store::store::Store;

/// Maximum number of rewrites of a block that deletions overtake. A later merge or call removes the
/// samples.
const REWRITES_MAX: usize = 10;

/// What a merge did.
struct RanMerge {
    outcome: Replaced,
    /// Number of conflicting samples.
    n_conflicts: u64,
    /// Number of samples that were removed with their series.
    n_removed: u64,
}

impl Store {
    /// Runs all due merges, then applies retention. Merges that become due meanwhile come before
    /// the next rewrite for a retention rule.
    ///
    /// # Errors
    /// The errors of [`merge`]. Completed merges stay.
    pub(crate) fn compact(&self, stop: &AtomicBool) -> Result<()> {
        self.compact_in_turns(stop, || {
            while let Some(newest_ms) = self.newest.accepted() {
                let data_time = DataTime {
                    newest_ms,
                    out_of_order_window_ms: self.options.out_of_order_window_ms,
                    in_order_max_age_ms: self.options.in_order_max_age_ms,
                };
                let Some(next) = plan(&self.blocks.metas(), data_time) else {
                    break;
                };
                self.run(&next, &RoaringBitmap::new(), stop)?;
            }
            Ok(())
        })
    }

    /// Merges as much as possible, including windows and days that are still open.
    ///
    /// # Errors
    /// The errors of [`Store::compact`].
    pub(crate) fn compact_fully(&self, stop: &AtomicBool) -> Result<()> {
        self.compact_in_turns(stop, || {
            while let Some(next) = full(&self.blocks.metas()) {
                self.run(&next, &RoaringBitmap::new(), stop)?;
            }
            Ok(())
        })
    }

    /// Runs merges, then retention, then rewrites a block for a retention rule, until there is no
    /// such block. Other changes of the blocks may come between two rewrites. A failed merge, for
    /// example on a full disk, is left to the next call: retention may free the space that it
    /// needs.
    fn compact_in_turns(
        &self,
        stop: &AtomicBool,
        run_due_merges: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut merged = Ok(());
        loop {
            let mut compacting = self.compacting.lock();
            merged = merged.and_then(|()| run_due_merges());
            if matches!(merged, Err(Error::Interrupted(_))) {
                return merged;
            }
            self.expire(&mut compacting, false)?;
            if !self.apply_next_rule(&mut compacting, stop)? {
                return merged;
            }
            MutexGuard::unlock_fair(compacting);
        }
    }

    /// Rewrites all blocks that contain deleted samples.
    ///
    /// # Errors
    /// The errors of [`Store::compact`].
    pub(crate) fn clean_tombstones(&self, stop: &AtomicBool) -> Result<()> {
        let _one_at_a_time = self.compacting.lock();
        let list = self.blocks.list();
        for stored in list.iter().filter(|stored| stored.has_deleted()) {
            // A deletion that overtakes a rewrite outdates it.
            for _ in 0..REWRITES_MAX {
                if self.run(&rewrite(stored.meta()), &RoaringBitmap::new(), stop)? == Replaced::Done
                {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Runs a merge. The result does not have the series `removed` of its only source, given by
    /// ordinal.
    ///
    /// # Errors
    /// The errors of [`merge`].
    pub(crate) fn run(
        &self,
        next: &Merge,
        removed: &RoaringBitmap,
        stop: &AtomicBool,
    ) -> Result<Replaced> {
        let merged = self.run_merge(next, removed, stop);
        let mut stats = self.compaction_stats.lock();
        match &merged {
            Ok(RanMerge {
                n_conflicts,
                n_removed,
                ..
            }) => {
                stats.n_merges += 1;
                stats.n_conflicts += n_conflicts;
                stats.n_removed_by_rules += n_removed;
            }
            Err(_) => stats.n_failed += 1,
        }
        merged.map(|merged| merged.outcome)
    }

    fn run_merge(
        &self,
        next: &Merge,
        removed: &RoaringBitmap,
        stop: &AtomicBool,
    ) -> Result<RanMerge> {
        // Read before the block list: a concurrent rule is applied twice rather than not at all.
        let deletions = self.blocks.last_deletion();
        let list = self.blocks.list();
        // In order of precedence, as the list is.
        let mut sources = Vec::with_capacity(next.sources.len());
        for stored in list.iter() {
            if next.sources.contains(&stored.meta().origin.id) {
                sources.push(stored.without(0, TimeRange::ALL, removed.clone()));
            }
        }

        let id = self.blocks.next_id();
        let origin = next.origin(id, deletions);
        let merging = Merging {
            fs: Arc::clone(&self.options.fs),
            dir: self.blocks.dir(),
            throttle: &self.throttle,
            stop,
        };
        let started = Instant::now();
        let merged = merge(&sources, origin, &merging)?;
        let n_sources = sources.len();
        let from: u64 = sources.iter().map(|source| source.meta().size).sum();
        let (bytes, n_samples) = merged
            .meta
            .as_ref()
            .map_or((0, 0), |meta| (meta.size, meta.n_samples));
        tracing::info!(n_sources, from, bytes, duration = ?started.elapsed(), "merged blocks");
        let new = merged.meta.map(|_| self.verified(id)).transpose()?;

        let mut changed = None;
        // Without removed series, reads see no change.
        if !removed.is_empty() {
            let ranges = sources.iter().map(|source| source.meta().range);
            changed = ranges.reduce(TimeRange::hull);
        }
        let outcome = self.blocks.replace(&sources, new, deletions, || {
            Some(self.begin_block_change(changed?))
        })?;
        let n_removed = match outcome {
            Replaced::Done if !removed.is_empty() => {
                let n_before: u64 = sources.iter().map(|source| source.meta().n_samples).sum();
                n_before.saturating_sub(n_samples)
            }
            Replaced::Done => 0,
            Replaced::Outdated => {
                tracing::info!(
                    ?id,
                    "samples were deleted while their blocks were merged; the merge is repeated"
                );
                0
            }
        };
        Ok(RanMerge {
            outcome,
            n_conflicts: merged.n_conflicts,
            n_removed,
        })
    }

    /// Opens and verifies a finished block. Removes the block if that fails: it can be merged
    /// again.
    fn verified(&self, id: BlockId) -> Result<Arc<Block>> {
        let opened = self.blocks.open_block(id).and_then(|block| {
            block.verify(&QueryContext::unbounded())?;
            Ok(block)
        });
        if let Err(error) = &opened {
            let path = self.blocks.dir().join(id.file_name());
            tracing::error!(?path, %error, "a merged block cannot be verified; its sources stay");
            self.blocks.discard([id]);
        }
        opened
    }
}
