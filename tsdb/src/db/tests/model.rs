//! A store against a map: after any sequence of operations every selection agrees with the model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::chunk::histogram::tests::any_histogram;
use crate::label_hint::LabelHint;

/// Timestamps are counted in steps of ten minutes, so that a history spans windows and days.
const STEP_MS: i64 = 600_000;
const STEPS_MAX: i64 = 300;
const WINDOW_STEPS: i64 = 20;
const N_SERIES: usize = 10;

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<(usize, i64, Sent)>),
    Flush,
    Compact,
    CompactFully,
    Delete { series: usize, start: i64, len: i64 },
    Clean,
    Snapshot,
    Reopen { shards: usize, logs: usize },
}

#[derive(Debug, Clone)]
enum Sent {
    Float(u64),
    Histogram(Arc<Histogram>),
}

impl Sent {
    /// Returns the value in columns. Returns the sum of a histogram.
    fn value(&self) -> f64 {
        match self {
            Self::Float(bits) => f64::from_bits(*bits),
            Self::Histogram(histogram) => histogram.sum,
        }
    }

    /// Returns the bits that [`contents`] returns.
    fn bits(&self) -> u64 {
        match self {
            Self::Float(bits) => *bits,
            Self::Histogram(histogram) => fingerprint(histogram),
        }
    }
}

/// Generates a few repeated values, and arbitrary ones.
fn sent() -> impl Strategy<Value = Sent> {
    let few = (0..4_u64).prop_map(|i| {
        if i == 3 {
            varve_model::staleness::STALE_NAN_BITS
        } else {
            (i as f64).to_bits()
        }
    });
    let empty = (0..3_i32).prop_map(|i| Histogram {
        sum: i.into(),
        ..Histogram::default()
    });
    let histogram = prop_oneof![any_histogram(), empty].prop_map(Arc::new);
    prop_oneof![
        any::<u64>().prop_map(Sent::Float),
        few.prop_map(Sent::Float),
        histogram.prop_map(Sent::Histogram)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let sample = (0..N_SERIES, 0..40_i64, sent());
    prop_oneof![
        12 => (0..STEPS_MAX - 40, proptest::collection::vec(sample, 0..40)).prop_map(|(base, samples)| {
            Step::Append(samples.into_iter().map(|(i, t, sent)| (i, time(base + t), sent)).collect())
        }),
        4 => Just(Step::Flush),
        3 => Just(Step::Compact),
        1 => Just(Step::CompactFully),
        2 => (0..N_SERIES, 0..STEPS_MAX, 0..100_i64).prop_map(|(series, start, len)| Step::Delete { series, start, len }),
        1 => Just(Step::Clean),
        1 => Just(Step::Snapshot),
        2 => (0..4_u32, 0..3_u32).prop_map(|(i, j)| Step::Reopen { shards: 1 << i, logs: 1 << j }),
    ]
}

fn time(step: i64) -> i64 {
    NOW_MS + step * STEP_MS
}

/// Returns options under which series are evicted (`leave`), or stay as long as the test takes.
fn options(shards: usize, wal_logs: usize, leave: bool) -> Options {
    let stay_ms = if leave {
        STEP_MS
    } else {
        2 * STEPS_MAX * STEP_MS
    };
    Options {
        shards,
        wal_logs,
        clock: Arc::new(ManualClock::at(time(STEPS_MAX))),
        wal_sync: WalSync::Never,
        wal_segment_size_bytes: 4096,
        wal_replay_concurrency: 2,
        in_order_max_age_ms: 2 * STEPS_MAX * STEP_MS,
        out_of_order_window_ms: WINDOW_STEPS * STEP_MS,
        series_idle_ms: 2 * stay_ms,
        series_stale_ms: stay_ms,
        background: false,
        ..Options::default()
    }
}

#[derive(Debug, Default)]
struct Model {
    series: BTreeMap<usize, ModelSeries>,
    newest_ms: Option<i64>,
}

#[derive(Debug, Default)]
struct ModelSeries {
    /// The samples that reads return.
    samples: BTreeMap<i64, u64>,
    /// The samples that have not been flushed.
    open: BTreeMap<i64, u64>,
    last_ms: Option<i64>,
    /// Whether the newest sample was deleted, so that the series has left the head.
    is_evicted: bool,
    /// The newest timestamp after a restart: that of the last checkpoint, unless the series was
    /// evicted by then, or of a sample since.
    durable_ms: Option<i64>,
}

impl Model {
    /// Appends as the store should, and returns the samples that it should reject.
    fn append(&mut self, samples: &[(usize, i64, Sent)]) -> Vec<(u32, RejectionReason)> {
        let newest_ms = self.newest_ms;
        let mut rejected = Vec::new();
        for tag in order_of_appends(samples) {
            let (i, t, sent) = &samples[tag];
            let series = self.series.entry(*i).or_default();
            series.is_evicted = false;
            match series.append(*t, sent.bits(), newest_ms) {
                Ok(()) => self.newest_ms = self.newest_ms.max(Some(*t)),
                Err(reason) => rejected.push((tag as u32, reason)),
            }
        }
        rejected.sort_unstable();
        rejected
    }

    fn flush(&mut self) {
        for series in self.series.values_mut() {
            series.open.clear();
            series.durable_ms = series.last_ms.filter(|_| !series.is_evicted);
        }
    }

    fn delete(&mut self, series: usize, range: TimeRange) {
        self.flush();
        let series = self.series.entry(series).or_default();
        series.samples.retain(|t, _| !range.contains(*t));
        series.is_evicted |= series
            .last_ms
            .is_some_and(|last_ms| range.contains(last_ms));
    }

    /// Restarts the store, which loads the series of the last checkpoint. `db` has evicted deleted
    /// ones again, unless a merge has applied their tombstone.
    fn reopen(&mut self, db: &Db) {
        for (&i, series) in &mut self.series {
            let labels = series_labels(i);
            series.last_ms = series.durable_ms;
            series.is_evicted = db
                .store
                .shards
                .iter()
                .all(|shard| shard.head().find(&labels).is_none());
        }
    }

    fn contents(&self, range: TimeRange) -> Contents {
        let in_range = |samples: &BTreeMap<i64, u64>| -> Vec<(i64, u64)> {
            samples
                .iter()
                .filter(|(t, _)| range.contains(**t))
                .map(|(&t, &bits)| (t, bits))
                .collect()
        };
        let all = self
            .series
            .iter()
            .map(|(&i, series)| (series_labels(i).to_string(), in_range(&series.samples)));
        all.filter(|(_, samples)| !samples.is_empty()).collect()
    }
}

/// Returns the order in which samples are appended: floats as they are sent; before each float the
/// older histograms of its series, in order of time; at the end the other histograms. With start
/// timestamps, floats precede histograms.
fn order_of_appends(samples: &[(usize, i64, Sent)]) -> Vec<usize> {
    if samples
        .iter()
        .any(|(i, t, sent)| start_of(*i, *t, sent.value()) != 0)
    {
        let mut order: Vec<_> = (0..samples.len()).collect();
        order.sort_by_key(|&tag| matches!(samples[tag].2, Sent::Histogram(_)));
        return order;
    }
    let mut histograms = BTreeSet::new();
    let mut floats = Vec::new();
    for (tag, (i, t, sent)) in samples.iter().enumerate() {
        match sent {
            Sent::Histogram(_) => _ = histograms.insert((*i, *t, tag)),
            Sent::Float(_) => floats.push((*i, *t, tag)),
        }
    }
    let mut order = Vec::new();
    for (i, t, tag) in floats {
        let older: Vec<_> = histograms
            .range((i, i64::MIN, 0)..=(i, t, tag))
            .copied()
            .collect();
        for histogram in older {
            histograms.remove(&histogram);
            order.push(histogram.2);
        }
        order.push(tag);
    }
    order.extend(histograms.into_iter().map(|(.., tag)| tag));
    order
}

impl ModelSeries {
    fn append(&mut self, t: i64, bits: u64, newest_ms: Option<i64>) -> Result<(), RejectionReason> {
        if self.last_ms.is_some_and(|last_ms| t <= last_ms) {
            match self.open.get(&t) {
                Some(&open) if open == bits => return Ok(()),
                Some(_) => return Err(RejectionReason::Duplicate),
                None => {}
            }
            let in_window =
                newest_ms.is_none_or(|newest_ms| t >= newest_ms - WINDOW_STEPS * STEP_MS);
            if !in_window && self.last_ms != Some(t) {
                return Err(RejectionReason::TooOld);
            }
        }
        self.open.insert(t, bits);
        self.samples.entry(t).or_insert(bits);
        self.last_ms = self.last_ms.max(Some(t));
        self.durable_ms = self.durable_ms.max(Some(t));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_store_is_a_map_after_any_operations(
        steps in proptest::collection::vec(step(), 1..40), start in 0..STEPS_MAX, len in 0..STEPS_MAX, leave: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let open = |shards, logs| Db::open(dir.path(), options(shards, logs, leave)).unwrap();
        let (mut db, mut model, mut n_snapshots) = (open(1, 1), Model::default(), 0);
        let some = TimeRange { start_ms: time(start), end_ms: time(start + len) };
        for step in steps {
            match step.clone() {
                Step::Append(samples) => {
                    prop_assert_eq!(send(&db, &samples), model.append(&samples));
                }
                Step::Flush => {
                    db.flush().unwrap();
                    model.flush();
                }
                Step::Compact => db.compact().unwrap(),
                Step::CompactFully => {
                    db.compact_fully().unwrap();
                    model.flush();
                }
                Step::Delete { series, start, len } => {
                    let range = TimeRange { start_ms: time(start), end_ms: time(start + len) };
                    db.delete(vec![Matcher::equal("i", &series.to_string())], range).unwrap();
                    model.delete(series, range);
                }
                Step::Clean => db.clean_tombstones().unwrap(),
                Step::Snapshot => {
                    n_snapshots += 1;
                    let snapshot = db.snapshot(&n_snapshots.to_string(), false).unwrap();
                    model.flush();
                    let copy = Db::open(&snapshot, options(2, 2, leave)).unwrap();
                    prop_assert_eq!(everything(&copy), model.contents(TimeRange::ALL));
                    check_starts(&copy, TimeRange::ALL);
                }
                // A restart forgets the newest timestamps of evicted series.
                Step::Reopen { .. } if leave => {}
                Step::Reopen { shards, logs } => {
                    drop(db);
                    db = open(shards, logs);
                    model.reopen(&db);
                }
            }
            prop_assert_eq!(everything(&db), model.contents(TimeRange::ALL), "after {:?}", step);
            prop_assert_eq!(contents(&db, &[], some), model.contents(some), "after {:?}", step);
            check_starts(&db, TimeRange::ALL);
            check_starts(&db, some);
            check_hints(&db, some);
            check_skipped_values(&db, some);
            prop_assert_eq!(labels(&db, some), model.contents(some).into_keys().collect::<Vec<_>>(), "after {:?}", step);
        }
        db.compact_fully().unwrap();
        let n_samples: usize = model.series.values().map(|series| series.samples.len()).sum();
        db.clean_tombstones().unwrap();
        prop_assert_eq!(db.stats().blocks_samples, n_samples as u64, "nothing is there twice");
    }
}

/// Appends as one request and returns the rejected samples.
fn send(db: &Db, samples: &[(usize, i64, Sent)]) -> Vec<(u32, RejectionReason)> {
    let mut batch = WriteBatch::default();
    for ((i, t, sent), tag) in samples.iter().zip(0..) {
        let (series, start_ms) = (
            db.series(&series_labels(*i)).unwrap(),
            start_of(*i, *t, sent.value()),
        );
        match sent {
            Sent::Float(_) => {
                batch.push_with_start(
                    series,
                    Sample {
                        timestamp_ms: *t,
                        value: sent.value(),
                    },
                    start_ms,
                    tag,
                );
            }
            Sent::Histogram(histogram) => {
                batch.push_histogram_with_start(series, *t, Arc::clone(histogram), start_ms, tag);
            }
        }
    }
    db.append(&mut batch).unwrap();
    let mut rejected: Vec<_> = batch
        .rejected()
        .iter()
        .map(|r| (r.index, r.reason))
        .collect();
    rejected.sort_unstable();
    rejected
}

/// Returns the start timestamp of a sample: some series have none, others sometimes.
fn start_of(i: usize, t: i64, value: f64) -> i64 {
    let phase = (t / STEP_MS / 5 + (value.to_bits() % 2) as i64) % 3;
    if i.is_multiple_of(3) {
        0
    } else {
        phase * (NOW_MS - 7)
    }
}

/// Checks that every sample has its start timestamp, and that changes are listed once.
fn check_starts(db: &Db, range: TimeRange) {
    for series in db.select(&ReadContext::unbounded(), &[], range).unwrap() {
        let series = series.unwrap();
        let i: usize = series.labels().get("i").unwrap().parse().unwrap();
        let mut columns = SampleColumns::default();
        series.read(&mut columns).unwrap();
        for (idx, sample) in columns.iter().enumerate() {
            let expected = start_of(i, sample.timestamp_ms, sample.value);
            assert_eq!(
                columns.start_ms(idx),
                expected,
                "series {i} at {} in {range:?}",
                sample.timestamp_ms
            );
        }
        let starts = columns.starts_ms.iter().map(|(_, start_ms)| *start_ms);
        assert!(
            [0].into_iter().chain(starts).is_sorted_by(|a, b| a != b),
            "series {i}: {:?}",
            columns.starts_ms
        );
    }
}

/// Checks that with hints the same series are returned in the same order, each with its newest
/// sample and the requested labels.
fn check_hints(db: &Db, range: TimeRange) {
    let without_i = LabelHint::Without(vec!["i".to_owned()]);
    let newest = |hints| {
        let set = db
            .select_with(&ReadContext::unbounded(), &[], range, hints)
            .unwrap();
        let last = set.filter_map(|series| {
            let (series, mut columns) = (series.unwrap(), SampleColumns::default());
            series.read(&mut columns).unwrap();
            let last = columns.iter().last()?;
            Some((
                series.labels().clone(),
                last.timestamp_ms,
                last.value.to_bits(),
                columns.start_ms(columns.len() - 1),
            ))
        });
        last.collect::<Vec<_>>()
    };
    let all = newest(SelectHints::default());
    assert!(
        all.is_sorted_by(|a, b| a.0 < b.0),
        "series come in the order of their labels"
    );
    let hinted = newest(SelectHints {
        only_newest: true,
        labels: without_i,
        ..SelectHints::default()
    });
    let unlabelled = newest(SelectHints {
        only_newest: true,
        labels: LabelHint::None,
        ..SelectHints::default()
    });
    let values = |list: &[(Labels, i64, u64, i64)]| {
        let mut values: Vec<_> = list
            .iter()
            .map(|&(_, time_ms, value, start_ms)| (time_ms, value, start_ms))
            .collect();
        values.sort_unstable();
        values
    };
    assert_eq!(
        values(&all),
        values(&unlabelled),
        "without labels, series come in any order"
    );
    assert_eq!(all.len(), hinted.len());
    for (all, hinted) in all.iter().zip(hinted) {
        assert_eq!(
            (all.1, all.2, all.3),
            (hinted.1, hinted.2, hinted.3),
            "{}",
            all.0
        );
        assert!(
            hinted.0 == all.0 || hinted.0 == all.0.filter(|name| name != "i"),
            "{} of {}",
            hinted.0,
            all.0
        );
    }
}

/// Checks that without values the same samples are returned, with the same staleness markers.
fn check_skipped_values(db: &Db, range: TimeRange) {
    let samples = |skip_values| {
        let hints = SelectHints {
            skip_values,
            ..SelectHints::default()
        };
        let set = db.select_with(&ReadContext::unbounded(), &[], range, hints);
        let mut samples = Vec::new();
        for series in set.unwrap() {
            let series = series.unwrap();
            let mut columns = SampleColumns::default();
            series.read(&mut columns).unwrap();
            for (idx, sample) in columns.iter().enumerate() {
                samples.push((
                    series.labels().clone(),
                    sample.timestamp_ms,
                    sample.value.is_nan().then(|| sample.value.to_bits()),
                    columns.histogram(idx).cloned(),
                ));
            }
        }
        samples
    };
    let all = samples(false);
    let skipped = samples(true);
    assert_eq!(all.len(), skipped.len());
    for (all, skipped) in all.iter().zip(&skipped) {
        assert_eq!((&all.0, all.1, all.2), (&skipped.0, skipped.1, skipped.2));
        match (&all.3, &skipped.3) {
            (Some(all), Some(skipped)) => assert!(all.is_same(skipped)),
            (all, skipped) => assert!(all.is_none() && skipped.is_none()),
        }
    }
}

/// Returns the series of a labels-only selection as sorted strings.
fn labels(db: &Db, range: TimeRange) -> Vec<String> {
    let set = db
        .select_labels(&ReadContext::unbounded(), &[], range)
        .unwrap();
    let mut labels: Vec<_> = set
        .map(|series| series.unwrap().labels().to_string())
        .collect();
    labels.sort_unstable();
    labels
}
