//! The whole API, request by request: compared with a real Prometheus, and validated against the
//! OpenAPI documents of Prometheus and Varve.

mod calls;
mod compression;
mod description;
mod federation;
mod histogram;
mod lifecycle;
mod messages;
mod notifications;
mod profile;
pub(crate) mod remote_read;
mod retention;
mod schema;
mod search;
mod snapshot;
mod texts;

use serde_json::{Value, json};

use super::{data, like_prometheus};
use crate::harness::{Answer, ConfigFile, Http, Release, Releases, Server, releases};
use calls::{ADMINISTRATION, DIFFERENCES};
pub(super) use calls::{CALLS, Call, NEW};

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

pub(super) fn ask(http: &Http, (method, path, body): Call) -> Answer {
    // Varve rejects changes of state by pages of other origins.
    let is_write = ["/api/v1/admin", "/-/", "/api/v1/write", "/api/v1/otlp"]
        .iter()
        .any(|at| path.starts_with(at));
    let changes_state = method == "PUT" || method == "DELETE" || method == "POST" && is_write;
    let mut headers = if changes_state { vec![] } else { vec![ORIGIN] };
    headers.extend((!body.is_empty()).then_some(FORM));
    http.call(method, path, &headers, body.as_bytes())
}

/// Sorts the elements of a result.
fn sorted(mut data: Value) -> Value {
    data["result"]
        .as_array_mut()
        .expect("a list of series")
        .sort_by_key(Value::to_string);
    data
}

#[test]
fn responses_are_those_of_prometheus() {
    // Without a file there is nothing to reload.
    let config = ConfigFile::new("{}");
    for release in releases() {
        check_same(
            release,
            &[],
            &["--web.enable-lifecycle", &config.flag()],
            |varve, prometheus| {
                let mut wrong = differences(release, varve, prometheus, CALLS);
                wrong.extend(like_prometheus::differences(release, varve, prometheus));
                wrong
            },
        );
    }
}

#[test]
fn admin_responses_are_those_of_prometheus() {
    let flags = ["--web.enable-admin-api"];
    for release in releases() {
        check_same(release, &flags, &flags, |varve, prometheus| {
            differences(release, varve, prometheus, ADMINISTRATION)
        });
    }
}

/// Starts both servers with the same data, and checks that there is no unexpected difference.
#[track_caller]
fn check_same(
    release: &Release,
    their_flags: &[&str],
    our_flags: &[&str],
    differences: impl FnOnce(&Http, &Http) -> Vec<String>,
) {
    let (prometheus, varve) = (release.start("{}", their_flags), Server::start(our_flags));
    prometheus.http().write(&data()).expect_status(204);
    varve.http().write(&data()).expect_status(204);
    let wrong = differences(varve.http(), prometheus.http());
    let (version, n) = (release.version, wrong.len());
    assert!(
        wrong.is_empty(),
        "{version:?}: {n} differ, or do so no longer:\n{}",
        wrong.join("\n")
    );
}

/// Sends the same requests to both and returns the unexpected differences.
fn differences(release: &Release, varve: &Http, prometheus: &Http, calls: &[Call]) -> Vec<String> {
    let mut wrong = Vec::new();
    for call in calls {
        let (ours, theirs) = (ask(varve, *call), ask(prometheus, *call));
        let headers = |answer: &Answer| HEADERS.map(|name| answer.header(name).to_owned());
        let is_same = ours.status == theirs.status
            && headers(&ours) == headers(&theirs)
            && ours.body == theirs.body;
        if is_same == is_known(release, *call) {
            let (of_ours, of_theirs) = (headers(&ours), headers(&theirs));
            wrong.push(format!("{call:?}\n  varve:      {ours:?} {of_ours:?}\n  prometheus: {theirs:?} {of_theirs:?}"));
        }
    }
    wrong
}

fn is_known(release: &Release, (method, path, _): Call) -> bool {
    DIFFERENCES
        .iter()
        .any(|(releases, of, at, _)| release.is_of(*releases) && (*of, *at) == (method, path))
}

#[test]
fn features_that_are_always_on_are_listed() {
    let server = Server::start(&[]);
    let features = server.http().get("/api/v1/features").data();
    assert_eq!(features["api"]["otlp_write_receiver"], true);
    let rules =
        json!({ "query_offset": true, "keep_firing_for": true, "concurrent_rule_eval": true });
    assert_eq!(features["rules"], rules);
}

#[test]
fn features_of_templates_and_otlp_are_those_of_prometheus() {
    for release in releases() {
        if release.is_of(Releases::Older) {
            continue;
        }
        for deltas in [false, true] {
            let (theirs, ours): (&[&str], &[&str]) = if deltas {
                let flag = "--enable-feature=otlp-deltatocumulative";
                (&[flag, "--web.enable-otlp-receiver"], &[flag])
            } else {
                (&[], &[])
            };
            let prometheus = release.start("{}", theirs);
            let varve = Server::start(ours);
            let expect = prometheus.http().get("/api/v1/features").data();
            let found = varve.http().get("/api/v1/features").data();
            for category in ["templating_functions", "otlp_receiver"] {
                assert_eq!(found[category], expect[category], "{category}");
            }
        }
    }
}

#[test]
fn a_forbidden_origin_is_not_returned() {
    let varve = Server::start(&["--web.cors.origin=https?://(grafana|other)\\.example"]);
    let origin = |origin: &str| {
        let answer = varve
            .http()
            .call("GET", "/api/v1/labels", &[("Origin", origin)], b"");
        answer
            .expect_status(200)
            .header("access-control-allow-origin")
            .to_owned()
    };
    assert_eq!(origin("https://grafana.example"), "https://grafana.example");
    assert_eq!(origin("https://evil.example"), "");
}

#[test]
fn pages_of_other_origins_read_but_change_nothing() {
    let varve = Server::start(&["--web.enable-admin-api", "--web.enable-lifecycle"]);
    varve.http().write(&data()).expect_status(204);
    let send = |path: &str, headers: &[(&str, &str)]| {
        varve.http().call(
            "POST",
            path,
            &[&[FORM], headers].concat(),
            b"match[]=up&query=count(up)&time=1700000000",
        )
    };
    let delete = "/api/v1/admin/tsdb/delete_series";
    let of_form = [
        ("Origin", "https://evil.example"),
        ("Sec-Fetch-Site", "cross-site"),
    ];
    for path in [
        delete,
        "/-/quit",
        "/-/reload",
        "/api/v1/write",
        "/api/v1/import/prometheus",
        "/api/v1/rules/backtest",
        "/api/v1/status/relabel/test",
    ] {
        for headers in [
            &of_form[..],
            &of_form[..1],
            &of_form[1..],
            &[("Origin", "null")],
        ] {
            let refused = send(path, headers).expect_status(403);
            assert!(
                refused.text().contains("must not send this request"),
                "{refused:?}"
            );
            assert_eq!(refused.header("access-control-allow-origin"), "");
        }
        let preflight = varve.http().call("OPTIONS", path, &of_form[..1], b"");
        assert_eq!(
            preflight.header("access-control-allow-methods"),
            "",
            "{path}: {preflight:?}"
        );
    }
    assert_eq!(varve.metric("varve_http_requests_denied_total"), 28.0);
    let count = send("/api/v1/query", &of_form).data();
    assert_eq!(count["result"][0]["value"][1], "2", "nothing was deleted");
    // A page of this server, and clients that are no browser.
    let own = format!("http://{}", varve.http().address());
    send(delete, &[("Origin", &own)]).expect_status(204);
    send(
        delete,
        &[("Origin", &own), ("Sec-Fetch-Site", "same-origin")],
    )
    .expect_status(204);
    send(delete, &[]).expect_status(204);
}

#[test]
fn other_hosts_than_the_allowed_ones_are_rejected() {
    let varve = Server::start(&["--web.allowed-hosts=varve.example,metrics.example"]);
    let get = |host: &str| {
        let request =
            format!("GET /api/v1/labels HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        varve
            .http()
            .connect()
            .send(request.as_bytes())
            .read_to_end()
    };
    for host in [
        "varve.example",
        "Metrics.Example:9898",
        "localhost:1",
        "127.0.0.1",
    ] {
        assert!(get(host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    let refused = get("rebound.evil.example");
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(
        refused.contains("\"rebound.evil.example\" is not one of --web.allowed-hosts"),
        "{refused}"
    );
}
