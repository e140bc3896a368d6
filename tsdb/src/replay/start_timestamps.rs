//! Start timestamps of the samples of one record. The previous record of the log contains them.

use hashbrown::HashMap;
use varve_model::start_timestamps::Order;

use super::locations::SeriesLocation;
use crate::head::{Head, Replayed};
use crate::wal::StartTimestamp;

/// The start timestamps of one record.
#[derive(Default)]
pub(super) struct RecordStartTimestamps {
    by_sample: HashMap<(SeriesLocation, i64), StartTimestamp>,
    is_buffered: bool,
}

impl RecordStartTimestamps {
    /// Adds the start timestamp of a sample. If it is added twice, the first one wins.
    pub(super) fn add(
        &mut self,
        location: SeriesLocation,
        timestamp_ms: i64,
        start: StartTimestamp,
    ) {
        self.by_sample
            .entry((location, timestamp_ms))
            .or_insert(start);
    }

    /// Returns `true` if no sample has a start timestamp.
    pub(super) fn is_empty(&self) -> bool {
        self.by_sample.is_empty() && !self.is_buffered
    }

    /// Sets whether the samples were buffered during a replay.
    pub(super) fn set_buffered(&mut self, is_buffered: bool) {
        self.is_buffered = is_buffered;
    }

    /// Clears the record. Its memory is reused.
    pub(super) fn clear(&mut self) {
        self.by_sample.clear();
        self.is_buffered = false;
    }

    /// Sets the start timestamp of a sample that was just replayed.
    #[inline]
    pub(super) fn apply(
        &self,
        head: &mut Head,
        location: SeriesLocation,
        timestamp_ms: i64,
        replayed: Replayed,
    ) {
        // Fast path: the record has no start timestamps.
        if self.is_empty() {
            return;
        }
        let logged = self.by_sample.get(&(location, timestamp_ms)).copied();
        if let Some(start) =
            logged.or_else(|| self.is_buffered.then_some(StartTimestamp::buffered(0)))
        {
            apply_start_timestamp(start, head, location.slot, timestamp_ms, replayed);
        }
    }
}

/// Sets the start timestamp of a sample as the append did, or would have done after the replay. A
/// dropped out-of-order sample gets none. The start timestamp of a dropped in-order sample applies
/// to the samples after it.
pub(crate) fn apply_start_timestamp(
    start: StartTimestamp,
    head: &mut Head,
    slot: u32,
    timestamp_ms: i64,
    replayed: Replayed,
) {
    let order = match (start.order, replayed) {
        (None, Replayed::New(found)) => found,
        (Some(order), Replayed::New(_)) | (Some(order @ Order::Newest), _) => order,
        (None | Some(Order::OutOfOrder), Replayed::Repeated | Replayed::Conflicting) => return,
    };
    head.set_start(slot, timestamp_ms, start.start_ms, order);
}
