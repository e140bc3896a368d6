//! Memory accounting: resident memory grows by no more than requests are charged, and is freed
//! afterwards.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{SERIES, T0, held, ingest};
use crate::harness::{
    Answer, BucketSpan, Histogram, Server, TimeSeries, WriteRequest, series, wait_until,
};
use crate::http::api::remote_read::{query, read};

/// Allowed growth of resident memory beyond the charged bytes.
const SLACK: f64 = (32 << 20) as f64;
/// Allowed growth per charged byte.
const FACTOR: f64 = 1.3;
/// How often memory is sampled.
const INTERVAL: Duration = Duration::from_millis(2);

/// One of each class of operators.
const QUERIES: [&str; 16] = [
    "load",
    "-load",
    "rate(load[5m])",
    "max_over_time(load[5m])",
    "quantile_over_time(0.5, load[5m])",
    "load + load",
    "load > bool on(pod) load",
    "load and load",
    "load or load",
    "sum by (pod) (load)",
    "topk(1000, load)",
    "count_values(\"v\", load)",
    "quantile by (node) (0.9, load)",
    "label_replace(load, \"x\", \"$1\", \"pod\", \"(.*)\")",
    "max_over_time(load[5m:15s])",
    "absent_over_time(load[5m])",
];

/// The same over native histograms, each of which takes a few hundred bytes per group and step.
const HISTOGRAM_QUERIES: [&str; 12] = [
    "sizes",
    "-sizes",
    "rate(sizes[5m])",
    "last_over_time(sizes[5m])",
    "sum_over_time(sizes[5m:15s])",
    "sizes + sizes",
    "sizes and sizes",
    "sum by (pod) (sizes)",
    "avg by (node) (rate(sizes[5m]))",
    "limitk(500, sizes)",
    "histogram_quantile(0.9, sizes)",
    "label_replace(sizes, \"x\", \"$1\", \"pod\", \"(.*)\")",
];
const N_HISTOGRAMS: usize = 2_000;
const N_BUCKETS: u32 = 40;

/// Other requests for data: paths with parameters.
const CALLS: [&str; 15] = [
    "/api/v1/series?match[]=load",
    "/api/v1/series?match[]=load&match[]=%7Bpod!=%22%22%7D",
    "/api/v1/labels",
    "/api/v1/labels?match[]=load",
    "/api/v1/label/pod/values",
    "/api/v1/label/pod/values?match[]=load",
    "/api/v1/metadata",
    "/api/v1/query_exemplars?query=load",
    "/api/v1/search/metric_names?start=1700000000&limit=1000000",
    "/api/v1/search/label_names?start=1700000000&limit=1000000",
    "/api/v1/search/label_values?label=pod&search[]=pod&start=1700000000&limit=1000000&batch_size=100000",
    "/api/v1/status/tsdb?limit=10000",
    "/api/v1/status/churn",
    "/federate?match[]=load",
    "/api/v1/export?match[]=load",
];

/// Makes a request and returns the maximum growth of resident memory and the maximum of charged
/// bytes.
fn measure(server: &Server, call: impl FnOnce() + Send) -> (f64, f64) {
    wait_until("all memory to be given back", || held(server) == 0.0);
    let before = server.resident_size() as f64;
    thread::scope(|scope| {
        let calling = scope.spawn(call);
        let (mut grown, mut charged) = (0.0_f64, 0.0_f64);
        while !calling.is_finished() {
            grown = grown.max(server.resident_size() as f64 - before);
            let running = server.http().get("/api/v1/status/queries").data();
            let peak = |query: &Value| query["memoryPeakBytes"].as_f64().unwrap_or(0.0);
            charged = charged.max(running.as_array().into_iter().flatten().map(peak).sum());
            thread::sleep(INTERVAL);
        }
        calling.join().expect("the call does not panic");
        (grown, charged)
    })
}

/// Makes requests one by one, and checks that memory grows by no more than the charge and is freed.
#[track_caller]
fn check_all(server: &Server, requests: &[&str], call: impl Fn(&str) -> Answer + Sync) {
    let mut failed = Vec::new();
    for &request in requests {
        let (grown, charged) = measure(server, || drop(call(request).expect_status(200)));
        eprintln!(
            "{request}: {:.1} MiB charged, {:.1} MiB grown",
            charged / 1048576.0,
            grown / 1048576.0
        );
        if grown > FACTOR * charged + SLACK {
            failed.push(request);
        }
    }
    wait_until("all memory to be given back", || held(server) == 0.0);
    assert!(failed.is_empty(), "{failed:?}");
}

/// Makes a range query of 101 steps.
fn range_query(server: &Server, query: &str) -> Answer {
    let params = [
        ("query", query),
        ("start", "1700000000"),
        ("end", "1700000400"),
        ("step", "4"),
    ];
    server.http().query("/api/v1/query_range", &params)
}

#[test]
fn memory_of_queries_grows_by_what_is_charged() {
    let server = Server::start(&["--web.response-buffer=64KiB"]);
    ingest(&server, 20_000);
    check_all(&server, &QUERIES, |query| range_query(&server, query));
}

#[test]
fn memory_of_queries_over_histograms_grows_by_what_is_charged() {
    let server = Server::start(&[
        "--web.response-buffer=64KiB",
        "--enable-feature=promql-experimental-functions",
    ]);
    let histogram = |after_ms: i64| Histogram {
        count_int: Some(3 * u64::from(N_BUCKETS)),
        sum: 5.0,
        positive_spans: vec![BucketSpan {
            offset: 0,
            length: N_BUCKETS,
        }],
        positive_deltas: [3].into_iter().chain((1..N_BUCKETS).map(|_| 0)).collect(),
        timestamp_ms: T0 + after_ms,
        ..Histogram::default()
    };
    let timeseries = (0..N_HISTOGRAMS).map(|i| {
        let (pod, node) = (format!("pod-{i}"), format!("node-{}", i / 100));
        let labels = [("__name__", "sizes"), ("node", &*node), ("pod", &*pod)];
        TimeSeries {
            histograms: (0..4).map(|n| histogram(15_000 * n)).collect(),
            ..series(&labels, &[])
        }
    });
    server
        .http()
        .write(&WriteRequest::new(timeseries))
        .expect_status(204);
    check_all(&server, &HISTOGRAM_QUERIES, |query| {
        range_query(&server, query)
    });
}

#[test]
fn memory_of_other_requests_grows_by_what_is_charged() {
    // The samples are years old.
    let server = Server::start(&[
        "--web.response-buffer=64KiB",
        "--enable-feature=search-api",
        "--web.search.max-limit=0",
        "--query.lookback-delta=20y",
    ]);
    ingest(&server, SERIES);
    check_all(&server, &CALLS, |path| server.http().get(path));
    // Samples and chunks.
    check_all(&server, &["0", "1"], |form| {
        read(
            server.http(),
            vec![query(0, "__name__", "load")],
            &[form.parse().expect("a number")],
        )
    });
}

#[test]
fn queries_that_use_too_much_memory_fail_with_the_limit() {
    let server = Server::start(&[
        "--query.max-memory=24MiB",
        "--query.max-samples=2000000",
        "--query.timeout=10s",
    ]);
    ingest(&server, 10_000);
    let nested = format!("{}load{}", "(".repeat(300), ")".repeat(300));
    let giant = format!("load{{pod=~\"{}\"}}", "(a|b){1000}".repeat(50));
    let named = [
        "--query.max-memory",
        "too many samples",
        "timed out",
        "exceeds",
        "too deep",
        "nest",
        "regexp",
        "limit",
    ];
    for query in [
        "load * on(namespace) group_left() load",
        "max_over_time(load[5m:1ms])",
        "label_replace(load, \"x\", \"$1$1$1$1$1$1\", \"pod\", \"(.*)\") or label_replace(load, \"y\", \"$1\", \"pod\", \"(.*)\")",
        "max_over_time(load[5m])",
        &nested,
        "count_values without() (\"v\", load + on(pod) group_left() (load * time()))",
    ] {
        let params = [
            ("query", query),
            ("start", "1700000000"),
            ("end", "1700011000"),
            ("step", "1"),
        ];
        let answer = server.http().form("/api/v1/query_range", &params);
        let shown = &query[..query.len().min(80)];
        assert!(
            [400, 422, 503].contains(&answer.status),
            "{shown}: {answer:?}"
        );
        let (_, error) = answer.error();
        eprintln!(
            "{shown}: {} {}",
            answer.status,
            &error[..error.len().min(200)]
        );
        let is_match_error = error.contains("many-to-many") || error.contains("duplicate series");
        assert!(
            is_match_error || named.iter().any(|name| error.contains(name)),
            "{shown}: {error}"
        );
        wait_until("all memory to be given back", || held(&server) == 0.0);
    }
    // A regex whose automaton reaches its size limit.
    let answer = server.http().form("/api/v1/query", &[("query", &giant)]);
    assert!([200, 400].contains(&answer.status), "{answer:?}");
    server
        .http()
        .query(
            "/api/v1/query",
            &[("query", "count(load)"), ("time", "1700000045")],
        )
        .expect_status(200);
}
