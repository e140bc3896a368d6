//! Queries that share scans return the results of separate queries.

use varve_context::{Limit, QueryContext};
use varve_model::{MatchOp, Matcher};

use super::*;

/// Runs instant queries that share scans, and compares their results with those of the queries
/// alone. Returns the number of selections.
fn shared(queries: &[&str], ends: impl Fn(usize, &SharedScans)) -> u64 {
    let (engine, (_folder, db), time_ms) = (plain_engine(), store(), 90_000);
    let exprs: Vec<_> = queries
        .iter()
        .map(|query| varve_promql::parse(query, &Features::all()).unwrap())
        .collect();
    let memory = MemoryBudget::new(Limit::Other("memory of scans"), 16 << 20);
    let ctx = ReadContext::unrestricted(QueryContext::new(Duration::MAX, memory.clone()));
    let scans = engine.shared_scans(Arc::new(ScanPlan::new(&exprs)), ctx, time_ms);
    for (i, query) in queries.iter().enumerate() {
        let run = |scans| {
            let request = Request {
                scans,
                ..Request::new(query, Steps::instant(time_ms))
            };
            let ctx = ReadContext::unbounded();
            let value = engine.run(&db, &ctx, &request).unwrap().value;
            (
                format!("{value:?}"),
                ctx.n_series() > 0,
                ctx.n_samples() > 0,
            )
        };
        assert_eq!(run(Some(&scans)), run(None), "{query}");
        ends(i, &scans);
    }
    let n_scans = scans.n_scans();
    drop(scans);
    assert_eq!(memory.used(), 0);
    n_scans
}

#[test]
fn queries_share_scans_of_selectors_with_equal_matchers() {
    let check =
        |queries: &[&str], expect| assert_eq!(shared(queries, |_, _| ()), expect, "{queries:?}");
    check(&["m", "sum(m)", "count by (i) (m)"], 1);
    check(&["m{i=\"1\"}", "m{i=\"2\"}"], 2);
    check(
        &[
            "rate(m[10s])",
            "m",
            "increase(m[1m])",
            "m offset 20s",
            "max_over_time(m[20s:5s])",
        ],
        1,
    );
    check(
        &[
            "m{i=~\"1.\",i!=\"11\"}",
            "{i!=\"11\",i=~\"1.\",__name__=\"m\"}",
        ],
        1,
    );
    // The time of `@` is not that of the query. Matcher propagation narrows only a selection of its
    // own.
    check(&["m @ 50", "m", "-m"], 2);
    check(&["m and m{i=\"1\"}", "m"], 2);
    check(&["m unless m{i=\"1\"}", "m{i=\"2\"}"], 3);
    check(&["timestamp(m)", "m"], 1);
    check(&["smooth_nothing or m", "sum(rate(m[30s] smoothed))"], 2);
}

#[test]
fn a_scan_that_ends_is_repeated() {
    let queries = ["m", "sum(m)", "avg(m)"];
    let end_after = |n: usize| {
        move |i: usize, scans: &SharedScans| {
            if i == n {
                scans.end(|matchers| matchers.iter().any(|matcher| matcher.value() == "m"));
                scans.end(|matchers| matchers.iter().any(|matcher| matcher.value() == "other"));
            }
        }
    };
    assert_eq!(shared(&queries, end_after(0)), 2);
    assert_eq!(shared(&queries, end_after(1)), 2);
    assert_eq!(shared(&queries, end_after(2)), 1);
}

#[test]
fn queries_scan_on_their_own_if_a_shared_scan_fails() {
    let (engine, (_folder, db)) = (plain_engine(), store());
    let expr = varve_promql::parse("m", &Features::all()).unwrap();
    let ctx = ReadContext::unrestricted(QueryContext::new(
        Duration::MAX,
        MemoryBudget::new(Limit::Other("memory of scans"), 10),
    ));
    let scans = engine.shared_scans(Arc::new(ScanPlan::new([&expr, &expr])), ctx, 90_000);
    for n_scans in [1, 2] {
        let request = Request {
            scans: Some(&scans),
            ..Request::new("count(m)", Steps::instant(90_000))
        };
        let result = engine
            .run(&db, &ReadContext::unbounded(), &request)
            .unwrap();
        let Value::Vector(samples) = result.value else {
            panic!("a vector")
        };
        assert_eq!((samples[0].point.value, scans.n_scans()), (100.0, n_scans));
    }
}

#[test]
fn only_queries_with_the_same_restriction_share_scans() {
    let (engine, (_folder, db)) = (plain_engine(), store());
    let expr = varve_promql::parse("m", &Features::all()).unwrap();
    let plan = Arc::new(ScanPlan::new([&expr; 4]));
    let restricted = |values: &str| {
        let matcher = Matcher::new(MatchOp::Regexp, "i", values).unwrap();
        ReadContext::restricted(QueryContext::unbounded(), [matcher].into())
    };
    let scans = engine.shared_scans(plan, restricted("[0-4]"), 90_000);
    let all = ReadContext::unbounded();
    for (ctx, n_series, n_scans) in [
        (restricted("[0-4]"), 5.0, 1),
        (restricted("[0-4]"), 5.0, 1),
        (restricted("[5-7]"), 3.0, 2),
        (all, 100.0, 3),
    ] {
        let request = Request {
            scans: Some(&scans),
            ..Request::new("count(m)", Steps::instant(90_000))
        };
        let Value::Vector(samples) = engine.run(&db, &ctx, &request).unwrap().value else {
            panic!("a vector")
        };
        assert_eq!(
            (samples[0].point.value, scans.n_scans()),
            (n_series, n_scans)
        );
    }
}
