//! Exemplars: written and queried, compared with a real Prometheus, and after a crash.

use serde_json::Value;

use super::{T0, call};
use crate::harness::{
    ConfigFile, Exemplar, Http, Prometheus, Server, TimeSeries, WriteRequest, exemplar, missing, series,
};

/// Number of requests with exemplars in random order. Some exemplars are rejected, no request is.
const ROUNDS: u64 = 60;

/// Requests whose responses must be equal byte for byte.
const EXACT: &[&str] = &[
    "query_exemplars?query={__name__=~\".+\"}",
    "query_exemplars?query=requests_total",
    "query_exemplars?query=requests_total{code=\"1\"}&start=1700000010&end=1700000040.5",
    "query_exemplars?query=rate(requests_total{code!=\"1\"}[5m]) / on(code) other_total offset 1w",
    "query_exemplars?query=requests_total or requests_total",
    "query_exemplars?query=sum(nothing)",
    "query_exemplars?query=requests_total&start=1700000600&end=1700000600",
    "query_exemplars?query=requests_total{nothing=\"\"}&end=1700000005",
    "query_exemplars?query={code=~\"1|2\"}&start=-1&end=1700000020",
];

fn only(labels: &[(&str, &str)], exemplars: Vec<Exemplar>) -> TimeSeries {
    TimeSeries { exemplars, ..series(labels, &[]) }
}

/// Returns the next number of a fixed sequence.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn requests() -> Vec<WriteRequest> {
    let mut state = 1;
    let mut requests = Vec::new();
    for round in 0..ROUNDS {
        let time = T0 + round as i64 * 1000;
        let code = (next(&mut state) % 4).to_string();
        let name = if next(&mut state).is_multiple_of(5) { "other_total" } else { "requests_total" };
        let labels = [("__name__", name), ("code", &*code)];
        let mut of_round = Vec::new();
        for _ in 0..next(&mut state) % 5 {
            let late = if next(&mut state).is_multiple_of(4) { (next(&mut state) % 5000) as i64 } else { 0 };
            let trace = "ü".repeat((next(&mut state) % 3 * 61) as usize) + &(next(&mut state) % 3).to_string();
            let value = (next(&mut state) % 3) as f64 / 2.0;
            let empty = if next(&mut state).is_multiple_of(2) { "" } else { "x" };
            of_round.push(exemplar(&[("trace_id", &trace), ("empty", empty)], value, time - late));
        }
        let mut with_sample = series(&labels, &[(time, round as f64)]);
        if next(&mut state).is_multiple_of(2) {
            with_sample.exemplars = of_round;
            requests.push(WriteRequest::new([with_sample]));
        } else {
            requests.push(WriteRequest::new([with_sample, only(&labels, of_round)]));
        }
    }
    let known = [("__name__", "requests_total"), ("code", "1")];
    let special = [f64::NAN, f64::NAN, f64::INFINITY, 1e-9].map(|value| exemplar(&[], value, T0 + 600_000));
    requests.push(WriteRequest::new([only(&known, special.to_vec())]));
    requests.push(WriteRequest::new([only(&[("__name__", "unknown")], vec![exemplar(&[], 1.0, T0)])]));
    requests.push(WriteRequest::new([only(&known, vec![exemplar(&[], 1.0, i64::MAX)])]));
    requests
}

/// Requests that select nothing: both respond with 204.
const EMPTY: &[&str] = &["query_exemplars?query=1 + 2", "query_exemplars?query=\"text\""];

#[test]
fn exemplars_are_accepted_and_found_as_in_prometheus() {
    if missing(&["prometheus"]) {
        return;
    }
    let config = ConfigFile::new("storage: {tsdb: {out_of_order_time_window: 0s}}");
    let prometheus = Prometheus::start_with("{}", &["--enable-feature=exemplar-storage"]);
    let mut varve = Server::start(&[&config.flag()]);
    for request in requests() {
        let (ours, theirs) = (varve.http().write(&request), prometheus.http().write(&request));
        assert_eq!((ours.status, theirs.status), (204, 204), "{ours:?} {theirs:?}");
    }
    compare(varve.http(), prometheus.http());
    varve.kill();
    varve.restart(&[&config.flag()]);
    compare(varve.http(), prometheus.http());
}

fn compare(ours: &Http, theirs: &Http) {
    for row in EXACT {
        let (path, params) = call(row);
        let (ours, theirs) = (ours.query(&path, &params), theirs.query(&path, &params));
        assert_eq!((ours.status, theirs.status), (200, 200), "{row}: {ours:?} {theirs:?}");
        assert_eq!(ours.text(), theirs.text(), "{row}");
    }
    for row in EMPTY {
        let (path, params) = call(row);
        let (ours, theirs) = (ours.query(&path, &params), theirs.query(&path, &params));
        assert_eq!((ours.status, ours.text()), (204, theirs.text()), "{row}: {ours:?} {theirs:?}");
        assert_eq!(theirs.status, 204, "{row}");
    }
    let all = theirs.query("/api/v1/query_exemplars", &[("query", EXACT_ALL)]).data();
    assert!(all.as_array().is_some_and(|series| series.len() > 4), "{all}");
}

const EXACT_ALL: &str = "{__name__=~\".+\"}";

fn traces(http: &Http) -> Vec<Value> {
    let found = http.query("/api/v1/query_exemplars", &[("query", "up")]).data();
    found[0]["exemplars"]
        .as_array()
        .map(|all| all.iter().map(|one| one["labels"]["id"].clone()).collect())
        .unwrap_or_default()
}

#[test]
fn the_newest_exemplars_survive_a_kill_and_a_smaller_ring() {
    let config = |n: usize| ConfigFile::new(&format!("storage: {{exemplars: {{max_exemplars: {n}}}}}"));
    let mut server = Server::start(&[&config(3).flag()]);
    for i in 0..5_i64 {
        let mut one = series(&[("__name__", "up")], &[(T0 + i, 1.0)]);
        one.exemplars.push(exemplar(&[("id", &i.to_string())], 1.0, T0 + i));
        server.http().write(&WriteRequest::new([one])).expect_status(204);
    }
    assert_eq!(traces(server.http()), ["2", "3", "4"]);
    for (n, expect) in [(3, &["2", "3", "4"][..]), (2, &["3", "4"]), (0, &[])] {
        server.kill();
        server.restart(&[&config(n).flag()]);
        assert_eq!(traces(server.http()), expect, "a ring of {n}");
    }
}
