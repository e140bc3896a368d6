//! PromQL: parsing, operators over many series, dashboards over six hours, and how late a deadline ends a query.

mod common;
#[path = "common/fill.rs"]
mod fill;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use varve_query::promql::{self, Features};
use varve_query::{Engine, EngineOptions, Request, Times};
use varve_tsdb::context::MemoryBudget;
use varve_tsdb::{Db, Labels, QueryContext, Sample, SeriesHandle, TimeRange, WriteBatch};

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
        b.iter(|| promql::parse(black_box(DASHBOARD), &Features::default()).expect("evaluate a valid query"));
    });
}

/// An hour of samples every 30 s.
fn filled(dir: &std::path::Path) -> Db {
    let db = common::open(dir, 2, 1);
    let handles = fill::series(&db, N_SERIES);
    let mut batch = WriteBatch::default();
    (0..N_STEPS).for_each(|step| fill::append_step(&db, &handles, step, &mut batch));
    db
}

fn evaluate(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let db = filled(dir.path());
    let engine = Engine::new(EngineOptions { samples_max: usize::MAX, ..EngineOptions::default() });
    let end_ms = common::START_MS + (N_STEPS - 1) * common::STEP_MS;

    let mut group = c.benchmark_group("evaluate");
    group.sample_size(10);
    for (name, query) in [
        ("instant selector", "container_cpu_usage_seconds_total"),
        ("instant sum", "sum(container_cpu_usage_seconds_total)"),
        ("sum by of rate", "sum by (namespace) (rate(container_cpu_usage_seconds_total[5m]))"),
        ("topk of rate", "topk(10, rate(container_network_receive_bytes_total[5m]))"),
        ("quantile", "quantile by (namespace) (0.9, container_memory_working_set_bytes)"),
        ("count_values", "count_values(\"value\", kube_pod_status_ready)"),
        ("function of each", "clamp_max(sqrt(container_memory_working_set_bytes), 1e6)"),
        ("comparison with a number", "container_memory_working_set_bytes > 1e9"),
        ("set operator", "container_memory_working_set_bytes and on (pod, id) kube_pod_status_ready"),
        ("over time", "max_over_time(container_memory_working_set_bytes[10m])"),
        ("subquery", "max_over_time(sum(rate(container_cpu_usage_seconds_total[5m]))[30m:1m])"),
        ("sort", "sort_desc(container_memory_working_set_bytes)"),
        ("label_replace", "label_replace(kube_pod_status_ready, \"short\", \"$1\", \"pod\", \"(.*)-.*\")"),
        ("join", "container_memory_working_set_bytes * on (pod, id) kube_pod_status_ready"),
    ] {
        let ctx = QueryContext::unbounded();
        group.bench_function(format!("{name}, one step"), |b| {
            let request = Request::new(query, Times::Instant(end_ms));
            b.iter(|| engine.run(&db, &ctx, &request).expect("evaluate a valid query"));
        });
        group.bench_function(format!("{name}, 60 steps"), |b| {
            let start_ms = end_ms - 59 * 30_000;
            let request = Request::new(query, Times::Range { start_ms, end_ms, step_ms: 30_000 });
            b.iter(|| engine.run(&db, &ctx, &request).expect("evaluate a valid query"));
        });
    }
}

/// Measures the time until the error; the excess over 200 ms is the delay in detecting the deadline.
fn deadline(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let db = filled(dir.path());
    let engine = Engine::new(EngineOptions { samples_max: usize::MAX, ..EngineOptions::default() });
    let (start_ms, end_ms) = (common::START_MS, common::START_MS + N_STEPS * common::STEP_MS);
    let memory = MemoryBudget::new("memory", usize::MAX);

    let mut group = c.benchmark_group("deadline of 200 ms");
    group.sample_size(10);
    for query in [r#"{__name__=~".+"}"#, r#"sort_desc(sum by (pod, id) (last_over_time({__name__=~".+"}[1h])))"#] {
        group.bench_function(query, |b| {
            b.iter(|| {
                let ctx = QueryContext::new(DEADLINE, memory.clone());
                let times = Times::Range { start_ms, end_ms, step_ms: 1_000 };
                let end = engine.run(&db, &ctx, &Request::new(query, times));
                assert!(end.is_err() && memory.used() == 0, "it is cut and gives its memory back");
            });
        });
    }
    group.bench_function("series, sorted, over and over", |b| {
        b.iter(|| {
            let ctx = QueryContext::new(DEADLINE, memory.clone());
            let all = || db.select(&ctx, &[], TimeRange::ALL)?.try_for_each(|series| series.map(drop));
            while all().is_ok() {}
            assert_eq!(memory.used(), 0);
        });
    });
}

/// Six hours of samples every 30 s, a step a minute.
const DASHBOARD_STEPS: i64 = 6 * 120;
const DASHBOARD_STEP_MS: i64 = 60_000;
/// Series of the fleet; with the buckets they are 100,000.
const N_FLEET: usize = 88_000;
const BOUNDS: [&str; 12] = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];
const N_HISTOGRAMS: usize = 1_000;

/// Typical queries of dashboards.
const DASHBOARDS: [(&str, &str); 12] = [
    ("cpu by namespace", "sum by (namespace) (rate(container_cpu_usage_seconds_total[5m]))"),
    ("top pods by cpu", "topk(10, sum by (namespace, pod) (rate(container_cpu_usage_seconds_total[5m])))"),
    ("memory by namespace", "sum by (namespace) (container_memory_working_set_bytes)"),
    ("network by node", "sum by (node) (rate(container_network_receive_bytes_total[5m])) * 8"),
    ("pods ready", "count(kube_pod_status_ready == 1) / count(kube_pod_status_ready)"),
    ("gpu utilisation", "quantile(0.9, DCGM_FI_DEV_GPU_UTIL)"),
    ("latency", "histogram_quantile(0.99, sum by (le, verb) (rate(apiserver_request_duration_seconds_bucket[5m])))"),
    ("latency of each", "histogram_quantile(0.5, rate(apiserver_request_duration_seconds_bucket[5m]))"),
    (
        "memory for cpu",
        "sum by (namespace, pod) (container_memory_working_set_bytes) / on (namespace, pod) sum by (namespace, pod) \
         (rate(container_cpu_usage_seconds_total[5m]))",
    ),
    ("peak of an hour", "max_over_time(sum(rate(node_cpu_seconds_total[5m]))[1h:5m])"),
    ("mean and spread", "avg(rate(container_fs_reads_total[5m])) + 2 * stddev(rate(container_fs_reads_total[5m]))"),
    ("one node", "sum by (pod) (rate(container_cpu_usage_seconds_total{node=\"gpu-node-00100\"}[5m]))"),
];

/// The buckets of latencies, bucket by bucket.
fn buckets(db: &Db) -> Vec<SeriesHandle> {
    let labels = |i: usize| {
        Labels::from_pairs([
            ("__name__", "apiserver_request_duration_seconds_bucket"),
            ("instance", &*format!("10.0.0.{}:6443", i / BOUNDS.len() % 5)),
            ("le", BOUNDS[i % BOUNDS.len()]),
            ("resource", &*format!("resource-{:03}", i / BOUNDS.len())),
            ("verb", ["GET", "LIST", "PATCH", "WATCH"][i / BOUNDS.len() % 4]),
        ])
        .expect("names are unique")
    };
    let series = |i| db.series(&labels(i)).expect("write within the limits");
    (0..N_HISTOGRAMS * BOUNDS.len()).map(series).collect()
}

fn append_buckets(db: &Db, handles: &[SeriesHandle], step: i64, batch: &mut WriteBatch) {
    let timestamp_ms = common::START_MS + step * common::STEP_MS;
    batch.clear();
    for (i, &handle) in handles.iter().enumerate() {
        let (histogram, bound) = ((i / BOUNDS.len()) as i64, (i % BOUNDS.len()) as i64);
        let value = (step * (bound + 1) * (1 + histogram % 7)) as f64;
        batch.push(handle, Sample { timestamp_ms, value }, 0);
    }
    db.append(batch).expect("write within the limits");
}

/// Six hours in blocks; measures the CPU time of all threads.
fn dashboards(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let db = common::open(dir.path(), 2, 1);
    let (fleet, buckets, mut batch) = (fill::series(&db, N_FLEET), buckets(&db), WriteBatch::default());
    for step in 0..DASHBOARD_STEPS {
        fill::append_step(&db, &fleet, step, &mut batch);
        append_buckets(&db, &buckets, step, &mut batch);
    }
    db.compact_fully().expect("write to disk");
    let (start_ms, end_ms) = (common::START_MS, common::START_MS + DASHBOARD_STEPS * common::STEP_MS);

    let mut group = c.benchmark_group("dashboard");
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_secs(1));
    for parallelism in [1, 2] {
        let options = EngineOptions { samples_max: usize::MAX, parallelism, ..EngineOptions::default() };
        let (engine, ctx) = (Engine::new(options), QueryContext::unbounded());
        for (name, query) in DASHBOARDS {
            group.bench_function(format!("{name}, {parallelism} threads"), |b| {
                b.iter_custom(|n| {
                    let before = cpu_time();
                    for _ in 0..n {
                        let times = Times::Range { start_ms, end_ms, step_ms: DASHBOARD_STEP_MS };
                        let answer = engine.run(&db, &ctx, &Request::new(query, times));
                        black_box(answer.expect("evaluate a valid query"));
                    }
                    cpu_time() - before
                });
            });
        }
    }
}

/// Returns the CPU time of all threads, as wall time says little on a busy machine.
fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("read from /proc");
    let nanos = tasks.flatten().map(|task| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
    });
    Duration::from_nanos(nanos.sum())
}

criterion_group!(benches, parse, evaluate, dashboards, deadline);
criterion_main!(benches);
