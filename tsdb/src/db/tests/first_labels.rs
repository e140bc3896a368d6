//! Requests for the first labels, for lists with a limit, against those for all.

use proptest::prelude::*;

use super::*;

fn labels_of(set: crate::select::LabelSets) -> Vec<Labels> {
    set.map(|series| series.unwrap().labels().clone()).collect()
}

/// Series with few or many values of several labels, created in an order that is not that of labels.
fn labels_at(i: usize) -> Labels {
    let name = format!("m{}", i % 7);
    let number = (i * 7919 % 10_007).to_string();
    let job = if i.is_multiple_of(3) { "a" } else { "b" };
    let mut pairs = vec![(METRIC_NAME, &*name), ("i", &*number), ("job", job)];
    if i % 2 == 1 {
        pairs.push(("odd", "yes"));
    }
    Labels::from_pairs(pairs).unwrap()
}

fn append_series(db: &Db, series: std::ops::Range<usize>, timestamp_ms: i64) {
    let mut batch = WriteBatch::default();
    for (i, tag) in series.zip(0..) {
        let sample = Sample {
            timestamp_ms,
            value: 1.0,
        };
        batch.push(db.series(&labels_at(i)).unwrap(), sample, tag);
    }
    db.append(&mut batch).unwrap();
}

fn selectors() -> Vec<Vec<Matcher>> {
    let matcher = |op, name, value| Matcher::new(op, name, value).unwrap();
    vec![
        vec![],
        vec![matcher(MatchOp::Regexp, METRIC_NAME, ".+")],
        vec![matcher(MatchOp::NotEqual, "odd", "")],
        vec![matcher(MatchOp::Equal, "odd", "")],
        vec![Matcher::equal("job", "a")],
        vec![
            Matcher::equal("job", "b"),
            matcher(MatchOp::Regexp, "i", ".*7.*"),
        ],
        // It drops most candidates, so that the search begins again.
        vec![
            matcher(MatchOp::Regexp, "i", "[1-9]+"),
            matcher(MatchOp::NotRegexp, "i", ".*[0-4].*"),
        ],
        vec![
            matcher(MatchOp::NotRegexp, "i", ".*[0-4].*"),
            matcher(MatchOp::Regexp, METRIC_NAME, "m[0-5]+"),
        ],
        vec![
            matcher(MatchOp::NotEqual, "job", "a"),
            matcher(MatchOp::Regexp, "odd", "y.*"),
        ],
        vec![matcher(MatchOp::Regexp, "i", "x.*")],
        vec![Matcher::equal("job", "nothing")],
    ]
}

/// Checks the first labels of all selectors and limits. Without ranks, any series may be returned.
fn check(db: &Db, range: TimeRange, is_ranked: bool) {
    let ctx = ReadContext::unbounded();
    for matchers in selectors() {
        let all = labels_of(db.select_labels(&ctx, &matchers, range).unwrap());
        for n in [1, 2, 9, 60, 500, 5000] {
            let set = db.select_first_labels(&ctx, &matchers, range, n).unwrap();
            let first = labels_of(set);
            assert!(first.len() >= n.min(all.len()), "{matchers:?} {n}");
            if is_ranked {
                assert!(first.iter().zip(&all).take(n).all(|(a, b)| a == b));
            }
            assert!(first.is_sorted() && first.iter().all(|labels| all.contains(labels)));
        }

        let names = db.label_names(&ctx, &matchers, range).unwrap();
        for n in [1, 3, 100] {
            let some = db.first_label_names(&ctx, &matchers, range, n).unwrap();
            assert!(some.iter().take(n).eq(names.iter().take(n)));
        }
        for name in ["i", METRIC_NAME, "odd", "absent"] {
            let values = db.label_values(&ctx, name, &matchers, range).unwrap();
            for n in [1, 3, 100] {
                let some = db.first_label_values(&ctx, name, &matchers, range, n);
                assert!(some.unwrap().iter().take(n).eq(values.iter().take(n)));
            }
        }
    }
}

fn rank(db: &Db) {
    let mut flushing = db.store.flushing.lock();
    db.store.rank_series(&mut flushing).unwrap();
}

#[test]
fn first_labels_are_the_beginning_of_all_labels() {
    let since = |start_ms| TimeRange {
        start_ms,
        end_ms: i64::MAX,
    };
    for shards in [1, 4] {
        let (_dir, db) = fresh(Options {
            shards,
            ..options()
        });
        append_series(&db, 0..700, NOW_MS);
        check(&db, TimeRange::ALL, false);
        rank(&db);
        check(&db, TimeRange::ALL, true);
        check(&db, since(NOW_MS + 1), true);

        // Some series have newer samples, and the last ones no rank.
        append_series(&db, 300..720, NOW_MS + 1000);
        check(&db, since(NOW_MS + 1), false);
        rank(&db);
        check(&db, since(NOW_MS + 1), true);

        // Blocks and heads together.
        db.flush().unwrap();
        check(&db, TimeRange::ALL, true);
        append_series(&db, 600..900, NOW_MS + 2000);
        rank(&db);
        check(&db, TimeRange::ALL, true);
        check(&db, since(NOW_MS + 1500), true);

        db.delete(vec![Matcher::equal("job", "a")], since(0))
            .unwrap();
        check(&db, TimeRange::ALL, true);
        append_series(&db, 0..30, NOW_MS + 3000);
        rank(&db);
        check(&db, TimeRange::ALL, true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// With few new series, they are in label order too.
    #[test]
    fn few_series_need_no_rank(n_ranked in 0..200_usize, n_new in 0..8_usize) {
        let (_dir, db) = fresh(Options { shards: 2, ..options() });
        append_series(&db, 0..n_ranked, NOW_MS);
        rank(&db);
        append_series(&db, n_ranked..n_ranked + n_new, NOW_MS);
        check(&db, TimeRange::ALL, true);
    }
}
