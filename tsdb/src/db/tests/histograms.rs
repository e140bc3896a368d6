//! Histograms through a store: order rules, reads, and reset hints.

use varve_model::histogram::{BucketSpan, HISTOGRAM_BUCKETS_MAX, HistogramCounts};

use super::*;

const MINUTE_MS: i64 = 60_000;

/// Returns a histogram of `n` observations with the hint that there was no reset before it.
fn following(n: u64) -> Histogram {
    Histogram {
        reset_hint: ResetHint::NoReset,
        schema: 3,
        zero_threshold: 2.0_f64.powi(-128),
        sum: n as f64 / 3.0,
        counts: HistogramCounts::Integer {
            count: n,
            zero_count: 0,
            positive: vec![n / 2, n - n / 2],
            negative: vec![],
        },
        positive_spans: vec![BucketSpan {
            offset: -1,
            length: 2,
        }],
        ..Histogram::default()
    }
}

fn push(db: &Db, samples: &[(i64, Histogram)]) -> Vec<(u32, RejectionReason)> {
    let mut batch = WriteBatch::default();
    let series = db.series(&series_labels(0)).unwrap();
    for ((t, histogram), index) in samples.iter().zip(0..) {
        batch.push_histogram(series, *t, Arc::new(histogram.clone()), index);
    }
    assert_eq!(batch.len(), samples.len());
    db.append(&mut batch).unwrap();
    batch
        .rejected()
        .iter()
        .map(|rejected| (rejected.index, rejected.reason))
        .collect()
}

fn read(db: &Db, range: TimeRange) -> SampleColumns {
    let mut columns = SampleColumns::default();
    for series in db.select(&ReadContext::unbounded(), &[], range).unwrap() {
        series.unwrap().read(&mut columns).unwrap();
    }
    columns
}

/// Returns the minutes of samples with their reset hints (`None`: a float).
fn hints(db: &Db) -> Vec<(i64, Option<ResetHint>)> {
    let columns = read(db, TimeRange::ALL);
    let hint = |idx: usize| columns.histogram(idx).map(|histogram| histogram.reset_hint);
    columns
        .timestamps_ms
        .iter()
        .enumerate()
        .map(|(idx, t)| ((t - NOW_MS) / MINUTE_MS, hint(idx)))
        .collect()
}

#[test]
fn a_range_that_ends_before_it_starts_has_no_samples() {
    let (_dir, db) = fresh(options());
    let at = |minutes: i64, n| (NOW_MS + minutes * MINUTE_MS, following(n));
    assert_eq!(push(&db, &[at(-2, 1), at(0, 2), at(-1, 3)]), []);
    assert_eq!(
        append(
            &db,
            &[
                (1, NOW_MS, 1.0),
                (1, NOW_MS - MINUTE_MS, 2.0),
                (1, NOW_MS + 1, 3.0)
            ]
        ),
        []
    );
    for _ in 0..2 {
        for (start, end) in [
            (NOW_MS, NOW_MS - 1),
            (NOW_MS, NOW_MS - MINUTE_MS),
            (i64::MAX, i64::MIN),
            (i64::MAX, 0),
        ] {
            assert!(
                read(
                    &db,
                    TimeRange {
                        start_ms: start,
                        end_ms: end
                    }
                )
                .is_empty(),
                "{start} {end}"
            );
        }
        db.flush().unwrap();
    }
}

#[test]
fn a_float_and_a_histogram_at_one_timestamp_are_duplicates() {
    use RejectionReason::{Duplicate, HistogramTooLarge, TooOld};
    let (dir, mut db) = fresh(options());
    assert_eq!(append(&db, &[(0, NOW_MS, 1.0)]), []);
    let at = |minutes: i64, n| (NOW_MS + minutes * MINUTE_MS, following(n));
    let too_large = Histogram {
        custom_bounds: vec![0.0; HISTOGRAM_BUCKETS_MAX + 1],
        ..Histogram::default()
    };
    let samples = [
        at(1, 5),
        at(0, 5),
        at(1, 5),
        at(1, 6),
        at(-10, 4),
        at(-10, 3),
        at(-40, 1),
        (NOW_MS + 9, too_large),
    ];
    let rejected = [
        (1, Duplicate),
        (3, Duplicate),
        (5, Duplicate),
        (6, TooOld),
        (7, HistogramTooLarge),
    ];
    let mut pushed = push(&db, &samples);
    pushed.sort_unstable();
    assert_eq!(pushed, rejected);
    assert_eq!(
        append(&db, &[(0, NOW_MS + MINUTE_MS, 5.0 / 3.0)]),
        [(0, Duplicate)]
    );
    let stored = everything(&db);
    let expected = [
        (NOW_MS - 10 * MINUTE_MS, fingerprint(&following(4))),
        (NOW_MS, 1.0_f64.to_bits()),
        (NOW_MS + MINUTE_MS, fingerprint(&following(5))),
    ];
    assert_eq!(stored[&series_labels(0).to_string()], expected);
    for _ in 0..2 {
        drop(db);
        db = open(dir.path());
        assert_eq!(
            (everything(&db), db.stats().replayed.n_samples),
            (stored.clone(), 3)
        );
    }
    // Frozen samples win.
    db.flush().unwrap();
    assert_eq!(everything(&db), stored);
    assert_eq!(append(&db, &[(0, NOW_MS + MINUTE_MS, 7.0)]), []);
    assert_eq!(push(&db, &[at(0, 9)]), []);
    assert_eq!(everything(&db), stored);
    db.compact_fully().unwrap();
    assert_eq!(everything(&db), stored);
}

#[test]
fn reset_hints_are_valid_while_a_histogram_follows_its_original_predecessor() {
    use ResetHint::{Gauge, NoReset, Unknown};
    let (_dir, db) = fresh(options());
    let at = |minutes: i64, reset_hint| {
        (
            NOW_MS + minutes * MINUTE_MS,
            Histogram {
                reset_hint,
                ..following(minutes.unsigned_abs())
            },
        )
    };
    push(
        &db,
        &[
            at(0, NoReset),
            at(1, NoReset),
            at(2, NoReset),
            at(6, NoReset),
            at(7, Gauge),
        ],
    );
    push(&db, &[at(5, NoReset)]);
    let known = |minutes: i64| (minutes, Some(NoReset));
    let unknown = |minutes: i64| (minutes, Some(Unknown));
    let gauge = |minutes: i64| (minutes, Some(Gauge));
    assert_eq!(
        hints(&db),
        [
            known(0),
            known(1),
            known(2),
            unknown(5),
            unknown(6),
            gauge(7)
        ]
    );
    db.flush().unwrap();
    assert_eq!(
        hints(&db),
        [
            known(0),
            known(1),
            known(2),
            unknown(5),
            unknown(6),
            gauge(7)
        ]
    );
    push(&db, &[at(8, NoReset), at(9, NoReset)]);
    append(&db, &[(0, NOW_MS + MINUTE_MS + 1, 1.0)]);
    let expected = [
        known(0),
        known(1),
        (1, None),
        unknown(2),
        unknown(5),
        unknown(6),
        gauge(7),
        unknown(8),
        known(9),
    ];
    assert_eq!(hints(&db), expected);
    db.compact_fully().unwrap();
    assert_eq!(hints(&db), expected);
    let (start_ms, end_ms) = (NOW_MS + 8 * MINUTE_MS, NOW_MS + 8 * MINUTE_MS);
    db.delete(vec![], TimeRange { start_ms, end_ms }).unwrap();
    assert_eq!(hints(&db)[7..], [unknown(9)]);
}

/// The later of two histograms used to keep its hint, which refers to the deleted one between them.
#[test]
fn a_reset_hint_that_refers_to_a_deleted_histogram_is_not_valid() {
    let (dir, db) = fresh(options());
    let at = |minutes: i64| {
        (
            NOW_MS + minutes * MINUTE_MS,
            following(minutes.unsigned_abs()),
        )
    };
    push(&db, &[at(5)]);
    db.delete(vec![], TimeRange::ALL).unwrap();
    assert_eq!(push(&db, &[at(3), at(8), at(9)]), []);
    let expected = [3, 8].map(|minutes| (minutes, Some(ResetHint::Unknown)));
    assert_eq!(hints(&db)[..2], expected);
    assert_eq!(hints(&db)[2..], [(9, Some(ResetHint::NoReset))]);
    drop(db);
    let db = open(dir.path());
    assert_eq!(hints(&db)[1], expected[1], "after a replay");
    db.flush().unwrap();
    assert_eq!(hints(&db)[1], expected[1]);
}

#[test]
fn histograms_are_charged_to_the_head_and_released() {
    let (_dir, db) = fresh(options());
    push(&db, &[(NOW_MS, following(0))]);
    let before = db.stats().head_size_bytes;
    let counts = HistogramCounts::Integer {
        count: 1 << 20,
        zero_count: 0,
        positive: (0..1000).map(|i| (i % 3) << 20).collect(),
        negative: vec![],
    };
    let large = Histogram {
        counts,
        ..Histogram::default()
    };
    push(&db, &[(NOW_MS + 1, large)]);
    let grown = db.stats().head_size_bytes - before;
    assert!(
        (2_000..8_000).contains(&grown),
        "{grown} bytes for 1000 buckets of 3 bytes"
    );
    db.flush().unwrap();
    assert!(db.stats().head_size_bytes <= before);
}
