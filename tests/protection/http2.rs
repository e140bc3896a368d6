//! HTTP/2: limits hold per stream, and slow, failed or canceled streams do not affect others of the
//! connection.

use super::running::running;
use super::{SERIES_PER_REQUEST, held, ingest};
use crate::harness::{Http2, Server, wait_until};

/// Maximum number of concurrent streams of a connection, see docs/limits.md: a quarter of
/// --web.max-connections.
const STREAMS_MAX: usize = 128;
/// The response to this request is larger than the buffer and the flow-control window.
const ALL: &str = "/api/v1/series?match[]=load";

fn n_running(server: &Server) -> usize {
    running(server).len()
}

#[test]
fn a_response_that_fails_after_its_start_is_reset_and_the_connection_stays_open() {
    let server = Server::start(&[
        "--web.response-buffer=4KiB",
        "--web.max-response-size=256KiB",
    ]);
    ingest(&server, SERIES_PER_REQUEST);
    let client = Http2::connect(server.http().address());
    for coding in ["identity", "gzip", "zstd"] {
        let response = client.head(client.send("GET", ALL, &[("accept-encoding", coding)], b""));
        assert_eq!(response.status(), 200);
        let cut = client.body(response).expect_err("the answer is cut");
        assert!(
            cut.is_body_write_aborted() || format!("{cut:?}").contains("Reset"),
            "{coding}: {cut:?}"
        );
    }
    assert_eq!(server.metric("varve_http_responses_truncated_total"), 3.0);
    assert_eq!(client.get("/-/healthy").0, 200);
}

#[test]
fn a_response_that_is_not_read_is_reset_and_the_connection_stays_open() {
    let server = Server::start(&["--web.write-stall-timeout=500ms"]);
    ingest(&server, 4 * SERIES_PER_REQUEST);
    let client = Http2::connect(server.http().address());
    let long = client.head(client.send("GET", ALL, &[], b""));
    // A response that fits the buffer waits only in the connection.
    let short = client.head(client.send("GET", "/api/v1/series?match[]=load&limit=5000", &[], b""));
    assert!(long.status() == 200 && short.status() == 200);
    assert_eq!(client.get("/api/v1/query?query=1").0, 200);
    wait_until("the answers to be given up", || {
        server.metric("varve_http_streams_stalled_total") == 2.0
    });
    wait_until("all memory to be given back", || held(&server) == 0.0);
    for response in [long, short] {
        assert!(
            client.body(response).is_err(),
            "an answer that was cut is whole"
        );
    }
    assert_eq!(client.get("/api/v1/query?query=1").0, 200);
    assert!(!client.is_closed());
}

#[test]
fn a_request_that_its_client_resets_is_canceled() {
    let server = Server::start(&["--query.metadata-concurrency=1"]);
    ingest(&server, 4 * SERIES_PER_REQUEST);
    let client = Http2::connect(server.http().address());
    let response = client.head(client.send("GET", ALL, &[], b""));
    assert!(held(&server) > 0.0);
    drop(response);
    wait_until("all memory to be given back", || {
        held(&server) == 0.0 && n_running(&server) == 0
    });
    assert_eq!(client.get("/-/healthy").0, 200);
}

#[test]
fn a_connection_has_a_bounded_number_of_concurrent_streams() {
    let server = Server::start(&[
        "--query.max-concurrency=1",
        "--query.max-queued=1000",
        "--query.queue-timeout=60s",
    ]);
    assert!(
        server
            .http()
            .get("/api/v1/status/flags")
            .text()
            .contains("\"web.max-connections\":\"512\"")
    );
    ingest(&server, SERIES_PER_REQUEST);
    // Slow and different queries.
    let path = |i: usize| {
        let parts: Vec<_> = (300..400)
            .map(|range_s| format!("sum(max_over_time(load[{}ms]))", 1000 * range_s + i))
            .collect();
        format!(
            "/api/v1/query_range?query={}&start=1700000000&end=1700000400&step=1",
            parts.join("%2B")
        )
    };
    let client = Http2::connect(server.http().address());
    let sent: Vec<_> = (0..STREAMS_MAX + 50)
        .map(|i| client.send("GET", &path(i), &[], b""))
        .collect();
    wait_until("the requests to come", || n_running(&server) >= STREAMS_MAX);
    assert_eq!(n_running(&server), STREAMS_MAX);
    // Other clients have other connections.
    assert_eq!(
        Http2::connect(server.http().address())
            .get("/api/v1/labels")
            .0,
        200
    );
    drop((client, sent));
    wait_until("the requests to end with their connection", || {
        n_running(&server) == 0
    });
}

#[test]
fn slow_readers_on_one_connection_block_nobody() {
    let server = Server::start(&["--query.metadata-concurrency=2", "--web.max-connections=20"]);
    ingest(&server, 4 * SERIES_PER_REQUEST);
    let slow = Http2::connect(server.http().address());
    // Different queries with responses larger than the buffer. Beyond the fifth they wait at the
    // client.
    let sent: Vec<_> = (0..40)
        .map(|i| slow.send("GET", &format!("{ALL}&timeout={}s", 90 + i), &[], b""))
        .collect();
    wait_until("the first ones to be at work", || n_running(&server) == 5);
    // Other connections have their own permits, with HTTP/2 too.
    assert_eq!(
        Http2::connect(server.http().address())
            .get("/api/v1/labels")
            .0,
        200
    );
    server
        .http()
        .query(
            "/api/v1/query",
            &[("query", "count(load)"), ("time", "1700000045")],
        )
        .expect_status(200);
    server
        .http()
        .query("/api/v1/series", &[("match[]", "load"), ("limit", "1")])
        .expect_status(200);
    drop((slow, sent));
    wait_until("all memory to be given back", || {
        held(&server) == 0.0 && n_running(&server) == 0
    });
}

#[test]
fn an_idle_connection_is_closed() {
    let server = Server::start(&["--web.read-timeout=300ms"]);
    let client = Http2::connect(server.http().address());
    assert_eq!(client.get("/-/healthy").0, 200);
    let silent = server.http().connect();
    wait_until("the idle connection to be closed", || client.is_closed());
    wait_until("the silent one to be closed", || {
        server.metric("varve_http_connections") <= 1.0
    });
    drop(silent);
}
