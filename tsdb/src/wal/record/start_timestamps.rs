//! The start timestamps record: start timestamps of the samples or histograms of the next record.
//!
//! ```text
//! repeated, at most 65,536 times:
//!   varint   ref of the series
//!   zigzag   timestamp of the sample
//!   byte     scope: 0 this sample and later ones of its series, up to the next entry; 1 only this out-of-order sample;
//!            2 undecided: 0 if the sample is newer than all of its series that the replay has, otherwise 1
//!   zigzag   timestamp less start timestamp, wrapping
//! ```
//! A start timestamp of 0 is unknown. Samples without an entry have the start timestamp of the
//! previous in-order sample, or none. But if the record is empty or has a scope of 2, the samples
//! were buffered during a replay (`replay::gate`): samples without an entry count as entries with
//! the start timestamp 0 and the scope 2. If a sample has two entries, the first counts.

use std::ops::Range;

use varve_codec::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64};
use varve_model::start_timestamps::Order;

use crate::batch::SeriesRef;

/// Record number of start timestamps.
pub(crate) const START_TIMESTAMPS: u8 = 7;

/// Maximum number of samples or histograms of a record, and of entries of this record.
pub(in crate::wal) const RECORD_SAMPLES_MAX: usize = 1 << 16;

/// The start timestamp of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartTimestamp {
    pub(crate) start_ms: i64,
    /// Order of the sample; `None` if it was buffered during a replay: then the replay decides.
    pub(crate) order: Option<Order>,
}

/// The start timestamps of a column of samples.
#[derive(Debug, Default)]
pub(crate) struct StartTimestamps {
    /// Entries by ascending index of the sample.
    entries: Vec<(usize, StartTimestamp)>,
    is_buffered: bool,
}

impl StartTimestamp {
    /// Returns the start timestamp of a buffered sample.
    pub(crate) fn buffered(start_ms: i64) -> Self {
        Self {
            start_ms,
            order: None,
        }
    }
}

impl StartTimestamps {
    /// Appends the start timestamp of the sample at `index`, which must be greater than the
    /// previous ones.
    pub(crate) fn push(&mut self, index: usize, start: StartTimestamp) {
        self.entries.push((index, start));
    }

    /// Returns the entries of the record for the samples at `indexes`, or `None` if no record is
    /// needed.
    pub(in crate::wal) fn record(
        &self,
        indexes: Range<usize>,
    ) -> Option<&[(usize, StartTimestamp)]> {
        let first_from = |index: usize| self.entries.partition_point(|(entry, _)| *entry < index);
        let entries = &self.entries[first_from(indexes.start)..first_from(indexes.end)];
        (self.is_buffered || !entries.is_empty()).then_some(entries)
    }

    /// Moves all entries of `others` here. The sample at index `i` is now at `moved[i]`.
    pub(crate) fn take_permuted(&mut self, others: &mut Self, moved: &[u32]) {
        self.is_buffered = others.is_buffered;
        self.entries.clear();
        self.entries.extend(
            others
                .entries
                .drain(..)
                .map(|(index, start)| (moved[index] as usize, start)),
        );
        self.entries.sort_by_key(|(index, _)| *index);
    }

    /// Iterates over the indexes of samples and their start timestamps.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, StartTimestamp)> + '_ {
        self.entries.iter().copied()
    }

    /// Removes all entries and unmarks the samples as buffered. The memory is reused.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.is_buffered = false;
    }

    /// Marks the samples as buffered: samples without an entry have no start timestamp.
    pub(crate) fn mark_buffered(&mut self) {
        self.is_buffered = true;
    }
}

/// Appends the start timestamps of at most [`RECORD_SAMPLES_MAX`] samples. `sample` returns the
/// series and timestamp of a sample. An entry takes at most 31 bytes, so all entries fit in a
/// frame.
pub(in crate::wal) fn encode_start_timestamps(
    dst: &mut Vec<u8>,
    entries: &[(usize, StartTimestamp)],
    sample: impl Fn(usize) -> (SeriesRef, i64),
) {
    for &(idx, StartTimestamp { start_ms, order }) in entries {
        let (series, timestamp_ms) = sample(idx);
        put_u64(dst, series.0);
        put_i64(dst, timestamp_ms);
        dst.push(match order {
            Some(Order::Newest) => 0,
            Some(Order::OutOfOrder) => 1,
            None => 2,
        });
        put_i64(dst, timestamp_ms.wrapping_sub(start_ms));
    }
}

/// Decodes start timestamps one by one, with the series and the timestamp of the sample. Returns
/// `Some(true)` if the samples were buffered, and `None` if the record is damaged.
pub(crate) fn decode_start_timestamps(
    mut src: &[u8],
    mut each: impl FnMut(SeriesRef, i64, StartTimestamp),
) -> Option<bool> {
    let mut n = 0;
    let mut is_buffered = src.is_empty();
    while !src.is_empty() {
        n += 1;
        if n > RECORD_SAMPLES_MAX {
            return None;
        }
        let series = SeriesRef(take_u64(&mut src)?);
        let timestamp_ms = take_i64(&mut src)?;
        let order = match take_bytes(&mut src, 1)? {
            [0] => Some(Order::Newest),
            [1] => Some(Order::OutOfOrder),
            [2] => None,
            _ => return None,
        };
        is_buffered |= order.is_none();
        let start_ms = timestamp_ms.wrapping_sub(take_i64(&mut src)?);
        each(series, timestamp_ms, StartTimestamp { start_ms, order });
    }
    Some(is_buffered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn start_timestamps_round_trip(
            all in proptest::collection::vec((any::<u64>(), any::<i64>(), any::<i64>(), 0..3_usize), 0..20),
            is_buffered in any::<bool>(), a in 0..20_usize, b in 0..20_usize,
        ) {
            let orders = [Some(Order::Newest), Some(Order::OutOfOrder), None];
            let mut column = StartTimestamps { entries: Vec::new(), is_buffered };
            for (index, &(.., start_ms, order)) in all.iter().enumerate() {
                column.push(index, StartTimestamp { start_ms, order: orders[order] });
            }
            let indexes = a.min(b).min(all.len())..a.max(b).min(all.len());
            let Some(record) = column.record(indexes.clone()) else {
                prop_assert!(indexes.is_empty() && !is_buffered);
                return Ok(());
            };
            let mut bytes = Vec::new();
            let mut seen = Vec::new();
            encode_start_timestamps(&mut bytes, record, |index| (SeriesRef(all[index].0), all[index].1));
            let was_buffered = decode_start_timestamps(&bytes, |series, time_ms, start| {
                let order = orders.iter().position(|order| *order == start.order).unwrap();
                seen.push((series.0, time_ms, start.start_ms, order));
            });
            prop_assert_eq!(&seen, &all[indexes.clone()]);
            prop_assert_eq!(was_buffered, Some(indexes.is_empty() || seen.iter().any(|(.., order)| *order == 2)));
        }
    }
}
