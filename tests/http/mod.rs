//! The HTTP API, request by request.

pub(crate) mod api;
mod clients;
mod costs;
mod exemplars;
mod export;
mod import;
mod like_prometheus;
mod listings;
mod metadata;
mod probes;
mod protocol;
mod push;
mod query;
mod rejects;
mod route_prefix;
mod settings;
mod stats;
mod tenants;
mod usage;
mod web_config;
mod web_page;
mod write;
mod write_v2;

use serde_json::Value;

use crate::harness::{Http, Server, WriteRequest, series};

/// The time of the first sample of all tests here, in milliseconds: 2023-11-14T22:13:20Z.
pub(crate) const T0: i64 = 1_700_000_000_000;

/// Returns the data of the tests that read: 20 samples, 15 s apart, of several kinds of series.
pub(crate) fn data() -> WriteRequest {
    let samples = |value: fn(i64) -> f64| {
        (0..20)
            .map(|i| (T0 + i * 15_000, value(i)))
            .collect::<Vec<_>>()
    };
    let mut all = vec![
        series(
            &[("__name__", "up"), ("instance", "a:1"), ("job", "x")],
            &samples(|_| 1.0),
        ),
        series(
            &[("__name__", "up"), ("instance", "b:1"), ("job", "x")],
            &samples(|i| f64::from(i < 10)),
        ),
        series(
            &[
                ("__name__", "requests_total"),
                ("code", "200"),
                ("job", "x"),
            ],
            &samples(|i| (i * i) as f64),
        ),
        series(
            &[
                ("__name__", "requests_total"),
                ("code", "500"),
                ("job", "x"),
            ],
            &samples(|i| (i % 7 * 3) as f64),
        ),
        series(
            &[("__name__", "temperature"), ("room", "é <&> \"x\" \\ \n")],
            &samples(|i| (i - 10) as f64 / 3.0),
        ),
        series(&[("__name__", "tiny")], &samples(|i| i as f64 * 1.5e-9)),
        series(&[("__name__", "huge")], &samples(|i| (i + 1) as f64 * 1e21)),
        series(
            &[("__name__", "special"), ("is", "nan")],
            &samples(|_| f64::NAN),
        ),
        series(
            &[("__name__", "special"), ("is", "inf")],
            &samples(|_| f64::INFINITY),
        ),
        series(
            &[("__name__", "special"), ("is", "-inf")],
            &samples(|_| f64::NEG_INFINITY),
        ),
        series(&[("__name__", "special"), ("is", "-0")], &samples(|_| -0.0)),
        series(
            &[("__name__", "with.dots"), ("label with space", "1")],
            &samples(|i| i as f64),
        ),
    ];
    for (le, part) in [("0.1", 1), ("0.5", 3), ("2.5", 4), ("+Inf", 5)] {
        let counts: Vec<_> = (0..20)
            .map(|i| (T0 + i * 15_000, (i * part) as f64))
            .collect();
        all.push(series(
            &[
                ("__name__", "latency_seconds_bucket"),
                ("job", "x"),
                ("le", le),
            ],
            &counts,
        ));
    }
    WriteRequest::new(all)
}

/// Starts a server with [`data`].
fn server_with_data(flags: &[&str]) -> Server {
    let server = Server::start(flags);
    server.http().write(&data()).expect_status(204);
    server
}

/// Returns all series with their samples within an hour from [`T0`], one per line, sorted.
fn everything(http: &Http) -> Vec<String> {
    let time = (T0 / 1000 + 3600).to_string();
    let answer = http.query(
        "/api/v1/query",
        &[("query", "{__name__=~\".+\"}[2h]"), ("time", &time)],
    );
    let result = answer.data()["result"].take();
    let line = |series: &Value| format!("{} {}", series["metric"], series["values"]);
    let mut lines: Vec<_> = result
        .as_array()
        .expect("a matrix")
        .iter()
        .map(line)
        .collect();
    lines.sort_unstable();
    lines
}

/// Splits a table row like `query?query=up&time=1` into path and parameters; no value may contain
/// `&`.
fn call(row: &str) -> (String, Vec<(&str, &str)>) {
    let (path, params) = row.split_once('?').unwrap_or((row, ""));
    let params = params.split('&').filter(|pair| !pair.is_empty());
    (
        format!("/api/v1/{path}"),
        params
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect(),
    )
}
