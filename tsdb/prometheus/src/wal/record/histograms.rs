//! Decodes native histograms: record types 7 to 10, 12 and 13.

use std::sync::Arc;

use varve_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, HISTOGRAM_BUCKETS_MAX, Histogram, HistogramCounts, ResetHint,
};

use super::items::{RecordError, RefHistogram, decode};
use super::record_type::RecordType;
use super::refs::RefDecoder;
use crate::cursor::Cursor;

/// Decodes a record of histograms. Skips histograms with an unknown schema and returns their
/// number.
pub(crate) fn decode_histograms(
    record: &[u8],
    dst: &mut Vec<RefHistogram>,
) -> Result<u64, RecordError> {
    let is_float = matches!(
        RecordType::of(record),
        Some(
            RecordType::FloatHistograms
                | RecordType::CustomFloatHistograms
                | RecordType::FloatHistogramsV2
        )
    );
    let mut series = RefDecoder::of(record);
    let mut n_unknown = 0;
    decode(record, |src| {
        let (series, timestamp_ms, start_ms) = series.take(src)?;
        match take_histogram(src, is_float)? {
            Decoded::Histogram(histogram) => {
                dst.push(RefHistogram {
                    series,
                    timestamp_ms,
                    start_ms,
                    histogram: Arc::new(histogram),
                });
            }
            Decoded::UnknownSchema => n_unknown += 1,
        }
        Some(())
    })?;
    Ok(n_unknown)
}

/// A histogram of a record.
enum Decoded {
    Histogram(Histogram),
    /// It was read and cannot be used.
    UnknownSchema,
}

/// Reads a histogram. Returns `None` if it is invalid.
fn take_histogram(src: &mut Cursor<'_>, is_float: bool) -> Option<Decoded> {
    let reset_hint = ResetHint::from_code(src.u8()?).unwrap_or_default();
    let schema = src.varint()?;
    let zero_threshold = src.f64()?;
    let (zero_count, count) = if is_float {
        (src.be_u64()?, src.be_u64()?)
    } else {
        (src.uvarint()?, src.uvarint()?)
    };
    let sum = src.f64()?;
    let positive_spans = take_spans(src)?;
    let negative_spans = take_spans(src)?;
    let counts = if is_float {
        HistogramCounts::Float {
            count: f64::from_bits(count),
            zero_count: f64::from_bits(zero_count),
            positive: take_doubles(src)?,
            negative: take_doubles(src)?,
        }
    } else {
        HistogramCounts::Integer {
            count,
            zero_count,
            positive: take_counts(src)?,
            negative: take_counts(src)?,
        }
    };
    let custom_bounds = if schema == i64::from(CUSTOM_BUCKETS_SCHEMA) {
        take_doubles(src)?
    } else {
        Vec::new()
    };
    if schema != i64::from(CUSTOM_BUCKETS_SCHEMA) && !(-4..=8).contains(&schema) {
        return Some(Decoded::UnknownSchema);
    }
    Some(Decoded::Histogram(Histogram {
        reset_hint,
        schema: i8::try_from(schema).ok()?,
        zero_threshold,
        sum,
        counts,
        positive_spans,
        negative_spans,
        custom_bounds,
    }))
}

fn take_len(src: &mut Cursor<'_>) -> Option<usize> {
    src.n_items().filter(|&n| n <= HISTOGRAM_BUCKETS_MAX)
}

fn take_spans(src: &mut Cursor<'_>) -> Option<Vec<BucketSpan>> {
    let mut spans = Vec::new();
    for _ in 0..take_len(src)? {
        let offset = i32::try_from(src.varint()?).ok()?;
        let length = u32::try_from(src.uvarint()?).ok()?;
        spans.push(BucketSpan { offset, length });
    }
    Some(spans)
}

/// Reads counts, which are stored as deltas.
fn take_counts(src: &mut Cursor<'_>) -> Option<Vec<u64>> {
    let mut counts = Vec::new();
    let mut count = 0_u64;
    for _ in 0..take_len(src)? {
        count = count.wrapping_add_signed(src.varint()?);
        counts.push(count);
    }
    Some(counts)
}

fn take_doubles(src: &mut Cursor<'_>) -> Option<Vec<f64>> {
    let mut doubles = Vec::new();
    for _ in 0..take_len(src)? {
        doubles.push(src.f64()?);
    }
    Some(doubles)
}
