//! Freezing the heads, and the frozen samples of all shards.

use std::collections::BTreeMap;
use std::sync::Arc;

use varve_model::staleness::is_stale_nan;
use varve_model::{SampleColumns, TimeRange};

use crate::compact::window_of;
use crate::error::{Damaged, Error, Result};
use crate::head::{Frozen, HeadCopies, SeriesOrder, SlotRef, StaleSeries};
use crate::shard::Shard;
use crate::store::flushing::Flushing;
use crate::store::store::Store;

impl Store {
    /// Freezes all shards at one instant: every request is frozen in all its shards or in none.
    pub(super) fn freeze(&self) -> Result<()> {
        // Writes buffered records before the pause, so that appends do not wait for these writes.
        for shared_log in &self.logs {
            shared_log.log().write_out()?;
        }

        let _pause = self.isolation.pause();
        self.newest.freeze();
        for (idx, log) in self.logs.iter().enumerate() {
            log.freeze(self.shards_of(idx).map(|(_, shard)| shard))?;
        }
        Ok(())
    }

    /// Returns the frozen samples of all shards that have any.
    pub(super) fn frozen(&self, flushing: &mut Flushing) -> Result<Vec<FrozenShard<'_>>> {
        let frozen: Vec<_> = self
            .shards
            .iter()
            .map(|shard| shard.head().frozen())
            .collect();
        if frozen.iter().all(Option::is_none) {
            return Ok(Vec::new());
        }

        let orders = self.rank_series(flushing)?;
        let mut shards = Vec::with_capacity(self.shards.len());
        for (number, (frozen, order)) in frozen.into_iter().zip(orders).enumerate() {
            if let Some(frozen) = frozen {
                let shard = &self.shards[number];
                shards.push(FrozenShard::new(number, shard, frozen, &order)?);
            }
        }
        Ok(shards)
    }
}

/// The frozen samples of a shard.
pub(super) struct FrozenShard<'a> {
    pub(super) number: usize,
    pub(super) shard: &'a Shard,
    pub(super) frozen: Arc<Frozen>,
    /// The series with samples in a window, in label order, by the start of the window.
    by_window: BTreeMap<i64, Vec<SlotRef>>,
}

impl<'a> FrozenShard<'a> {
    fn new(
        number: usize,
        shard: &'a Shard,
        frozen: Arc<Frozen>,
        order: &SeriesOrder,
    ) -> Result<Self> {
        let slots = order
            .sorted()
            .iter()
            .copied()
            .filter(|slot_ref| frozen.has(slot_ref.slot));
        let by_window = by_window(&frozen, slots)?;
        Ok(Self {
            number,
            shard,
            frozen,
            by_window,
        })
    }

    /// Returns the starts of the windows with samples.
    pub(super) fn windows(&self) -> impl Iterator<Item = i64> {
        self.by_window.keys().copied()
    }

    /// Returns the series with samples in the window that starts at `start_ms`, in label order.
    pub(super) fn in_window(&self, start_ms: i64) -> &[SlotRef] {
        self.by_window.get(&start_ms).map_or(&[], Vec::as_slice)
    }

    /// Returns the series if its last frozen sample is a staleness marker.
    pub(super) fn stale(&self, slot: u32, samples: &SampleColumns) -> Option<StaleSeries> {
        let (&at_ms, &value) = samples.timestamps_ms.last().zip(samples.values.last())?;
        // The series has frozen samples, so the slot was not reused.
        is_stale_nan(value).then(|| StaleSeries {
            slot_ref: self.shard.head().slot_ref(slot),
            at_ms,
        })
    }
}

/// Returns the series with samples in each window, in the order of `slots`, by the start of the
/// window.
fn by_window(
    frozen: &Frozen,
    slots: impl Iterator<Item = SlotRef>,
) -> Result<BTreeMap<i64, Vec<SlotRef>>> {
    let range = frozen.range();
    // Fast path: all samples lie in one window.
    if window_of(range.start_ms).contains(range.end_ms) {
        return Ok(BTreeMap::from([(
            window_of(range.start_ms).start_ms,
            slots.collect(),
        )]));
    }
    let mut samples = SampleColumns::default();
    let mut scratch = HeadCopies::default();
    let mut windows = BTreeMap::new();
    for slot_ref in slots {
        samples.clear();
        frozen
            .read(slot_ref.slot, TimeRange::ALL, &mut scratch, &mut samples)
            .map_err(overwritten)?;
        let timestamps_ms = &samples.timestamps_ms;
        for timestamps_ms in timestamps_ms.chunk_by(|&a, &b| window_of(a).contains(b)) {
            windows
                .entry(window_of(timestamps_ms[0]).start_ms)
                .or_insert_with(Vec::new)
                .push(slot_ref);
        }
    }
    Ok(windows)
}

/// Returns the error for a chunk in memory that does not decode.
pub(super) fn overwritten(_damaged: Damaged) -> Error {
    Error::Corrupt {
        path: "head".into(),
        offset: 0,
        reason: "a chunk in memory does not decode".to_owned(),
    }
}
