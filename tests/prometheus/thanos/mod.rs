//! Varve as a member of a Thanos cluster, with the real `thanos`: a leaf of queriers, an ingestor
//! behind a router.
//!
//! tests/promql/differential compares a querier on Varve with a querier on Prometheus, query by
//! query.

mod cost;
mod distributed;
mod ingest;
mod keepalive;
mod leaf;
mod load;
mod series;
mod tenants;

use serde_json::{Value, json};

use crate::harness::{ConfigFile, Http, Server};

/// The time of the first sample in milliseconds: 2023-11-14T22:13:20Z.
const T0: i64 = 1_700_000_000_000;

/// Starts a server with these external labels.
fn start(external: &Value) -> Server {
    let config = ConfigFile::new(&json!({"global": {"external_labels": external}}).to_string());
    Server::start(&[&config.flag()])
}

/// Returns the result of an instant query at `time_s`, sorted, and checks that there are no
/// warnings.
fn ask(http: &Http, query: &str, time_s: i64, params: &[(&str, &str)]) -> Vec<Value> {
    let time = time_s.to_string();
    let answer = http.query(
        "/api/v1/query",
        &[&[("query", query), ("time", &time)], params].concat(),
    );
    let json = answer.expect_status(200).json();
    assert_eq!(json["warnings"], Value::Null, "{query}");
    let mut result = json["data"]["result"].as_array().expect("a list").clone();
    result.sort_by_cached_key(|series| series["metric"].to_string());
    result
}

/// Returns the value of a query with one result.
fn number(http: &Http, query: &str, time_s: i64, params: &[(&str, &str)]) -> f64 {
    match &*ask(http, query, time_s, params) {
        [] => 0.0,
        [one] => one["value"][1]
            .as_str()
            .expect("a value")
            .parse()
            .expect("a number"),
        several => panic!("{query} has {} results", several.len()),
    }
}
