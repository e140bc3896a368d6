//! The histograms record: the histograms of one request that belong to one log.
//!
//! ```text
//! repeated up to the end:
//! ref     zigzag: difference to the previous one, to 0 for the first, wrapping at 64 bits
//! time    zigzag: likewise
//! byte    0: the layout of the previous histogram; 1: a layout follows (see `histogram::Layout`)
//! counts  see `histogram::encode_counts`
//! ```
//! A layout never refers to another record: each record decodes independently.

use std::sync::Arc;

use varve_codec::varint::{put_i64, take_bytes, take_i64};
use varve_model::histogram::Histogram;

use crate::batch::SeriesRef;
use crate::chunk::histogram::{Layout, decode_counts, encode_counts};

/// Record number of histograms.
pub(crate) const HISTOGRAMS: u8 = 4;

/// Bytes at which a record is closed. A histogram takes less than 2 MiB.
const RECORD_SIZE: usize = 1 << 20;

const SAME_LAYOUT: u8 = 0;
const NEW_LAYOUT: u8 = 1;

/// A histogram and its series.
#[derive(Debug, Clone)]
pub(crate) struct LoggedHistogram {
    /// The series.
    pub(crate) series: SeriesRef,
    /// The timestamp.
    pub(crate) timestamp_ms: i64,
    /// The histogram.
    pub(crate) histogram: Arc<Histogram>,
}

/// Appends as many histograms as fit in a record, at least one. Returns the remaining histograms.
pub(in crate::wal) fn encode_histograms<'a>(
    dst: &mut Vec<u8>,
    histograms: &'a [LoggedHistogram],
) -> &'a [LoggedHistogram] {
    let start = dst.len();
    let mut series = 0_u64;
    let mut time_ms = 0_i64;
    let mut layout = None::<Layout>;
    for (i, logged) in histograms.iter().enumerate() {
        if dst.len() - start >= RECORD_SIZE {
            return &histograms[i..];
        }
        put_i64(dst, logged.series.0.wrapping_sub(series).cast_signed());
        put_i64(dst, logged.timestamp_ms.wrapping_sub(time_ms));
        (series, time_ms) = (logged.series.0, logged.timestamp_ms);
        if layout
            .as_ref()
            .is_some_and(|layout| layout.is_of(&logged.histogram))
        {
            dst.push(SAME_LAYOUT);
        } else {
            dst.push(NEW_LAYOUT);
            layout.insert(Layout::of(&logged.histogram)).encode(dst);
        }
        encode_counts(&logged.histogram, dst);
    }
    &[]
}

/// Decodes histograms one by one. Returns `None` if the record is damaged.
pub(crate) fn decode_histograms(
    mut src: &[u8],
    mut each: impl FnMut(LoggedHistogram),
) -> Option<()> {
    let mut series = 0_u64;
    let mut timestamp_ms = 0_i64;
    let mut layout = None::<Layout>;
    while !src.is_empty() {
        series = series.wrapping_add(take_i64(&mut src)?.cast_unsigned());
        timestamp_ms = timestamp_ms.wrapping_add(take_i64(&mut src)?);
        match take_bytes(&mut src, 1)?[0] {
            SAME_LAYOUT => {}
            NEW_LAYOUT => layout = Some(Layout::decode(&mut src)?),
            _ => return None,
        }
        let histogram = Arc::new(decode_counts(layout.as_ref()?, &mut src)?);
        each(LoggedHistogram {
            series: SeriesRef(series),
            timestamp_ms,
            histogram,
        });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::histogram::tests::{any_histogram, is_identical};
    use proptest::prelude::*;
    use varve_model::histogram::{HISTOGRAM_BUCKETS_MAX, HistogramCounts};

    fn check(histograms: &[LoggedHistogram]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        let mut rest = histograms;
        let mut decoded = Vec::new();
        while !rest.is_empty() {
            let mut record = Vec::new();
            rest = encode_histograms(&mut record, rest);
            decode_histograms(&record, |histogram| decoded.push(histogram)).unwrap();
            records.push(record);
        }
        assert_eq!(decoded.len(), histograms.len());
        for (found, expected) in decoded.iter().zip(histograms) {
            assert_eq!(
                (found.series, found.timestamp_ms),
                (expected.series, expected.timestamp_ms)
            );
            assert!(is_identical(&found.histogram, &expected.histogram));
        }
        records
    }

    proptest! {
        #[test]
        fn histograms_round_trip_and_cut_records_are_rejected(
            histograms in proptest::collection::vec((any::<u64>(), any::<i64>(), any_histogram()), 1..20),
            cut in any::<usize>(),
        ) {
            let histograms: Vec<_> = histograms.into_iter().map(|(series, timestamp_ms, histogram)| {
                LoggedHistogram { series: SeriesRef(series), timestamp_ms, histogram: Arc::new(histogram) }
            }).collect();
            let record = check(&histograms).remove(0);
            let mut n = 0;
            let cut = cut % record.len();
            // A record that ends after a histogram is a valid shorter record.
            if decode_histograms(&record[..cut], |_| n += 1).is_some() {
                prop_assert!(n < histograms.len());
            }
        }
    }

    #[test]
    fn large_histograms_are_split_into_records_of_bounded_size() {
        let counts = HistogramCounts::Integer {
            count: u64::MAX,
            zero_count: u64::MAX,
            positive: (0..HISTOGRAM_BUCKETS_MAX as u64)
                .map(|i| (i % 2) << 63)
                .collect(),
            negative: Vec::new(),
        };
        let histogram = Arc::new(Histogram {
            counts,
            ..Histogram::default()
        });
        let logged = |i| LoggedHistogram {
            series: SeriesRef(i),
            timestamp_ms: 7,
            histogram: Arc::clone(&histogram),
        };
        let records = check(&(0..5).map(logged).collect::<Vec<_>>());
        assert_eq!(records.len(), 3);
        assert!(records.iter().all(|record| record.len() < 3 << 20));
    }
}
