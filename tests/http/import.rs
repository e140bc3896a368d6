//! Import of scrape bodies.

use super::everything;
use crate::harness::Server;

const PATH: &str = "/api/v1/import/prometheus";

#[test]
fn a_scrape_body_is_stored_with_extra_labels() {
    let server = Server::start(&[]);
    let http = server.http();
    let text = "# HELP up Whether.\n# TYPE up gauge\nup{job=\"a\"} 1 1700000000000\nup{job=\"b\"} 0 1700000001000\n";
    let compressed = zstd::encode_all(text.as_bytes(), 0).expect("zstd takes any text");
    let path = format!("{PATH}?extra_label=job=x&extra_label=zone%3Dz");
    http.post(&path, &[("Content-Encoding", "zstd")], &compressed)
        .expect_status(204);
    let open = "requests_total{} 5 1700000000.5 # {trace_id=\"t\"} 1\n# EOF\n";
    let headers = [(
        "Content-Type",
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
    )];
    http.post(PATH, &headers, open.as_bytes())
        .expect_status(204);
    let expect = [
        r#"{"__name__":"requests_total"} [[1700000000.5,"5"]]"#,
        r#"{"__name__":"up","job":"x","zone":"z"} [[1700000000,"1"],[1700000001,"0"]]"#,
    ];
    assert_eq!(everything(http), expect);
    assert_eq!(
        http.get("/api/v1/metadata").data().to_string(),
        r#"{"up":[{"help":"Whether.","type":"gauge","unit":""}]}"#
    );
}

#[test]
fn the_version_of_openmetrics_is_that_of_the_content_type() {
    let server = Server::start(&[]);
    let http = server.http();
    let body =
        "# TYPE s summary\ns {count:2,sum:3,quantile:[0.5:1]} 1700000000.5 st@1600000000\n# EOF\n";
    let send = |version: &str| {
        let content_type = format!("application/openmetrics-text; version={version}");
        http.post(PATH, &[("Content-Type", &content_type)], body.as_bytes())
    };
    let refused = send("1.0.0").expect_status(400);
    assert!(refused.text().contains("line 2: "), "{refused:?}");
    send("2.0.0").expect_status(204);
    let expect = [
        r#"{"__name__":"s","quantile":"0.5"} [[1700000000.5,"1"]]"#,
        r#"{"__name__":"s_count"} [[1700000000.5,"2"]]"#,
        r#"{"__name__":"s_sum"} [[1700000000.5,"3"]]"#,
    ];
    assert_eq!(everything(http), expect);
}

/// The parameter, which is VictoriaMetrics', was ignored.
#[test]
fn samples_without_a_timestamp_get_that_of_the_request() {
    let server = Server::start(&[]);
    let http = server.http();
    let path = format!("{PATH}?timestamp=1700000000500");
    let body = b"# HELP\na 1\nb{c=\"d\" e=\"f\"} 2 1700000001000\n";
    http.post(&path, &[], body).expect_status(204);
    let expect = [
        r#"{"__name__":"a"} [[1700000000.5,"1"]]"#,
        r#"{"__name__":"b","c":"d","e":"f"} [[1700000001,"2"]]"#,
    ];
    assert_eq!(everything(http), expect);
    let answer = http
        .post(&format!("{PATH}?timestamp=now"), &[], b"a 1\n")
        .expect_status(400);
    assert!(answer.text().contains("\"timestamp\""), "{answer:?}");
}

#[test]
fn an_invalid_line_is_reported() {
    let server = Server::start(&[]);
    let http = server.http();
    let answer = http
        .post(PATH, &[], b"up 1\nup{a=1} 1\n")
        .expect_status(400);
    let expect = "line 2: expected a quoted string, got \"1} 1\"; nothing of the body is stored\n";
    assert!(answer.text().ends_with(expect), "{answer:?}");
    let answer = http
        .post(&format!("{PATH}?extra_label=x"), &[], b"up 1\n")
        .expect_status(400);
    assert!(answer.text().contains("\"extra_label\""), "{answer:?}");
    http.post(PATH, &[("Content-Encoding", "br")], b"up 1\n")
        .expect_status(415);
    assert!(everything(http).is_empty());
}
