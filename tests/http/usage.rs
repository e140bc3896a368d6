//! The usage record and churn.

use std::process::Command;

use serde_json::{Value, json};

use super::{T0, server_with_data};
use crate::harness::{ConfigFile, Server, WriteRequest, series};

fn usage(server: &Server, metric: &str) -> Value {
    let mut found = server
        .http()
        .query("/api/v1/status/usage", &[("metric", metric)])
        .data();
    found["metrics"]
        .as_array_mut()
        .expect("a list")
        .pop()
        .unwrap_or_default()
}

#[test]
fn queries_are_recorded_with_their_requester() {
    let mut server = server_with_data(&[]);
    let headers = [
        ("User-Agent", "Grafana/12.1"),
        ("X-Dashboard-Uid", "d1"),
        ("X-Panel-Id", "7"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    let body = b"query=sum+by+(code)+(rate(requests_total{job=\"x\"}[5m]))";
    server
        .http()
        .post("/api/v1/query", &headers, body)
        .expect_status(200);
    server
        .http()
        .query("/api/v1/label/room/values", &[("match[]", "temperature")])
        .expect_status(200);
    server
        .http()
        .query("/api/v1/series", &[("match[]", "{__name__=~\"t.*\"}")])
        .expect_status(200);
    // A query that does not parse uses nothing.
    server
        .http()
        .query("/api/v1/query", &[("query", "sum(up")])
        .expect_status(400);

    let check = |server: &Server| {
        let found = usage(server, "requests_total");
        assert_eq!(
            [
                &found["matchedLabels"],
                &found["groupedLabels"],
                &found["allLabels"],
                &found["queries"]
            ],
            [&json!(["job"]), &json!(["code"]), &json!(false), &json!(1)]
        );
        let who = &found["requesters"][0];
        assert_eq!(
            [
                &who["userAgent"],
                &who["dashboard"],
                &who["panel"],
                &who["rule"]
            ],
            [
                &json!("Grafana/12.1"),
                &json!("d1"),
                &json!("7"),
                &json!("")
            ]
        );
        assert_eq!(
            usage(server, "temperature")["groupedLabels"],
            json!(["room"])
        );
        assert_eq!(usage(server, "up"), Value::Null);
        let all = server.http().get("/api/v1/status/usage").data();
        assert_eq!(all["selectors"][0]["selector"], "{__name__=~\"t.*\"}");
        assert_eq!(all["metrics"].as_array().map(Vec::len), Some(2));
    };
    check(&server);
    assert!(server.terminate().success());
    server.restart(&[]);
    check(&server);
    let limited = server
        .http()
        .query("/api/v1/status/usage", &[("limit", "1")])
        .data();
    assert_eq!(limited["metrics"].as_array().map(Vec::len), Some(1));
}

#[test]
fn every_kind_of_read_is_recorded_except_those_of_own_tools() {
    let server = Server::start(&["--enable-feature=search-api"]);
    let http = server.http();
    http.query(
        "/api/v1/query_explain",
        &[("query", "sum by (a) (explained)")],
    )
    .expect_status(200);
    let range = [
        ("start", "0"),
        ("end", "1"),
        ("query", "with_exemplars{b=\"1\"}"),
    ];
    http.query("/api/v1/query_exemplars", &range)
        .expect_status(200);
    let search = [("match[]", "searched"), ("label", "c")];
    http.query("/api/v1/search/label_values", &search)
        .expect_status(200);
    http.query("/api/v1/search/label_names", &[("match[]", "searched")])
        .expect_status(200);
    http.query("/federate", &[("match[]", "federated")])
        .expect_status(200);
    let tool = [("User-Agent", "varve-tools")];
    http.call("GET", "/api/v1/query?query=looked_at", &tool, b"")
        .expect_status(200);
    http.call("GET", "/api/v1/series?match[]=looked_at", &tool, b"")
        .expect_status(200);

    for (metric, matched, grouped, all_labels, queries) in [
        ("explained", json!([]), json!(["a"]), false, 1),
        ("with_exemplars", json!(["b"]), json!([]), true, 1),
        ("searched", json!([]), json!(["c"]), false, 2),
        ("federated", json!([]), json!([]), true, 1),
    ] {
        let found = usage(&server, metric);
        assert_eq!(
            [
                &found["matchedLabels"],
                &found["groupedLabels"],
                &found["allLabels"],
                &found["queries"]
            ],
            [&matched, &grouped, &json!(all_labels), &json!(queries)],
            "{metric}"
        );
    }
    assert_eq!(usage(&server, "looked_at"), Value::Null);
}

#[test]
fn the_label_that_created_new_series_is_reported() {
    let config = ConfigFile::new("ingest: {team_label: team}");
    let mut server = Server::start(&[&config.flag()]);
    let hour = 3_600_000;
    let gpu = |pod: &str, at: i64| {
        series(
            &[
                ("__name__", "DCGM_FI_DEV_GPU_UTIL"),
                ("gpu", "0"),
                ("pod", pod),
            ],
            &[(at, 1.0)],
        )
    };
    let pods: Vec<_> = (0..9).map(|i| format!("late-{i}")).collect();
    let mut all = vec![gpu("early", T0), gpu("early", T0 + hour)];
    all.extend(pods.iter().map(|pod| gpu(pod, T0 + hour)));
    all.push(series(
        &[("__name__", "up"), ("instance", "new")],
        &[(T0 + hour, 1.0)],
    ));
    server
        .http()
        .write(&WriteRequest::new(all))
        .expect_status(204);
    let time = ((T0 + hour) / 1_000).to_string();
    let found = server
        .http()
        .query("/api/v1/status/churn", &[("time", &time)])
        .data();
    assert_eq!(
        [&found["series"], &found["newSeries"]],
        [&json!(11), &json!(10)],
        "{found}"
    );
    let summary = "9 new values of the label pod came with 9 new series (90.0 %). \
        The metric with the most of them is DCGM_FI_DEV_GPU_UTIL.";
    assert_eq!(found["summary"], summary);
    let team = json!({
        "team": "", "newSeries": 10, "label": "pod", "percent": 90.0, "metric": "DCGM_FI_DEV_GPU_UTIL",
    });
    assert_eq!(found["teams"], json!([team]));
    let pod = &found["labels"][0];
    let expect = json!({
        "label": "pod", "newSeries": 9, "percent": 90.0, "newSeriesAlone": 9, "newValues": 9,
        "metrics": ["DCGM_FI_DEV_GPU_UTIL"],
    });
    assert_eq!(pod, &expect);
    server
        .http()
        .query("/api/v1/status/churn", &[("time", "x")])
        .expect_status(400);

    assert!(server.terminate().success());
    let path = server.data_dir();
    let args = [
        "tsdb",
        "churn",
        "--path",
        path.to_str().expect("a path of UTF-8"),
    ];
    let printed = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(args)
        .output()
        .expect("run varve");
    let text = String::from_utf8(printed.stdout).expect("it prints UTF-8");
    let row = "  90.0 %       9           9      9  pod       DCGM_FI_DEV_GPU_UTIL\n";
    assert!(text.contains(row), "{text}");
    assert!(text.contains(summary), "{text}");
}
