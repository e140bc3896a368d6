//! The bounds hold for HTTP/2 as well: on one connection many are served, whoever else is slow, too late or gone.

use super::{SERIES_PER_REQUEST, held, ingest};
use crate::harness::{Http2, Server, wait_until};

/// Requests at work on one connection; docs/limits.md names it.
const STREAMS_MAX: usize = 250;
/// An answer of this call is longer than what is held back and what a client lets come in before it reads.
const ALL: &str = "/api/v1/series?match[]=load";

fn n_running(server: &Server) -> usize {
    server.http().get("/api/v1/status/queries").data().as_array().map_or(0, Vec::len)
}

#[test]
fn an_answer_that_fails_late_is_reset_and_the_connection_goes_on() {
    let server = Server::start(&["--web.response-buffer=4KiB", "--web.max-response-size=256KiB"]);
    ingest(&server, SERIES_PER_REQUEST);
    let client = Http2::connect(server.http().address());
    for coding in ["identity", "gzip", "zstd"] {
        let response = client.head(client.send("GET", ALL, &[("accept-encoding", coding)], b""));
        assert_eq!(response.status(), 200);
        let cut = client.body(response).expect_err("the answer is cut");
        assert!(cut.is_body_write_aborted() || format!("{cut:?}").contains("Reset"), "{coding}: {cut:?}");
    }
    assert_eq!(server.metric("varve_http_responses_truncated_total"), 3.0);
    assert_eq!(client.get("/-/healthy").0, 200);
}

#[test]
fn an_answer_that_nobody_takes_is_reset_and_the_connection_goes_on() {
    let server = Server::start(&["--web.write-stall-timeout=500ms"]);
    ingest(&server, 4 * SERIES_PER_REQUEST);
    let client = Http2::connect(server.http().address());
    let long = client.head(client.send("GET", ALL, &[], b""));
    // One that fits what is held back waits for its client in the connection alone.
    let short = client.head(client.send("GET", "/api/v1/series?match[]=load&limit=5000", &[], b""));
    assert!(long.status() == 200 && short.status() == 200);
    assert_eq!(client.get("/api/v1/query?query=1").0, 200);
    wait_until("the answers to be given up", || server.metric("varve_http_streams_stalled_total") == 2.0);
    wait_until("all memory to be given back", || held(&server) == 0.0);
    for response in [long, short] {
        assert!(client.body(response).is_err(), "an answer that was cut is whole");
    }
    assert_eq!(client.get("/api/v1/query?query=1").0, 200);
    assert!(!client.is_closed());
}

#[test]
fn a_request_that_its_client_resets_ends() {
    let server = Server::start(&["--query.metadata-concurrency=1"]);
    ingest(&server, 4 * SERIES_PER_REQUEST);
    let client = Http2::connect(server.http().address());
    let response = client.head(client.send("GET", ALL, &[], b""));
    assert!(held(&server) > 0.0);
    drop(response);
    wait_until("all memory to be given back", || held(&server) == 0.0 && n_running(&server) == 0);
    assert_eq!(client.get("/-/healthy").0, 200);
}

#[test]
fn a_connection_has_a_bounded_number_of_requests_at_work() {
    let server = Server::start(&["--query.max-concurrency=1", "--query.max-queued=1000", "--query.queue-timeout=60s"]);
    assert!(server.http().get("/api/v1/status/flags").text().contains("\"web.max-connections\":\"512\""));
    ingest(&server, SERIES_PER_REQUEST);
    // Each takes its time, and no two are the same.
    let path = |i: usize| {
        let parts: Vec<_> =
            (300..400).map(|range_s| format!("sum(max_over_time(load[{}ms]))", 1000 * range_s + i)).collect();
        format!("/api/v1/query_range?query={}&start=1700000000&end=1700000400&step=1", parts.join("%2B"))
    };
    let client = Http2::connect(server.http().address());
    let sent: Vec<_> = (0..STREAMS_MAX + 50).map(|i| client.send("GET", &path(i), &[], b"")).collect();
    wait_until("the requests to come", || n_running(&server) >= STREAMS_MAX);
    assert_eq!(n_running(&server), STREAMS_MAX);
    // Others have connections of their own.
    assert_eq!(Http2::connect(server.http().address()).get("/api/v1/labels").0, 200);
    drop((client, sent));
    wait_until("the requests to end with their connection", || n_running(&server) == 0);
}

#[test]
fn slow_readers_on_one_connection_keep_nobody_out() {
    let server = Server::start(&["--query.metadata-concurrency=2", "--web.max-connections=20"]);
    ingest(&server, 4 * SERIES_PER_REQUEST);
    let slow = Http2::connect(server.http().address());
    // No two are the same; each is longer than what is held back. Beyond the twentieth they wait to be begun.
    let sent: Vec<_> = (0..40).map(|i| slow.send("GET", &format!("{ALL}&timeout={}s", 90 + i), &[], b"")).collect();
    wait_until("the first ones to be at work", || n_running(&server) == 20);
    // HTTP/1.1 has its own places.
    server.http().query("/api/v1/query", &[("query", "count(load)"), ("time", "1700000045")]).expect_status(200);
    server.http().query("/api/v1/series", &[("match[]", "load"), ("limit", "1")]).expect_status(200);
    drop((slow, sent));
    wait_until("all memory to be given back", || held(&server) == 0.0 && n_running(&server) == 0);
}

#[test]
fn a_connection_that_is_idle_is_closed() {
    let server = Server::start(&["--web.read-timeout=300ms"]);
    let client = Http2::connect(server.http().address());
    assert_eq!(client.get("/-/healthy").0, 200);
    let silent = server.http().connect();
    wait_until("the idle connection to be closed", || client.is_closed());
    wait_until("the silent one to be closed", || server.metric("varve_http_connections") <= 1.0);
    drop(silent);
}
