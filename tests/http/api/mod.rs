//! The whole API, call by call: the same answers as a real Prometheus gives, and each in the form that Prometheus' own
//! description of its API, and ours, promise.

mod calls;
mod compression;
mod federation;
mod histogram;
mod lifecycle;
mod notifications;
mod remote_read;
mod schema;
mod search;
mod snapshot;

use serde_json::Value;

use super::data;
use crate::harness::{Answer, Http, Prometheus, Server, missing};
use calls::{CALLS, Call, DIFFERENCES, NEW, UNDESCRIBED};
use schema::Description;

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");
const ORIGIN: (&str, &str) = ("Origin", "https://grafana.example");

/// Headers of an answer that clients look at.
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
fn calls_are_answered_as_prometheus_answers_them() {
    if missing(&["prometheus"]) {
        return;
    }
    let prometheus = Prometheus::start("{}");
    let varve = Server::start(&["--web.enable-lifecycle"]);
    prometheus.http().write(&data()).expect_status(204);
    varve.http().write(&data()).expect_status(204);

    let mut wrong = Vec::new();
    for call in CALLS {
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
fn answers_have_the_form_that_is_described() {
    let varve = Server::start(&[]);
    varve.http().write(&data()).expect_status(204);
    let ours = Description::parse(&varve.http().get("/api/v1/openapi.yaml").expect_status(200).text(), "");
    let descriptions = [Description::of_prometheus(), Some(ours)];
    let mut wrong = Vec::new();
    for call in CALLS.iter().chain(NEW) {
        let answer = ask(varve.http(), *call);
        let is_json = answer.header("content-type") == "application/json" && !answer.body.is_empty();
        if !is_json {
            continue;
        }
        let path = call.1.split('?').next().expect("a split has a first part");
        for (i, description) in descriptions.iter().enumerate() {
            let is_undescribed = i == 0 && UNDESCRIBED.iter().any(|(path, _)| *path == call.1);
            let Some(description) = description.as_ref().filter(|_| !is_undescribed) else { continue };
            if let Err(reason) = description.validate(call.0, path, answer.status, &answer.json()) {
                wrong.push(format!("{call:?}: {reason}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_prometheus_describes_is_served_and_described() {
    let Some(theirs) = Description::of_prometheus() else { return };
    let varve = Server::start(&[]);
    let text = varve.http().get("/api/v1/openapi.yaml").expect_status(200).text();
    let ours = Description::parse(&text, "").operations();
    // Every path answers OPTIONS; there is nothing to describe.
    let described = theirs.operations().into_iter().filter(|(_, method)| method != "OPTIONS");
    let missing: Vec<_> = described.filter(|operation| !ours.contains(operation)).collect();
    assert!(missing.is_empty(), "not described: {missing:?}");
    for (path, method) in ours.iter().filter(|(path, _)| !path.ends_with("/live")) {
        let path = path.replace("{name}", "job");
        let answer = varve.http().call(method, &path, &[], b"");
        assert!(!matches!(answer.status, 404 | 405) || path.starts_with("/-/"), "{method} {path}: {answer:?}");
    }
}

#[test]
fn parameters_that_are_described_are_read() {
    let varve = Server::start(&["--enable-feature=search-api"]);
    let text = varve.http().get("/api/v1/openapi.yaml").expect_status(200).text();
    let description = Description::parse(&text, "");
    let mut n_read = 0;
    for (path, method) in description.operations().iter().filter(|(_, method)| method == "GET") {
        let parameters = description.parameters(method, path);
        let path = path.replace("{name}", "job");
        for (name, _) in parameters.iter().filter(|(_, kind)| kind.is_checked()) {
            // What else the call needs, and something that is neither a time nor a number.
            let value = |of: &str| match of {
                "query" | "match[]" => "up",
                "end" => "2",
                _ => "1",
            };
            let required = parameters.iter().filter(|(other, kind)| kind.is_required && other != name);
            let mut params: Vec<_> = required.map(|(other, _)| (other.as_str(), value(other))).collect();
            params.push((name, "nonsense"));
            let answer = varve.http().query(&path, &params);
            assert_eq!(answer.status, 400, "{path} {params:?}: {answer:?}");
            n_read += 1;
        }
    }
    assert!(n_read > 40, "{n_read}");
}

#[test]
fn an_origin_that_is_not_allowed_is_not_named() {
    let varve = Server::start(&["--web.cors.origin=https?://(grafana|other)\\.example"]);
    let origin = |origin: &str| {
        let answer = varve.http().call("GET", "/api/v1/labels", &[("Origin", origin)], b"");
        answer.expect_status(200).header("access-control-allow-origin").to_owned()
    };
    assert_eq!(origin("https://grafana.example"), "https://grafana.example");
    assert_eq!(origin("https://evil.example"), "");
}
