//! Limits besides the deadline: memory of a query, memory of the store, concurrent requests.

use super::{HEAVY, endless_query, held, ingest, n_names};
use crate::harness::{Server, WriteRequest, series, wait_until};

#[test]
fn a_query_over_its_memory_is_422_and_names_the_flag() {
    let server = Server::start(&["--query.max-memory=16MiB"]);
    ingest(&server, 5_000);
    let (kind, error) = server
        .http()
        .query("/api/v1/query_range", &HEAVY)
        .expect_status(422)
        .error();
    assert_eq!(kind, "execution");
    assert!(error.starts_with("--query.max-memory: "), "{error}");
    wait_until("all memory to be given back", || held(&server) == 0.0);
    server
        .http()
        .query(
            "/api/v1/query",
            &[("query", "count(load)"), ("time", "1700000045")],
        )
        .expect_status(200);
}

#[test]
fn a_store_without_memory_left_refuses_writes_with_503_and_goes_on_answering() {
    let mut server = Server::start(&["--storage.head.max-memory=1MiB"]);
    let write = |server: &Server, first: i64| {
        let names: Vec<_> = (first..first + 1000)
            .map(|i| format!("metric_{i}"))
            .collect();
        let timeseries = names
            .iter()
            .map(|name| series(&[("__name__", name)], &[(super::T0, 1.0)]));
        server.http().write(&WriteRequest::new(timeseries))
    };
    let refused = (0..100)
        .map(|i| write(&server, i * 1000))
        .find(|answer| answer.status != 204);
    let refused = refused
        .expect("100,000 series take more than 1 MiB")
        .expect_status(503);
    assert!(!refused.header("retry-after").is_empty(), "{refused:?}");
    let flag = "--storage.head.max-memory (share of one shard, in bytes): ";
    assert!(refused.text().contains(flag), "{refused:?}");
    let rejects = server.http().query("/api/v1/status/rejects", &[]).data();
    assert_eq!(rejects["rejects"][0]["reason"], "busy", "{rejects}");
    assert!(n_names(&server) >= 1000, "{}", n_names(&server));
    // With more memory the sender's retry succeeds.
    server.kill();
    server.restart(&[]);
    assert!(n_names(&server) >= 1000, "{}", n_names(&server));
    write(&server, 0).expect_status(204);
}

#[test]
fn a_query_that_finds_no_place_is_503_and_others_go_on() {
    let server = Server::start(&["--query.max-concurrency=1"]);
    ingest(&server, 5_000);
    let running = endless_query(&server);
    let answer = server
        .http()
        .query("/api/v1/query", &[("query", "1"), ("timeout", "50ms")])
        .expect_status(503);
    let (kind, error) = answer.error();
    assert_eq!(kind, "unavailable");
    assert!(error.contains("--query.max-concurrency"), "{error}");
    assert!(!answer.header("retry-after").is_empty());
    // Neither writes nor metadata requests wait for queries.
    ingest(&server, 5_000);
    let all = server
        .http()
        .query("/api/v1/series", &[("match[]", "load"), ("limit", "1")])
        .expect_status(200);
    assert_eq!(all.data().as_array().map(Vec::len), Some(1));
    drop(running);
    server
        .http()
        .query("/api/v1/query", &[("query", "1")])
        .expect_status(200);
}
