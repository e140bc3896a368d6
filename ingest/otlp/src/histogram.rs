//! Translates OTLP histograms to native ones. Explicit bounds become custom buckets.

use varve_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts};
use varve_model::staleness::STALE_NAN_BITS;

use super::message::{Buckets, ExponentialPoint, HistogramPoint};
use super::staleness::{is_stale, stale_or};

/// Checks the width of the zero bucket.
///
/// # Errors
/// If it is negative or not finite.
pub(crate) fn check_zero_threshold(point: &ExponentialPoint) -> Result<(), String> {
    let threshold = point.zero_threshold;
    if threshold >= 0.0 && threshold.is_finite() {
        Ok(())
    } else {
        Err(format!(
            "the zero threshold {threshold} is negative or not finite"
        ))
    }
}

/// Translates an exponential histogram.
///
/// # Errors
/// The reason why it cannot be stored.
pub(crate) fn exponential(point: &ExponentialPoint) -> Result<Histogram, String> {
    if point.scale < SCHEMA_MIN {
        let scale = point.scale;
        return Err(format!(
            "cannot convert exponential to native histogram. Scale must be >= {SCHEMA_MIN}, was {scale}"
        ));
    }
    // At least 0.
    let scale_down = point.scale.max(SCHEMA_MAX) - SCHEMA_MAX;
    let (positive_spans, positive) = side_layout(&point.positive, scale_down);
    let (negative_spans, negative) = side_layout(&point.negative, scale_down);
    let histogram = Histogram {
        zero_threshold: if point.zero_threshold == 0.0 {
            ZERO_THRESHOLD
        } else {
            point.zero_threshold
        },
        sum: stale_or(point.flags, point.sum.unwrap_or_default()),
        counts: HistogramCounts::Integer {
            count: if is_stale(point.flags) {
                STALE_NAN_BITS
            } else {
                point.count
            },
            zero_count: point.zero_count,
            positive,
            negative,
        },
        positive_spans,
        negative_spans,
        schema: point.scale.min(SCHEMA_MAX) as i8,
        ..Histogram::default()
    };
    checked(histogram)
}

/// Translates a histogram with explicit bounds to one with custom buckets.
///
/// # Errors
/// The reason why it cannot be stored.
pub(crate) fn custom(point: &HistogramPoint) -> Result<Histogram, String> {
    let offset = point
        .bucket_counts
        .iter()
        .take_while(|count| **count == 0)
        .count();
    // Never fails: the size of a data point bounds the number of its buckets.
    let first_idx = i32::try_from(offset).map_err(|_| "too many buckets".to_owned())?;
    let (positive_spans, positive) = layout(&point.bucket_counts[offset..], first_idx, 0, false);
    let histogram = Histogram {
        sum: stale_or(point.flags, point.sum.unwrap_or_default()),
        counts: HistogramCounts::Integer {
            count: if is_stale(point.flags) {
                STALE_NAN_BITS
            } else {
                point.count
            },
            zero_count: 0,
            positive,
            negative: Vec::new(),
        },
        positive_spans,
        custom_bounds: point.explicit_bounds.clone(),
        schema: CUSTOM_BUCKETS_SCHEMA,
        ..Histogram::default()
    };
    checked(histogram)
}

/// Returns the spans and counts of the buckets of one sign.
fn side_layout(buckets: &Option<Buckets>, scale_down: i32) -> (Vec<BucketSpan>, Vec<u64>) {
    match buckets {
        Some(Buckets { offset, counts }) => layout(counts, *offset, scale_down, true),
        None => (Vec::new(), Vec::new()),
    }
}

/// Returns the index of the merged bucket that has a bucket. Indexes wrap, as in Prometheus; the
/// result is checked afterwards.
fn merged_idx(idx: i32, scale_down: i32) -> i32 {
    (idx >> scale_down.min(i32::BITS as i32 - 1)).wrapping_add(1)
}

fn checked(histogram: Histogram) -> Result<Histogram, String> {
    histogram
        .validate()
        .map_err(|invalid| invalid.to_string())?;
    Ok(histogram)
}

/// Returns spans and counts of dense buckets, with each group of 2^`scale_down` buckets merged.
/// Bucket 0 of an exponential histogram starts at 1, while bucket 0 of a native one ends at 1. So
/// `adjusts` moves the buckets by one.
fn layout(
    counts: &[u64],
    offset: i32,
    scale_down: i32,
    adjusts: bool,
) -> (Vec<BucketSpan>, Vec<u64>) {
    if counts.is_empty() {
        return Default::default();
    }
    let mut idx = merged_idx(offset, scale_down);
    let first = if adjusts { idx } else { offset };
    let spans = vec![BucketSpan {
        offset: first,
        length: 0,
    }];
    let mut buckets = Sparse {
        spans,
        counts: Vec::new(),
        last_idx: idx.wrapping_sub(1),
    };
    let mut count = 0_u64;
    for (i, &bucket_count) in (0..).zip(counts) {
        let next_idx = merged_idx(offset.wrapping_add(i), scale_down);
        if idx == next_idx {
            count = count.wrapping_add(bucket_count);
            continue;
        }
        if count != 0 {
            buckets.push(idx, count);
        }
        (count, idx) = (bucket_count, next_idx);
    }
    // The last bucket is kept even if it is empty.
    buckets.push(idx, count);
    (buckets.spans, buckets.counts)
}

/// The buckets of a native histogram under construction.
struct Sparse {
    spans: Vec<BucketSpan>,
    counts: Vec<u64>,
    last_idx: i32,
}

impl Sparse {
    /// Adds a bucket. A gap of more than two empty buckets starts a new span; a smaller one is
    /// filled with zeros.
    fn push(&mut self, idx: i32, count: u64) {
        let gap = idx.wrapping_sub(self.last_idx).wrapping_sub(1);
        self.last_idx = idx;
        if gap > GAP_FILLED_MAX {
            self.spans.push(BucketSpan {
                offset: gap,
                length: 0,
            });
        } else {
            for _ in 0..gap {
                self.push_bucket(0);
            }
        }
        self.push_bucket(count);
    }

    fn push_bucket(&mut self, count: u64) {
        self.spans
            .last_mut()
            .expect("the first bucket has created a span")
            .length += 1;
        self.counts.push(count);
    }
}

const SCHEMA_MIN: i32 = -4;
const SCHEMA_MAX: i32 = 8;
/// The threshold of a histogram without one. Prometheus uses it for all histograms.
const ZERO_THRESHOLD: f64 = 1e-128;
const GAP_FILLED_MAX: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(counts: &[u64], offset: i32, scale_down: i32, spans: &[(i32, u32)], expect: &[u64]) {
        let (found, counts) = layout(counts, offset, scale_down, true);
        assert_eq!(
            found
                .iter()
                .map(|span| (span.offset, span.length))
                .collect::<Vec<_>>(),
            spans
        );
        assert_eq!(counts, expect);
    }

    #[test]
    fn buckets_are_laid_out_as_in_prometheus() {
        check(&[], 5, 0, &[], &[]);
        check(&[4, 3, 2, 1], 0, 0, &[(1, 4)], &[4, 3, 2, 1]);
        check(&[4, 0, 0, 1], -3, 0, &[(-2, 4)], &[4, 0, 0, 1]);
        check(&[4, 0, 0, 0, 1], 0, 0, &[(1, 1), (3, 1)], &[4, 1]);
        check(&[4, 3, 2, 1], 0, 1, &[(1, 2)], &[7, 3]);
        check(
            &[4, 0, 1, 0, 0, 0, 2],
            0,
            0,
            &[(1, 3), (3, 1)],
            &[4, 0, 1, 2],
        );
        check(&[0, 0, 0, 4, 0], 0, 0, &[(1, 0), (3, 2)], &[4, 0]);
        check(&[1, 1], i32::MAX, 0, &[(i32::MIN, 2)], &[1, 1]);
        check(&[1, 1], 0, 1000, &[(1, 1)], &[2]);
    }

    #[test]
    fn explicit_buckets_start_at_the_first_non_empty_one() {
        let point = HistogramPoint {
            count: 3,
            sum: Some(1.0),
            bucket_counts: vec![0, 1, 2],
            explicit_bounds: vec![1.0, 2.0],
            ..HistogramPoint::default()
        };
        let histogram = custom(&point).unwrap();
        assert_eq!(
            histogram.positive_spans,
            [BucketSpan {
                offset: 1,
                length: 2
            }]
        );
        assert_eq!(
            (histogram.custom_bounds, histogram.schema),
            (vec![1.0, 2.0], CUSTOM_BUCKETS_SCHEMA)
        );
        assert!(custom(&HistogramPoint { count: 4, ..point }).is_err());
    }

    #[test]
    fn buckets_beyond_the_last_index_are_rejected() {
        let at = |offset| {
            let positive = Some(Buckets {
                offset,
                counts: vec![1, 1],
            });
            exponential(&ExponentialPoint {
                count: 2,
                sum: Some(1.0),
                positive,
                ..ExponentialPoint::default()
            })
        };
        assert!(at(i32::MAX - 2).is_ok());
        for offset in [i32::MAX - 1, i32::MAX] {
            assert_eq!(
                at(offset).unwrap_err(),
                "histogram has a span whose bucket index is out of range",
                "{offset}"
            );
        }
    }
}
