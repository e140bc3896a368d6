//! Writes: handles of series, samples, metadata, and the state of the WAL.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use varve_model::labels::LABELS_SIZE_MAX;
use varve_model::metadata::{METADATA_SIZE_MAX, Metadata};
use varve_model::{Labels, Rejection};

use super::Db;
use crate::batch::{SampleSource, SeriesHandle, ShardBatch, WriteBatch};
use crate::error::{Error, Result};
use crate::head::{Bounds, BudgetGroup, SlotRef};
use crate::shard::{AppendContext, ShardAppend, SharedLog, shard_of};
use crate::wal::{Health, Position};

/// Maximum number of floats of this process that are appended to a shard per acquisition of the
/// locks. A rule can write tens of thousands of samples at once. Without a limit, senders would
/// wait for all of them.
const OWN_FLOATS_PER_LOCK: usize = 256;

/// An append of a batch that is in progress, the same for all logs and shards.
struct Append {
    context: AppendContext,
    /// `true` if this process wrote the samples.
    source: SampleSource,
    /// `true` if the samples are buffered until the end of the replay.
    is_buffered: bool,
}

impl Db {
    /// Returns the handle of a series. Creates the series if it is new. The next append to a new
    /// series makes it durable.
    ///
    /// # Errors
    /// [`Error::Limit`] if the label set or the head is too large. [`Error::Poisoned`] or
    /// [`Error::Io`] if the series is new and its shard's log accepts no appends.
    /// [`Error::ReplayFailed`] if the replay failed.
    pub fn series(&self, labels: &Labels) -> Result<SeriesHandle> {
        self.series_in_group(labels, BudgetGroup::NONE)
    }

    /// Returns the handle of a series as [`Db::series`] does, and assigns the series to `group` if
    /// it has no group.
    ///
    /// # Errors
    /// The errors of [`Db::series`].
    pub fn series_in_group(&self, labels: &Labels, group: BudgetGroup) -> Result<SeriesHandle> {
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
        self.find_in_group(labels, BudgetGroup::NONE)
    }

    /// Returns the handle of a series as [`Db::find`] does, and assigns the series to `group` if it
    /// has no group.
    #[must_use]
    pub fn find_in_group(&self, labels: &Labels, group: BudgetGroup) -> Option<SeriesHandle> {
        let shards = &self.store.shards;
        shards[shard_of(labels, shards.len())].find_in_group(labels, group)
    }

    /// Returns the bounds for the timestamps of samples, as of now. A caller of
    /// [`Db::series_in_group`] that checks them creates no series for samples that would be
    /// rejected.
    ///
    /// # Errors
    /// [`Error::Io`] if the clock is far ahead of the samples and the mark of this cannot be
    /// written.
    pub fn bounds(&self) -> Result<Bounds> {
        self.store.bounds(SampleSource::Sent)
    }

    /// Assigns each series in memory to the group that `group_of` returns for its value of `label`.
    /// Series without the label have no group. If `label` is `None`, no series has a group. Locks
    /// one shard at a time while visiting its series.
    pub fn set_group_label(
        &self,
        label: Option<&str>,
        mut group_of: impl FnMut(&str) -> BudgetGroup,
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
        self.append_with(batch, || {}).map(|_bounds| ())
    }

    /// Appends as [`Db::append`] does. Calls `before_sync` before it waits for a sync of the log,
    /// if one is due. Returns the bounds for the timestamps of the samples.
    ///
    /// # Errors
    /// The errors of [`Db::append`].
    pub fn append_with(
        &self,
        batch: &mut WriteBatch,
        before_sync: impl FnOnce(),
    ) -> Result<Bounds> {
        // The list leaves the batch, because its samples are borrowed during the append.
        let mut rejected = std::mem::take(&mut batch.rejected);
        rejected.clear();
        batch.rejected_exemplars.clear();
        let appended = self.append_unsynced(batch, &mut rejected);
        batch.rejected = rejected;
        let (positions, bounds) = appended?;
        self.commit(positions, before_sync)?;
        Ok(bounds)
    }

    /// Appends a batch to the heads, or to the buffers of a replay, and to the buffers of the logs.
    /// Returns the log positions that the caller must commit, and the bounds of the append.
    fn append_unsynced(
        &self,
        batch: &mut WriteBatch,
        rejected: &mut Vec<Rejection>,
    ) -> Result<(Vec<(&SharedLog, Position)>, Bounds)> {
        // All shards are checked before one changes, so that a shard that is not ready rejects the
        // whole request.
        self.check_shards_ready(batch)?;

        let append_guard = self.store.isolation.begin_append();
        // Read inside the append: an append after a freeze is checked against the newest timestamp
        // at the freeze or a newer one, which bounds the age of the oldest sample in the log.
        let bounds = self.store.bounds(batch.source)?;
        // `None` unless the logs are being replayed.
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

        let append = Append {
            context: AppendContext {
                bounds,
                append_id: append_guard.id(),
                horizon: self.store.isolation.horizon(),
            },
            source: batch.source,
            is_buffered: buffered.is_some(),
        };
        let mut positions = if batch.source == SampleSource::Own {
            self.append_own(&append, batch, rejected)
        } else {
            self.append_sent(&append, batch, rejected)
        };
        if let Some(charge) = buffered {
            self.store.replay.retain_buffer(charge, rejected.len());
        }
        positions.extend(self.store.append_exemplars(batch, bounds.future_max_ms));
        Ok((positions, bounds))
    }

    /// Writes the logs up to the positions to the operating system, and syncs them if this is due.
    ///
    /// All logs are written before any is synced, because a write takes microseconds and a sync
    /// milliseconds. If the process is killed, or a sync fails, while the first log is synced, the
    /// operating system has the whole request, not only its samples in the first log. And nobody
    /// waits for a sync if a write fails.
    fn commit(
        &self,
        mut appended: Vec<(&SharedLog, Position)>,
        before_sync: impl FnOnce(),
    ) -> Result<()> {
        for (shared_log, position) in &appended {
            shared_log.log().write_to(*position)?;
        }

        appended.retain(|(shared_log, _)| shared_log.log().is_synced_by_commits());
        if appended.is_empty() {
            return Ok(());
        }
        before_sync();
        for (shared_log, position) in appended {
            shared_log.log().commit(position)?;
        }
        Ok(())
    }

    /// Checks that all shards of a batch accept samples.
    fn check_shards_ready(&self, batch: &WriteBatch) -> Result<()> {
        let shards = &self.store.shards;
        for (idx, shard) in shards.iter().enumerate() {
            if batch.shard_batch(idx).is_some() {
                shard.check_ready()?;
            }
        }
        for exemplar in &batch.exemplars {
            shards[usize::from(exemplar.series.shard)].check_ready()?;
        }
        Ok(())
    }

    /// Appends the samples of a sender. Locks each log and each head once.
    fn append_sent(
        &self,
        append: &Append,
        batch: &WriteBatch,
        rejected: &mut Vec<Rejection>,
    ) -> Vec<(&SharedLog, Position)> {
        let mut positions = Vec::with_capacity(self.store.logs.len());
        for (log_idx, log) in self.store.logs.iter().enumerate() {
            let end =
                self.append_to_log(append, log_idx, rejected, |shard| batch.shard_batch(shard));
            positions.extend(end.map(|end| (&**log, end)));
        }
        positions
    }

    /// Appends samples of this process, in parts of at most [`OWN_FLOATS_PER_LOCK`] floats per
    /// shard.
    fn append_own(
        &self,
        append: &Append,
        batch: &WriteBatch,
        rejected: &mut Vec<Rejection>,
    ) -> Vec<(&SharedLog, Position)> {
        let mut positions = Vec::with_capacity(self.store.logs.len());
        for (log_idx, log) in self.store.logs.iter().enumerate() {
            let mut end = None;
            for part in 0.. {
                let part_end = self.append_to_log(append, log_idx, rejected, |shard| {
                    batch.shard_batch(shard)?.part(part, OWN_FLOATS_PER_LOCK)
                });
                if part_end.is_none() {
                    break;
                }
                end = part_end;
                // Lets senders in between. `scheduler::pause` could wait for long, and the next
                // flush waits for this append while all new appends wait for the flush.
                thread::yield_now();
            }
            positions.extend(end.map(|end| (&**log, end)));
        }
        positions
    }

    /// Appends the samples that `batch_of` returns for the shards of a log, as consecutive records.
    /// Returns the position after them, or `None` if no shard has samples.
    fn append_to_log<'b>(
        &self,
        append: &Append,
        log_idx: usize,
        rejected: &mut Vec<Rejection>,
        batch_of: impl Fn(usize) -> Option<ShardBatch<'b>>,
    ) -> Option<Position> {
        let mut log_append = None;
        for (shard_idx, shard) in self.store.shards_of(log_idx) {
            let Some(shard_batch) = batch_of(shard_idx) else {
                continue;
            };
            let log_append =
                log_append.get_or_insert_with(|| self.store.logs[log_idx].begin_append());
            let log_batch = log_append.batch();
            let context = &append.context;
            let appended = if append.is_buffered {
                shard.buffer_samples(&context.bounds, shard_batch, log_batch, rejected)
            } else {
                shard.append(context, shard_batch, log_batch, rejected)
            };
            self.count_appended(appended, append.source);
        }
        Some(log_append?.finish())
    }

    fn count_appended(&self, appended: ShardAppend, source: SampleSource) {
        self.store.newest.raise(appended.newest_ms, source);
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
    /// [`METADATA_FAMILIES_MAX`](varve_model::metadata::METADATA_FAMILIES_MAX) and
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
        let log = self.store.logs[0].log();
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
                log.ready()?;
                log.append_metadata(family, &metadata);
                table.set(family, metadata);
            }
        }
        log.commit(log.end())
    }

    /// Checks that the logs accept appends. Accesses the disk only if an earlier write failed.
    ///
    /// # Errors
    /// [`Error::Poisoned`] until a restart, [`Error::Io`] while the disk is full.
    pub fn ready(&self) -> Result<()> {
        for shared_log in &self.store.logs {
            shared_log.log().ready()?;
        }
        Ok(())
    }

    /// Returns the reasons why writes are rejected, for the store and per log. Empty if writes are
    /// accepted.
    #[must_use]
    pub fn write_refusals(&self) -> Vec<String> {
        let mut reasons = Vec::from_iter(self.store.replay.write_rejection());
        for (idx, shared_log) in self.store.logs.iter().enumerate() {
            match shared_log.log().health() {
                Health::Ok => {}
                Health::Blocked(reason) => {
                    reasons.push(format!("the store cannot write its log {idx}: {reason}"));
                }
                Health::Poisoned(reason) => reasons.push(format!(
                    "log {idx} accepts no writes until a restart: {reason}"
                )),
            }
        }
        // All shards have the same limit.
        let full = self
            .store
            .shards
            .iter()
            .find_map(|shard| shard.check_full().err());
        reasons.extend(full.map(|error| error.to_string()));
        reasons
    }

    /// Returns the reasons of [`Db::write_refusals`], or if there are none why the disk takes no
    /// write now. Waits for the disk.
    #[must_use]
    pub fn write_refusals_now(&self) -> Vec<String> {
        let reasons = self.write_refusals();
        if !reasons.is_empty() {
            return reasons;
        }
        let failure = self
            .disk_probe
            .failure(&*self.store.options.fs, Instant::now());
        Vec::from_iter(failure)
    }

    /// Writes buffered log records to the operating system. Call this after creating many series.
    /// Otherwise the next append, from any sender, compresses and writes all their definitions.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`].
    pub fn write_out(&self) -> Result<()> {
        for shared_log in &self.store.logs {
            shared_log.log().write_out()?;
        }
        Ok(())
    }

    /// Syncs all appended data to the disk.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Poisoned`].
    pub fn sync(&self) -> Result<()> {
        for shared_log in &self.store.logs {
            let log = shared_log.log();
            log.commit(log.end())?;
            log.sync()?;
        }
        Ok(())
    }
}
