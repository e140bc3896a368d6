//! A real Prometheus scrapes a real node exporter and itself, and remote-writes the samples to two
//! Varve servers, with both versions of the protocol: all three must return equal query results.
//!
//! Before the comparison, the jobs lose their targets. Prometheus then marks their series stale,
//! sends the remaining samples, and continues to serve queries.

mod openmetrics2;
mod queries;
mod thanos;

use std::net::SocketAddr;
use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::harness::{Http, NodeExporter, Prometheus, Server, missing, promtool, wait_until};
use crate::promql::differential::compare::{Outcome, Sameness, compare_responses, compare_within};

/// Number of scrapes.
const SCRAPES: f64 = 25.0;
/// Time range of the queries in seconds, up to the last scrapes.
const SPAN: f64 = 20.0;
/// Maximum difference of two values, relative to the larger one. Both servers aggregate in
/// different orders.
const TOLERANCE: f64 = 1e-9;
/// Counts the series that have a sample now.
const COUNT_SERIES: &str = "count({__name__=~\".+\"}) or vector(0)";

#[test]
fn varve_answers_queries_like_the_prometheus_that_writes_to_it() {
    if missing(&["prometheus", "promtool", "prometheus-node-exporter"]) {
        return;
    }
    let varves = [Server::start(&[]), Server::start(&[])];
    let node = NodeExporter::start();
    let prometheus = Prometheus::start(
        &config(&varves, None),
        &["--enable-feature=metadata-wal-records"],
    );
    prometheus.reload(&config(
        &varves,
        Some([node.address(), prometheus.http().address()]),
    ));

    let theirs = prometheus.http();
    wait_until("enough scrapes", || {
        // Requests that appear in Prometheus' own histogram of durations.
        theirs.query("/api/v1/labels", &[]);
        value(
            theirs,
            "min(count_over_time(up[5m])) and on() (count(up) == 2)",
        ) >= SCRAPES
    });
    let end_s = now_s() - 1.0;
    for ours in varves.iter() {
        compare_metadata(ours.http(), theirs);
    }
    prometheus.reload(&config(&varves, None));
    wait_until("prometheus to mark all series stale", || {
        value(theirs, COUNT_SERIES) == 0.0
    });
    for ours in varves.iter().map(Server::http) {
        wait_until("all samples to be sent", || {
            n_samples(ours) == n_samples(theirs) && value(ours, COUNT_SERIES) == 0.0
        });
        compare_queries(ours, theirs, end_s);
        compare_calls(ours, theirs);
        compare_promtool(ours, theirs, end_s);
    }
}

/// Returns a configuration that remote-writes to both servers, with versions 1.0 and 2.0, with or
/// without targets.
fn config(varves: &[Server; 2], targets: Option<[SocketAddr; 2]>) -> String {
    let [v1, v2] = varves
        .each_ref()
        .map(|varve| varve.http().url("/api/v1/write"));
    let [node, prometheus] = targets.map_or_else(Default::default, |targets| {
        targets.map(|target| format!("'{target}'"))
    });
    format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}
remote_write:
- url: '{v1}'
  queue_config: {{batch_send_deadline: 200ms}}
  metadata_config: {{send_interval: 500ms}}
- url: '{v2}'
  protobuf_message: io.prometheus.write.v2.Request
  queue_config: {{batch_send_deadline: 200ms}}
scrape_configs:
- {{job_name: node, static_configs: [{{targets: [{node}]}}]}}
- {{job_name: prometheus, static_configs: [{{targets: [{prometheus}]}}]}}
"
    )
}

fn now_s() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is past 1970")
        .as_secs_f64()
}

/// Returns the value of an instant query with one result, or NaN without a result.
fn value(http: &Http, query: &str) -> f64 {
    let data = http.query("/api/v1/query", &[("query", query)]).data();
    data["result"][0]["value"][1]
        .as_str()
        .map_or(f64::NAN, |text| text.parse().expect("a value is a float"))
}

/// Counts all samples by metric; one query for all is rejected, since it drops metric names.
fn n_samples(http: &Http) -> usize {
    let all = http
        .query("/api/v1/query", &[("query", "{__name__=~\".+\"}[10m]")])
        .data();
    let series = all["result"].as_array().expect("a matrix is an array");
    series
        .iter()
        .filter_map(|series| series["values"].as_array())
        .map(Vec::len)
        .sum()
}

fn compare_queries(ours: &Http, theirs: &Http, end_s: f64) {
    let (start, end) = (format!("{:.3}", end_s - SPAN), format!("{end_s:.3}"));
    let instant = queries::INSTANT
        .iter()
        .map(|query| ("/api/v1/query", *query, vec![("time", end.as_str())]));
    let range = queries::RANGE.iter().map(|(query, step)| {
        (
            "/api/v1/query_range",
            *query,
            vec![
                ("start", start.as_str()),
                ("end", end.as_str()),
                ("step", *step),
            ],
        )
    });
    let (mut wrong, mut rounded, mut n_queries) = (Vec::new(), Vec::new(), 0);
    for (path, query, mut params) in instant.chain(range) {
        params.push(("query", query));
        n_queries += 1;
        let (ours, theirs) = (
            Outcome::of(&ours.query(path, &params)),
            Outcome::of(&theirs.query(path, &params)),
        );
        let same = |a: &str, b: &str| compare_within(TOLERANCE, a, b);
        match compare_responses(query, &ours, &theirs, &same) {
            _ if theirs.is_error() || theirs.is_empty() => {
                wrong.push(format!("{path} {params:?}: {}", theirs.print()))
            }
            Ok(Sameness::Exact) => {}
            Ok(Sameness::Close) => rounded.push(query),
            Err(reason) => wrong.push(format!("{path} {params:?}: {reason}")),
        }
    }
    eprintln!("{n_queries} queries have the same answer, to the last digit but for {rounded:?}");
    assert!(
        wrong.is_empty(),
        "{} of {n_queries} queries differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Compares the metadata of all families. If two targets disagree on a family, Varve may have
/// either.
fn compare_metadata(ours: &Http, theirs: &Http) {
    let metadata = |http: &Http| {
        http.get("/api/v1/metadata")
            .data()
            .as_object()
            .expect("an object")
            .clone()
    };
    let wanted = metadata(theirs);
    assert!(wanted.len() > 100, "{} families", wanted.len());
    wait_until("all metadata to be sent", || {
        let sent = metadata(ours);
        wanted.iter().all(|(family, entries)| {
            let entries = entries.as_array().expect("an array");
            let sent = sent.get(family).and_then(Value::as_array);
            sent.is_some_and(|sent| sent.len() == 1 && entries.contains(&sent[0]))
        })
    });
}

/// Compares series and labels.
fn compare_calls(ours: &Http, theirs: &Http) {
    let all = [("match[]", "{__name__=~\".+\"}")];
    let calls: [(&str, &[(&str, &str)]); 6] = [
        ("series", &all),
        (
            "series",
            &[
                ("match[]", "up"),
                ("match[]", "{job=\"node\",device!=\"\"}"),
            ],
        ),
        ("labels", &[]),
        ("labels", &[("match[]", "{job=\"node\"}")]),
        ("label/__name__/values", &[]),
        (
            "label/handler/values",
            &[("match[]", "prometheus_http_requests_total")],
        ),
    ];
    for (path, params) in calls {
        let path = format!("/api/v1/{path}");
        let list = |http: &Http| {
            let mut list = http
                .query(&path, params)
                .data()
                .as_array()
                .expect("an array")
                .clone();
            list.sort_by_key(Value::to_string);
            list
        };
        let (ours, theirs) = (list(ours), list(theirs));
        assert!(!theirs.is_empty(), "{path} {params:?} is empty");
        assert!(
            ours == theirs,
            "{path} {params:?}: {} of ours differ from {} of theirs",
            ours.len(),
            theirs.len()
        );
    }
}

/// Runs promtool against both servers, which must succeed with equal output.
fn compare_promtool(ours: &Http, theirs: &Http, end_s: f64) {
    let time = format!("--time={end_s:.3}");
    let (start, end) = (
        format!("--start={:.3}", end_s - SPAN),
        format!("--end={end_s:.3}"),
    );
    let calls: [(&[&str], &[&str]); 5] = [
        (
            &["instant", &time],
            &["sum by (mode) (rate(node_cpu_seconds_total[10s]))"],
        ),
        (&["range", &start, &end, "--step=5s"], &["up"]),
        (
            &["series", "--match=up", "--match={__name__=\"node_load1\"}"],
            &[],
        ),
        (&["labels"], &["job"]),
        (&["labels"], &["__name__"]),
    ];
    for (before, behind) in calls {
        let run = |http: &Http| {
            let url = http.url("");
            let args: Vec<_> = ["query"]
                .iter()
                .chain(before)
                .copied()
                .chain([url.as_str()])
                .chain(behind.iter().copied())
                .collect();
            lines(&promtool(&args))
        };
        let (ours, theirs) = (run(ours), run(theirs));
        assert!(
            !theirs.is_empty(),
            "promtool query {before:?} printed nothing"
        );
        assert_eq!(ours, theirs, "promtool query {before:?} {behind:?}");
    }
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).expect("promtool prints UTF-8");
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}
