//! Cutting a log: freezing the heads of its shards, and the checkpoint that replaces what is before the cut.
//!
//! Used by `flush`.

use std::collections::BTreeMap;

use super::Shard;
use super::log::ShardLog;
use crate::error::Result;
use crate::head::SlotRef;
use crate::labels::{Labels, Metadata};
use crate::sample::SeriesRef;
use crate::sample::exemplar::NumberedExemplars;

/// Series that are described under one lock.
const BATCH_SERIES: usize = 512;

impl ShardLog {
    /// Cuts the log and freezes the heads of its shards at the same point. No request is in flight. If a head is already
    /// frozen, nothing changes, and the earlier cut stays.
    ///
    /// # Errors
    /// As [`Wal::rotate`](crate::wal::Wal::rotate); nothing has changed then.
    pub(crate) fn freeze<'a>(&self, shards: impl Iterator<Item = &'a Shard> + Clone) -> Result<()> {
        if shards.clone().any(|shard| shard.head().frozen().is_some()) {
            return Ok(());
        }
        *self.cut.lock() = Some(self.wal().rotate()?);
        for shard in shards {
            shard.head_mut().freeze();
        }
        Ok(())
    }

    /// Replaces the segments before the last cut by a checkpoint, unless that has been done. Samples frozen at the cut must
    /// be in blocks; `shards` are those of the log, `exemplars` those of their series in the ring.
    ///
    /// # Errors
    /// As [`Wal::checkpoint`](crate::wal::Wal::checkpoint); the log is unchanged then, and the next call retries.
    pub(crate) fn checkpoint<'a>(
        &self,
        shards: impl Iterator<Item = &'a Shard>,
        next_ref: u64,
        families: Option<&BTreeMap<String, Metadata>>,
        exemplars: &[NumberedExemplars],
    ) -> Result<()> {
        let Some(cut) = *self.cut.lock() else { return Ok(()) };
        let series = shards.flat_map(|shard| {
            let slots = by_ref(shard);
            (0..slots.len()).step_by(BATCH_SERIES).flat_map(move |from| {
                let end = slots.len().min(from + BATCH_SERIES);
                describe(shard, &slots[from..end])
            })
        });
        let families = families.into_iter().flatten().map(|(family, metadata)| (family.as_str(), metadata));
        self.wal().checkpoint(cut, series.map(Ok), next_ref, families, exemplars)?;
        *self.cut.lock() = None;
        Ok(())
    }
}

/// Returns the series of a shard by ref: in the order of their creation, in which senders mostly write them. After a restart
/// their slots are in this order, so that the samples of a request go to neighbouring slots.
fn by_ref(shard: &Shard) -> Vec<(SeriesRef, SlotRef)> {
    let mut all = Vec::new();
    for step in 0.. {
        let head = shard.head();
        let Some(slots) = head.slots_of_step(step) else { break };
        all.extend(slots.filter_map(|slot| Some((head.number(slot)?, head.slot_ref(slot)))));
    }
    all.sort_unstable_by_key(|&(series, _)| series);
    all
}

fn describe(shard: &Shard, slots: &[(SeriesRef, SlotRef)]) -> Vec<(SeriesRef, Labels, i64)> {
    let head = shard.head();
    let current = slots.iter().filter(|&&(_, of)| head.is_current(of));
    current.filter_map(|&(_, of)| head.checkpoint_entry(of.slot)).collect()
}
