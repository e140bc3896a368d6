//! Requests rejected or aborted by a limit: the response names the limit, and it is counted.

use super::{endless_query, ingest};
use crate::harness::{Answer, Server, snappy, wait_until};

/// Checks that a response is the error of a limit, which it names, and which was counted.
#[track_caller]
fn ended_by(server: &Server, limit: &str, answer: Answer, status: u16, kind: &str) {
    let answer = answer.expect_status(status);
    let (error_kind, error) = answer.error();
    assert_eq!(error_kind, kind, "{error}");
    assert!(
        error.contains(limit.trim_start_matches("points ")),
        "{error}"
    );
    assert_eq!(
        answer.header("retry-after").is_empty(),
        kind != "unavailable",
        "{answer:?}"
    );
    assert!(hits(server, limit) >= 1.0, "{limit}");
}

fn hits(server: &Server, limit: &str) -> f64 {
    server.metric(&format!("varve_limits_hit_total{{limit=\"{limit}\"}}"))
}

#[test]
fn each_limit_of_a_response_is_named_and_counted() {
    let server = Server::start(&[
        "--query.max-metadata-series=100",
        "--web.max-response-size=64KiB",
    ]);
    ingest(&server, 5_000);
    let http = server.http();
    let time = ("time", "1700000045");
    ended_by(
        &server,
        "--web.max-response-size",
        http.query("/api/v1/query", &[("query", "load"), time]),
        422,
        "execution",
    );
    let series = http.query("/api/v1/series", &[("match[]", "load")]);
    ended_by(
        &server,
        "--query.max-metadata-series",
        series,
        422,
        "execution",
    );
    for path in ["/api/v1/labels", "/api/v1/label/pod/values"] {
        let answer = http.query(path, &[("match[]", "load")]);
        ended_by(
            &server,
            "--query.max-metadata-series",
            answer,
            422,
            "execution",
        );
    }
    http.query("/api/v1/series", &[("match[]", "load{node=\"node-7\"}")])
        .expect_status(200);
    http.query("/api/v1/query", &[("query", "load{node=\"node-7\"}"), time])
        .expect_status(200);

    let timeout = http
        .query("/api/v1/query", &[("query", "load"), ("timeout", "1e-9")])
        .expect_status(503);
    assert_eq!(timeout.error().0, "timeout");
    assert_eq!(hits(&server, "--query.timeout"), 1.0);
    let params = [
        ("query", "load"),
        ("start", "0"),
        ("end", "11001"),
        ("step", "1"),
    ];
    let points = http
        .query("/api/v1/query_range", &params)
        .expect_status(400);
    assert!(
        points
            .error()
            .1
            .starts_with("exceeded maximum resolution of 11,000 points")
    );
    assert_eq!(hits(&server, "--query.max-points"), 1.0);
}

#[test]
fn each_limit_of_a_query_is_named_and_counted() {
    let server = Server::start(&["--query.max-samples=10"]);
    ingest(&server, 5_000);
    let http = server.http();
    const LENGTH_MAX: usize = 1 << 20;
    const NESTING_MAX: usize = 1024;
    let query_of_size = |size: usize| format!("load{}", " ".repeat(size - "load".len()));
    let query_of_depth = |n: usize| format!("{}load{}", "(".repeat(n - 1), ")".repeat(n - 1));
    let long = query_of_size(LENGTH_MAX + 1);
    let deep = query_of_depth(NESTING_MAX + 1);
    for path in [
        "query",
        "query_range",
        "query_explain",
        "format_query",
        "parse_query",
        "query_exemplars",
    ] {
        let ask = |query| {
            let params = [
                ("query", query),
                ("start", "1700000000"),
                ("end", "1700000045"),
                ("step", "15"),
            ];
            http.form(&format!("/api/v1/{path}"), &params)
        };
        ended_by(&server, "query length", ask(&long), 400, "bad_data");
        ended_by(&server, "query nesting", ask(&deep), 400, "bad_data");
    }
    assert_eq!(
        (
            hits(&server, "query length"),
            hits(&server, "query nesting")
        ),
        (6.0, 6.0)
    );
    http.form("/api/v1/query", &[("query", &query_of_size(LENGTH_MAX))])
        .expect_status(200);
    http.form("/api/v1/query", &[("query", &query_of_depth(NESTING_MAX))])
        .expect_status(200);

    let samples = http
        .query(
            "/api/v1/query",
            &[("query", "load"), ("time", "1700000045")],
        )
        .expect_status(422);
    assert!(
        samples.error().1.contains("too many samples"),
        "{samples:?}"
    );
    assert_eq!(hits(&server, "--query.max-samples"), 1.0);

    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let large = http.post("/api/v1/query", &form, &vec![b'x'; (10 << 20) + 1]);
    ended_by(&server, "form size", large, 413, "bad_data");
    let many = http.post(
        "/api/v1/series",
        &form,
        "match[]=up&".repeat(10_001).as_bytes(),
    );
    ended_by(&server, "parameters", many, 400, "bad_data");
}

#[test]
fn a_timeout_that_has_passed_ends_every_read() {
    let server = Server::start(&["--enable-feature=search-api"]);
    ingest(&server, 5_000);
    let range = "start=1700000000&end=1700000045";
    let mut n_ended = 0.0;
    for call in [
        "/api/v1/query?query=load",
        &format!("/api/v1/query_range?query=load&step=15&{range}"),
        "/api/v1/query_explain?query=load",
        &format!("/api/v1/query_exemplars?query=load&{range}"),
        "/api/v1/series?match[]=load",
        "/api/v1/labels?x=1",
        "/api/v1/labels?match[]=load",
        "/api/v1/label/pod/values?x=1",
        "/api/v1/label/pod/values?match[]=load",
        "/api/v1/metadata?x=1",
        &format!("/api/v1/search/metric_names?{range}"),
        &format!("/api/v1/search/label_names?{range}"),
        &format!("/api/v1/search/label_values?label=pod&{range}"),
        "/api/v1/status/tsdb?x=1",
        "/api/v1/status/usage?x=1",
        "/api/v1/status/churn?x=1",
    ] {
        let (kind, error) = server
            .http()
            .get(&format!("{call}&timeout=1e-9"))
            .expect_status(503)
            .error();
        assert!(
            kind == "timeout" && error.starts_with("query timed out"),
            "{call}: {kind} {error}"
        );
        server
            .http()
            .get(&format!("{call}&timeout=60s"))
            .expect_status(200);
        server
            .http()
            .get(&format!("{call}&timeout=x"))
            .expect_status(400);
        n_ended += 1.0;
    }
    // These two respond in plain text.
    let federated = server
        .http()
        .get("/federate?match[]=load&timeout=1e-9")
        .expect_status(503);
    let body = snappy(&[]);
    let read = server
        .http()
        .post("/api/v1/read?timeout=1e-9", &[], &body)
        .expect_status(503);
    for answer in [federated, read] {
        assert!(answer.text().starts_with("query timed out"), "{answer:?}");
        n_ended += 1.0;
    }
    server
        .http()
        .get("/federate?match[]=load&timeout=x")
        .expect_status(400);
    server
        .http()
        .post("/api/v1/read?timeout=x", &[], &body)
        .expect_status(400);
    assert_eq!(hits(&server, "--query.timeout"), n_ended);
}

#[test]
fn a_streamed_response_is_truncated_at_its_size_limit() {
    let server = Server::start(&[
        "--web.response-buffer=4KiB",
        "--web.max-response-size=256KiB",
    ]);
    ingest(&server, 5_000);
    let answer = server
        .http()
        .query("/api/v1/series", &[("match[]", "load")])
        .expect_status(200);
    assert!(
        answer.cut.is_some() && answer.body.len() <= 256 << 10,
        "{answer:?}"
    );
    assert_eq!(hits(&server, "--web.max-response-size"), 1.0);
    assert_eq!(server.metric("varve_http_responses_truncated_total"), 1.0);
}

#[test]
fn the_queue_is_bounded_in_length_and_time() {
    let flags = [
        "--query.max-concurrency=1",
        "--query.max-queued=1",
        "--query.queue-timeout=2s",
    ];
    let server = Server::start(&flags);
    ingest(&server, 5_000);
    let running = endless_query(&server);
    let mut waiting = server.http().connect();
    waiting.send(b"GET /api/v1/query?query=2 HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_until("the second to wait", || {
        server.metric("varve_requests_queued{class=\"query\"}") == 1.0
    });
    let third = server.http().query("/api/v1/query", &[("query", "3")]);
    ended_by(&server, "--query.max-queued", third, 503, "unavailable");
    // Metadata requests have their own queue.
    server
        .http()
        .query("/api/v1/series", &[("match[]", "load"), ("limit", "1")])
        .expect_status(200);
    assert_eq!(waiting.read(12), "HTTP/1.1 503");
    assert_eq!(hits(&server, "--query.queue-timeout"), 1.0);
    assert_eq!(server.metric("varve_requests_queued{class=\"query\"}"), 0.0);
    drop(running);
    server
        .http()
        .query("/api/v1/query", &[("query", "1")])
        .expect_status(200);
}
