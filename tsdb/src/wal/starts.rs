//! The starts record: start timestamps of samples of the samples record behind it.
//!
//! ```text
//! repeated, at most 65,536 times:
//!   varint   ref of the series
//!   zigzag   timestamp of the sample
//!   byte     0: samples to come have this start as well, until they say something else; 1: only this late one has
//!   zigzag   timestamp less start, wrapping
//! ```
//! A start of 0 is unknown. Samples that no record names have the start of the in-order sample before them, or none.

use super::record::SampleColumn;
use super::samples::RECORD_SAMPLES_MAX;
use crate::head::{Order, SeriesRef};
use crate::varint::{put_i64, put_u64, take_bytes, take_i64, take_u64};

/// The record's number.
pub(super) const STARTS: u8 = 7;

/// The start of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) start_ms: i64,
    pub(crate) order: Order,
}

/// Appends starts of samples of a column, at most those of one samples record: 31 bytes each fit into a frame.
pub(super) fn encode_starts(dst: &mut Vec<u8>, starts: &[(usize, Start)], column: &SampleColumn) {
    for &(at, Start { start_ms, order }) in starts {
        let timestamp_ms = column.samples[at].timestamp_ms;
        put_u64(dst, column.refs[at].0);
        put_i64(dst, timestamp_ms);
        dst.push(u8::from(order == Order::Late));
        put_i64(dst, timestamp_ms.wrapping_sub(start_ms));
    }
}

/// Decodes starts one by one, with the series and the time of the sample; `None` if the record is damaged.
pub(super) fn decode_starts(mut src: &[u8], mut each: impl FnMut(SeriesRef, i64, Start)) -> Option<()> {
    let mut n = 0;
    while !src.is_empty() {
        n += 1;
        if n > RECORD_SAMPLES_MAX {
            return None;
        }
        let (series, timestamp_ms) = (SeriesRef(take_u64(&mut src)?), take_i64(&mut src)?);
        let order = match take_bytes(&mut src, 1)? {
            [0] => Order::Newest,
            [1] => Order::Late,
            _ => return None,
        };
        let start_ms = timestamp_ms.wrapping_sub(take_i64(&mut src)?);
        each(series, timestamp_ms, Start { start_ms, order });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn starts_come_back(all in proptest::collection::vec((any::<u64>(), any::<i64>(), any::<i64>(), any::<bool>()), 0..20)) {
            let (mut bytes, mut seen, mut column) = (Vec::new(), Vec::new(), SampleColumn::default());
            for &(series, timestamp_ms, start_ms, late) in &all {
                let order = if late { Order::Late } else { Order::Newest };
                column.starts.push((column.len(), Start { start_ms, order }));
                column.push(SeriesRef(series), Sample { timestamp_ms, value: 0.0 });
            }
            encode_starts(&mut bytes, &column.starts, &column);
            decode_starts(&bytes, |series, time_ms, start| {
                seen.push((series.0, time_ms, start.start_ms, start.order == Order::Late));
            }).unwrap();
            prop_assert_eq!(seen, all);
        }

        #[test]
        fn damaged_records_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_starts(&bytes, |_, _, _| {});
        }
    }
}
