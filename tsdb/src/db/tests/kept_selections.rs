//! Selections that reuse the series of earlier ones return the same as selections that do not.

use proptest::prelude::*;

use super::*;
use crate::select::LabelHint;

const STEP_MS: i64 = 1000;
/// Steps without samples after which a flush evicts a series.
const IDLE_STEPS: i64 = 10;

#[derive(Debug, Clone)]
enum Step {
    /// Appends samples at the next time.
    Append(Vec<(usize, f64)>),
    /// Flushes, which evicts series without recent samples.
    Flush,
    Delete(usize),
    /// Selects the last so many steps.
    Select {
        selector: usize,
        labels: usize,
        steps: i64,
        only_newest: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![
        (0..5_u8).prop_map(f64::from),
        Just(f64::from_bits(varve_model::staleness::STALE_NAN_BITS))
    ];
    // Few series get samples at a time, so that others become idle.
    let samples = (0..40_usize, 1..6_usize, proptest::collection::vec(value, 6));
    prop_oneof![
        6 => samples.prop_map(|(first, n, values)| {
            Step::Append((first..first + n).zip(values).collect())
        }),
        1 => Just(Step::Flush),
        1 => (0..45_usize).prop_map(Step::Delete),
        8 => (0..4_usize, 0..4_usize, 1..20_i64, any::<bool>()).prop_map(
            |(selector, labels, steps, only_newest)| Step::Select { selector, labels, steps, only_newest }
        ),
    ]
}

fn labels_of(i: usize) -> Labels {
    let (i, group) = (i.to_string(), (i % 3).to_string());
    Labels::from_pairs([(METRIC_NAME, "m"), ("group", &*group), ("i", &*i)]).unwrap()
}

fn selectors() -> [Vec<Matcher>; 4] {
    [
        vec![],
        vec![Matcher::equal("group", "1")],
        vec![Matcher::new(MatchOp::Regexp, "i", "1.*|2").unwrap()],
        vec![
            Matcher::equal(METRIC_NAME, "m"),
            Matcher::new(MatchOp::NotEqual, "group", "0").unwrap(),
        ],
    ]
}

fn hints() -> [LabelHint; 4] {
    let names = || vec!["group".to_owned()];
    [
        LabelHint::All,
        LabelHint::With(names()),
        LabelHint::Without(names()),
        LabelHint::None,
    ]
}

fn open_with(kept_selections_size_bytes: usize) -> (tempfile::TempDir, Db) {
    fresh(Options {
        shards: 4,
        clock: Arc::new(ManualClock::at(NOW_MS + 1000 * STEP_MS)),
        series_idle_ms: IDLE_STEPS * STEP_MS,
        series_stale_ms: STEP_MS,
        kept_selections_size_bytes,
        ..options()
    })
}

fn append_to(db: &Db, samples: &[(usize, f64)], timestamp_ms: i64) {
    let mut batch = WriteBatch::default();
    for &(i, value) in samples {
        let handle = db.series(&labels_of(i)).unwrap();
        batch.push(
            handle,
            Sample {
                timestamp_ms,
                value,
            },
            0,
        );
    }
    db.append(&mut batch).unwrap();
}

/// Returns the selected series in the order of the selection; in any order without labels.
fn selected(
    db: &Db,
    matchers: &[Matcher],
    labels: &LabelHint,
    range: TimeRange,
    only_newest: bool,
) -> Vec<(String, Vec<(i64, u64)>)> {
    let hints = SelectHints {
        only_newest,
        labels: labels.clone(),
        ..SelectHints::default()
    };
    let set = db
        .select_with(&ReadContext::unbounded(), matchers, range, hints)
        .unwrap();
    let mut newest_floats = Vec::new();
    let has_newest_floats = set
        .each_newest_float(|labels, newest| {
            let newest = vec![(newest.timestamp_ms, newest.value.to_bits())];
            newest_floats.push((labels.to_string(), newest));
            Ok::<_, Error>(())
        })
        .unwrap();
    let mut all = Vec::new();
    for series in set {
        let series = series.unwrap();
        let mut columns = SampleColumns::default();
        series.read(&mut columns).unwrap();
        let bits = columns.values.iter().map(|value| value.to_bits());
        let mut samples: Vec<_> = columns.timestamps_ms.iter().copied().zip(bits).collect();
        if let Some(newest) = series.newest_float() {
            let newest = (newest.timestamp_ms, newest.value.to_bits());
            assert_eq!(samples.last(), Some(&newest));
        }
        if only_newest {
            samples.drain(..samples.len().saturating_sub(1));
        }
        if !samples.is_empty() {
            all.push((series.labels().to_string(), samples));
        }
    }
    if has_newest_floats {
        assert_eq!(newest_floats, all);
    }
    if matches!(labels, LabelHint::None) {
        all.sort();
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 48 }, ..ProptestConfig::default() })]

    #[test]
    fn kept_selections_return_what_new_ones_return(
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let (_dir, keeping) = open_with(1 << 20);
        let (_other_dir, resolving) = open_with(0);
        let stores = [&keeping, &resolving];
        let mut now_ms = NOW_MS;
        for step in steps {
            match step {
                Step::Append(samples) => {
                    now_ms += STEP_MS;
                    for db in stores {
                        append_to(db, &samples, now_ms);
                    }
                }
                Step::Flush => {
                    for db in stores {
                        db.flush().unwrap();
                    }
                }
                Step::Delete(i) => {
                    for db in stores {
                        let matcher = Matcher::equal("i", &i.to_string());
                        db.delete(vec![matcher], TimeRange::ALL).unwrap();
                    }
                }
                Step::Select { selector, labels, steps, only_newest } => {
                    let range = TimeRange { start_ms: now_ms - steps * STEP_MS, end_ms: now_ms };
                    let matchers = &selectors()[selector];
                    let labels = &hints()[labels];
                    let found = stores.map(|db| selected(db, matchers, labels, range, only_newest));
                    prop_assert_eq!(&found[0], &found[1], "{:?} {:?}", matchers, labels);
                }
            }
        }
        let stats = resolving.stats().kept_selections;
        prop_assert_eq!((stats.n_found, stats.n_updated, stats.n_kept), (0, 0, 0));
    }
}

#[test]
fn new_series_join_a_kept_selection_and_evicted_ones_leave_it() {
    let (_dir, db) = open_with(1 << 20);
    let group = [Matcher::equal("group", "1")];
    let select = |now_ms| {
        let range = TimeRange {
            start_ms: now_ms - STEP_MS,
            end_ms: now_ms,
        };
        selected(&db, &group, &LabelHint::All, range, false).len()
    };
    let counts = || {
        let stats = db.stats().kept_selections;
        (stats.n_resolved, stats.n_found, stats.n_updated)
    };
    let samples = |range: std::ops::Range<usize>| range.map(|i| (i, 1.0)).collect::<Vec<_>>();

    append_to(&db, &samples(0..9), NOW_MS);
    assert_eq!((select(NOW_MS), counts()), (3, (1, 0, 0)));
    assert_eq!((select(NOW_MS), counts()), (3, (1, 1, 0)));
    // Series of other groups do not change the list. Later selections do not test them again.
    append_to(&db, &[(9, 1.0), (11, 1.0)], NOW_MS);
    assert_eq!((select(NOW_MS), counts()), (3, (1, 2, 0)));
    // Few series are added to the list.
    append_to(&db, &samples(12..18), NOW_MS);
    assert_eq!((select(NOW_MS), counts()), (5, (1, 2, 1)));
    // If many were created, it is made again.
    append_to(&db, &samples(20..80), NOW_MS);
    assert_eq!((select(NOW_MS), counts()), (25, (2, 2, 1)));

    // Most are evicted.
    let later_ms = NOW_MS + 2 * IDLE_STEPS * STEP_MS;
    append_to(&db, &samples(0..9), later_ms);
    db.flush().unwrap();
    append_to(&db, &samples(0..9), later_ms + 2 * STEP_MS);
    assert!(db.stats().n_series < 20);
    assert_eq!(select(later_ms + 2 * STEP_MS), 3);
    // A list with many evicted series is not extended.
    let n_resolved = counts().0;
    append_to(&db, &[(100, 1.0)], later_ms + 2 * STEP_MS);
    assert_eq!(select(later_ms + 2 * STEP_MS), 4);
    assert_eq!(counts().0, n_resolved + 1);

    db.forget_selections();
    assert_eq!(db.stats().kept_selections.n_kept, 0);
}

#[test]
fn kept_selections_are_bounded() {
    let size_max = 64 << 10;
    let (_dir, db) = open_with(size_max);
    let samples: Vec<_> = (0..500).map(|i| (i, 1.0)).collect();
    append_to(&db, &samples, NOW_MS);
    let range = TimeRange::at(NOW_MS);
    for i in 0..500 {
        let matcher = Matcher::new(MatchOp::Regexp, "i", &format!("{i}.*")).unwrap();
        selected(&db, &[matcher], &LabelHint::All, range, false);
        assert!(db.stats().kept_selections.size_bytes <= size_max as u64);
    }
    let stats = db.stats().kept_selections;
    assert!(stats.n_kept > 10 && stats.n_kept < 500, "{stats:?}");
    // A list that would take more than an eighth of the memory is not made.
    let all = selected(&db, &[], &LabelHint::All, range, false);
    assert_eq!(
        (all.len(), db.stats().kept_selections.n_resolved),
        (500, stats.n_resolved)
    );
}
