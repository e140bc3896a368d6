//! Exemplars: written and queried, compared with a real Prometheus, and after a crash.

use std::cmp::Ordering;

use serde_json::Value;

use super::{T0, call};
use crate::harness::{
    ConfigFile, Exemplar, Http, Random, Release, Releases, Server, TimeSeries, WriteRequest,
    exemplar, releases, series,
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
    TimeSeries {
        exemplars,
        ..series(labels, &[])
    }
}

fn requests() -> Vec<WriteRequest> {
    let mut random = Random::new(1);
    let mut requests = Vec::new();
    for round in 0..ROUNDS {
        let time = T0 + round as i64 * 1000;
        let code = random.below(4).to_string();
        let name = if random.below(5) == 0 {
            "other_total"
        } else {
            "requests_total"
        };
        let labels = [("__name__", name), ("code", &*code)];
        let mut of_round = Vec::new();
        for _ in 0..random.below(5) {
            let late = if random.below(4) == 0 {
                random.below(5000) as i64
            } else {
                0
            };
            let trace = "ü".repeat(random.below(3) as usize * 61) + &random.below(3).to_string();
            let value = random.below(3) as f64 / 2.0;
            // Prometheus sorts exemplars before it removes empty labels.
            let empty = if random.below(2) == 0 { "" } else { "x" };
            of_round.push(exemplar(
                &[("trace_id", &trace), ("empty", empty)],
                value,
                time - late,
            ));
        }
        let mut with_sample = series(&labels, &[(time, round as f64)]);
        if random.below(2) == 0 {
            with_sample.exemplars = of_round;
            requests.push(WriteRequest::new([with_sample]));
        } else {
            requests.push(WriteRequest::new([with_sample, only(&labels, of_round)]));
        }
    }
    let known = [("__name__", "requests_total"), ("code", "1")];
    // Not in one list, because the order of NaN and numbers is undefined.
    let special =
        [f64::NAN, f64::NAN, f64::INFINITY, 1e-9].map(|value| exemplar(&[], value, T0 + 600_000));
    requests.push(WriteRequest::new(
        special.map(|one| only(&known, vec![one])),
    ));
    requests.push(WriteRequest::new([only(
        &[("__name__", "unknown")],
        vec![exemplar(&[], 1.0, T0)],
    )]));
    requests.push(WriteRequest::new([only(
        &known,
        vec![exemplar(&[], 1.0, i64::MAX)],
    )]));
    requests
}

/// Requests that select nothing: both respond with 204.
const EMPTY: &[&str] = &[
    "query_exemplars?query=1 + 2",
    "query_exemplars?query=\"text\"",
];

#[test]
fn exemplars_are_accepted_and_found_as_in_prometheus() {
    let config = ConfigFile::new("storage: {tsdb: {out_of_order_time_window: 0s}}");
    for release in releases() {
        let prometheus = release.start("{}", &["--enable-feature=exemplar-storage"]);
        let mut varve = Server::start(&[&config.flag()]);
        for request in requests()
            .into_iter()
            .map(|request| sorted(release, request))
        {
            let (ours, theirs) = (
                varve.http().write(&request),
                prometheus.http().write(&request),
            );
            assert_eq!(
                (ours.status, theirs.status),
                (204, 204),
                "{ours:?} {theirs:?}"
            );
        }
        compare(varve.http(), prometheus.http());
        varve.kill();
        varve.restart(&[&config.flag()]);
        compare(varve.http(), prometheus.http());
    }
}

/// Sorts the exemplars of each series for older releases. Varve and 3.16 do that themselves.
fn sorted(release: &Release, mut request: WriteRequest) -> WriteRequest {
    let labels = |exemplar: &Exemplar| {
        let mut labels: Vec<_> = exemplar
            .labels
            .iter()
            .map(|label| (label.name.clone(), label.value.clone()))
            .collect();
        labels.sort();
        labels
    };
    let compare = |a: &Exemplar, b: &Exemplar| {
        let by_value = a.value.partial_cmp(&b.value).unwrap_or(Ordering::Equal);
        a.timestamp_ms
            .cmp(&b.timestamp_ms)
            .then(by_value)
            .then_with(|| labels(a).cmp(&labels(b)))
    };
    if release.is_of(Releases::Older) {
        request
            .timeseries
            .iter_mut()
            .for_each(|series| series.exemplars.sort_by(compare));
    }
    request
}

fn compare(ours: &Http, theirs: &Http) {
    for row in EXACT {
        let (path, params) = call(row);
        let (ours, theirs) = (ours.query(&path, &params), theirs.query(&path, &params));
        assert_eq!(
            (ours.status, theirs.status),
            (200, 200),
            "{row}: {ours:?} {theirs:?}"
        );
        assert_eq!(ours.text(), theirs.text(), "{row}");
    }
    for row in EMPTY {
        let (path, params) = call(row);
        let (ours, theirs) = (ours.query(&path, &params), theirs.query(&path, &params));
        assert_eq!(
            (ours.status, ours.text()),
            (204, theirs.text()),
            "{row}: {ours:?} {theirs:?}"
        );
        assert_eq!(theirs.status, 204, "{row}");
    }
    let all = theirs
        .query("/api/v1/query_exemplars", &[("query", EXACT_ALL)])
        .data();
    assert!(
        all.as_array().is_some_and(|series| series.len() > 4),
        "{all}"
    );
}

const EXACT_ALL: &str = "{__name__=~\".+\"}";

fn traces(http: &Http) -> Vec<Value> {
    let found = http
        .query("/api/v1/query_exemplars", &[("query", "up")])
        .data();
    found[0]["exemplars"]
        .as_array()
        .map(|all| all.iter().map(|one| one["labels"]["id"].clone()).collect())
        .unwrap_or_default()
}

#[test]
fn the_newest_exemplars_survive_a_kill_and_a_smaller_ring() {
    let config =
        |n: usize| ConfigFile::new(&format!("storage: {{exemplars: {{max_exemplars: {n}}}}}"));
    let mut server = Server::start(&[&config(3).flag()]);
    for i in 0..5_i64 {
        let mut one = series(&[("__name__", "up")], &[(T0 + i, 1.0)]);
        one.exemplars
            .push(exemplar(&[("id", &i.to_string())], 1.0, T0 + i));
        server
            .http()
            .write(&WriteRequest::new([one]))
            .expect_status(204);
    }
    assert_eq!(traces(server.http()), ["2", "3", "4"]);
    for (n, expect) in [(3, &["2", "3", "4"][..]), (2, &["3", "4"]), (0, &[])] {
        server.kill();
        server.restart(&[&config(n).flag()]);
        assert_eq!(traces(server.http()), expect, "a ring of {n}");
    }
}
