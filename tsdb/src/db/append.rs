//! Writes: handles of series, samples, metadata, and the state of the WAL.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use super::Db;
use crate::error::{Error, Result};
use crate::head::{Bounds, SeriesGroup, SlotRef};
use crate::labels::{LABELS_SIZE_MAX, Labels, METADATA_SIZE_MAX, Metadata};
use crate::sample::{Rejected, SeriesHandle, WriteBatch};
use crate::shard::{AppendContext, Shard, ShardAppend, ShardLog, shard_of};
use crate::wal::{Health, Position};

/// Maximum number of floats of this process that are appended to a shard per acquisition of the
/// locks. A rule can write tens of thousands of samples at once. Without a limit, senders would
/// wait for all of them.
const OWN_FLOATS_PER_LOCK: usize = 256;

impl Db {
    /// Returns the handle of a series. Creates the series if it is new. The next append to a new
    /// series makes it durable.
    ///
    /// # Errors
    /// [`Error::Limit`] if the label set or the head is too large. [`Error::Poisoned`] or
    /// [`Error::Io`] if the series is new and its shard's log accepts no appends.
    /// [`Error::ReplayFailed`] if the replay failed.
    pub fn series(&self, labels: &Labels) -> Result<SeriesHandle> {
        self.series_for(labels, SeriesGroup::NONE)
    }

    /// Returns the handle of a series as [`Db::series`] does, and assigns the series to `group` if
    /// it has no group.
    ///
    /// # Errors
    /// The errors of [`Db::series`].
    pub fn series_for(&self, labels: &Labels, group: SeriesGroup) -> Result<SeriesHandle> {
        Error::check_limit("bytes of a label set", labels.size(), LABELS_SIZE_MAX)?;
        self.store.replay.check()?;
        let shards = &self.store.shards;
        shards[shard_of(labels, shards.len())].series(labels, group, &self.store.next_ref)
    }

    /// Returns the handle of a series as [`Db::series`] does, and removes the series from its
    /// group.
    ///
    /// # Errors
    /// The errors of [`Db::series`].
    pub fn series_without_group(&self, labels: &Labels) -> Result<SeriesHandle> {
        let series = self.series(labels)?;
        let SeriesHandle {
            shard,
            slot,
            generation,
            ..
        } = series;
        self.store.shards[usize::from(shard)].ungroup(SlotRef { slot, generation });
        Ok(series)
    }

    /// Returns the handle of a series, or `None` if the series is not in memory.
    #[must_use]
    pub fn find(&self, labels: &Labels) -> Option<SeriesHandle> {
        self.find_for(labels, SeriesGroup::NONE)
    }

    /// Returns the handle of a series as [`Db::find`] does, and assigns the series to `group` if it
    /// has no group.
    #[must_use]
    pub fn find_for(&self, labels: &Labels, group: SeriesGroup) -> Option<SeriesHandle> {
        let shards = &self.store.shards;
        shards[shard_of(labels, shards.len())].find_for(labels, group)
    }

    /// Returns the bounds for the timestamps of samples, as of now. A caller of [`Db::series_for`]
    /// that checks them creates no series for samples that would be rejected.
    ///
    /// # Errors
    /// [`Error::Io`] if the clock is far ahead of the samples and the mark of this cannot be
    /// written.
    pub fn bounds(&self) -> Result<Bounds> {
        self.store.bounds(false)
    }

    /// Assigns each series in memory to the group that `group_of` returns for its value of `label`.
    /// Series without the label have no group. If `label` is `None`, no series has a group. Locks
    /// one shard at a time while visiting its series.
    pub fn set_group_label(
        &self,
        label: Option<&str>,
        mut group_of: impl FnMut(&str) -> SeriesGroup,
    ) {
        for shard in &self.store.shards {
            shard.head_mut().set_group_label(label, &mut group_of);
        }
    }

    /// Appends samples and exemplars. On return all of them, except those in
    /// [`WriteBatch::rejected`] and [`WriteBatch::rejected_exemplars`], are visible to reads and
    /// written to the operating system, and synced under
    /// [`WalSync::Always`](crate::options::WalSync::Always). A sample that the store already has,
    /// bit for bit, is accepted and not stored again.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Poisoned`]: some of the samples may have been stored.
    /// [`Error::Limit`] (memory) or
    /// [`Error::ReplayFailed`]: none is stored. The same batch may be appended again.
    pub fn append(&self, batch: &mut WriteBatch) -> Result<()> {
        self.append_with(batch, || {})
    }

    /// Appends as [`Db::append`] does. Calls `before_sync` before it waits for a sync of the log,
    /// if one is due.
    ///
    /// # Errors
    /// The errors of [`Db::append`].
    pub fn append_with(&self, batch: &mut WriteBatch, before_sync: impl FnOnce()) -> Result<()> {
        let mut rejected = std::mem::take(&mut batch.rejected);
        rejected.clear();
        batch.rejected_exemplars.clear();
        let appended = self.append_all(batch, &mut rejected);
        batch.rejected = rejected;
        let mut appended = appended?;
        appended
            .iter()
            .try_for_each(|(log, position)| log.wal().write_to(*position))?;
        appended.retain(|(log, _)| log.wal().is_synced_by_commits());
        if !appended.is_empty() {
            before_sync();
        }
        appended
            .into_iter()
            .try_for_each(|(log, position)| log.wal().commit(position))
    }

    fn append_all(
        &self,
        batch: &mut WriteBatch,
        rejected: &mut Vec<Rejected>,
    ) -> Result<Vec<(&ShardLog, Position)>> {
        // Checks all shards before changing one: a request is stored entirely or not at all.
        let shards = &self.store.shards;
        let of_exemplars = batch
            .exemplars
            .iter()
            .map(|exemplar| usize::from(exemplar.series.shard));
        let affected = (0..shards.len())
            .filter(|&idx| batch.of_shard(idx).is_some())
            .chain(of_exemplars);
        affected
            .map(|idx| &shards[idx])
            .try_for_each(Shard::check_ready)?;
        let append_guard = self.store.isolation.begin_append();
        // Read inside the append: an append after a freeze is checked against the newest timestamp
        // at the freeze or a newer one, which bounds the age of the oldest sample in the log.
        let bounds = self.store.bounds(batch.is_own)?;
        let buffered = self
            .store
            .replay
            .reserve_buffer(batch.len() + batch.n_starts(), batch.histograms_size())?;
        // Before the first change, so that a read that sees the append finds it in the change log.
        self.store.changes.note_append(
            append_guard.full_id(),
            &batch.touched,
            bounds.future_max_ms,
        );
        let horizon = self.store.isolation.horizon();
        let context = AppendContext {
            bounds,
            append_id: append_guard.id(),
            horizon,
        };
        let n_floats_max = if batch.is_own {
            OWN_FLOATS_PER_LOCK
        } else {
            usize::MAX
        };
        let mut positions = Vec::with_capacity(self.store.logs.len());
        for (idx, log) in self.store.logs.iter().enumerate() {
            let mut end = None;
            for part in 0.. {
                let part_of =
                    |(idx, shard)| Some((shard, batch.of_shard(idx)?.part(part, n_floats_max)?));
                let mut affected = self.store.shards_of(idx).filter_map(part_of).peekable();
                if affected.peek().is_none() {
                    break;
                }
                let mut appending = log.append();
                for (shard, shard_batch) in affected {
                    let log_batch = appending.batch();
                    let appended = match buffered {
                        None => shard.append(&context, shard_batch, log_batch, rejected),
                        Some(_) => shard.buffer_samples(&bounds, shard_batch, log_batch, rejected),
                    };
                    self.count_appended(appended, batch.is_own);
                }
                end = Some(appending.finish());
                // Fast path: samples of senders have one part.
                if !batch.is_own {
                    break;
                }
                // Not `scheduler::pause`: a flush waits for this append, and new appends wait for
                // the flush.
                thread::yield_now();
            }
            positions.extend(end.map(|end| (&**log, end)));
        }
        if let Some(charge) = buffered {
            self.store.replay.retain_buffer(charge, rejected.len());
        }
        positions.extend(self.store.append_exemplars(batch, bounds.future_max_ms));
        Ok(positions)
    }

    fn count_appended(&self, appended: ShardAppend, is_own: bool) {
        self.store.newest.raise(appended.newest_ms, is_own);
        self.n_appended
            .fetch_add(appended.n_new as u64, Ordering::Relaxed);
        self.n_histograms
            .fetch_add(appended.n_histograms as u64, Ordering::Relaxed);
    }

    /// Returns the timestamp for samples of this process ([`WriteBatch::own`]). If the wall clock
    /// has jumped ahead, it is the time that was expected instead, for at most an hour: the samples
    /// remain when the clock is set right.
    #[must_use]
    pub fn own_now_ms(&self) -> i64 {
        self.store.newest.own_now_ms()
    }

    /// Stores metadata of metric families. Replaces their earlier metadata. Above
    /// [`METADATA_FAMILIES_MAX`](crate::labels::METADATA_FAMILIES_MAX) and
    /// [`Options::metadata_size_max_bytes`](crate::Options::metadata_size_max_bytes), the families
    /// that were added first are evicted.
    ///
    /// # Errors
    /// [`Error::Limit`] above [`METADATA_SIZE_MAX`], [`Error::Io`] and [`Error::Poisoned`] as for
    /// [`Db::append`]. Families that precede the rejected one are stored.
    pub fn set_metadata<'a>(
        &self,
        families: impl IntoIterator<Item = (&'a str, Metadata)>,
    ) -> Result<()> {
        self.store.replay.check()?;
        let wal = self.store.logs[0].wal();
        for (family, metadata) in families {
            let size =
                family.len() + metadata.kind.len() + metadata.help.len() + metadata.unit.len();
            Error::check_limit(
                "bytes of a metric family's metadata",
                size,
                METADATA_SIZE_MAX,
            )?;
            // The lock is held until the record is buffered, so that the log has the same order.
            let mut table = self.store.metadata.lock();
            if !table.contains(family, &metadata) {
                wal.ready()?;
                wal.append_metadata(family, &metadata);
                table.set(family, metadata);
            }
        }
        wal.commit(wal.end())
    }

    /// Checks that the logs accept appends. Accesses the disk only if an earlier write failed.
    ///
    /// # Errors
    /// [`Error::Poisoned`] until a restart, [`Error::Io`] while the disk is full.
    pub fn ready(&self) -> Result<()> {
        self.store.logs.iter().try_for_each(|log| log.wal().ready())
    }

    /// Returns the reasons why writes are rejected, for the store and per log. Empty if writes are
    /// accepted.
    #[must_use]
    pub fn write_refusals(&self) -> Vec<String> {
        let log_rejection = |(idx, log): (usize, &Arc<ShardLog>)| match log.wal().health() {
            Health::Ok => None,
            Health::Blocked(reason) => {
                Some(format!("the store cannot write its log {idx}: {reason}"))
            }
            Health::Poisoned(reason) => Some(format!(
                "log {idx} accepts no writes until a restart: {reason}"
            )),
        };
        let replay_rejection = self.store.replay.write_rejection();
        replay_rejection
            .into_iter()
            .chain(self.store.logs.iter().enumerate().filter_map(log_rejection))
            .collect()
    }

    /// Writes buffered log records to the operating system. Call this after creating many series.
    /// Otherwise the next append, from any sender, compresses and writes all their definitions.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`].
    pub fn write_out(&self) -> Result<()> {
        self.store
            .logs
            .iter()
            .try_for_each(|log| log.wal().write_out())
    }

    /// Syncs all appended data to the disk.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        for log in &self.store.logs {
            log.wal().commit(log.wal().end())?;
            log.wal().sync()?;
        }
        Ok(())
    }
}
