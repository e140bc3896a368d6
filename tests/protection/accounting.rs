//! What is charged is what is taken: resident memory grows by no more than requests are charged, and the charge goes back.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{held, ingest};
use crate::harness::{Server, wait_until};

/// What resident memory may grow beside what is charged, in bytes.
const SLACK: f64 = (32 << 20) as f64;
/// What it may grow by for each byte charged.
const FACTOR: f64 = 1.3;
/// How often memory is looked at.
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

/// Makes a call and returns by how much resident memory grew at most while it was charged so many bytes at most.
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

#[test]
fn memory_grows_by_what_is_charged() {
    let server = Server::start(&["--web.response-buffer=64KiB"]);
    ingest(&server, 20_000);
    let mut failed = Vec::new();
    let mut check = |what: &str, (grown, charged): (f64, f64)| {
        eprintln!("{what}: {:.1} MiB charged, {:.1} MiB grown", charged / 1048576.0, grown / 1048576.0);
        if grown > FACTOR * charged + SLACK {
            failed.push(what.to_owned());
        }
    };
    for query in QUERIES {
        let params = [("query", query), ("start", "1700000000"), ("end", "1700000400"), ("step", "4")];
        let call = || drop(server.http().query("/api/v1/query_range", &params).expect_status(200));
        check(query, measure(&server, call));
    }
    for path in ["/api/v1/series", "/api/v1/labels", "/api/v1/label/pod/values"] {
        let call = || drop(server.http().query(path, &[("match[]", "load")]).expect_status(200));
        check(path, measure(&server, call));
    }
    wait_until("all memory to be given back", || held(&server) == 0.0);
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn queries_that_eat_memory_end_by_a_limit_that_is_named() {
    let server = Server::start(&["--query.max-memory=24MiB", "--query.max-samples=2000000", "--query.timeout=10s"]);
    ingest(&server, 10_000);
    let nested = format!("{}load{}", "(".repeat(300), ")".repeat(300));
    let giant = format!("load{{pod=~\"{}\"}}", "(a|b){1000}".repeat(50));
    let named =
        ["--query.max-memory", "too many samples", "timed out", "exceeds", "too deep", "nest", "regexp", "limit"];
    for query in [
        "load * on(namespace) group_left() load",
        "max_over_time(load[5m:1ms])",
        "label_replace(load, \"x\", \"$1$1$1$1$1$1\", \"pod\", \"(.*)\") or label_replace(load, \"y\", \"$1\", \"pod\", \"(.*)\")",
        "max_over_time(load[5m])",
        &nested,
        "count_values without() (\"v\", load + on(pod) group_left() (load * time()))",
    ] {
        let params = [("query", query), ("start", "1700000000"), ("end", "1700011000"), ("step", "1")];
        let answer = server.http().form("/api/v1/query_range", &params);
        let shown = &query[..query.len().min(80)];
        assert!([400, 422, 503].contains(&answer.status), "{shown}: {answer:?}");
        let (_, error) = answer.error();
        eprintln!("{shown}: {} {}", answer.status, &error[..error.len().min(200)]);
        let is_match_error = error.contains("many-to-many") || error.contains("duplicate series");
        assert!(is_match_error || named.iter().any(|name| error.contains(name)), "{shown}: {error}");
        wait_until("all memory to be given back", || held(&server) == 0.0);
    }
    // An expression of which the automaton is built as far as its bound allows.
    let answer = server.http().form("/api/v1/query", &[("query", &giant)]);
    assert!([200, 400].contains(&answer.status), "{answer:?}");
    server.http().query("/api/v1/query", &[("query", "count(load)"), ("time", "1700000045")]).expect_status(200);
}
