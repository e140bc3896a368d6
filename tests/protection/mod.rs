//! A request that needs too much ends at its deadline or a limit, frees its memory, and does not
//! affect others.

mod accounting;
mod bounds;
mod cgroup;
mod clients;
mod forms;
mod gates;
mod http2;
mod ingestion;
mod last_words;
mod long_labels;
mod long_urls;
mod pressure;
mod requester;
mod running;
mod unbounded;
mod unread;

use std::time::{Duration, Instant};

use crate::harness::{Answer, Http, RawConnection, Server, WriteRequest, series, wait_until};

const SERIES: usize = 100_000;
const SERIES_PER_REQUEST: usize = 5_000;
const T0: i64 = 1_700_000_000_000;
/// Allowed delay after a deadline on a busy machine.
const SLACK: Duration = Duration::from_secs(1);
/// Allowed growth of memory by repetition, in bytes: the allocator retains what threads have used.
const RESIDENT_GROWTH_MAX: u64 = 128 << 20;

/// A range over all series, windows included: seconds of work.
const HEAVY: [(&str, &str); 4] = [
    ("query", "max_over_time(load[5m])"),
    ("start", "1700000000"),
    ("end", "1700000400"),
    ("step", "1"),
];

#[test]
fn queries_over_100_000_series_end_at_their_deadline_and_free_their_memory() {
    let server = Server::start(&["--web.write-stall-timeout=2s"]);
    ingest(&server, SERIES);
    deadline_ends_range_queries(&server);
    deadline_ends_metadata_requests(&server);
    deadline_ends_responses_that_nobody_reads(&server);
    a_disconnect_ends_the_query(&server);
    repetition_uses_no_more_memory(&server);

    server.http().get("/-/healthy").expect_status(200);
    let count = server.http().query(
        "/api/v1/query",
        &[("query", "count(load)"), ("time", "1700000045")],
    );
    assert_eq!(count.data()["result"][0]["value"][1], SERIES.to_string());
}

/// Writes four samples of each of `n_series` series, [`SERIES_PER_REQUEST`] per request.
pub(crate) fn ingest(server: &Server, n_series: usize) {
    let samples = [0, 15_000, 30_000, 45_000].map(|after_ms| (T0 + after_ms, after_ms as f64));
    for first in (0..n_series).step_by(SERIES_PER_REQUEST) {
        let timeseries = (first..first + SERIES_PER_REQUEST).map(|i| {
            let (pod, node) = (format!("pod-{i}"), format!("node-{}", i / 100));
            series(
                &[
                    ("__name__", "load"),
                    ("namespace", "default"),
                    ("node", &node),
                    ("pod", &pod),
                ],
                &samples,
            )
        });
        server
            .http()
            .write(&WriteRequest::new(timeseries))
            .expect_status(204);
    }
    assert_eq!(
        server.metric("prometheus_tsdb_head_series"),
        n_series as f64
    );
}

fn deadline_ends_range_queries(server: &Server) {
    for query in [
        "max_over_time(load[5m])",
        "sum(max_over_time(load[5m]))",
        "load",
        "sort(rate(load[5m]) * load)",
    ] {
        let params = [("query", query), HEAVY[1], HEAVY[2], HEAVY[3]];
        let answer = ends_in_time(server, 200, |http, timeout| {
            http.query("/api/v1/query_range", &[&params[..], &[timeout]].concat())
        });
        ended_by_deadline(&answer, query);
    }
}

fn deadline_ends_metadata_requests(server: &Server) {
    // Enough selectors for many seconds of work; series are streamed, values are written at the
    // end.
    let mut params = vec![("match[]", "load"); 300];
    for path in ["/api/v1/series", "/api/v1/label/pod/values"] {
        let answer = ends_in_time(server, 200, |http, timeout| {
            http.query(path, &[&params, &[timeout][..]].concat())
        });
        ended_by_deadline(&answer, path);
    }
    // A request for all series may complete in time.
    params.truncate(1);
    for timeout_ms in [200, 10, 1] {
        let answer = ends_in_time(server, timeout_ms, |http, timeout| {
            http.query("/api/v1/series", &[params[0], timeout])
        });
        if answer.status != 200 || answer.cut.is_some() {
            ended_by_deadline(&answer, "series");
        }
    }
}

fn deadline_ends_responses_that_nobody_reads(server: &Server) {
    let mut connection = server.http().connect();
    connection.send(b"GET /api/v1/series?match[]=load&timeout=1s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(connection.read(12), "HTTP/1.1 200");
    let started = Instant::now();
    wait_until("the memory of an answer that nobody reads", || {
        held(server) == 0.0
    });
    // The query ends after a second, the stalled connection after two more.
    assert!(
        started.elapsed() < Duration::from_secs(3) + SLACK,
        "{:?}",
        started.elapsed()
    );
    let rest = connection.read_to_end();
    assert!(
        !rest.ends_with("0\r\n\r\n"),
        "an answer that was cut looks complete"
    );
}

fn a_disconnect_ends_the_query(server: &Server) {
    let connection = endless_query(server);
    wait_until("the query to take memory", || held(server) > 0.0);
    drop(connection);
    let started = Instant::now();
    wait_until("the query to end", || {
        server.metric("varve_requests_active{class=\"query\"}") == 0.0 && held(server) == 0.0
    });
    assert!(started.elapsed() < SLACK, "{:?}", started.elapsed());
}

/// Starts a query whose parts run one after the other, for longer than any test.
pub(crate) fn endless_query(server: &Server) -> RawConnection {
    let mut connection = server.http().connect();
    connection.send(endless("").as_bytes());
    wait_until("the query to run", || {
        server.metric("varve_requests_active{class=\"query\"}") == 1.0
    });
    connection
}

/// Returns a request for such a query after `first`, URL-encoded; parentheses opened there are
/// closed at the end.
fn endless(first: &str) -> String {
    // Equal expressions are evaluated once: each part has its own range.
    let parts: Vec<_> = (300..1300)
        .map(|range_s| format!("sum(max_over_time(load[{range_s}s]))"))
        .collect();
    let query = parts.join("%2B");
    let close = ")".repeat(first.matches('(').count() - first.matches(')').count());
    let range = "start=1700000000&end=1700000400&step=1";
    format!(
        "GET /api/v1/query_range?query={first}({query}){close}&{range} HTTP/1.1\r\nHost: x\r\nUser-Agent: endless\r\nConnection: close\r\n\r\n"
    )
}

fn repetition_uses_no_more_memory(server: &Server) {
    let repeat = |times| {
        for _ in 0..times {
            server.http().query(
                "/api/v1/query_range",
                &[&HEAVY[..], &[("timeout", "200ms")]].concat(),
            );
            server.http().query(
                "/api/v1/series",
                &[("match[]", "load"), ("timeout", "50ms")],
            );
        }
        wait_until("all memory to be given back", || held(server) == 0.0);
        server.resident_size()
    };
    let before = repeat(3);
    let after = repeat(10);
    assert!(
        after < before + RESIDENT_GROWTH_MAX,
        "{before} bytes grew to {after}"
    );
}

/// Makes a request with a timeout; it must end in time and free all memory.
#[track_caller]
fn ends_in_time(
    server: &Server,
    timeout_ms: u64,
    call: impl FnOnce(&Http, (&str, &str)) -> Answer,
) -> Answer {
    let timeout = format!("{timeout_ms}ms");
    let started = Instant::now();
    let answer = call(server.http(), ("timeout", &timeout));
    let elapsed = started.elapsed();
    eprintln!(
        "timeout {timeout}: status {} after {elapsed:?}",
        answer.status
    );
    assert!(
        elapsed < Duration::from_millis(timeout_ms) + SLACK,
        "{timeout} became {elapsed:?}: {answer:?}"
    );
    wait_until("all memory to be given back", || held(server) == 0.0);
    answer
}

/// Checks that a response is a timeout error, or truncated after its start.
#[track_caller]
fn ended_by_deadline(answer: &Answer, what: &str) {
    if answer.status == 200 {
        assert!(answer.cut.is_some(), "{what}: complete: {answer:?}");
    } else {
        assert_eq!(
            (answer.status, answer.error().0.as_str()),
            (503, "timeout"),
            "{what}: {answer:?}"
        );
    }
}

/// Returns the number of metric names.
fn n_names(server: &Server) -> usize {
    server
        .http()
        .get("/api/v1/label/__name__/values")
        .data()
        .as_array()
        .map_or(0, Vec::len)
}

/// Returns the memory of all queries.
fn held(server: &Server) -> f64 {
    server.metric("varve_query_memory_bytes")
}
