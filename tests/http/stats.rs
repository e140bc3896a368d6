//! Statistics of a query, and the output of `varve query explain`.

use std::process::Command;

use serde_json::{Value, json};

use super::{T0, server_with_data};
use crate::harness::{Server, WriteRequest, series};

fn stats(server: &Server, path: &str, params: &[(&str, &str)]) -> Value {
    server.http().query(path, params).data()["stats"].clone()
}

#[test]
fn statistics_have_prometheus_format_when_requested() {
    let server = server_with_data(&["--enable-feature=promql-per-step-stats"]);
    let time = (T0 / 1000).to_string();
    let instant = |wanted| {
        stats(
            &server,
            "/api/v1/query",
            &[("query", "sum(up)"), ("time", &time), ("stats", wanted)],
        )
    };
    assert_eq!(instant(""), Value::Null);
    let timings = instant("all")["timings"].clone();
    let names = [
        "evalTotalTime",
        "execQueueTime",
        "execTotalTime",
        "innerEvalTime",
        "queryPreparationTime",
        "resultSortTime",
    ];
    let times = timings.as_object().expect("an object");
    assert_eq!(times.keys().map(String::as_str).collect::<Vec<_>>(), names);
    assert!(
        times.values().all(|time| time
            .as_f64()
            .is_some_and(|seconds| (0.0..60.0).contains(&seconds))),
        "{timings}"
    );
    let n_up = server
        .http()
        .query("/api/v1/query", &[("query", "up"), ("time", &time)])
        .data()["result"]
        .clone();
    let n_up = n_up.as_array().expect("a vector").len();
    let sums = json!({"totalQueryableSamples": n_up, "samplesRead": n_up, "seriesTouched": n_up, "peakSamples": n_up + 1});
    let mut samples = instant("sums")["samples"].clone();
    samples["peakSamples"] = json!(n_up + 1);
    assert_eq!(samples, sums);
    let warnings = |wanted| {
        let params = [("query", "vector(1)"), ("stats", wanted)];
        server
            .http()
            .query("/api/v1/query", &params)
            .expect_status(200)
            .json()["warnings"]
            .take()
    };
    assert_eq!(
        (warnings("true"), warnings("all"), warnings("")),
        (Value::Null, Value::Null, Value::Null)
    );
    let deprecated = "value \"sums\" for parameter \"stats\" is deprecated and will be rejected in the next major release, \
                      use \"true\" or \"all\"";
    assert_eq!(warnings("sums"), json!([deprecated]));
    let end = (T0 / 1000 + 15).to_string();
    let params = [
        ("query", "up"),
        ("start", &*time),
        ("end", &end),
        ("step", "15"),
        ("stats", "all"),
    ];
    let samples = stats(&server, "/api/v1/query_range", &params)["samples"].clone();
    let steps = samples["totalQueryableSamplesPerStep"]
        .as_array()
        .expect("by step")
        .clone();
    assert_eq!(steps[0], json!([T0 / 1000, n_up]));
    assert_eq!(
        steps
            .iter()
            .map(|step| step[1].as_u64().unwrap())
            .sum::<u64>(),
        samples["totalQueryableSamples"]
    );
}

/// The value was charged by its evaluation, and again while it was written.
#[test]
fn the_value_of_a_query_is_charged_once() {
    let server = server_with_data(&["--web.response-buffer=64KiB"]);
    let start = (T0 / 1000).to_string();
    let end = (T0 / 1000 + 10_000).to_string();
    let params = [
        ("query", "last_over_time(latency_seconds_bucket[1d])"),
        ("start", &*start),
        ("end", &end),
        ("step", "1"),
        ("stats", "all"),
    ];
    let data = server.http().query("/api/v1/query_range", &params).data();
    let mut n_points = 0;
    for series in data["result"].as_array().expect("a matrix") {
        n_points += series["values"].as_array().expect("points").len();
    }
    assert_eq!(n_points, 4 * 10_001);
    let value_size = 16 * n_points as u64;
    let peak = data["stats"]["memoryPeakBytes"].as_u64().expect("bytes");
    assert!(
        (value_size..2 * value_size).contains(&peak),
        "{peak} bytes for a value of {value_size} bytes"
    );
}

#[test]
fn explain_shows_the_plan_with_statistics_of_operators() {
    let server = server_with_data(&[]);
    let url = server.http().url("");
    let time = (T0 / 1000).to_string();
    let explain = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        command
            .args(["query", "explain", "--url", url.trim_end_matches('/')])
            .args(args)
            .output()
            .expect("it runs")
    };
    let told = explain(&["sum(up) + 1", "--time", &time]);
    let text = String::from_utf8(told.stdout).expect("it is text");
    let operators: Vec<_> = text
        .lines()
        .skip(4)
        .map(|line| line.split_whitespace().last().unwrap_or(""))
        .collect();
    assert_eq!(operators, ["+", "sum", "up", "1"], "{text}");
    let (start, end) = (time.clone(), (T0 / 1000 + 60).to_string());
    let range = [
        "rate(up[1m])",
        "--start",
        &start,
        "--end",
        &end,
        "--step",
        "15s",
        "--output",
        "json",
    ];
    let told = explain(&range);
    let answer: Value = serde_json::from_slice(&told.stdout).expect("it is JSON");
    assert_eq!(answer["operators"][0]["operator"], "rate()", "{answer}");
    let told = explain(&["sum("]);
    let error = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(
        !told.status.success() && error.contains("parse error: unclosed left parenthesis"),
        "{error}"
    );
    assert!(!explain(&["up", "--start", "1"]).status.success());
}

#[test]
fn cached_steps_are_counted_and_skipped_on_request() {
    // A result is not valid for later queries if an append that began before the data has not
    // ended.
    let server = server_with_data(&["--self-scrape-interval=0"]);
    let http = server.http();
    let (start, end) = ((T0 / 1000).to_string(), (T0 / 1000 + 285).to_string());
    let query = "sum by (code) (rate(requests_total[1m]))";
    let range = [
        ("query", query),
        ("start", &*start),
        ("end", &end),
        ("step", "15"),
        ("stats", "true"),
    ];
    let cached = |nocache: &str| {
        let params = [&range[..], &[("nocache", nocache)]].concat();
        let data = http
            .query("/api/v1/query_range", &params)
            .expect_status(200)
            .data();
        (data["stats"]["cachedSteps"].clone(), data["result"].clone())
    };
    let (n_steps, result) = cached("");
    assert_eq!(
        (n_steps, cached(""), cached("1")),
        (
            json!(0),
            (json!(20), result.clone()),
            (json!(0), result.clone())
        )
    );
    let path =
        format!("/api/v1/query_range?query={query}&start={start}&end={end}&step=15&stats=true")
            .replace(' ', "%20");
    let skipped = http
        .call("GET", &path, &[("Cache-Control", "no-cache")], b"")
        .data()["stats"]
        .clone();
    assert_eq!(skipped["cachedSteps"], json!(0));
    // A late sample of the same metric.
    let late = [(T0 + 200_000, 1e6)];
    http.write(&WriteRequest::new(vec![series(
        &[("__name__", "requests_total"), ("code", "404")],
        &late,
    )]))
    .expect_status(204);
    let (n_steps, changed) = cached("");
    assert_eq!(changed, cached("1").1);
    assert!((1..20).contains(&n_steps.as_u64().unwrap()), "{n_steps}");
    // An instant query with a time.
    let instant = |time: &[(&str, &str)]| {
        let params = [&[("query", query), ("stats", "true")], time].concat();
        stats(&server, "/api/v1/query", &params)["cachedSteps"].clone()
    };
    assert_eq!(
        (instant(&[("time", &end)]), instant(&[("time", &end)])),
        (json!(0), json!(1))
    );
    assert_eq!((instant(&[]), instant(&[])), (json!(0), json!(0)));
    let metrics = http.get("/metrics").text();
    assert!(
        metrics.contains("varve_query_cache_requests_total{outcome=\"partial\"} 1"),
        "{metrics}"
    );

    let server = server_with_data(&["--query.cache-size=0"]);
    for _ in 0..2 {
        assert_eq!(
            stats(&server, "/api/v1/query_range", &range)["cachedSteps"],
            json!(0)
        );
    }
}
