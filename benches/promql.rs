//! PromQL: parsing, operators over many series, and how late a deadline ends a query.
//! `varve-bench query` measures dashboards.

mod common;
#[path = "common/fill.rs"]
mod fill;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use varve_context::{Limit, MemoryBudget, QueryContext};
use varve_model::{Labels, Sample, TimeRange};
use varve_promql::Features;
use varve_query::{Engine, EngineOptions, Request, Steps};
use varve_tsdb::{Db, ReadContext, WriteBatch};

const N_SERIES: usize = 100_000;
const N_STEPS: i64 = 120;
const DEADLINE: Duration = Duration::from_millis(200);

/// A typical query of a dashboard.
const DASHBOARD: &str = r#"sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{job="kubelet", container!=""}[5m]))
    / on (namespace, pod) group_left () kube_pod_status_ready{namespace=~"research|data"} > 0.5"#;

fn parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    group.throughput(Throughput::Bytes(DASHBOARD.len() as u64));
    group.bench_function("dashboard query", |b| {
        b.iter(|| {
            varve_promql::parse(black_box(DASHBOARD), &Features::default())
                .expect("evaluate a valid query")
        });
    });
}

/// An hour of samples every 30 s.
fn filled(dir: &std::path::Path) -> Db {
    let db = common::open(dir, 2, 1);
    let handles = fill::series(&db, N_SERIES);
    let mut batch = WriteBatch::default();
    for step in 0..N_STEPS {
        fill::append_step(&db, &handles, step, &mut batch);
    }
    db
}

/// Returns options of an engine without worker threads and optional features.
fn options(cache_size: usize) -> EngineOptions {
    EngineOptions {
        lookback_delta_ms: 300_000,
        samples_max: usize::MAX,
        subquery_step_ms: 60_000,
        parallelism: 1,
        cache_size,
        features: Features::default(),
    }
}

fn evaluate(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let db = filled(dir.path());
    let engine = Engine::new(options(0));
    let end_ms = common::START_MS + (N_STEPS - 1) * common::STEP_MS;

    let mut group = c.benchmark_group("evaluate");
    group.sample_size(10);
    for (name, query) in [
        ("instant selector", "container_cpu_usage_seconds_total"),
        ("instant sum", "sum(container_cpu_usage_seconds_total)"),
        (
            "sum by of rate",
            "sum by (namespace) (rate(container_cpu_usage_seconds_total[5m]))",
        ),
        (
            "topk of rate",
            "topk(10, rate(container_network_receive_bytes_total[5m]))",
        ),
        (
            "quantile",
            "quantile by (namespace) (0.9, container_memory_working_set_bytes)",
        ),
        (
            "count_values",
            "count_values(\"value\", kube_pod_status_ready)",
        ),
        (
            "function of each",
            "clamp_max(sqrt(container_memory_working_set_bytes), 1e6)",
        ),
        (
            "comparison with a number",
            "container_memory_working_set_bytes > 1e9",
        ),
        (
            "set operator",
            "container_memory_working_set_bytes and on (pod, id) kube_pod_status_ready",
        ),
        (
            "over time",
            "max_over_time(container_memory_working_set_bytes[10m])",
        ),
        (
            "subquery",
            "max_over_time(sum(rate(container_cpu_usage_seconds_total[5m]))[30m:1m])",
        ),
        ("sort", "sort_desc(container_memory_working_set_bytes)"),
        (
            "label_replace",
            "label_replace(kube_pod_status_ready, \"short\", \"$1\", \"pod\", \"(.*)-.*\")",
        ),
        (
            "join",
            "container_memory_working_set_bytes * on (pod, id) kube_pod_status_ready",
        ),
    ] {
        let ctx = ReadContext::unbounded();
        group.bench_function(format!("{name}, one step"), |b| {
            let request = Request::new(query, Steps::instant(end_ms));
            b.iter(|| {
                engine
                    .run(&db, &ctx, &request)
                    .expect("evaluate a valid query")
            });
        });
        group.bench_function(format!("{name}, 60 steps"), |b| {
            let start_ms = end_ms - 59 * 30_000;
            let request = Request::new(query, Steps::range(start_ms, end_ms, 30_000));
            b.iter(|| {
                engine
                    .run(&db, &ctx, &request)
                    .expect("evaluate a valid query")
            });
        });
    }
}

/// Measures a range query whose steps are cached: all of them, and all but those that an append
/// changed.
fn cached(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let db = filled(dir.path());
    let engine = Engine::new(options(64 << 20));
    let ctx = ReadContext::unbounded();
    let end_ms = common::START_MS + (N_STEPS - 1) * common::STEP_MS;
    let times = Steps::range(end_ms - 59 * 30_000, end_ms, 30_000);
    let query = "sum by (namespace) (rate(container_cpu_usage_seconds_total[5m]))";
    let name = ("__name__", "container_cpu_usage_seconds_total");
    let series = db
        .series(&Labels::from_pairs([name]).expect("make labels"))
        .expect("create a series");

    let mut group = c.benchmark_group("result cache");
    group.sample_size(10);
    for (name, use_cache, appends) in [
        ("not used", false, false),
        ("all steps", true, false),
        ("all but changed steps", true, true),
    ] {
        let request = Request {
            use_cache,
            ..Request::new(query, times)
        };
        let mut batch = WriteBatch::default();
        let mut timestamp_ms = end_ms;
        group.bench_function(name, |b| {
            b.iter(|| {
                if appends {
                    timestamp_ms += 1;
                    batch.clear();
                    batch.push(
                        series,
                        Sample {
                            timestamp_ms,
                            value: 1.0,
                        },
                        0,
                    );
                    db.append(&mut batch).expect("append a sample");
                }
                engine
                    .run(&db, &ctx, &request)
                    .expect("evaluate a valid query")
            });
        });
    }
}

/// Measures the time until the error; the excess over 200 ms is the delay in detecting the
/// deadline.
fn deadline(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let db = filled(dir.path());
    let engine = Engine::new(options(0));
    let start_ms = common::START_MS;
    let end_ms = common::START_MS + N_STEPS * common::STEP_MS;
    let memory = MemoryBudget::new(Limit::Other("memory"), usize::MAX);

    let mut group = c.benchmark_group("deadline of 200 ms");
    group.sample_size(10);
    for query in [
        r#"{__name__=~".+"}"#,
        r#"sort_desc(sum by (pod, id) (last_over_time({__name__=~".+"}[1h])))"#,
    ] {
        group.bench_function(query, |b| {
            b.iter(|| {
                let ctx = ReadContext::unrestricted(QueryContext::new(DEADLINE, memory.clone()));
                let times = Steps::range(start_ms, end_ms, 1_000);
                let end = engine.run(&db, &ctx, &Request::new(query, times));
                assert!(
                    end.is_err() && memory.used() == 0,
                    "it is cut and gives its memory back"
                );
            });
        });
    }
    group.bench_function("series, sorted, over and over", |b| {
        b.iter(|| {
            let ctx = ReadContext::unrestricted(QueryContext::new(DEADLINE, memory.clone()));
            loop {
                let read = db
                    .select(&ctx, &[], TimeRange::ALL)
                    .and_then(|mut all| all.try_for_each(|series| series.map(drop)));
                if read.is_err() {
                    break;
                }
            }
            assert_eq!(memory.used(), 0);
        });
    });
}

criterion_group!(benches, parse, evaluate, cached, deadline);
criterion_main!(benches);
