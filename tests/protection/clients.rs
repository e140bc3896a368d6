//! Slow readers, slow writers, idle clients and clients that disconnect do not affect others.

use std::time::{Duration, Instant};

use super::{SERIES_PER_REQUEST, T0, endless, held, ingest};
use crate::harness::{Access, RawConnection, Server, WriteRequest, series, wait_until};

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
    server
        .http()
        .query("/api/v1/series", &[("match[]", "load"), ("limit", "10")])
        .expect_status(200);
    server
        .http()
        .write(&WriteRequest::new([series(
            &[("__name__", "other")],
            &[(T0, 1.0)],
        )]))
        .expect_status(204);
    assert!(started.elapsed() < SERVED_WITHIN, "{:?}", started.elapsed());
}

fn ask(server: &Server, request: &str) -> RawConnection {
    let mut connection = server.http().connect();
    connection.send(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    connection
}

#[test]
fn twice_as_many_slow_readers_as_permits_block_nobody() {
    let server = Server::start(&[
        "--query.max-concurrency=2",
        "--query.metadata-concurrency=2",
    ]);
    ingest(&server, 4 * SERIES_PER_REQUEST);
    // Each response is larger than the buffers of server and kernel, so that it waits for its
    // reader.
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
    let idle: Vec<_> = (0..IDLE)
        .map_while(|_| server.http().try_connect())
        .collect();
    eprintln!(
        "{} idle connections take {} bytes",
        idle.len(),
        server.resident_size().saturating_sub(before)
    );
    let mut writer = server.http().connect();
    writer.send(b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\nContent-Length: 100\r\n\r\n");
    for _ in 0..3 {
        writer.send(b"x");
        others_are_served(&server);
    }
    assert!(server.metric("varve_http_connections") >= idle.len() as f64);
    drop((idle, writer));
    wait_until("the connections to go", || {
        server.metric("varve_http_connections") < 10.0
    });
}

#[test]
fn idle_connections_beyond_the_limit_are_closed() {
    let server = Server::start(&["--web.max-connections=50"]);
    ingest(&server, SERIES_PER_REQUEST);
    let mut idle: Vec<_> = (0..200)
        .map_while(|_| server.http().try_connect())
        .collect();
    others_are_served(&server);
    // New connections are not evicted at once, and up to 16 are reserved meanwhile.
    assert!(server.metric("varve_http_connections") <= 50.0 + 16.0);
    // Queries are served before all connections are accepted. Reserved connections may also be
    // closed because they are idle for long, which is no eviction.
    let is_closed = |connection: &mut RawConnection| {
        connection
            .patience(Duration::from_millis(1))
            .try_read(1)
            .is_some()
    };
    let n_surplus = idle
        .len()
        .checked_sub(50 + 16)
        .expect("more connections than the limit");
    wait_until("connections to be closed", || {
        idle.iter_mut()
            .map(is_closed)
            .filter(|closed| *closed)
            .count()
            >= n_surplus
    });
    assert!(server.metric("varve_http_connections_evicted_total") > 0.0);
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

#[test]
fn requests_with_many_selectors_end_with_their_client() {
    let server = Server::start(&["--enable-feature=search-api"]);
    ingest(&server, SERIES_PER_REQUEST);
    // Expressions that take long to compile, all different.
    let selectors: Vec<_> = (0..400)
        .map(|i| format!("match[]=load%7Bpod=~%22(%5C%5CpL%7B1,60%7D)%7B1,9%7D{i}%22%7D"))
        .collect();
    let form = selectors.join("&");
    for path in [
        "/federate",
        "/api/v1/series",
        "/api/v1/labels",
        "/api/v1/search/label_names",
        "/api/v1/rules",
    ] {
        let started = Instant::now();
        let mut connection = server.http().connect();
        let method = if matches!(path, "/federate" | "/api/v1/rules") {
            "GET"
        } else {
            "POST"
        };
        let request = match method {
            "GET" => format!("GET {path}?{form} HTTP/1.1\r\nHost: x\r\n\r\n"),
            _ => format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
                form.len()
            ),
        };
        connection.send(request.as_bytes());
        // It runs on a thread of its own: meanwhile others are served.
        server.http().get("/-/healthy").expect_status(200);
        drop(connection);
        wait_until("the request to end", || {
            server
                .http()
                .get("/api/v1/status/queries")
                .data()
                .as_array()
                .is_some_and(Vec::is_empty)
        });
        eprintln!("{path} ended after {:?}", started.elapsed());
        assert!(
            started.elapsed() < SERVED_WITHIN,
            "{path}: {:?}",
            started.elapsed()
        );
    }
}

/// Sends the head of a write and the first byte of its body.
fn begin_write(server: &Server) -> Option<RawConnection> {
    let mut connection = server.http().try_connect()?;
    connection
        .send(b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\nContent-Length: 100\r\n\r\nx");
    Some(connection)
}

#[test]
fn bodies_that_do_not_arrive_make_room_for_other_connections() {
    let server = Server::start(&["--web.max-connections=512"]);
    ingest(&server, SERIES_PER_REQUEST);
    let slow: Vec<_> = (0..600).map_while(|_| begin_write(&server)).collect();
    assert_eq!(slow.len(), 600);
    for _ in 0..3 {
        let started = Instant::now();
        server.http().get("/-/healthy").expect_status(200);
        eprintln!("healthy after {:?}", started.elapsed());
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
    }
    assert!(server.metric("varve_http_connections") <= 512.0 + 16.0);
    // A body that is received for less than a second is not slow yet.
    std::thread::sleep(Duration::from_secs(1));
    others_are_served(&server);
    assert!(server.metric("varve_http_connections_evicted_slow_total") > 0.0);
    drop(slow);
}

#[test]
fn a_body_below_the_minimum_rate_is_refused() {
    let server = Server::start(&["--web.min-body-rate=1MiB"]);
    let started = Instant::now();
    let mut connection = begin_write(&server).expect("connect");
    let answer = connection.read_to_end();
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.contains("request body is too slow: 1 bytes in 10s, see --web.min-body-rate"),
        "{answer}"
    );
    assert_eq!(
        server.metric("varve_limits_hit_total{limit=\"--web.min-body-rate\"}"),
        1.0
    );
}

#[test]
fn probes_and_administration_are_served_when_all_connections_work() {
    let server = Server::start(&[
        "--web.max-connections=4",
        "--query.max-concurrency=1",
        "--web.enable-admin-api",
    ]);
    ingest(&server, SERIES_PER_REQUEST);
    let working: Vec<_> = (0..4)
        .map(|i| {
            let mut connection = server.http().connect();
            connection.send(endless(&format!("{i}%2B")).as_bytes());
            // On a connection of its own, which is closed before the next query connects.
            let queries = || {
                server
                    .http()
                    .with(&Access::default())
                    .get("/api/v1/status/queries")
            };
            wait_until("the query to come", || {
                queries()
                    .data()
                    .as_array()
                    .is_some_and(|all| all.len() == i + 1)
            });
            connection
        })
        .collect();
    let started = Instant::now();
    for path in [
        "/-/healthy",
        "/-/ready",
        "/metrics",
        "/api/v1/status/queries",
    ] {
        server.http().get(path).expect_status(200);
    }
    server
        .http()
        .post("/api/v1/admin/tsdb/clean_tombstones", &[], b"")
        .expect_status(204);
    assert!(started.elapsed() < SERVED_WITHIN, "{:?}", started.elapsed());
    // A client that connects and sends nothing does not hold a reserved connection for long.
    let silent: Vec<_> = (0..40).map_while(|_| server.http().try_connect()).collect();
    server.http().get("/-/healthy").expect_status(200);
    let refused = server.http().get("/api/v1/labels").expect_status(503);
    assert!(
        refused
            .text()
            .contains("4 connections are open, the limit of --web.max-connections"),
        "{refused:?}"
    );
    assert_eq!(refused.header("connection"), "close");
    assert!(server.metric("varve_limits_hit_total{limit=\"--web.max-connections\"}") >= 1.0);
    let rejected = "prometheus_http_requests_total{code=\"503\",handler=\"/api/v1/labels\"}";
    assert!(server.metric(rejected) >= 1.0);
    // Neither do clients that send bodies slowly.
    let head =
        "POST /api/v1/admin/tsdb/delete_series HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n";
    let delete = format!("{head}Content-Type: application/x-www-form-urlencoded\r\n\r\nx");
    let mut slow = Vec::new();
    for _ in 0..3 {
        for _ in 0..40 {
            let mut connection = server.http().connect();
            connection.send(delete.as_bytes());
            slow.push(connection);
        }
        // On a connection of its own: one that was idle may be evicted just when it is used.
        let started = Instant::now();
        server
            .http()
            .with(&Access::default())
            .get("/-/healthy")
            .expect_status(200);
        assert!(started.elapsed() < SERVED_WITHIN, "{:?}", started.elapsed());
    }
    drop((working, silent, slow));
    wait_until("the connections to go", || {
        server.metric("varve_http_connections") < 4.0
    });
    others_are_served(&server);
}
