mod limits;
mod random;
mod shared_scans;

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use varve_context::{Interrupt, MemoryBudget};
use varve_model::{Labels, Sample};
use varve_tsdb::{Options, WriteBatch};

use super::*;
use crate::stats::SampleStats;
use crate::steps::Steps;
use crate::value::{MatrixSeries, Value};

/// Creates a store with the series `m{i="0"}` to `m{i="99"}`, one sample per second from 0 to 99 s.
fn store() -> (TempDir, Db) {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), Options::default()).unwrap();
    let mut batch = WriteBatch::default();
    for i in 0..100 {
        let labels = Labels::from_pairs([("__name__", "m"), ("i", &i.to_string())]).unwrap();
        let handle = db.series(&labels).unwrap();
        (0..100).for_each(|s| {
            batch.push(
                handle,
                Sample {
                    timestamp_ms: s * 1000,
                    value: (i + s) as f64,
                },
                0,
            )
        });
    }
    db.append(&mut batch).unwrap();
    (folder, db)
}

fn engine(samples_max: usize) -> Engine {
    Engine::new(EngineOptions {
        samples_max,
        features: Features::all(),
        ..test_options()
    })
}

/// Creates an engine without the features that need all labels of a series, or start timestamps.
fn plain_engine() -> Engine {
    plain_engine_with(false)
}

fn plain_engine_with(type_and_unit_labels: bool) -> Engine {
    let features = Features {
        delayed_name_removal: false,
        type_and_unit_labels,
        use_start_timestamps: false,
        ..Features::all()
    };
    Engine::new(EngineOptions {
        samples_max: usize::MAX,
        features,
        ..test_options()
    })
}

/// Runs a range query of 100 steps.
fn range(engine: &Engine, ctx: &ReadContext, query: &str) -> Result<Vec<Arc<MatrixSeries>>> {
    let (_folder, db) = store();
    let times = Steps::range(0, 99_000, 1000);
    match engine.run(&db, ctx, &Request::new(query, times))?.value {
        Value::Matrix(matrix) => Ok(matrix),
        other => panic!("{other:?}"),
    }
}

#[test]
fn absent_has_the_labels_of_all_matchers() {
    let matchers: Vec<_> = (0..2000).map(|i| format!("label_{i}=\"x\"")).collect();
    let query = format!("absent(m{{{}}})", matchers.join(","));
    let result = range(&engine(usize::MAX), &ReadContext::unbounded(), &query).unwrap();
    assert_eq!(result[0].labels.iter().count(), 2000);
}

#[test]
fn durations_below_a_millisecond_are_no_interval() {
    let (_folder, db) = store();
    let run = |query: &str, times| {
        plain_engine().run(&db, &ReadContext::unbounded(), &Request::new(query, times))
    };
    let range = Steps::range(0, 99_000, 15_000);
    for times in [Steps::instant(99_000), range] {
        let default = run("sum_over_time(m[1m:])", times).unwrap().value;
        for step in ["1ms/2", "0.0004 * 1", "step()/100000 + 1ms/2"] {
            let value = run(&format!("sum_over_time(m[1m:{step}])"), times)
                .unwrap()
                .value;
            assert_eq!(format!("{value:?}"), format!("{default:?}"), "{step}");
        }
        for query in ["count_over_time(m[1ms/2])", "count_over_time(m[0.0001])"] {
            let value = run(query, times).unwrap().value;
            assert!(
                matches!(&value, Value::Vector(v) if v.is_empty())
                    || matches!(&value, Value::Matrix(m) if m.is_empty())
            );
        }
    }
}

#[test]
fn a_range_query_with_one_step_warns_about_its_sort() {
    let (_folder, db) = store();
    let n_warnings = |end_ms| {
        let times = Steps::range(0, end_ms, 30_000);
        plain_engine()
            .run(
                &db,
                &ReadContext::unbounded(),
                &Request::new("sort(m)", times),
            )
            .unwrap()
            .annotations
            .warnings()
            .count()
    };
    assert_eq!((n_warnings(10_000), n_warnings(0)), (1, 0));
}

/// The request panicked. Without debug assertions, the result was the left operand.
#[test]
fn scalars_cannot_be_trimmed() {
    let (_folder, db) = store();
    for query in [
        "1 </ 2",
        "time() >/ 2",
        "scalar(m) </ scalar(m)",
        "m + (1 + 2 >/ time())",
        "vector(1 </ 2)",
    ] {
        let request = Request::new(query, Steps::instant(0));
        let error = plain_engine()
            .run(&db, &ReadContext::unbounded(), &request)
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("/\" not allowed for Scalar operations"),
            "{query}: {error}"
        );
    }
}

/// Of nested functions the innermost was named.
#[test]
fn the_outermost_sort_is_ineffective() {
    let (_folder, db) = store();
    let times = Steps::range(0, 60_000, 30_000);
    for query in [
        "sort(sort_desc(m))",
        "sort_by_label(sort_by_label(m, \"a\"), \"b\")",
    ] {
        let result = plain_engine()
            .run(&db, &ReadContext::unbounded(), &Request::new(query, times))
            .unwrap();
        let warnings: Vec<_> = result.annotations.warnings().collect();
        assert!(
            warnings.len() == 1 && warnings[0].ends_with("(1:1)"),
            "{warnings:?}"
        );
    }
}

/// It was counted once per quantile.
#[test]
fn a_histogram_with_raised_buckets_counts_once() {
    let (_folder, db) = store();
    let mut batch = WriteBatch::default();
    for (le, value) in [("1", 2.0), ("2", 1.0), ("+Inf", 3.0)] {
        let series = db
            .series(&Labels::from_pairs([("__name__", "h_bucket"), ("le", le)]).unwrap())
            .unwrap();
        batch.push(
            series,
            Sample {
                timestamp_ms: 0,
                value,
            },
            0,
        );
    }
    db.append(&mut batch).unwrap();
    for quantiles in ["0.5", "0.5, 0.9", "NaN, 0.1, 0.2, 2, 0.3"] {
        let query = format!("histogram_quantiles(h_bucket, \"q\", {quantiles})");
        let request = Request::new(&query, Steps::instant(0));
        let result = plain_engine()
            .run(&db, &ReadContext::unbounded(), &request)
            .unwrap();
        let infos: Vec<_> = result.annotations.infos().collect();
        assert!(
            infos.len() == 1 && infos[0].contains("over 1 samples"),
            "{quantiles}: {infos:?}"
        );
    }
}

#[test]
fn the_label_of_quantiles_may_be_the_name() {
    let (_folder, db) = store();
    let mut batch = WriteBatch::default();
    for le in ["1", "+Inf"] {
        let series = db
            .series(&Labels::from_pairs([("__name__", "h_bucket"), ("le", le)]).unwrap())
            .unwrap();
        batch.push(
            series,
            Sample {
                timestamp_ms: 0,
                value: 1.0,
            },
            0,
        );
    }
    db.append(&mut batch).unwrap();
    let request = Request::new(
        "histogram_quantiles(h_bucket, \"__name__\", -0, 0, 0.5)",
        Steps::instant(0),
    );
    let error = plain_engine()
        .run(&db, &ReadContext::unbounded(), &request)
        .unwrap_err();
    assert!(
        error.to_string().contains("same labelset"),
        "0 and -0 are one quantile: {error}"
    );
    let request = Request::new(
        "histogram_quantiles(h_bucket, \"__name__\", -0, 0.5)",
        Steps::instant(0),
    );
    let result = plain_engine()
        .run(&db, &ReadContext::unbounded(), &request)
        .unwrap();
    let Value::Vector(vector) = result.value else {
        panic!("a vector")
    };
    let mut labels: Vec<_> = vector
        .iter()
        .map(|sample| sample.labels.to_string())
        .collect();
    labels.sort_unstable();
    assert_eq!(labels, ["{__name__=\"0.0\"}", "{__name__=\"0.5\"}"]);
}

#[test]
fn common_subexpressions_are_read_once() {
    let (_folder, db) = store();
    let run = |query: &str, step_ms: i64| {
        let ctx = ReadContext::unbounded();
        let times = Steps::range(0, 99_000, step_ms);
        let result = plain_engine()
            .run(&db, &ctx, &Request::new(query, times))
            .unwrap();
        (ctx.n_samples() / 10_000, format!("{:?}", result.value))
    };
    // A different selector reads the same series again.
    for (query, n_reads, otherwise) in [
        ("m + m", 1, "m + m{i!=\"x\"}"),
        ("sum(m) + max(abs(m))", 1, "sum(m) + max(abs(m{i!=\"x\"}))"),
        (
            "max(m * 2) - avg(m) / count(m)",
            1,
            "max(m * 2) - avg(m{i!=\"x\"}) / count(m{i!=\"x\"})",
        ),
        (
            "rate(m[10s]) / rate( (m[10s]) )",
            1,
            "rate(m[10s]) / rate(m{i!=\"x\"}[10s])",
        ),
        (
            "max_over_time(m[9s]) - min_over_time(m[9s]) * 2",
            1,
            "max_over_time(m[9s]) - min_over_time(m{i!=\"x\"}[9s]) * 2",
        ),
        (
            "sum(quantile_over_time(0.9, m[9s])) / sum by () (rate(m[9s]) * 2)",
            1,
            "sum(quantile_over_time(0.9, m[9s])) / sum by () (rate(m{i!=\"x\"}[9s]) * 2)",
        ),
        (
            "max(last_over_time(m[9s])) - min(increase(m[9s])) + sum(changes(m[9s]))",
            1,
            "max(last_over_time(m[9s])) - min(increase(m{i!=\"x\"}[9s])) + sum(changes(m{i!=\"x\"}[9s]))",
        ),
        // The parameter is evaluated first, and computes the sibling.
        (
            "sum(quantile_over_time(scalar(max(max_over_time(m[9s]))) / 200, m[9s])) - sum(min_over_time(m[9s]))",
            2,
            "sum(quantile_over_time(scalar(max(max_over_time(m{i!=\"x\"}[9s]))) / 200, m[9s])) \
             - sum(min_over_time(m{i!=\"x\"}[9s]))",
        ),
        (
            "max_over_time(m[10s]) - min_over_time(m[20s])",
            2,
            "max_over_time(m[10s]) - min_over_time(m{i!=\"x\"}[20s])",
        ),
    ] {
        let (found, other) = (run(query, 1000), run(otherwise, 1000));
        assert!(
            found == (n_reads, other.1),
            "{query}: read {} times",
            found.0
        );
    }
    // The result that is kept for the second function (100 series at 49,501 steps) exceeds the
    // limit. The limit does not apply if a join needs all series at once.
    assert_eq!(
        run("sum(max_over_time(m[9s])) - sum(min_over_time(m[9s]))", 2).0,
        2
    );
    assert_eq!(
        run("sum(max_over_time(m[9s]) - min_over_time(m[9s]))", 2).0,
        1
    );
}

#[test]
fn a_failing_sibling_in_a_scan_fails_at_its_own_position() {
    let ctx = ReadContext::unbounded();
    let error = |query: &str| range(&plain_engine(), &ctx, query).unwrap_err().to_string();
    let alone = error("double_exponential_smoothing(m[10s], 2, 0.5)");
    assert_eq!(
        error("max_over_time(m[10s]) + double_exponential_smoothing(m[10s], 2, 0.5)"),
        alone
    );
    assert_eq!(
        error("double_exponential_smoothing(m[10s], 2, 0.5) + max_over_time(m[10s])"),
        alone
    );
}

#[test]
fn joins_in_an_aggregation_give_the_same_with_few_labels() {
    let run = |query: &str| {
        format!(
            "{:?}",
            range(&plain_engine(), &ReadContext::unbounded(), query)
        )
    };
    for (query, otherwise) in [
        (
            "sum(m * on (i) group_left () max by (i) (m == m))",
            "sum((m * on (i) group_left () max by (i) (m == m)) + 0)",
        ),
        ("avg(m > on (i) (m % 7))", "avg((m > on (i) (m % 7)) + 0)"),
        (
            "sum by (i) (max by (i) (m) / on (i) group_right () rate(m[9s]))",
            "sum by (i) ((max by (i) (m) / on (i) group_right () rate(m[9s])) + 0)",
        ),
        (
            "sum by (i) (m * on () group_left () m{i=\"7\"})",
            "sum by (i) ((m * on () group_left () m{i=\"7\"}) + 0)",
        ),
        (
            "count(m * on () m{i=\"7\"})",
            "count((m * on () m{i=\"7\"}) + 0)",
        ),
        (
            "sum(m * on () group_left () m{i=~\"7|8\"})",
            "sum((m * on () group_left () m{i=~\"7|8\"}) + 0)",
        ),
    ] {
        assert_eq!(run(query), run(otherwise), "{query}");
    }
}

#[test]
fn invalid_queries_are_bad_data() {
    let (_folder, db) = store();
    let check = |query: &str, times: (i64, i64, i64), expect: &str| {
        let (start_ms, end_ms, step_ms) = times;
        let request = Request::new(query, Steps::range(start_ms, end_ms, step_ms));
        let error = engine(1)
            .run(&db, &ReadContext::unbounded(), &request)
            .unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{query}: {error:?}");
        assert_eq!(error.to_string(), expect, "{query}");
    };
    let matrix = "invalid expression type \"range vector\" for range query, must be Scalar or instant Vector";
    check("m[5m]", (0, 1000, 1000), matrix);
    for (range, position) in [
        ("step()-1", "7:15"),
        ("-(1m)", "7:11"),
        ("(1m - 2m)", "8:15"),
        ("((-1m))", "8:12"),
        ("min_of(0, 1m)", "7:20"),
    ] {
        let expect = format!("{position}: duration must be greater than 0");
        check(&format!("rate(m[{range}])"), (0, 1000, 1000), &expect);
    }
    check("m", (0, 1000, 0), "step of 0 ms is not positive");
    check(
        "m",
        (1000, 0, 1000),
        "end timestamp must not be before start time",
    );
    check(
        "m",
        (0, i64::MAX, 1),
        "9223372036854775808 steps exceed the limit of 1048576",
    );
}

#[test]
fn every_nan_is_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), Options::default()).unwrap();
    let handle = db
        .series(&Labels::from_pairs([("__name__", "payload")]).unwrap())
        .unwrap();
    let mut batch = WriteBatch::default();
    let payload = f64::from_bits(0x7ff8_0000_dead_beef);
    batch.push(
        handle,
        Sample {
            timestamp_ms: 0,
            value: payload,
        },
        0,
    );
    db.append(&mut batch).unwrap();
    let request = Request::new("payload", Steps::instant(0));
    let result = engine(100)
        .run(&db, &ReadContext::unbounded(), &request)
        .unwrap();
    let Value::Vector(vector) = result.value else {
        panic!("{:?}", result.value)
    };
    assert_eq!(vector[0].point.value.to_bits(), payload.to_bits());
}

/// Queries that read, drop, select, join and fold series; some of them fail.
const MANY_QUERIES: [&str; 16] = [
    "m",
    "rate(m[10s]) * 8 > 1",
    "sum(rate(m[10s]))",
    "avg by (i) (abs(m - 50)) + stddev by (i) (abs(m - 50))",
    "sum(m) / count(m) - avg(m)",
    "topk(3, m % 7)",
    "bottomk(2, -m)",
    "limitk(5, m)",
    "quantile(0.3, m)",
    "count_values(\"v\", m % 3)",
    "max_over_time(rate(m[10s])[20s:3s])",
    "m and m > 100 unless m > 150",
    "m + m{i=~\".*\"}",
    "absent(m > 1e9) + scalar(max(m))",
    "quantile_over_time(2, m[5s])",
    "double_exponential_smoothing(m[5s], 2, 0.5)",
];

fn stats_of(engine: &Engine, db: &Db, query: &str, times: Steps) -> Result<QueryResult> {
    let request = Request {
        stats: StatsMode::AsWritten,
        ..Request::new(query, times)
    };
    engine.run(db, &ReadContext::unbounded(), &request)
}

/// Prints a result without its timings.
fn printed(engine: &Engine, db: &Db, query: &str, times: Steps) -> String {
    match stats_of(engine, db, query, times) {
        Ok(QueryResult {
            value,
            annotations,
            stats,
            ..
        }) => {
            let SampleStats {
                queryable,
                read,
                steps,
                ..
            } = stats.unwrap().samples;
            format!(
                "{value:?} {:?} {queryable} {read} {steps:?}",
                annotations.all().collect::<Vec<_>>()
            )
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn results_do_not_depend_on_threads_or_on_where_the_data_is() {
    let (_folder, db) = store();
    let with = |parallelism| {
        let options = EngineOptions {
            parallelism,
            features: Features::all(),
            ..test_options()
        };
        Engine::new(options)
    };
    let range = Steps::range(0, 99_000, 1000);
    let all = |engine: &Engine| -> Vec<_> {
        let results = |times| MANY_QUERIES.map(|query| printed(engine, &db, query, times));
        [results(range), results(Steps::instant(50_000))].concat()
    };
    let expected = all(&with(1));
    for engine in [2, 3, 8].map(with) {
        assert_eq!(all(&engine), expected, "{engine:?} in the heads");
    }
    db.flush().unwrap();
    for engine in [1, 2, 3, 8].map(with) {
        assert_eq!(all(&engine), expected, "{engine:?} in blocks");
    }
}

#[test]
fn counts_do_not_depend_on_the_order_of_series() {
    let (_folder, db) = store();
    let check = || {
        for engine in [plain_engine(), plain_engine_with(true), engine(usize::MAX)] {
            for (query, otherwise) in [
                ("count(m)", "sum(m * 0 + 1)"),
                ("group(m)", "max(m * 0 + 1)"),
                (
                    "count({__name__=~\".+\"})",
                    "sum({__name__=~\".+\"} * 0 + 1)",
                ),
                ("count(m > 90)", "sum((m > 90) * 0 + 1)"),
                ("count(rate(m[9s]))", "sum(rate(m[9s]) * 0 + 1)"),
                ("count(m) + count(m)", "2 * sum(m * 0 + 1)"),
                ("count(m) + sum(m)", "sum(m * 0 + 1) + sum(m)"),
                (
                    "count(m * on (i) group_left () m{i=~\"7|8\"})",
                    "sum(m{i=~\"7|8\"} * 0 + 1)",
                ),
                ("count(m offset 40s)", "sum((m offset 40s) * 0 + 1)"),
            ] {
                for times in [Steps::instant(120_000), Steps::range(0, 120_000, 7_000)] {
                    let run = |query| {
                        engine.run(&db, &ReadContext::unbounded(), &Request::new(query, times))
                    };
                    let (value, expect) =
                        (run(query).unwrap().value, run(otherwise).unwrap().value);
                    assert_eq!(format!("{value:?}"), format!("{expect:?}"), "{query}");
                }
            }
        }
    };
    check();
    db.flush().unwrap();
    check();
    // Some series are in a block and in the heads, others only in one of them.
    let mut batch = WriteBatch::default();
    for i in 50..150 {
        let labels = Labels::from_pairs([("__name__", "m"), ("i", &i.to_string())]).unwrap();
        batch.push(
            db.series(&labels).unwrap(),
            Sample {
                timestamp_ms: 110_000,
                value: f64::from(i),
            },
            0,
        );
    }
    db.append(&mut batch).unwrap();
    check();
}

#[test]
fn a_request_overrides_the_use_of_start_timestamps() {
    let (_folder, db) = store();
    let engine = plain_engine();
    for (use_start_timestamps, n_series) in [(None, 0), (Some(false), 0), (Some(true), 100)] {
        let request = Request {
            use_start_timestamps,
            ..Request::new("start_timestamp(m)", Steps::instant(50_000))
        };
        let result = engine
            .run(&db, &ReadContext::unbounded(), &request)
            .unwrap();
        let Value::Vector(vector) = result.value else {
            panic!("no vector")
        };
        assert_eq!(vector.len(), n_series, "{use_start_timestamps:?}");
    }
}

#[test]
fn shared_results_equal_separate_evaluations() {
    let (_folder, db) = store();
    let all = |query: &str| {
        printed(
            &engine(usize::MAX),
            &db,
            query,
            Steps::range(0, 60_000, 7000),
        )
    };
    // The second query has an always-true matcher, so that its expressions are not equal.
    for (shared, unshared) in [
        ("m + m", "m + m{i=~\".*\"}"),
        (
            "rate(m[9s]) > 0.5 or rate(m[9s])",
            "rate(m[9s]) > 0.5 or rate(m{i=~\".*\"}[9s])",
        ),
        (
            "avg(m) + 2 * stddev(m)",
            "avg(m) + 2 * stddev(m{i=~\".*\"})",
        ),
        (
            "sum(m) + sum(m) + count(m)",
            "sum(m) + sum(m{i=~\".*\"}) + count(m{i=~\".*.*\"})",
        ),
        ("-m + abs(-m)", "-m + abs(-m{i=~\".*\"})"),
        (
            "max_over_time(rate(m[9s])[9s:1s]) - rate(m[9s])",
            "max_over_time(rate(m[9s])[9s:1s]) - rate(m{i=~\".*\"}[9s])",
        ),
    ] {
        // Positions in annotations differ between the two queries.
        let plain = |text: String| text.split(" (1:").next().unwrap().to_owned();
        assert_eq!(plain(all(shared)), plain(all(unshared)), "{shared}");
    }
}

#[test]
fn each_step_counts_the_samples_that_it_needs_alone() {
    let (_folder, db) = store();
    let engine = engine(usize::MAX);
    let (start_ms, end_ms, step_ms) = (5000, 95_000, 10_000);
    for query in MANY_QUERIES {
        let Ok(result) = stats_of(&engine, &db, query, Steps::range(start_ms, end_ms, step_ms))
        else {
            continue;
        };
        let samples = result.stats.unwrap().samples;
        assert_eq!(
            samples.steps.iter().map(|step| step.queryable).sum::<u64>(),
            samples.queryable,
            "{query}"
        );
        assert_eq!(
            samples.steps.iter().map(|step| step.read).sum::<u64>(),
            samples.read,
            "{query}"
        );
        for step in samples.steps {
            let alone = stats_of(&engine, &db, query, Steps::instant(step.timestamp_ms))
                .unwrap()
                .stats
                .unwrap();
            assert_eq!(
                step.queryable, alone.samples.queryable,
                "{query} at {}",
                step.timestamp_ms
            );
        }
    }
}

#[test]
fn explain_profiles_each_operator() {
    let (_folder, db) = store();
    let times = Steps::range(0, 90_000, 10_000);
    let check = |query: &str, expect: &[(usize, &str, usize, usize, usize)]| {
        let stats = stats_of(&engine(usize::MAX), &db, query, times)
            .unwrap()
            .stats
            .unwrap();
        let operators: Vec<_> = stats
            .operators
            .iter()
            .map(|o| (o.depth, &*o.text, o.runs, o.series, o.samples))
            .collect();
        assert_eq!(operators, expect, "{query}");
    };
    check(
        "sum(rate(m[20s])) / 2",
        &[
            (0, "/", 1, 1, 9),
            (1, "sum", 1, 1, 9),
            (2, "rate()", 1, 100, 900),
            (3, "m[20s]", 0, 0, 0),
            (1, "2", 0, 0, 0),
        ],
    );
    check(
        "m + m",
        &[
            (0, "+", 1, 100, 1000),
            (1, "m", 1, 100, 1000),
            (1, "m", 0, 100, 1000),
        ],
    );
}

#[test]
fn matcher_propagation_does_not_change_results() {
    let (_folder, db) = store();
    let engine = engine(usize::MAX);
    for query in [
        "m and on(i) m{i=\"3\"}",
        "m{i=~\"1.*\"} and m{i!=\"11\"}",
        "m{i!=\"3\"} unless m{i=~\"4.*\"}",
        "rate(m[9s]) unless on(i) m{i=\"3\"}",
        "m{i=\"1\"} unless ignoring(i) m{i=\"2\"}",
        "m and on() m{i=\"2\"} > 10",
        "m{j=\"\"} and m",
        "(m @ 7 and m{i=\"5\"}) + 1",
    ] {
        let result = |stats| {
            let times = Steps::range(0, 90_000, 10_000);
            let request = Request {
                stats,
                ..Request::new(query, times)
            };
            let value = engine
                .run(&db, &ReadContext::unbounded(), &request)
                .unwrap()
                .value;
            assert!(
                matches!(&value, Value::Matrix(matrix) if !matrix.is_empty())
                    || query.contains("ignoring(i)"),
                "{query}"
            );
            format!("{value:?}")
        };
        assert_eq!(
            result(StatsMode::AsWritten),
            result(StatsMode::Off),
            "{query}"
        );
        assert_eq!(
            result(StatsMode::AsWritten),
            result(StatsMode::AsPlanned),
            "{query}"
        );
    }
}

/// The labels of a series, and its samples: seconds and values.
type SeriesOf<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, f64)]);

/// Creates a store of series.
fn store_of(series: &[SeriesOf<'_>]) -> (TempDir, Db) {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), Options::default()).unwrap();
    let mut batch = WriteBatch::default();
    for (labels, samples) in series {
        let handle = db
            .series(&Labels::from_pairs(labels.iter().copied()).unwrap())
            .unwrap();
        samples.iter().for_each(|&(s, value)| {
            batch.push(
                handle,
                Sample {
                    timestamp_ms: s * 1000,
                    value,
                },
                0,
            )
        });
    }
    db.append(&mut batch).unwrap();
    (folder, db)
}

#[test]
fn results_are_those_of_prometheus_3_16() {
    let (_folder, db) = store_of(&[
        (
            &[("__name__", "a"), ("__type__", "gauge"), ("x", "1")],
            &[(50, 1.0), (60, 2.0)],
        ),
        (
            &[("__name__", "b"), ("__unit__", "s"), ("x", "1")],
            &[(60, 40.0)],
        ),
        (
            &[("__name__", "early"), ("x", "1")],
            &[(0, 0.0), (10, 10.0)],
        ),
        (
            &[("__name__", "late"), ("x", "1")],
            &[(50, 0.0), (60, 20.0)],
        ),
        (&[("__name__", "one"), ("j", "1")], &[(60, 5.0)]),
        (
            &[("__name__", "many"), ("j", "2"), ("k", "v")],
            &[(60, 30.0)],
        ),
        (&[("__name__", "plain"), ("job", "p")], &[(60, 1.0)]),
        (
            &[("__name__", "whole"), ("job", "p"), ("instance", "q")],
            &[(60, 1.0)],
        ),
        (
            &[
                ("__name__", "target_info"),
                ("job", "p"),
                ("data", "of_job"),
            ],
            &[(60, 1.0)],
        ),
        (&[("__name__", "h_bucket"), ("le", "1")], &[(60, 5.0)]),
        (&[("__name__", "h_bucket"), ("le", "+Inf")], &[(60, 10.0)]),
        (&[("__name__", "h_bucket"), ("le", "NaN")], &[(60, 7.0)]),
    ]);
    let run = |query: &str| {
        let result = plain_engine().run(
            &db,
            &ReadContext::unbounded(),
            &Request::new(query, Steps::instant(60_000)),
        );
        let value = result.map_err(|error| error.to_string())?.value;
        let Value::Vector(vector) = value else {
            panic!("{query}: {value:?}")
        };
        let mut printed: Vec<_> = vector
            .iter()
            .map(|s| format!("{} {}", s.labels, s.point.value))
            .collect();
        printed.sort();
        Ok::<_, String>(printed.join(", "))
    };
    for (query, expect) in [
        ("a + b", "{x=\"1\"} 42"),
        ("a + ignoring (y) b", "{x=\"1\"} 42"),
        ("sum without (x) (a)", "{} 2"),
        ("sum by (__type__) (a)", "{__type__=\"gauge\"} 2"),
        (
            "absent(z{__type__=\"t\", __unit__=\"u\", x=\"1\"})",
            "{x=\"1\"} 1",
        ),
        (
            "increase({__name__=~\"early|late\"}[30s]) > 0",
            "{x=\"1\"} 20",
        ),
        (
            "sum(max_over_time({__name__=~\"early|late\"}[15s]))",
            "{} 20",
        ),
        (
            "one + on (j) group_right () fill_left (7) many",
            "{j=\"2\", k=\"v\"} 37",
        ),
        (
            "one + on (j) group_right () fill_right (7) many",
            "{j=\"1\"} 12",
        ),
        (
            "info(plain)",
            "{__name__=\"plain\", data=\"of_job\", job=\"p\"} 1",
        ),
        (
            "info(whole)",
            "{__name__=\"whole\", instance=\"q\", job=\"p\"} 1",
        ),
        ("info(plain or vector(2)) == 2", "{} 2"),
        ("histogram_quantile(0.25, h_bucket)", "{} 0.5"),
        (
            "a anchored",
            "{__name__=\"a\", __type__=\"gauge\", x=\"1\"} 2",
        ),
        ("timestamp(a smoothed)", "{x=\"1\"} 60"),
        ("integral(a[20s])", "{x=\"1\"} 15"),
        ("integral(a[20s], 0)", "{x=\"1\"} 10"),
    ] {
        assert_eq!(run(query).as_deref(), Ok(expect), "{query}");
    }
    // The windows of both series have samples.
    let same_labels = "vector cannot contain metrics with the same labelset";
    assert_eq!(
        run("max_over_time({__name__=~\"early|late\"}[60s])"),
        Err(same_labels.to_owned())
    );
    assert_eq!(
        run("abs(max_over_time({__name__=~\"early|late\"}[60s]))"),
        Err(same_labels.to_owned())
    );
    assert_eq!(
        run("sum(max_over_time({__name__=~\"early|late\"}[60s]))"),
        Err(same_labels.to_owned())
    );
}

/// Type and unit are removed with the metric name, with and without the feature.
#[test]
fn series_that_differ_only_in_type_or_unit_are_merged_or_rejected() {
    let (_folder, db) = store_of(&[
        (
            &[("__name__", "m"), ("__type__", "gauge"), ("x", "1")],
            &[(60, 1.0)],
        ),
        (
            &[("__name__", "m"), ("__type__", "counter"), ("x", "1")],
            &[(60, 2.0)],
        ),
        (&[("__name__", "m"), ("x", "2")], &[(60, 4.0)]),
        (
            &[("__name__", "apart"), ("__unit__", "s"), ("x", "1")],
            &[(60, 3.0)],
        ),
        (&[("__name__", "apart"), ("x", "1")], &[(600, 4.0)]),
    ]);
    let times = Steps::range(60_000, 600_000, 540_000);
    let run = |engine: &Engine, query: &str| match engine.run(
        &db,
        &ReadContext::unbounded(),
        &Request::new(query, times),
    ) {
        Ok(QueryResult {
            value: Value::Matrix(matrix),
            ..
        }) => matrix
            .iter()
            .map(|series| (series.labels.to_string(), series.points.len()))
            .collect(),
        result => vec![(result.expect_err("a matrix").to_string(), 0)],
    };
    let same_labels = ("vector cannot contain metrics with the same labelset", 0);
    for is_flushed in [false, true] {
        if is_flushed {
            db.flush().unwrap();
        }
        for (query, expect) in [
            ("abs(m)", same_labels),
            ("-m", same_labels),
            ("m * 2", same_labels),
            ("sum(m > bool 1)", same_labels),
            ("count by (x) (abs(m))", same_labels),
            ("max_over_time(m[1m])", same_labels),
            ("sum(max_over_time(m[1m]))", same_labels),
            ("sum(m > 0)", ("{}", 1)),
            ("abs(m{x=\"2\"})", ("{x=\"2\"}", 1)),
            ("abs(apart)", ("{x=\"1\"}", 2)),
            ("sum by (x) (abs(apart))", ("{x=\"1\"}", 2)),
            ("sum(max_over_time(apart[1m]))", ("{}", 2)),
        ] {
            for has_feature in [false, true] {
                let result = run(&plain_engine_with(has_feature), query);
                assert_eq!(
                    result,
                    [(expect.0.to_owned(), expect.1)],
                    "{query} {is_flushed} {has_feature}"
                );
            }
        }
    }
}

#[test]
fn subqueries_end_at_the_last_step_and_their_samples_count_by_window() {
    let (_folder, db) = store();
    let times = Steps::range(20_000, 49_000, 20_000);
    let stats = |query: &str| {
        let request = Request {
            stats: StatsMode::AsWritten,
            ..Request::new(query, times)
        };
        let stats = plain_engine()
            .run(&db, &ReadContext::unbounded(), &request)
            .unwrap()
            .stats
            .unwrap();
        (
            stats.samples.queryable,
            stats.samples.read,
            stats.samples.series,
        )
    };
    // The steps are 20 and 40 s, the inner steps 5 to 40 s. The window of each step has 4 of them.
    assert_eq!(stats("sum_over_time(m{i=\"1\"}[20s:5s])"), (8, 8, 1));
    assert_eq!(stats("sum_over_time(m{i=\"1\"}[30s:5s])"), (11, 9, 1));
    assert_eq!(stats("m{i=\"1\"} + m"), (202, 202, 101));
    assert_eq!(stats("m{i=\"1\"} smoothed"), (0, 0, 1));
}

#[test]
fn expressions_see_external_labels() {
    let (_folder, db) = store();
    let check = |query: &str, expect: &[(&str, f64)]| {
        let external_labels =
            [("cluster", "c"), ("i", "x")].map(|(n, v)| (n.to_owned(), v.to_owned()));
        let request = Request {
            external_labels: external_labels.into(),
            ..Request::new(query, Steps::instant(0))
        };
        let result = plain_engine()
            .run(&db, &ReadContext::unbounded(), &request)
            .unwrap();
        let Value::Vector(vector) = result.value else {
            panic!("no vector")
        };
        let got: Vec<_> = vector
            .iter()
            .map(|sample| (sample.labels.to_string(), sample.point.value))
            .collect();
        let expect: Vec<_> = expect
            .iter()
            .map(|(labels, value)| ((*labels).to_owned(), *value))
            .collect();
        assert_eq!(got, expect, "{query}");
    };
    check("count by (cluster) (m)", &[("{cluster=\"c\"}", 100.0)]);
    check(
        "count by (cluster, i) (m{cluster=~\"c|d\"})",
        &[("{cluster=\"c\", i=\"x\"}", 100.0)],
    );
    check("count(m{cluster=\"d\"})", &[]);
    check("count(m{cluster!=\"c\"}) or vector(7)", &[("{}", 7.0)]);
    check(
        "count by (i) (rate(m{i=\"x\"}[10s] offset -20s))",
        &[("{i=\"x\"}", 100.0)],
    );
}

#[test]
fn small_queries_read_few_samples_of_the_heads() {
    let (_folder, db) = store();
    let engine = plain_engine();
    let is_small = |query: &str, times| {
        let ctx = ReadContext::unbounded();
        let parsed = engine.parse(&ctx, query).unwrap();
        engine.is_small(&db, &ctx, &parsed, &Request::new(query, times))
    };
    let instant = Steps::instant(99_000);
    for query in [
        "1+1",
        "m{i=\"1\"}",
        "sum(rate(m[40s])) by (i)",
        "absent(nosuch)",
        "nosuch[10d]",
    ] {
        assert!(is_small(query, instant), "{query}");
    }
    let many = vec!["1"; 40].join("+");
    for query in [
        "m",
        "{i!=\"\"}",
        "m{i=\"1\"}[1d]",
        "m{i=\"1\"} offset 1m",
        "m{i=\"1\"}[1m:1s]",
        "info(nosuch)",
        &many,
    ] {
        assert!(!is_small(query, instant), "{query}");
    }
    let range = |n_steps: i64| Steps::range(0, (n_steps - 1) * 1000, 1000);
    for query in [
        "1",
        "m{i=\"1\"} + 1",
        "m{i=~\"1|2\"}",
        "rate(m{i=\"1\"}[1m])",
    ] {
        assert!(is_small(query, range(100)), "{query}");
    }
    for query in ["m{i!~\"1|2\"}", "quantile_over_time(0.5, m{i=\"1\"}[10m])"] {
        assert!(!is_small(query, range(100)), "{query}");
    }
    assert!(!is_small("1", range(1001)));
    db.flush().unwrap();
    assert!(
        is_small("1+1", instant) && !is_small("m{i=\"1\"}", instant),
        "a block is read"
    );
}
