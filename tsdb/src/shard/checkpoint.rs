//! Rotating a log: freezing the heads of its shards, and writing the checkpoint that replaces the
//! segments before the rotation.
//!
//! Used by `flush`.

use std::sync::Arc;

use varve_model::metadata::Metadata;

use super::log::SharedLog;
use super::shard::Shard;
use crate::batch::{NumberedExemplars, SeriesRef};
use crate::error::Result;
use crate::head::SlotRef;
use crate::wal::checkpoint::CheckpointWriter;

/// Number of series read per acquisition of the head lock.
const BATCH_SERIES: usize = 512;

impl SharedLog {
    /// Rotates the log and freezes the heads of its shards at the same point. The caller ensures
    /// that no append is running. Does nothing if a head is already frozen: the earlier position
    /// stays valid.
    ///
    /// # Errors
    /// The errors of [`Log::rotate`](crate::wal::Log::rotate). Nothing has changed then.
    pub(crate) fn freeze<'a>(&self, shards: impl Iterator<Item = &'a Shard> + Clone) -> Result<()> {
        if shards.clone().any(|shard| shard.head().frozen().is_some()) {
            return Ok(());
        }
        *self.checkpoint_position.lock() = Some(self.log().rotate()?);
        for shard in shards {
            shard.head_mut().freeze();
        }
        Ok(())
    }

    /// Replaces the segments before the last rotation by a checkpoint, unless it was done already.
    /// Samples frozen at the rotation must be in blocks. `shards` are the shards of the log.
    /// `exemplars` are the exemplars of their series in the ring. `families` are in order of
    /// addition: a replay evicts the first ones above a limit. The caller holds the lock of
    /// flushes, so no series is evicted meanwhile ([`Shard::evict`]).
    ///
    /// # Errors
    /// The errors of [`Log::checkpoint`](crate::wal::Log::checkpoint). The log is unchanged then,
    /// and the next call retries.
    pub(crate) fn checkpoint<'a>(
        &self,
        mut shards: impl Iterator<Item = &'a Shard>,
        next_ref: u64,
        families: &[(Arc<str>, Arc<Metadata>)],
        exemplars: &[NumberedExemplars],
    ) -> Result<()> {
        let Some(position) = *self.checkpoint_position.lock() else {
            return Ok(());
        };
        let families = families
            .iter()
            .map(|(family, metadata)| (&**family, &**metadata));
        let add_series = |writer: &mut CheckpointWriter<'_, '_>| {
            shards.try_for_each(|shard| {
                add_series(shard, writer)?;
                writer.end_head()
            })
        };
        self.log()
            .checkpoint(position, add_series, next_ref, families, exemplars)?;
        *self.checkpoint_position.lock() = None;
        Ok(())
    }
}

/// Returns the series of a shard, sorted by ref. That is the order of creation, in which senders
/// mostly write them. A restart assigns slots in this order, so the samples of a request go to
/// neighboring slots.
fn by_ref(shard: &Shard) -> Vec<(SeriesRef, SlotRef)> {
    let mut all = Vec::new();
    for step in 0.. {
        let head = shard.head();
        let Some(slots) = head.slots_of_step(step) else {
            break;
        };
        all.extend(slots.filter_map(|slot| Some((head.series_ref(slot)?, head.slot_ref(slot)))));
    }
    all.sort_unstable_by_key(|&(series, _)| series);
    all
}

/// Adds the series of a shard to a checkpoint. Releases the lock of the head every [`BATCH_SERIES`]
/// series, and before frames are written or tables grow.
fn add_series(shard: &Shard, writer: &mut CheckpointWriter<'_, '_>) -> Result<()> {
    let slots = by_ref(shard);
    let mut slots = slots.iter().peekable();
    while slots.peek().is_some() {
        writer.make_room()?;
        let head = shard.head();
        for &(_, slot_ref) in slots.by_ref().take(BATCH_SERIES) {
            if head.is_current(slot_ref)
                && let Some((series, last_ms)) = head.checkpoint_entry(slot_ref.slot)
            {
                let labels = head.pairs(slot_ref.slot);
                writer.add(series, last_ms, labels, |(name, value)| {
                    (head.symbol(name), head.symbol(value))
                })?;
            }
            if !writer.has_room() {
                break;
            }
        }
    }
    Ok(())
}
