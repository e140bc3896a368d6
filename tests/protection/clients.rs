//! Slow readers, slow writers, idle clients and clients that disconnect do not affect others.

use std::time::{Duration, Instant};

use super::{SERIES_PER_REQUEST, T0, held, ingest};
use crate::harness::{RawConnection, Server, WriteRequest, series, wait_until};

/// Maximum time of a query of one series meanwhile.
const SERVED_WITHIN: Duration = Duration::from_secs(5);
const IDLE: usize = 5_000;

/// Checks that queries, metadata requests and writes of other clients succeed.
#[track_caller]
fn others_are_served(server: &Server) {
    let started = Instant::now();
    let one = [("query", "load{pod=\"pod-7\"}"), ("time", "1700000045")];
    let answer = server.http().query("/api/v1/query", &one);
    assert_eq!(answer.data()["result"].as_array().map(Vec::len), Some(1));
    server.http().query("/api/v1/series", &[("match[]", "load"), ("limit", "10")]).expect_status(200);
    server.http().write(&WriteRequest::new([series(&[("__name__", "other")], &[(T0, 1.0)])])).expect_status(204);
    assert!(started.elapsed() < SERVED_WITHIN, "{:?}", started.elapsed());
}

fn ask(server: &Server, request: &str) -> RawConnection {
    let mut connection = server.http().connect();
    connection.send(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    connection
}

#[test]
fn twice_as_many_slow_readers_as_permits_block_nobody() {
    let server = Server::start(&["--query.max-concurrency=2", "--query.metadata-concurrency=2"]);
    ingest(&server, 4 * SERIES_PER_REQUEST);
    // Each response is larger than the buffers of server and kernel, so that it waits for its reader.
    let matrix = "GET /api/v1/query_range?query=last_over_time(load[1h])&start=1700000000&end=1700003000&step=60";
    let readers: Vec<_> = (0..4)
        .flat_map(|i| {
            let slow = [
                format!("{matrix}&timeout={}", 100 + i),
                format!("GET /api/v1/series?match[]=load&timeout={}", 100 + i),
            ];
            slow.map(|request| {
                let mut connection = ask(&server, &request);
                assert_eq!(connection.read(12), "HTTP/1.1 200");
                connection
            })
        })
        .collect();
    assert!(held(&server) > 0.0);
    others_are_served(&server);
    drop(readers);
    wait_until("all memory to be given back", || held(&server) == 0.0);
}

#[test]
fn idle_connections_and_a_slow_writer_block_nobody() {
    let server = Server::start(&["--ingest.concurrency-max=1", "--web.max-connections=6000"]);
    ingest(&server, SERIES_PER_REQUEST);
    let before = server.resident_size();
    // The open-file limit of this process may be lower than the server's.
    let idle: Vec<_> = (0..IDLE).map_while(|_| server.http().try_connect()).collect();
    eprintln!("{} idle connections take {} bytes", idle.len(), server.resident_size().saturating_sub(before));
    let mut writer = server.http().connect();
    writer.send(b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\nContent-Length: 100\r\n\r\n");
    for _ in 0..3 {
        writer.send(b"x");
        others_are_served(&server);
    }
    assert!(server.metric("varve_http_connections") >= idle.len() as f64);
    drop((idle, writer));
    wait_until("the connections to go", || server.metric("varve_http_connections") < 10.0);
}

#[test]
fn idle_connections_beyond_the_limit_are_closed() {
    let server = Server::start(&["--web.max-connections=50"]);
    ingest(&server, SERIES_PER_REQUEST);
    let idle: Vec<_> = (0..200).map_while(|_| server.http().try_connect()).collect();
    others_are_served(&server);
    assert!(server.metric("varve_http_connections") <= 50.0);
    assert!(server.metric("varve_http_connections_evicted_total") >= 150.0);
    drop(idle);
}

#[test]
fn a_reader_that_disconnects_ends_its_query() {
    let server = Server::start(&["--query.metadata-concurrency=1"]);
    ingest(&server, 4 * SERIES_PER_REQUEST);
    let mut connection = ask(&server, "GET /api/v1/series?match[]=load");
    assert_eq!(connection.read(12), "HTTP/1.1 200");
    drop(connection);
    wait_until("all memory to be given back", || held(&server) == 0.0);
    others_are_served(&server);
}
