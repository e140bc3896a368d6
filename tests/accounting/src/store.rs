//! A small store with data that are hard to query: long and many labels, wide histograms, invalid
//! bounds.

use std::sync::Arc;

use tempfile::TempDir;
use varve_model::histogram::{BucketSpan, Histogram, HistogramCounts, ResetHint};
use varve_model::{Exemplar, Labels, Sample};
use varve_tsdb::{Db, Options, WriteBatch};

/// Time of the last sample in milliseconds. The first is at 0, the interval is [`INTERVAL_MS`].
pub(crate) const END_MS: i64 = 600_000;
const INTERVAL_MS: i64 = 10_000;

/// Creates the store:
///
/// | name | series |
/// | --- | --- |
/// | `m` | 2,000 counters with the labels `i`, `j`, `job` |
/// | `b_bucket` | 20 classic histograms of 12 buckets |
/// | `h` | 40 native histograms; in some the zero threshold is NaN or the schemas differ |
/// | `long` | 4 series with a label value of 60,000 bytes |
/// | `wide` | 20 series with 60 labels |
pub(crate) fn hostile() -> (TempDir, Db) {
    let directory = tempfile::tempdir().unwrap();
    // A small page cache: what it retains is not memory of a request.
    let options = Options {
        background: false,
        page_cache_size_bytes: 1 << 20,
        ..Options::default()
    };
    let db = Db::open(directory.path(), options).unwrap();
    append(&db, 0, END_MS / 2);
    db.flush().unwrap();
    append(&db, END_MS / 2 + INTERVAL_MS, END_MS);
    (directory, db)
}

fn append(db: &Db, start_ms: i64, end_ms: i64) {
    let mut batch = WriteBatch::default();
    for (n, series) in float_series().iter().enumerate() {
        let series = db.series(series).unwrap();
        for timestamp_ms in (start_ms..=end_ms).step_by(INTERVAL_MS as usize) {
            let value = timestamp_ms as f64 / 1000.0 * (n % 7) as f64;
            batch.push(
                series,
                Sample {
                    timestamp_ms,
                    value,
                },
                0,
            );
        }
        let trace = labels(&[("trace_id", &n.to_string())]);
        batch.push_exemplar(
            series,
            Exemplar {
                labels: trace,
                value: 1.0,
                timestamp_ms: end_ms,
            },
            0,
        );
    }
    for n in 0..40 {
        let series = db
            .series(&labels(&[("__name__", "h"), ("i", &n.to_string())]))
            .unwrap();
        for timestamp_ms in (start_ms..=end_ms).step_by(INTERVAL_MS as usize) {
            batch.push_histogram(
                series,
                timestamp_ms,
                Arc::new(histogram(n, timestamp_ms)),
                0,
            );
        }
    }
    db.append(&mut batch).unwrap();
    assert!(
        batch.rejected().is_empty(),
        "{:?}",
        batch.rejected()[0].reason
    );
}

fn float_series() -> Vec<Labels> {
    let mut series = Vec::new();
    for i in 0..2000 {
        let (i, j, job) = (
            i.to_string(),
            (i % 40).to_string(),
            format!("job-{}", i % 5),
        );
        series.push(labels(&[
            ("__name__", "m"),
            ("i", &i),
            ("j", &j),
            ("job", &job),
        ]));
    }
    for i in 0..20 {
        for le in [
            "0.01", "0.1", "0.5", "1", "2", "4", "8", "16", "32", "64", "NaN", "+Inf",
        ] {
            series.push(labels(&[
                ("__name__", "b_bucket"),
                ("i", &i.to_string()),
                ("le", le),
            ]));
        }
    }
    for i in 0..4 {
        let text = char::from(b'a' + i).to_string().repeat(60_000);
        series.push(labels(&[("__name__", "long"), ("v", &text)]));
    }
    for i in 0..20 {
        let names: Vec<_> = (0..60).map(|n| format!("label_{n}")).collect();
        let value = format!("value-{i}-{}", "x".repeat(100));
        let pairs = names.iter().map(|name| (name.as_str(), value.as_str()));
        series.push(labels(
            &[("__name__", "wide")]
                .into_iter()
                .chain(pairs)
                .collect::<Vec<_>>(),
        ));
    }
    series
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_pairs(pairs.iter().copied()).unwrap()
}

/// Returns a histogram of 160 buckets. The schema, the bounds and the zero threshold depend on `n`.
fn histogram(n: usize, timestamp_ms: i64) -> Histogram {
    let counts = vec![timestamp_ms as f64 / 1000.0; 160];
    Histogram {
        reset_hint: ResetHint::Unknown,
        schema: (n % 12) as i8 - 4,
        zero_threshold: [1e-128, 0.0, f64::NAN, f64::INFINITY, 1e300][n % 5],
        sum: 17.0,
        counts: HistogramCounts::Float {
            count: 1e4,
            zero_count: 3.0,
            positive: counts,
            negative: Vec::new(),
        },
        positive_spans: vec![
            BucketSpan {
                offset: n as i32 * 100_000,
                length: 80,
            },
            BucketSpan {
                offset: 1_000_000,
                length: 80,
            },
        ],
        negative_spans: Vec::new(),
        custom_bounds: Vec::new(),
    }
}
