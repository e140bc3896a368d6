//! Flushing: writing samples from the heads to parts, so that the WAL stays short.
//!
//! Used by the flush task, by deletes, snapshots and compaction on request. One flush runs at a
//! time:
//!
//! 1. Appends pause. Every log is rotated, and its shards freeze their chunks. Appends continue.
//!    Reads see frozen chunks as before.
//! 2. Outside all locks, the frozen series of all shards are written in label order, one part per
//!    window of 2 h.
//! 3. The parts are put in place (synced, renamed, directory synced) and added to the block list.
//! 4. Once no reader uses the previous list, the frozen chunks are dropped, and every log gets a
//!    checkpoint, which durably replaces the segments that the parts cover.
//! 5. Idle, stale and deleted series are evicted once no reader may look them up. Only readers that
//!    began before step 4 may, because a selection includes only series with samples in memory. If
//!    such a reader is still active, the flush task evicts the series later.
//!
//! Crash: before the rename of a part, no durable state has changed. Between the rename and the
//! checkpoint, a replay restores samples that the part contains too. Reads and merges return them
//! once. A failed flush leaves its chunks frozen. The next flush begins with them.

mod freeze;
mod part;
mod symbols;

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::time::Instant;

use varve_context::QueryContext;
use varve_model::{Matcher, TimeRange};

use crate::error::{Error, Result};
use crate::options::Options;
use crate::shard::EvictionLimits;
use crate::store::flushing::{FlushStats, Flushing, SeriesByShard};
use crate::store::store::Store;

impl Store {
    /// Flushes all samples appended before the call, and returns statistics. Waits for the end of
    /// the replay, which determines the contents of the parts.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if parts or checkpoints cannot be written. No samples are
    /// lost then. [`Error::ReplayFailed`].
    pub(crate) fn flush(&self) -> Result<FlushStats> {
        self.replay.wait(&QueryContext::unbounded())?;
        self.flush_under(&mut self.flushing.lock())
    }

    /// Flushes as [`Store::flush`] does, and returns `n` new numbers of flushes. All other flushes
    /// and deletions are before the numbers, or after them.
    ///
    /// # Errors
    /// The errors of [`Store::flush`].
    pub(crate) fn flush_before(&self, n: u64) -> Result<RangeInclusive<u64>> {
        self.replay.wait(&QueryContext::unbounded())?;
        let mut flushing = self.flushing.lock();
        self.flush_under(&mut flushing)?;
        Ok(self.blocks.next_flushes(n))
    }

    /// Flushes as [`Store::flush`] does. If the disk or a quota is full, flushes again with the
    /// space of the reserve. If the flush succeeds, fills the reserve again.
    ///
    /// # Errors
    /// The errors of [`Store::flush`], and of releasing and filling the
    /// [`Reserve`](crate::wal::Reserve). The samples are flushed if only filling it fails.
    pub(crate) fn flush_with_reserve(&self) -> Result<()> {
        let mut flushed = self.flush();
        if flushed.as_ref().is_err_and(is_full) {
            self.reserve.release()?;
            flushed = self.flush();
        }
        flushed?;
        self.reserve.fill()
    }

    /// Flushes, then deletes from blocks, and evicts the series whose newest samples are deleted.
    /// See [`Db::delete`](crate::Db::delete). No other flush runs in between, because its samples
    /// may have been appended after the deletion.
    ///
    /// # Errors
    /// The errors of [`Db::delete`](crate::Db::delete).
    pub(crate) fn delete(&self, matchers: Vec<Matcher>, range: TimeRange) -> Result<()> {
        self.replay.wait(&QueryContext::unbounded())?;
        let mut flushing = self.flushing.lock();
        self.flush_under(&mut flushing)?;
        let ended = self.ended_in(&matchers, range)?;
        {
            let _change = self.begin_block_change(range);
            self.blocks.delete(matchers, range)?;
        }
        self.evict_deleted(&mut flushing, ended);
        Ok(())
    }

    /// Evicts the series whose newest samples are deleted, after a replay. A checkpoint from before
    /// a deletion still defines them. The checkpoint of a later flush does not, so a deletion is
    /// skipped if a block of a later flush exists. If the process crashed between that block and
    /// its checkpoint, the series stay until they are idle.
    ///
    /// # Errors
    /// The errors of [`Shard::ended_in`].
    pub(crate) fn evict_deleted_before(&self) -> Result<()> {
        let mut flushing = self.flushing.lock();
        for tombstone in self.blocks.newest_tombstones() {
            let ended = self.ended_in(&tombstone.matchers, tombstone.range)?;
            self.evict_deleted(&mut flushing, ended);
        }
        Ok(())
    }

    fn ended_in(&self, matchers: &[Matcher], range: TimeRange) -> Result<SeriesByShard> {
        let ctx = QueryContext::unbounded();
        let mut ended = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            ended.push(shard.ended_in(&ctx, matchers, range)?);
        }
        Ok(ended)
    }

    fn evict_deleted(&self, flushing: &mut Flushing, ended: SeriesByShard) {
        flushing.add_deleted(ended);
        // All samples of these series left the memory at this epoch or before.
        flushing
            .dropped
            .get_or_insert_with(|| self.series_readers.advance_epoch());
        self.evict(flushing);
    }

    fn flush_under(&self, flushing: &mut Flushing) -> Result<FlushStats> {
        let mut stats = FlushStats::default();
        // An unfinished flush goes first: its samples are older.
        if flushing.is_unfinished {
            self.finish(flushing, &mut stats)?;
        }

        let started = Instant::now();
        flushing.flush_id = *self.blocks.next_flushes(1).start();
        flushing.is_unfinished = true;
        self.freeze()?;
        stats.paused_us = started.elapsed().as_micros() as u64;
        self.finish(flushing, &mut stats)?;
        flushing.is_unfinished = false;

        // Now every shard has flushed the samples that it replayed from them.
        self.remove_old_epochs()?;
        self.newest.cut();
        Ok(stats)
    }

    /// Writes the frozen samples and truncates the logs.
    fn finish(&self, flushing: &mut Flushing, stats: &mut FlushStats) -> Result<()> {
        let frozen = self.frozen(flushing)?;
        if frozen.is_empty() {
            return self.cut_logs();
        }

        let started = Instant::now();
        let (parts, stale) = self.write_parts(&frozen, flushing.flush_id)?;
        let n_parts = parts.len();
        let n_samples: u64 = parts.iter().map(|part| part.meta().n_samples).sum();
        let bytes: u64 = parts.iter().map(|part| part.meta().size).sum();
        self.blocks.add(parts)?;

        // Readers of the block list without the parts need the frozen samples.
        let mark = self.block_list_readers.advance_epoch();
        self.block_list_readers.wait_for(mark);
        for shard in &self.shards {
            // Drops the frozen samples after the lock is released.
            let _frozen = shard.head_mut().drop_frozen();
        }

        flushing.add_stale(stale);
        flushing.dropped = Some(self.series_readers.advance_epoch());
        stats.n_parts += n_parts as u64;
        stats.n_samples += n_samples;
        stats.n_evicted += self.evict(flushing);
        for shard in &self.shards {
            shard.sort_label_values();
        }

        let FlushStats {
            n_samples,
            n_evicted,
            ..
        } = *stats;
        tracing::info!(n_parts, bytes, n_samples, n_evicted, duration = ?started.elapsed(), "flushed the head");
        self.cut_logs()
    }

    fn cut_logs(&self) -> Result<()> {
        let metadata = self.metadata.lock().by_age();
        // Exemplars logged before the truncation are in the ring unless they were evicted.
        let exemplars = self.exemplars.by_log(self.logs.len());
        for ((idx, log), exemplars) in self.logs.iter().enumerate().zip(&exemplars) {
            // The first log has the metadata of the whole store.
            let families = if idx == 0 { &*metadata } else { &[] };
            let shards = self.shards_of(idx).map(|(_, shard)| shard);
            log.checkpoint(
                shards,
                self.next_ref.load(Ordering::SeqCst),
                families,
                exemplars,
            )?;
        }
        Ok(())
    }

    /// Evicts series that the last flush could not evict, unless another flush runs.
    pub(crate) fn evict_deferred(&self) {
        if let Some(mut flushing) = self.flushing.try_lock() {
            self.evict(&mut flushing);
        }
    }

    /// Evicts series that are idle or stale, unless readers may look them up.
    fn evict(&self, flushing: &mut Flushing) -> u64 {
        let Some(newest_ms) = self.newest.accepted() else {
            return 0;
        };
        if flushing
            .dropped
            .is_none_or(|mark| !self.series_readers.all_left(mark))
        {
            return 0;
        }
        flushing.dropped = None;
        let Options {
            series_idle_ms,
            series_stale_ms,
            ..
        } = self.options;
        let sent_ms = self.newest.accepted_sent().unwrap_or(i64::MIN);
        let limits = EvictionLimits {
            idle_before_ms: newest_ms.saturating_sub(series_idle_ms),
            stale_before_ms: newest_ms.saturating_sub(series_stale_ms.min(series_idle_ms)),
            forget_before_ms: sent_ms.saturating_sub(self.options.age_max_ms()),
        };
        let Flushing { stale, deleted, .. } = flushing;
        stale.resize_with(self.shards.len(), Vec::new);
        deleted.resize_with(self.shards.len(), Vec::new);
        let mut n_evicted = 0;
        for (idx, shard) in self.shards.iter().enumerate() {
            n_evicted += shard.evict(limits, &mut stale[idx], &mut deleted[idx]) as u64;
        }
        n_evicted
    }
}

/// Returns `true` if there is no space on the disk, or none within a quota.
fn is_full(error: &Error) -> bool {
    let Error::Io { source, .. } = error else {
        return false;
    };
    matches!(
        source.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}
