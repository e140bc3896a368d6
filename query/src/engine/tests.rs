use std::time::Duration;

use tempfile::TempDir;
use varve_tsdb::{Interrupt, Labels, MemoryBudget, Options, Sample, WriteBatch};

use super::*;

/// A store with the series `m{i="0"}` to `m{i="99"}`, a sample a second from 0 to 99 s.
fn store() -> (TempDir, Db) {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), Options::default()).unwrap();
    let mut batch = WriteBatch::default();
    for i in 0..100 {
        let labels = Labels::from_pairs([("__name__", "m"), ("i", &i.to_string())]).unwrap();
        let handle = db.series(&labels).unwrap();
        (0..100).for_each(|s| batch.push(handle, Sample { timestamp_ms: s * 1000, value: (i + s) as f64 }, 0));
    }
    db.append(&mut batch).unwrap();
    (folder, db)
}

fn engine(samples_max: usize) -> Engine {
    Engine::new(EngineOptions { samples_max, features: Features::all(), ..EngineOptions::default() })
}

/// Runs a range query of 100 steps.
fn range(engine: &Engine, ctx: &QueryContext, query: &str) -> Result<Vec<MatrixSeries>> {
    let (_folder, db) = store();
    match engine.range(&db, ctx, query, 0, 99_000, 1000, None)?.value {
        Value::Matrix(matrix) => Ok(matrix),
        other => panic!("{other:?}"),
    }
}

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
fn a_query_over_its_memory_is_ended_and_gives_all_back() {
    for query in QUERIES {
        let memory = MemoryBudget::new("query memory", 4000);
        let ctx = QueryContext::new(Duration::from_secs(60), memory.clone());
        let error = range(&engine(usize::MAX), &ctx, query).unwrap_err();
        assert!(matches!(&error, Error::Limit { text, .. } if text.starts_with("query memory: ")), "{query}: {error}");
        assert_eq!(memory.used(), 0, "{query}");
    }
}

#[test]
fn a_query_over_its_samples_is_ended_in_prometheus_words() {
    for query in QUERIES {
        let error = range(&engine(500), &QueryContext::unbounded(), query).unwrap_err();
        let text = "query processing would load too many samples into memory in query execution";
        assert_eq!(error.to_string(), text, "{query}");
    }
    let error = range(&engine(500), &QueryContext::unbounded(), "sum_over_time(vector(1)[10y:1ms])").unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
}

#[test]
fn an_aggregation_over_a_selector_holds_labels_and_groups_only() {
    let peak = |query: &str| {
        let memory = MemoryBudget::new("query memory", usize::MAX);
        let ctx = QueryContext::new(Duration::from_secs(60), memory.clone());
        range(&engine(usize::MAX), &ctx, query).unwrap();
        memory.peak()
    };
    // 100 series of 100 steps are 80 kB of values; the selection holds the labels in order.
    let values_size = 100 * 100 * 8;
    assert!(peak("m") > values_size);
    for query in ["sum(m)", "sum(rate(m[10s]))", "absent(m)"] {
        assert!(peak(query) < values_size / 2, "{query}: {} bytes", peak(query));
    }
}

#[test]
fn a_query_ends_for_the_reason_it_is_given() {
    let check = |reason: Interrupt, expect: &str| {
        let ctx = QueryContext::unbounded();
        ctx.interrupt(reason);
        for query in QUERIES {
            assert_eq!(range(&engine(usize::MAX), &ctx, query).unwrap_err().to_string(), expect, "{query}");
        }
    };
    check(Interrupt::Deadline, "query timed out in expression evaluation");
    check(Interrupt::Canceled, "query was canceled in expression evaluation");
    check(Interrupt::Killed, "query was canceled in expression evaluation: an operator ended it");
    check(Interrupt::Heaviest, &Interrupt::Heaviest.to_string());
    check(Interrupt::Shutdown, "query was canceled in expression evaluation: the server is shutting down");
}

#[test]
fn long_chains_and_deep_trees_take_a_bounded_stack() {
    let (_folder, db) = store();
    let run = |query: &str| engine(usize::MAX).instant(&db, &QueryContext::unbounded(), query, 0, None);
    let chain = format!("sum(m{{i=\"1\"}}{})", " + 1".repeat(10_000));
    match run(&chain).unwrap().value {
        Value::Vector(vector) => assert_eq!(vector[0].point.value, 10_001.0),
        other => panic!("{other:?}"),
    }
    let deep = format!("{}m{}", "abs(".repeat(200), ")".repeat(200));
    assert!(matches!(run(&deep).unwrap().value, Value::Vector(vector) if vector.len() == 100));
}

#[test]
fn what_cannot_be_prepared_is_bad_data() {
    let (_folder, db) = store();
    let check = |query: &str, times: (i64, i64, i64), expect: &str| {
        let (start, end, step) = times;
        let error = engine(1).range(&db, &QueryContext::unbounded(), query, start, end, step, None).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{query}: {error:?}");
        assert_eq!(error.to_string(), expect, "{query}");
    };
    let matrix = "invalid expression type \"range vector\" for range query, must be Scalar or instant Vector";
    check("m[5m]", (0, 1000, 1000), matrix);
    check("rate(m[step()-1])", (0, 1000, 1000), "7:15: duration must be greater than 0");
    check("m", (0, 1000, 0), "step of 0 ms is not positive");
    check("m", (1000, 0, 1000), "end timestamp must not be before start time");
    check("m", (0, i64::MAX, 1), "9223372036854775808 steps exceed the limit of 1048576");
}

#[test]
fn every_nan_is_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), Options::default()).unwrap();
    let handle = db.series(&Labels::from_pairs([("__name__", "payload")]).unwrap()).unwrap();
    let mut batch = WriteBatch::default();
    let payload = f64::from_bits(0x7ff8_0000_dead_beef);
    batch.push(handle, Sample { timestamp_ms: 0, value: payload }, 0);
    db.append(&mut batch).unwrap();
    let result = engine(100).instant(&db, &QueryContext::unbounded(), "payload", 0, None).unwrap();
    let Value::Vector(vector) = result.value else { panic!("{:?}", result.value) };
    assert_eq!(vector[0].point.value.to_bits(), payload.to_bits());
}
