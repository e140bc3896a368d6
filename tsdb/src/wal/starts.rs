//! The starts record: start timestamps of samples of the record of samples or histograms behind it.
//!
//! ```text
//! repeated, at most 65,536 times:
//!   varint   ref of the series
//!   zigzag   timestamp of the sample
//!   byte     0: samples to come have this start as well, until they say something else; 1: only this late one has;
//!            2: the one or the other, by whether it is newer than what replay has of its series
//!   zigzag   timestamp less start, wrapping
//! ```
//! A start of 0 is unknown. Samples that no record names have the start of the in-order sample before them, or none. But
//! if the record is empty or has a 2, the samples came while the log was being replayed (`replaying`): those that it does
//! not name are as if it named them with a start of 0 and a 2. Of two entries for one sample the first counts.

use std::ops::Range;

use super::samples::RECORD_SAMPLES_MAX;
use crate::chunk::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64};
use crate::head::{Head, Order, Replayed, SeriesRef};

/// The record's number.
pub(super) const STARTS: u8 = 7;

/// The start of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) start_ms: i64,
    /// `None` of a sample that was held while the log was replayed: its order is the one that replay finds.
    pub(crate) order: Option<Order>,
}

/// What is to be told of the starts of some samples.
#[derive(Debug, Default)]
pub(crate) struct ToldStarts {
    /// By the places of samples, ascending.
    starts: Vec<(usize, Start)>,
    is_held: bool,
}

impl Start {
    /// Returns the start of a held sample.
    pub(crate) fn held(start_ms: i64) -> Self {
        Self { start_ms, order: None }
    }

    /// Sets the start of a sample as it was set when the sample came, or would have been had the log been replayed. A
    /// late one that was left out has none; those behind an in-order one need what it said.
    pub(crate) fn replay(self, head: &mut Head, slot: u32, timestamp_ms: i64, replayed: Replayed) {
        let order = match (self.order, replayed) {
            (None, Replayed::New(found)) => found,
            (Some(order), Replayed::New(_)) | (Some(order @ Order::Newest), _) => order,
            (None | Some(Order::OutOfOrder), Replayed::Repeated | Replayed::Conflicting) => return,
        };
        head.set_start(slot, timestamp_ms, self.start_ms, order);
    }
}

impl ToldStarts {
    /// Adds the start of the sample at a place behind those before.
    pub(crate) fn push(&mut self, place: usize, start: Start) {
        self.starts.push((place, start));
    }

    /// Returns what stands in the record for the samples at some places; `None` if there is none.
    pub(super) fn record(&self, places: Range<usize>) -> Option<&[(usize, Start)]> {
        let at = |place: usize| self.starts.partition_point(|(of, _)| *of < place);
        let starts = &self.starts[at(places.start)..at(places.end)];
        (self.is_held || !starts.is_empty()).then_some(starts)
    }

    /// Takes all starts of others, whose samples have moved: from each place to the one that `moved` has there.
    pub(crate) fn take_moved(&mut self, others: &mut Self, moved: &[u32]) {
        self.is_held = others.is_held;
        self.starts.clear();
        self.starts.extend(others.starts.drain(..).map(|(place, start)| (moved[place] as usize, start)));
        self.starts.sort_by_key(|(place, _)| *place);
    }

    /// Iterates over the places of samples and their starts.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Start)> + '_ {
        self.starts.iter().copied()
    }

    /// Empties the list, for samples that are not held, and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.starts.clear();
        self.is_held = false;
    }

    /// Says that the samples are held: those of which nothing is told have no start.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }
}

/// Appends starts of at most [`RECORD_SAMPLES_MAX`] samples, whose series and times `sample` returns: 31 bytes each fit
/// into a frame.
pub(super) fn encode_starts(dst: &mut Vec<u8>, starts: &[(usize, Start)], sample: impl Fn(usize) -> (SeriesRef, i64)) {
    for &(at, Start { start_ms, order }) in starts {
        let (series, timestamp_ms) = sample(at);
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

/// Decodes starts one by one, with the series and the time of the sample, and returns whether the samples were held;
/// `None` if the record is damaged.
pub(super) fn decode_starts(mut src: &[u8], mut each: impl FnMut(SeriesRef, i64, Start)) -> Option<bool> {
    let (mut n, mut is_held) = (0, src.is_empty());
    while !src.is_empty() {
        n += 1;
        if n > RECORD_SAMPLES_MAX {
            return None;
        }
        let (series, timestamp_ms) = (SeriesRef(take_u64(&mut src)?), take_i64(&mut src)?);
        let order = match take_bytes(&mut src, 1)? {
            [0] => Some(Order::Newest),
            [1] => Some(Order::OutOfOrder),
            [2] => None,
            _ => return None,
        };
        is_held |= order.is_none();
        let start_ms = timestamp_ms.wrapping_sub(take_i64(&mut src)?);
        each(series, timestamp_ms, Start { start_ms, order });
    }
    Some(is_held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn starts_come_back(
            all in proptest::collection::vec((any::<u64>(), any::<i64>(), any::<i64>(), 0..3_usize), 0..20),
            is_held in any::<bool>(), a in 0..20_usize, b in 0..20_usize,
        ) {
            let orders = [Some(Order::Newest), Some(Order::OutOfOrder), None];
            let mut told = ToldStarts { starts: Vec::new(), is_held };
            for (place, &(.., start_ms, order)) in all.iter().enumerate() {
                told.push(place, Start { start_ms, order: orders[order] });
            }
            let places = a.min(b).min(all.len())..a.max(b).min(all.len());
            let Some(record) = told.record(places.clone()) else {
                prop_assert!(places.is_empty() && !is_held);
                return Ok(());
            };
            let (mut bytes, mut seen) = (Vec::new(), Vec::new());
            encode_starts(&mut bytes, record, |place| (SeriesRef(all[place].0), all[place].1));
            let of_held = decode_starts(&bytes, |series, time_ms, start| {
                let order = orders.iter().position(|order| *order == start.order).unwrap();
                seen.push((series.0, time_ms, start.start_ms, order));
            });
            prop_assert_eq!(&seen, &all[places.clone()]);
            prop_assert_eq!(of_held, Some(places.is_empty() || seen.iter().any(|(.., order)| *order == 2)));
        }

        #[test]
        fn damaged_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_starts(&bytes, |_, _, _| {});
        }
    }
}
