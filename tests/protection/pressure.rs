//! Memory pressure: which request is interrupted, and which are rejected.

use std::time::Duration;

use super::{endless, held, ingest};
use crate::harness::{Server, WriteRequest, series, wait_until};

#[test]
fn the_heaviest_query_ends_and_not_the_newest() {
    let server = Server::start(&["--query.max-memory-total=70MiB", "--query.max-memory=68MiB"]);
    ingest(&server, 5_000);
    // Three times 5,000 series of 401 steps are 48 MiB, held while the query continues.
    let mut heavy = server.http().connect();
    let held_parts = [299, 298, 297].map(|range_s| format!("max_over_time(load[{range_s}s])"));
    heavy.send(endless(&format!("{}%2Bon()group_left()(", held_parts.join("%2B("))).as_bytes());
    wait_until("the heavy query to hold its part", || {
        held(&server) > f64::from(47 << 20)
    });
    // The same steps are 16 MiB, and 32 MiB more as a response.
    let newest = [
        ("query", "max_over_time(load[5m])"),
        ("start", "1700000000"),
        ("end", "1700000400"),
        ("step", "1"),
    ];
    server
        .http()
        .query("/api/v1/query_range", &newest)
        .expect_status(200);
    let answer = heavy.patience(Duration::from_secs(60)).read(2000);
    // It is rejected instead of interrupted if it is the first to need memory that is not free.
    let expected = if answer.starts_with("HTTP/1.1 503 ") {
        "\"--query.max-memory-total: "
    } else {
        "it held the most of all, and --query.max-memory-total was used up"
    };
    assert!(answer.contains(expected), "{answer}");
    assert_eq!(
        server.metric("varve_limits_hit_total{limit=\"--query.max-memory-total\"}"),
        1.0
    );
    wait_until("all memory to be given back", || held(&server) == 0.0);
}

/// Series of a server that uses more than the least `--memory.limit`.
const N_SERIES: usize = 60_000;

/// Starts a server with [`N_SERIES`]. Returns it with the bytes that it uses.
fn filled() -> (Server, f64) {
    let server = Server::start(&["--self-scrape-interval=0s"]);
    let all = (0..N_SERIES).map(|i| {
        series(
            &[("__name__", "m"), ("i", &i.to_string())],
            &[(super::T0, 1.0)],
        )
    });
    server
        .http()
        .write(&WriteRequest::new(all))
        .expect_status(204);
    wait_until("the server to look at its memory", || {
        server.metric("varve_memory_used_bytes") > f64::from(20 << 20)
    });
    let used = server.metric("varve_memory_used_bytes");
    (server, used)
}

#[test]
fn above_the_threshold_queries_and_writes_are_rejected() {
    let (mut server, used) = filled();
    let limit = (used * 0.7).round();
    server.kill();
    server.restart(&[
        &format!("--memory.limit={limit:.0}"),
        "--memory.refuse-at=80",
    ]);
    wait_until("the replay to take the memory", || {
        server.metric("varve_memory_used_bytes") > limit
    });
    assert_eq!(server.metric("varve_memory_limit_bytes"), limit);
    for path in ["/api/v1/query?query=1", "/api/v1/labels"] {
        let answer = server.http().get(path).expect_status(503);
        assert!(!answer.header("retry-after").is_empty());
        let (kind, error) = answer.error();
        assert_eq!(kind, "unavailable");
        assert!(
            error.starts_with("out of memory: ") && error.contains("--memory.refuse-at"),
            "{error}"
        );
    }
    let request = WriteRequest::new([series(&[("__name__", "up")], &[(super::T0, 1.0)])]);
    let answer = server.http().write(&request).expect_status(503);
    assert!(
        answer.text().contains("--memory.refuse-at") && !answer.header("retry-after").is_empty()
    );
    assert_eq!(
        server.metric("varve_limits_hit_total{limit=\"--memory.refuse-at\"}"),
        3.0
    );
    server.http().get("/-/healthy").expect_status(200);
}

#[test]
fn under_pressure_new_series_are_rejected_first_and_known_ones_last() {
    let (mut server, used) = filled();
    let known = |t: i64| series(&[("__name__", "m"), ("i", "0")], &[(super::T0 + t, 1.0)]);
    let limit = used / 0.6;
    server.kill();
    // With 40 %, new series are rejected above 20 % and all writes above 85 %.
    server.restart(&[
        &format!("--memory.limit={limit:.0}"),
        "--memory.refuse-at=40",
    ]);
    wait_until("queries to be rejected", || {
        server.http().get("/api/v1/query?query=1").status == 503
    });
    let request = WriteRequest::new([
        known(1),
        series(&[("__name__", "new")], &[(super::T0, 1.0)]),
    ]);
    let answer = server.http().write(&request).expect_status(503);
    let expect =
        "too little memory is free for new series (--memory.refuse-at); stored all but 1 series";
    assert!(
        answer.text().starts_with(expect) && !answer.header("retry-after").is_empty(),
        "{}",
        answer.text()
    );
    server
        .http()
        .write(&WriteRequest::new([known(2)]))
        .expect_status(204);
    assert_eq!(
        server.metric("varve_ingest_throttled_total{resource=\"memory\"}"),
        1.0
    );
    assert_eq!(
        server.metric("prometheus_tsdb_head_series"),
        N_SERIES as f64
    );
    server.kill();
    server.restart(&[]);
    server.http().write(&request).expect_status(204);
    assert_eq!(
        server.metric("prometheus_tsdb_head_series"),
        (N_SERIES + 1) as f64
    );
}
