//! Native histograms of two kinds, as a remote-write sender sends them.

use crate::harness::{BucketSpan, Histogram, TimeSeries, WriteRequest, series};

/// Returns the body of a request with histograms at these times: exponential ones, a gauge, and one
/// with its own bounds.
pub(super) fn histograms(times_ms: &[i64]) -> Vec<u8> {
    let of = |name: &str, of: fn(i64) -> Histogram| {
        let histograms = times_ms
            .iter()
            .zip(1..)
            .map(|(&timestamp_ms, n)| Histogram {
                timestamp_ms,
                ..of(n)
            });
        TimeSeries {
            histograms: histograms.collect(),
            ..series(&[("__name__", name), ("job", "h")], &[])
        }
    };
    WriteRequest::new([
        of("native", exponential),
        of("native_custom", custom),
        of("native_gauge", |n| Histogram {
            reset_hint: 3,
            ..exponential(n)
        }),
    ])
    .to_body()
}

fn exponential(n: i64) -> Histogram {
    Histogram {
        count_int: Some(4 * n as u64),
        sum: 2.5 * n as f64,
        schema: 1,
        zero_threshold: 0.001,
        zero_count_int: Some(n as u64),
        positive_spans: vec![
            BucketSpan {
                offset: -1,
                length: 1,
            },
            BucketSpan {
                offset: 2,
                length: 1,
            },
        ],
        positive_deltas: vec![n, n],
        ..Histogram::default()
    }
}

fn custom(n: i64) -> Histogram {
    Histogram {
        count_int: Some(3 * n as u64),
        sum: 1.5 * n as f64,
        schema: -53,
        positive_spans: vec![
            BucketSpan {
                offset: 0,
                length: 1,
            },
            BucketSpan {
                offset: 1,
                length: 1,
            },
        ],
        positive_deltas: vec![n, n],
        custom_values: vec![0.5, 1.0, 2.5],
        ..Histogram::default()
    }
}
