//! Series, labels, label values, status and health.

use serde_json::{Value, json};

use super::{call, server_with_data};
use crate::harness::Server;

/// Checks the whole body of a response, by GET and, if the API has it, by POST.
#[track_caller]
fn check(server: &Server, row: &str, expect: &str) {
    let (path, params) = call(row);
    assert_eq!(server.http().query(&path, &params).text(), expect, "{row}");
    if !path.ends_with("/values") {
        assert_eq!(
            server.http().form(&path, &params).text(),
            expect,
            "POST {row}"
        );
    }
}

#[test]
fn labels_and_values_are_listed_in_order() {
    let server = server_with_data(&[]);
    for (row, data) in [
        (
            "labels",
            json!([
                "__name__",
                "code",
                "instance",
                "is",
                "job",
                "label with space",
                "le",
                "room"
            ]),
        ),
        ("labels?match[]=up", json!(["__name__", "instance", "job"])),
        (
            "labels?match[]=up&match[]=special",
            json!(["__name__", "instance", "is", "job"]),
        ),
        ("labels?match[]=nothing", json!([])),
        ("labels?start=1&end=2", json!([])),
        ("label/job/values", json!(["x"])),
        ("label/le/values", json!(["+Inf", "0.1", "0.5", "2.5"])),
        (
            "label/instance/values?match[]=up{instance!=\"a:1\"}",
            json!(["b:1"]),
        ),
        ("label/U__label_20_with_20_space/values", json!(["1"])),
        ("label/nothing/values", json!([])),
    ] {
        check(
            &server,
            row,
            &format!(r#"{{"status":"success","data":{data}}}"#),
        );
    }
    check(
        &server,
        "labels?limit=2",
        r#"{"status":"success","data":["__name__","code"],"warnings":["results truncated due to limit"]}"#,
    );
}

#[test]
fn series_are_the_union_of_all_selectors() {
    let server = server_with_data(&[]);
    let names = |row: &str| {
        let (path, params) = call(row);
        let answer = server.http().query(&path, &params);
        let mut series = answer.data().as_array().expect("an array").clone();
        series.sort_by_key(Value::to_string);
        assert_eq!(
            server
                .http()
                .form(&path, &params)
                .data()
                .as_array()
                .expect("an array")
                .len(),
            series.len()
        );
        series
    };
    let up = [
        json!({"__name__": "up", "instance": "a:1", "job": "x"}),
        json!({"__name__": "up", "instance": "b:1", "job": "x"}),
    ];
    assert_eq!(names("series?match[]=up"), up);
    assert_eq!(
        names("series?match[]=up&match[]={instance=~\".+\"}&match[]=up{job=\"x\"}"),
        up
    );
    assert_eq!(names("series?match[]=up{instance=\"b:1\"}"), up[1..]);
    assert_eq!(names("series?match[]=nothing"), [] as [Value; 0]);
    assert_eq!(names("series?match[]=up&start=1&end=2"), [] as [Value; 0]);
    assert_eq!(names("series?match[]={__name__=~\".+\"}").len(), 16);
    check(
        &server,
        "series?match[]=tiny",
        r#"{"status":"success","data":[{"__name__":"tiny"}]}"#,
    );
}

#[test]
fn bad_metadata_calls_are_400_bad_data() {
    let server = server_with_data(&[]);
    for (row, error) in [
        ("series", "no match[] parameter provided"),
        (
            "series?match[]={}",
            "invalid parameter \"match[]\": match[] must contain at least one non-empty matcher",
        ),
        (
            "series?match[]={a=~\".*\"}",
            "invalid parameter \"match[]\": match[] must contain at least one non-empty matcher",
        ),
        (
            "series?match[]=up&limit=-1",
            "invalid parameter \"limit\": limit must be non-negative",
        ),
        (
            "labels?start=x",
            "invalid parameter \"start\": invalid time value for 'start': cannot parse \"x\" to a valid timestamp",
        ),
        ("metadata?limit=x", "limit must be a number"),
    ] {
        let (path, params) = call(row);
        let answer = server.http().query(&path, &params).expect_status(400);
        assert_eq!(
            answer.error(),
            ("bad_data".to_owned(), error.to_owned()),
            "{row}"
        );
    }
}

#[test]
fn buildinfo_has_the_fields_that_grafana_reads() {
    let server = server_with_data(&[]);
    let answer = server.http().get("/api/v1/status/buildinfo");
    let data = answer.data();
    let fields: Vec<_> = data
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        fields,
        [
            "branch",
            "buildDate",
            "buildUser",
            "goVersion",
            "revision",
            "version"
        ]
    );
    assert!(
        data["version"]
            .as_str()
            .expect("a string")
            .starts_with("3."),
        "{answer:?}"
    );
    assert_eq!(answer.header("content-type"), "application/json");
}

#[test]
fn health_and_metrics_are_plain_text() {
    let server = server_with_data(&[]);
    for path in ["/-/healthy", "/-/ready"] {
        let answer = server.http().get(path).expect_status(200);
        assert!(
            answer.header("content-type").starts_with("text/plain"),
            "{path}"
        );
    }
    let metrics = server.http().get("/metrics").expect_status(200);
    assert_eq!(
        metrics.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    assert!(server.metric("prometheus_tsdb_head_series") >= 16.0);
}

#[test]
fn other_paths_are_404_and_other_methods_405() {
    let server = Server::start(&[]);
    for path in [
        "/nothing",
        "/api/v1/nothing",
        "/api/v2/query",
        "/api/v1/nothing/",
        "/assets/nothing",
    ] {
        server.http().get(path).expect_status(404);
    }
    // The client follows the redirect.
    for path in [
        "/api/v1/labels/",
        "//api/v1/labels",
        "/api/v1/./labels?limit=1",
    ] {
        server.http().get(path).expect_status(200);
    }
    server.http().get("/api/v1/write").expect_status(405);
    server
        .http()
        .post("/api/v1/metadata", &[], b"")
        .expect_status(405);
    server
        .http()
        .post("/api/v1/label/job/values", &[], b"")
        .expect_status(405);
    let deleted = server
        .http()
        .connect()
        .send(b"DELETE /api/v1/query HTTP/1.1\r\nHost: x\r\n\r\n")
        .read(12);
    assert_eq!(deleted, "HTTP/1.1 405");
}

#[test]
fn own_metrics_are_stored_before_the_first_query() {
    let server = Server::start(&["--self-scrape-interval=15s"]);
    crate::harness::wait_until("the first self-scrape", || {
        let result = server
            .http()
            .query("/api/v1/query", &[("query", "up{job=\"varve\"}")])
            .data()["result"]
            .take();
        result
            .as_array()
            .is_some_and(|series| series.len() == 1 && series[0]["value"][1] == "1")
    });
    let answer = server
        .http()
        .query("/api/v1/query", &[("query", "varve_build_info")]);
    assert_eq!(
        answer.data()["result"].as_array().map(Vec::len),
        Some(1),
        "{answer:?}"
    );
}
