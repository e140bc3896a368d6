//! Limits of memory, samples, time and depth: a query that exceeds one fails, and releases all
//! memory.

use super::*;

const QUERIES: [&str; 9] = [
    "m",
    "sum(m)",
    "sum by (i) (rate(m[10s]))",
    "m + m",
    "topk(3, m)",
    "max_over_time(rate(m[10s])[20s:1s])",
    "count_values(\"v\", m)",
    "histogram_quantile(0.9, m)",
    "m or -m",
];

#[test]
fn a_query_over_its_memory_limit_fails_and_releases_everything() {
    for query in QUERIES {
        let memory = MemoryBudget::new(varve_context::Limit::Other("query memory"), 4000);
        let ctx =
            ReadContext::unrestricted(QueryContext::new(Duration::from_secs(60), memory.clone()));
        let error = range(&engine(usize::MAX), &ctx, query).unwrap_err();
        assert!(
            matches!(&error, Error::Limit { text, .. } if text.starts_with("query memory: ")),
            "{query}: {error}"
        );
        assert_eq!(memory.used(), 0, "{query}");
    }
}

#[test]
fn a_query_over_its_sample_limit_fails_with_the_message_of_prometheus() {
    for query in QUERIES {
        let error = range(&engine(500), &ReadContext::unbounded(), query).unwrap_err();
        let text = "query processing would load too many samples into memory in query execution";
        assert_eq!(error.to_string(), text, "{query}");
    }
    let error = range(
        &engine(500),
        &ReadContext::unbounded(),
        "sum_over_time(vector(1)[10y:1ms])",
    )
    .unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
}

#[test]
fn labels_that_a_query_builds_are_charged() {
    // The result of a single series fits into the memory, but not the values of which it is built.
    for (series, n_parts, size_max) in [("m", 10_000, 1 << 19), ("m{i=\"42\"}", 80_000, 600_000)] {
        let [groups, sources] = ["$1", ",\"i\""].map(|part| part.repeat(n_parts));
        for query in [
            format!("label_replace({series}, \"d\", \"{groups}\", \"i\", \"(.*)\")"),
            format!("label_join({series}, \"d\", \"-\"{sources})"),
        ] {
            let memory = MemoryBudget::new(varve_context::Limit::Other("query memory"), size_max);
            let ctx = ReadContext::unrestricted(QueryContext::new(
                Duration::from_secs(60),
                memory.clone(),
            ));
            let (engine, (_folder, db)) = (engine(usize::MAX), store());
            // The text has its own charge; see
            // `the_text_of_a_query_is_charged_and_read_until_the_deadline`.
            let parsed = engine.parse(&ReadContext::unbounded(), &query).unwrap();
            let request = Request::new(&query, Steps::instant(50_000));
            let error = engine.run_parsed(&db, &ctx, parsed, &request).unwrap_err();
            assert!(matches!(error, Error::Limit { .. }), "{n_parts}: {error}");
            assert_eq!(memory.used(), 0, "{n_parts}");
        }
    }
}

/// Returns `n` label names `{prefix}0`, ... in a list.
fn names(prefix: &str, n: usize) -> String {
    (0..n)
        .map(|i| format!("{prefix}{i}"))
        .collect::<Vec<_>>()
        .join(",")
}

#[test]
fn lists_of_labels_and_matchers_cost_linear_time() {
    let (engine, (_folder, db)) = (engine(usize::MAX), store());
    let [a, b] = ["a", "b"].map(|prefix| names(prefix, 60_000));
    let matchers = |prefix: &str| names(prefix, 20_000).replace(',', "!=\"x\",");
    let (left, right) = (matchers("a"), matchers("b"));
    let equal = a.replace(',', "=\"x\",");
    let started = std::time::Instant::now();
    for (query, n_series) in [
        (format!("sum by ({a}, i, {b}) (m)"), 100),
        (format!("count_values by ({a}) (\"v\", m)"), 100),
        (format!("topk without ({a}) (1, m)"), 100),
        (format!("m + on (i, {a}) m"), 100),
        (format!("m * on (i, {a}) group_left ({b}) m"), 100),
        (format!("m and ignoring ({a}) m"), 100),
        (format!("m{{{left}!=\"x\"}} and m{{{right}!=\"x\"}}"), 100),
        (format!("absent(m{{{equal}=\"x\"}})"), 1),
        (
            format!(
                "sort_by_label(m * 0, \"{}\", \"i\")",
                a.replace(',', "\",\"")
            ),
            100,
        ),
    ] {
        let request = Request::new(&query, Steps::instant(50_000));
        let Value::Vector(vector) = engine
            .run(&db, &ReadContext::unbounded(), &request)
            .unwrap()
            .value
        else {
            panic!("not a vector: {}", &query[..40]);
        };
        assert_eq!(vector.len(), n_series, "{}", &query[..40]);
    }
    // Quadratic lists take minutes.
    assert!(
        started.elapsed() < Duration::from_secs(50),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn the_text_of_a_query_is_charged_and_read_until_the_deadline() {
    let engine = engine(usize::MAX);
    let query = format!("sum by ({}) (m)", names("l", 100_000));
    let memory = MemoryBudget::new(varve_context::Limit::Other("query memory"), 1 << 24);
    let error = engine
        .parse(
            &ReadContext::unrestricted(QueryContext::new(Duration::from_secs(60), memory.clone())),
            &query,
        )
        .unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    assert_eq!(memory.used(), 0);
    let late = || {
        ReadContext::unrestricted(QueryContext::new(
            Duration::ZERO,
            MemoryBudget::new(varve_context::Limit::Other("query memory"), usize::MAX),
        ))
    };
    assert!(matches!(engine.parse(&late(), &query), Err(Error::Timeout)));
    let expr = varve_promql::parse(&query, &Features::all()).unwrap();
    for print in [
        varve_promql::prettify_within,
        varve_promql::json::to_json_within,
    ] {
        let small = ReadContext::unrestricted(QueryContext::new(
            Duration::from_secs(60),
            memory.child(varve_context::Limit::Other("text"), 1 << 16),
        ));
        assert!(matches!(
            print(&small, &expr).map_err(Error::from),
            Err(Error::Limit { .. })
        ));
        assert!(matches!(
            print(&late(), &expr).map_err(Error::from),
            Err(Error::Timeout)
        ));
        let (text, charge) = print(&ReadContext::unbounded(), &expr).unwrap();
        assert!(
            charge.size() >= text.capacity(),
            "{} of {}",
            charge.size(),
            text.capacity()
        );
    }
}

#[test]
fn sets_of_the_steps_of_subqueries_are_charged() {
    let (engine, (_folder, db)) = (engine(usize::MAX), store());
    for inner in [
        "absent_over_time(m[1s])",
        "scalar(m)",
        "absent(m)",
        "m and m",
        "m * on () group_left () m",
    ] {
        let query =
            format!("sum_over_time(sum_over_time(({inner} or vector(1))[100y:1ms])[100y:1ms])");
        let memory = MemoryBudget::new(varve_context::Limit::Other("query memory"), 64 << 20);
        let ctx = ReadContext::unrestricted(QueryContext::new(Duration::from_secs(60), memory));
        let error = engine.run(
            &db,
            &ctx,
            &Request::new(
                &query.replace("scalar(m)", "vector(scalar(m))"),
                Steps::instant(0),
            ),
        );
        assert!(
            matches!(error, Err(Error::Limit { .. })),
            "{query}: {error:?}"
        );
    }
}

/// Creates a store with series `a{i="0"}`, ... and `b{i="0"}`, ... of which each has one sample, at
/// another second.
fn disjoint_store(n: i64) -> (TempDir, Db) {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), Options::default()).unwrap();
    let mut batch = WriteBatch::default();
    for (name, i) in ["a", "b"]
        .into_iter()
        .flat_map(|name| (0..n).map(move |i| (name, i)))
    {
        let handle = db
            .series(&Labels::from_pairs([("__name__", name), ("i", &i.to_string())]).unwrap())
            .unwrap();
        batch.push(
            handle,
            Sample {
                timestamp_ms: i * 1000,
                value: 1.0,
            },
            0,
        );
    }
    db.append(&mut batch).unwrap();
    (folder, db)
}

#[test]
fn operators_between_many_series_end_at_the_deadline() {
    const N: i64 = 3000;
    let (engine, (_folder, db)) = (engine(usize::MAX), disjoint_store(N));
    let times = Steps::range(0, N * 1000, 1000);
    for query in [
        "a + on () b",
        "a + on () group_left () b",
        "a + on () fill (0) b",
    ] {
        let ctx = ReadContext::unrestricted(QueryContext::new(
            Duration::from_millis(300),
            MemoryBudget::new(varve_context::Limit::Other("query memory"), usize::MAX),
        ));
        let started = std::time::Instant::now();
        let request = Request {
            lookback_delta_ms: Some(999),
            ..Request::new(query, times)
        };
        // On a fast machine, the query may end in time.
        let outcome = engine.run(&db, &ctx, &request);
        assert!(
            matches!(outcome, Ok(_) | Err(Error::Timeout)),
            "{query}: {outcome:?}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "{query}: {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn columns_of_results_that_change_at_each_step_are_charged() {
    let (engine, (_folder, db)) = (engine(usize::MAX), store());
    let times = Steps::range(0, 5_000_000, 1000);
    let memory = MemoryBudget::new(varve_context::Limit::Other("query memory"), 8 << 20);
    let ctx = ReadContext::unrestricted(QueryContext::new(Duration::from_secs(60), memory.clone()));
    // Each step has another quantile, so each step makes another series of 5,000 steps.
    let query = "histogram_quantiles(label_replace(vector(1), \"le\", \"+Inf\", \"\", \"\"), \"q\", time() / 1e7)";
    let error = engine
        .run(&db, &ctx, &Request::new(query, times))
        .unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    drop(ctx);
    assert!(memory.peak() <= 8 << 20 && memory.used() == 0);
}

#[test]
fn an_aggregation_over_a_selector_holds_only_labels_and_groups() {
    let (_folder, db) = store();
    let peak = |query: &str| {
        let memory = MemoryBudget::new(varve_context::Limit::Other("query memory"), usize::MAX);
        let ctx =
            ReadContext::unrestricted(QueryContext::new(Duration::from_secs(60), memory.clone()));
        let times = Steps::range(0, 99_900, 100);
        engine(usize::MAX)
            .run(&db, &ctx, &Request::new(query, times))
            .unwrap();
        memory.peak()
    };
    // 100 series of 1,000 steps are 800 kB of values. The query also holds the encoded samples and
    // a batch.
    let values_size = 100 * 1000 * 8;
    assert!(peak("m") > values_size);
    for query in [
        "sum(m)",
        "sum(rate(m[10s]))",
        "sum(m * 2)",
        "count_values(\"v\", m > 1e9)",
        "absent(m)",
    ] {
        assert!(peak(query) < values_size, "{query}: {} bytes", peak(query));
    }
    // Holds three values per step, and the labels of their series.
    assert!(
        peak("topk(3, m)") < peak("m") * 2 / 3,
        "{} of {} bytes",
        peak("topk(3, m)"),
        peak("m")
    );
}

#[test]
fn an_interrupted_query_reports_the_reason() {
    let check = |reason: Interrupt, expect: &str| {
        let ctx = ReadContext::unbounded();
        ctx.interrupt(reason);
        for query in QUERIES {
            assert_eq!(
                range(&engine(usize::MAX), &ctx, query)
                    .unwrap_err()
                    .to_string(),
                expect,
                "{query}"
            );
        }
    };
    check(
        Interrupt::Deadline,
        "query timed out in expression evaluation",
    );
    check(
        Interrupt::Canceled,
        "query was canceled in expression evaluation",
    );
    check(
        Interrupt::Killed,
        "query was canceled in expression evaluation: an operator ended it",
    );
    check(Interrupt::Heaviest, &Interrupt::Heaviest.to_string());
    check(
        Interrupt::Shutdown,
        "query was canceled in expression evaluation: the server is shutting down",
    );
}

#[test]
fn long_chains_and_deep_trees_take_a_bounded_stack() {
    let (_folder, db) = store();
    let run = |query: &str| {
        engine(usize::MAX).run(
            &db,
            &ReadContext::unbounded(),
            &Request::new(query, Steps::instant(0)),
        )
    };
    let chain = format!("sum(m{{i=\"1\"}}{})", " + 1".repeat(10_000));
    match run(&chain).unwrap().value {
        Value::Vector(vector) => assert_eq!(vector[0].point.value, 10_001.0),
        other => panic!("{other:?}"),
    }
    const N: usize = varve_promql::DEPTH_MAX - 1;
    for (before, after, n) in [
        ("abs(", ")", N),
        ("-", "", N),
        ("(", ")", N),
        ("sum by (i) (", ")", N),
        ("sum by (i) (m * ", ")", N / 2),
        ("label_replace(", ", \"a\", \"\", \"\", \"\")", N),
        ("max_over_time(", "[1m:1m])", N / 2),
        ("vector(scalar(", "))", N / 2),
        ("m unless (m unless ", ")", N / 2),
    ] {
        let deep = format!("{}m{}", before.repeat(n), after.repeat(n));
        run(&deep).unwrap_or_else(|error| panic!("{before}: {error}"));
    }
}

#[test]
fn a_query_on_several_threads_ends_and_releases_everything() {
    let options = EngineOptions {
        parallelism: 3,
        features: Features::all(),
        ..test_options()
    };
    let engine = Engine::new(options);
    for query in QUERIES {
        for limit in [4000, 30_000] {
            let memory = MemoryBudget::new(varve_context::Limit::Other("query memory"), limit);
            let ctx = ReadContext::unrestricted(QueryContext::new(
                Duration::from_secs(60),
                memory.clone(),
            ));
            let error = range(&engine, &ctx, query);
            assert!(
                limit > 4000 || matches!(error, Err(Error::Limit { .. })),
                "{query}: {error:?}"
            );
            assert_eq!(memory.used(), 0, "{query}");
        }
        let ctx = ReadContext::unrestricted(QueryContext::new(
            Duration::ZERO,
            MemoryBudget::new(varve_context::Limit::Other("query memory"), usize::MAX),
        ));
        assert!(
            matches!(range(&engine, &ctx, query), Err(Error::Timeout)),
            "{query}"
        );
    }
}
