//! The whole API, request by request: compared with a real Prometheus, and validated against the OpenAPI documents of Prometheus
//! and Varve.

mod calls;
mod compression;
mod description;
mod federation;
mod histogram;
mod lifecycle;
mod messages;
mod notifications;
mod remote_read;
mod retention;
mod schema;
mod search;
mod snapshot;

use serde_json::Value;

use super::data;
use crate::harness::{Answer, Http, Prometheus, Server, missing};
use calls::{ADMINISTRATION, CALLS, Call, DIFFERENCES};

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");
const ORIGIN: (&str, &str) = ("Origin", "https://grafana.example");

/// Response headers that clients read.
const HEADERS: [&str; 9] = [
    "allow",
    "content-type",
    "location",
    "x-content-type-options",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-expose-headers",
    "content-encoding",
];

fn ask(http: &Http, (method, path, body): Call) -> Answer {
    let mut headers = vec![ORIGIN];
    headers.extend((!body.is_empty()).then_some(FORM));
    http.call(method, path, &headers, body.as_bytes())
}

/// Sorts the elements of a result.
fn sorted(mut data: Value) -> Value {
    data["result"].as_array_mut().expect("a list of series").sort_by_key(Value::to_string);
    data
}

#[test]
fn responses_are_those_of_prometheus() {
    if missing(&["prometheus"]) {
        return;
    }
    let prometheus = Prometheus::start("{}");
    let varve = Server::start(&["--web.enable-lifecycle"]);
    compare(&prometheus, &varve, CALLS);
}

#[test]
fn admin_responses_are_those_of_prometheus() {
    if missing(&["prometheus"]) {
        return;
    }
    let prometheus = Prometheus::start_with("{}", &["--web.enable-admin-api"]);
    let varve = Server::start(&["--web.enable-admin-api"]);
    compare(&prometheus, &varve, ADMINISTRATION);
}

/// Sends the same data and the same requests to both.
#[track_caller]
fn compare(prometheus: &Prometheus, varve: &Server, calls: &[Call]) {
    prometheus.http().write(&data()).expect_status(204);
    varve.http().write(&data()).expect_status(204);
    let mut wrong = Vec::new();
    for call in calls {
        let (ours, theirs) = (ask(varve.http(), *call), ask(prometheus.http(), *call));
        let headers = |answer: &Answer| HEADERS.map(|name| answer.header(name).to_owned());
        let is_same = ours.status == theirs.status && headers(&ours) == headers(&theirs) && ours.body == theirs.body;
        if is_same == DIFFERENCES.iter().any(|(method, path, _)| (*method, *path) == (call.0, call.1)) {
            let (of_ours, of_theirs) = (headers(&ours), headers(&theirs));
            wrong.push(format!("{call:?}\n  varve:      {ours:?} {of_ours:?}\n  prometheus: {theirs:?} {of_theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} calls differ, or do so no longer:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_forbidden_origin_is_not_returned() {
    let varve = Server::start(&["--web.cors.origin=https?://(grafana|other)\\.example"]);
    let origin = |origin: &str| {
        let answer = varve.http().call("GET", "/api/v1/labels", &[("Origin", origin)], b"");
        answer.expect_status(200).header("access-control-allow-origin").to_owned()
    };
    assert_eq!(origin("https://grafana.example"), "https://grafana.example");
    assert_eq!(origin("https://evil.example"), "");
}
