//! Concurrent queries for the labels of many series, which share the order of a head.

use varve_context::{Limit, MemoryBudget};

use super::*;

fn labels_of(db: &Db, ctx: &ReadContext, matchers: &[Matcher], range: TimeRange) -> Vec<Labels> {
    db.select_labels(ctx, matchers, range)
        .unwrap()
        .map(|series| series.unwrap().labels().clone())
        .collect()
}

fn sorted(series: impl Iterator<Item = usize>) -> Vec<Labels> {
    let mut sorted: Vec<_> = series.map(series_labels).collect();
    sorted.sort_unstable();
    sorted
}

#[test]
fn concurrent_queries_hold_little_memory_each_and_see_earlier_series() {
    const N_SERIES: usize = 4000;
    let (_dir, db) = fresh(Options {
        shards: 4,
        ..options()
    });
    append(
        &db,
        &(0..N_SERIES).map(|i| (i, NOW_MS, 0.0)).collect::<Vec<_>>(),
    );
    let budget = MemoryBudget::new(Limit::Other("memory"), usize::MAX);
    let ctx = ReadContext::unrestricted(QueryContext::new(
        std::time::Duration::from_secs(600),
        budget.clone(),
    ));
    let call = || db.select_labels(&ctx, &[], TimeRange::ALL).unwrap();
    let mut calls = vec![(call(), N_SERIES)];
    let first_size = budget.used();
    assert!(
        first_size >= N_SERIES * 8,
        "the order is charged: {first_size}"
    );
    for i in N_SERIES..N_SERIES + 8 {
        append(&db, &[(i, NOW_MS, 0.0)]);
        calls.push((call(), i + 1));
    }
    let others_size = budget.used() - first_size;
    assert!(
        others_size < 8 * N_SERIES * 3,
        "a bitmap each: {others_size}"
    );
    for (call, n_series) in calls {
        let labels: Vec<_> = call
            .map(|series| series.unwrap().labels().clone())
            .collect();
        assert_eq!(labels, sorted(0..n_series));
    }
    assert_eq!(budget.used(), 0);
}

#[test]
fn orders_follow_created_and_evicted_series() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let own = Options {
        shards: 2,
        clock: clock.clone(),
        series_idle_ms: 1000,
        ..options()
    };
    let db = Db::open(dir.path(), own).unwrap();
    let ctx = ReadContext::unbounded();
    let mut held = None;
    for round in 0..6 {
        let now_ms = NOW_MS + round as i64 * 10_000;
        clock.set(now_ms);
        // Half of each round's series are new: the slots of evicted ones are reused.
        let of_round = round * 30..round * 30 + 60;
        append(
            &db,
            &of_round
                .clone()
                .map(|i| (i, now_ms, 0.0))
                .collect::<Vec<_>>(),
        );
        let since = TimeRange {
            start_ms: now_ms,
            end_ms: i64::MAX,
        };
        assert_eq!(
            labels_of(&db, &ctx, &[], TimeRange::ALL),
            sorted(0..of_round.end),
            "{round}"
        );
        assert_eq!(
            labels_of(&db, &ctx, &[], since),
            sorted(of_round.clone()),
            "{round}"
        );
        let few = [Matcher::new(MatchOp::Regexp, "i", ".*7").unwrap()];
        assert_eq!(
            labels_of(&db, &ctx, &few, since),
            sorted(of_round.clone().filter(|i| i % 10 == 7)),
            "{round}"
        );
        let even = [Matcher::new(MatchOp::Regexp, "i", ".*[02468]").unwrap()];
        assert_eq!(
            labels_of(&db, &ctx, &even, since),
            sorted(of_round.filter(|i| i % 2 == 0)),
            "{round}"
        );
        // An order that a reader still uses may be outdated in the next round.
        held =
            Some(db.select_labels(&ctx, &[], TimeRange::ALL).unwrap()).filter(|_| round % 2 == 0);
        db.flush().unwrap();
    }
    drop(held);
}

#[test]
fn a_query_that_fails_while_it_builds_an_order_frees_its_memory() {
    let (_dir, db) = fresh(options());
    append(
        &db,
        &(0..3000).map(|i| (i, NOW_MS, 0.0)).collect::<Vec<_>>(),
    );
    let budget = MemoryBudget::new(Limit::Other("memory"), 60_000);
    let ctx = ReadContext::unrestricted(QueryContext::new(
        std::time::Duration::from_secs(600),
        budget.clone(),
    ));
    assert!(matches!(
        db.select_labels(&ctx, &[], TimeRange::ALL),
        Err(Error::Limit { .. })
    ));
    assert_eq!(budget.used(), 0);
    assert_eq!(
        labels_of(&db, &ReadContext::unbounded(), &[], TimeRange::ALL),
        sorted(0..3000)
    );
}
