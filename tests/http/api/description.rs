//! Validates responses against the OpenAPI documents of Prometheus and Varve.

use std::collections::BTreeSet;

use super::super::{T0, data, like_prometheus, server_with_data};
use super::ask;
use super::calls::{CALLS, NEW, RICH, UNDESCRIBED};
use super::histogram::histograms;
use super::schema::Description;
use crate::harness::{Answer, MetricType, Server, exemplar, family};

/// Operations of Prometheus that respond without data: with 204, which its document omits, or a
/// message. There are no scrape pools.
const WITHOUT_DATA: &str = "admin/tsdb/delete_series admin/tsdb/clean_tombstones read write otlp/v1/metrics scrape_pools/config \
                            targets/relabel_steps";

/// Operations that never fail, or whose errors are plain text.
const WITHOUT_ERRORS: &str = "admin/tsdb/clean_tombstones alertmanagers alerts features notifications otlp/v1/metrics read \
                              scrape_pools status/buildinfo status/config status/flags status/runtimeinfo status/tsdb/blocks \
                              status/walreplay targets write";

/// The validated responses.
struct Checked {
    /// Prometheus' document first, if it is available.
    descriptions: Vec<Description>,
    wrong: Vec<String>,
    /// Path in the document, method, and whether the request succeeded.
    seen: BTreeSet<(String, String, bool)>,
}

impl Checked {
    fn check(&mut self, (method, url, body): (&str, &str, &str), answer: &Answer) {
        let path = url.split('?').next().expect("a split has a first part");
        for description in &self.descriptions {
            let is_of_prometheus = description.is_of_prometheus();
            let is_undescribed =
                |(call, _): &(&str, &str)| url.contains(call) || body.contains(call);
            if is_of_prometheus && UNDESCRIBED.iter().any(is_undescribed) {
                continue;
            }
            match description.check_answer(method, path, answer) {
                Ok(Some(template)) if is_of_prometheus => {
                    self.seen
                        .insert((template, method.to_owned(), answer.status < 300));
                }
                Ok(_) => {}
                Err(reason) => self.wrong.push(format!("{method} {url} {body}: {reason}")),
            }
        }
    }
}

#[test]
fn responses_match_their_schemas() {
    let varve = server_with_data(&[]);
    let ours = Description::parse(
        &varve
            .http()
            .get("/api/v1/openapi.yaml")
            .expect_status(200)
            .text(),
        "",
    );
    let descriptions = Description::of_prometheus()
        .into_iter()
        .chain([ours])
        .collect();
    let mut checked = Checked {
        descriptions,
        wrong: Vec::new(),
        seen: BTreeSet::new(),
    };
    for call in CALLS.iter().chain(NEW) {
        checked.check(*call, &ask(varve.http(), *call));
    }
    for row in like_prometheus::rows() {
        let (path, params) = super::super::call(row);
        checked.check(
            ("GET", &format!("{path}?{row}"), ""),
            &varve.http().query(&path, &params),
        );
        if !path.ends_with("/values") && !path.ends_with("/metadata") {
            checked.check(("POST", &path, row), &varve.http().form(&path, &params));
        }
    }
    let rich = rich_server();
    for call in RICH {
        checked.check(*call, &ask(rich.http(), *call));
    }
    assert!(
        checked.wrong.is_empty(),
        "{} answers:\n{}",
        checked.wrong.len(),
        checked.wrong.join("\n")
    );
    if let Some(theirs) = checked
        .descriptions
        .first()
        .filter(|description| description.is_of_prometheus())
    {
        let is_missing = |path: &str, method: &str, is_success| {
            let excused = if is_success {
                WITHOUT_DATA
            } else {
                WITHOUT_ERRORS
            };
            !excused
                .split(' ')
                .any(|excused| path == format!("/api/v1/{excused}"))
                && !checked
                    .seen
                    .contains(&(path.to_owned(), method.to_owned(), is_success))
        };
        let operations = theirs
            .operations()
            .into_iter()
            .filter(|(_, method)| method != "OPTIONS");
        let all = operations
            .flat_map(|(path, method)| [true, false].map(|ok| (path.clone(), method.clone(), ok)));
        let missing: Vec<_> = all
            .filter(|(path, method, ok)| is_missing(path, method, *ok))
            .collect();
        assert!(
            missing.is_empty(),
            "never validated (path, method, success): {missing:?}"
        );
    }
}

/// Starts a server with samples in blocks and in the head, metadata, exemplars and native
/// histograms.
fn rich_server() -> Server {
    let server = Server::start(&[
        "--web.enable-admin-api",
        "--enable-feature=search-api,promql-per-step-stats",
        "--query.lookback-delta=5m",
    ]);
    let mut request = data();
    let help = "Of <which> & what.";
    request.metadata = vec![
        family("requests_total", MetricType::Counter, help, ""),
        family("up", MetricType::Gauge, help, ""),
    ];
    request.timeseries[2]
        .exemplars
        .push(exemplar(&[("trace_id", "abc")], 1.0, T0 + 1));
    server.http().write(&request).expect_status(204);
    server
        .http()
        .write_body(&histograms(&[T0, T0 + 15_000]))
        .expect_status(204);
    server
        .http()
        .post("/api/v1/admin/tsdb/compact", &[], b"")
        .expect_status(204);
    server
}

#[test]
fn every_documented_operation_of_prometheus_is_served_and_documented() {
    let Some(theirs) = Description::of_prometheus() else {
        return;
    };
    let varve = Server::start(&[]);
    let text = varve
        .http()
        .get("/api/v1/openapi.yaml")
        .expect_status(200)
        .text();
    let ours = Description::parse(&text, "").operations();
    // Every path serves OPTIONS, which is not documented.
    let described = theirs
        .operations()
        .into_iter()
        .filter(|(_, method)| method != "OPTIONS");
    let missing: Vec<_> = described
        .filter(|operation| !ours.contains(operation))
        .collect();
    assert!(missing.is_empty(), "not described: {missing:?}");
    for (path, method) in ours.iter().filter(|(path, _)| !path.ends_with("/live")) {
        let path = path.replace("{name}", "job");
        let answer = varve.http().call(method, &path, &[], b"");
        assert!(
            !matches!(answer.status, 404 | 405) || path.starts_with("/-/"),
            "{method} {path}: {answer:?}"
        );
    }
}

#[test]
fn documented_parameters_are_read() {
    let varve = Server::start(&["--enable-feature=search-api"]);
    let text = varve
        .http()
        .get("/api/v1/openapi.yaml")
        .expect_status(200)
        .text();
    let description = Description::parse(&text, "");
    let mut n_read = 0;
    for (path, method) in description
        .operations()
        .iter()
        .filter(|(_, method)| method == "GET")
    {
        let parameters = description.parameters(method, path);
        let path = path.replace("{name}", "job");
        for (name, _) in parameters.iter().filter(|(_, kind)| kind.is_checked()) {
            // Required parameters, and a value that is neither a time nor a number.
            let value = |of: &str| match of {
                "query" | "match[]" => "up",
                "end" => "2",
                _ => "1",
            };
            let required = parameters
                .iter()
                .filter(|(other, kind)| kind.is_required && other != name);
            let mut params: Vec<_> = required
                .map(|(other, _)| (other.as_str(), value(other)))
                .collect();
            params.push((name, "nonsense"));
            let answer = varve.http().query(&path, &params);
            assert_eq!(answer.status, 400, "{path} {params:?}: {answer:?}");
            n_read += 1;
        }
    }
    assert!(n_read > 40, "{n_read}");
}
