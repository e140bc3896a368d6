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

use super::{data, expected};
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
    // Varve rejects changes of state by pages of other origins.
    let is_write = ["/api/v1/admin", "/-/", "/api/v1/write", "/api/v1/otlp"].iter().any(|at| path.starts_with(at));
    let changes_state = method == "PUT" || method == "DELETE" || method == "POST" && is_write;
    let mut headers = if changes_state { vec![] } else { vec![ORIGIN] };
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
    let is_expected = |call: &Call| {
        let mut of_call = DIFFERENCES.iter().filter(|(method, path, _)| (*method, *path) == (call.0, call.1));
        of_call.any(|(.., why)| !expected(prometheus, why).is_empty())
    };
    for call in calls {
        let (ours, theirs) = (ask(varve.http(), *call), ask(prometheus.http(), *call));
        let headers = |answer: &Answer| HEADERS.map(|name| answer.header(name).to_owned());
        let is_same = ours.status == theirs.status && headers(&ours) == headers(&theirs) && ours.body == theirs.body;
        if is_same == is_expected(call) {
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

#[test]
fn pages_of_other_origins_read_but_change_nothing() {
    let varve = Server::start(&["--web.enable-admin-api", "--web.enable-lifecycle"]);
    varve.http().write(&data()).expect_status(204);
    let send = |path: &str, headers: &[(&str, &str)]| {
        varve.http().call("POST", path, &[&[FORM], headers].concat(), b"match[]=up&query=count(up)&time=1700000000")
    };
    let delete = "/api/v1/admin/tsdb/delete_series";
    let of_form = [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")];
    for path in [delete, "/-/quit", "/-/reload", "/api/v1/write", "/api/v1/import/prometheus"] {
        for headers in [&of_form[..], &of_form[..1], &of_form[1..], &[("Origin", "null")]] {
            let refused = send(path, headers).expect_status(403);
            assert!(refused.text().contains("must not change state here"), "{refused:?}");
            assert_eq!(refused.header("access-control-allow-origin"), "");
        }
        let preflight = varve.http().call("OPTIONS", path, &of_form[..1], b"");
        assert_eq!(preflight.header("access-control-allow-methods"), "", "{path}: {preflight:?}");
    }
    assert_eq!(varve.metric("varve_http_requests_denied_total"), 20.0);
    let count = send("/api/v1/query", &of_form).data();
    assert_eq!(count["result"][0]["value"][1], "2", "nothing was deleted");
    // A page of this server, and clients that are no browser.
    let own = format!("http://{}", varve.http().address());
    send(delete, &[("Origin", &own)]).expect_status(204);
    send(delete, &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")]).expect_status(204);
    send(delete, &[]).expect_status(204);
}

#[test]
fn other_hosts_than_the_allowed_ones_are_rejected() {
    let varve = Server::start(&["--web.allowed-hosts=varve.example,metrics.example"]);
    let get = |host: &str| {
        let request = format!("GET /api/v1/labels HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        varve.http().connect().send(request.as_bytes()).read_to_end()
    };
    for host in ["varve.example", "Metrics.Example:9898", "localhost:1", "127.0.0.1"] {
        assert!(get(host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    let refused = get("rebound.evil.example");
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(refused.contains("\"rebound.evil.example\" is not one of --web.allowed-hosts"), "{refused}");
}
