//! Responses that many clients request and do not read count as query memory, whatever the endpoint.

use std::thread;
use std::time::Duration;

use prost::Message;

use crate::harness::messages::thanos::{Matcher, SeriesRequest};
use crate::harness::{
    ConfigFile, Http2, MemoryGroup, RawConnection, Server, WriteRequest, frame, now_ms, series,
    wait_until,
};

const LIMIT: u64 = 384 << 20;
const CLIENTS: usize = 400;
const N_ALERTS: usize = 3_000;
const SERIES: &str = "/thanos.Store/Series";

/// Asks many times and reads nothing.
fn ask(server: &Server, path: &str) -> Vec<RawConnection> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: varve\r\n\r\n");
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        let mut connection = server.http().connect();
        connection.send(request.as_bytes());
        connections.push(connection);
    }
    connections
}

fn check_survives(server: &mut Server, group: &MemoryGroup, path: &str) {
    let connections = ask(server, path);
    for _ in 0..30 {
        thread::sleep(Duration::from_millis(100));
        assert!(
            server.is_running() && group.n_killed() == 0,
            "{path}: the kernel has killed it"
        );
    }
    drop(connections);
    wait_until("all memory to be given back", || super::held(server) == 0.0);
    server.http().get("/-/healthy").expect_status(200);
}

#[test]
fn lists_of_rules_and_alerts_are_charged() {
    let Some(group) = MemoryGroup::make(LIMIT) else {
        return;
    };
    let rules = ConfigFile::new(
        "groups: [{name: g, interval: 5s, rules: [{alert: A, expr: 'm > 0', annotations: {a: '{{ $labels.long }}'}}]}]",
    );
    let config = ConfigFile::new(&format!(
        "rule_files: [{}]\nrules: {{wait: none}}",
        rules.path().display()
    ));
    let mut server = Server::start_in(&group, &[&config.flag(), "--web.write-stall-timeout=2m"]);
    let value = "x".repeat(1_000);
    for first in (0..N_ALERTS).step_by(500) {
        let request = WriteRequest::new((first..first + 500).map(|i| {
            let labels = [("__name__", "m"), ("i", &*i.to_string()), ("long", &value)];
            series(&labels, &[(now_ms(), 1.0)])
        }));
        server.http().write(&request).expect_status(204);
    }
    wait_until("the alerts", || {
        server.http().get("/api/v1/alerts").body.len() > N_ALERTS * value.len()
    });
    for path in ["/api/v1/alerts", "/api/v1/rules"] {
        check_survives(&mut server, &group, path);
    }
}

#[test]
fn metrics_of_many_teams_are_charged() {
    let Some(group) = MemoryGroup::make(LIMIT) else {
        return;
    };
    let config = ConfigFile::new("ingest: {team_label: team, team_maximum: {active_series: 9}}");
    let mut server = Server::start_in(&group, &[&config.flag(), "--web.write-stall-timeout=2m"]);
    let long = "x".repeat(240);
    let request = WriteRequest::new((0..998).map(|i| {
        let team = format!("{i} {long}");
        series(&[("__name__", "m"), ("team", &team)], &[(now_ms(), 1.0)])
    }));
    server.http().write(&request).expect_status(204);
    let size = server.http().get("/metrics").expect_status(200).body.len();
    assert!(size > 1_000_000, "{size} bytes");
    check_survives(&mut server, &group, "/metrics");
}

/// The buffers of connections are in no budget: with 400 KiB each, 500 heads without an end took
/// 200 MB of a server of any size.
#[test]
fn heads_without_an_end_leave_most_of_the_memory() {
    let Some(group) = MemoryGroup::make(192 << 20) else {
        return;
    };
    let mut server = Server::start_in(&group, &[]);
    let before = server.resident_size();
    let header = format!("x: {}\r\n", "x".repeat(8_000));
    let head = format!("GET / HTTP/1.1\r\nHost: varve\r\n{}", header.repeat(48));
    let mut connections = Vec::new();
    for _ in 0..500 {
        let mut connection = server.http().connect();
        // The server may have refused the rest of the head.
        connection.send(head.as_bytes());
        connections.push(connection);
    }
    thread::sleep(Duration::from_secs(1));
    assert!(
        server.is_running() && group.n_killed() == 0,
        "the kernel has killed it"
    );
    let growth = server.process().resident_size_max().saturating_sub(before);
    assert!(growth < 80 << 20, "{growth} bytes");
}

/// Each response that waits for its client keeps a thread, and the allocator keeps some of what a
/// thread has freed: 500 calls and remote reads that nobody reads took 300 MB beside the budgets.
#[test]
fn few_responses_wait_for_slow_clients() {
    let Some(group) = MemoryGroup::make(LIMIT) else {
        return;
    };
    let mut server = Server::start_in(&group, &["--web.write-stall-timeout=2m"]);
    super::ingest(&server, super::SERIES);
    let request = SeriesRequest {
        min_time: i64::MIN + 1,
        max_time: i64::MAX,
        matchers: vec![Matcher {
            name: "__name__".to_owned(),
            value: "load".to_owned(),
            ..Matcher::default()
        }],
        ..SeriesRequest::default()
    };
    let body = frame(false, &request.encode_to_vec());
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let mut clients = Vec::new();
    let mut sent = Vec::new();
    for _ in 0..4 {
        let client = Http2::connect(server.http().address());
        sent.extend((0..125).map(|_| client.send("POST", SERIES, &headers, &body)));
        clients.push(client);
    }
    let mut n_waiting_max = 0.0_f64;
    for _ in 0..50 {
        thread::sleep(Duration::from_millis(100));
        assert!(
            server.is_running() && group.n_killed() == 0,
            "the kernel has killed it"
        );
        n_waiting_max = n_waiting_max.max(server.metric("varve_http_responses_waiting"));
    }
    let count = server.http().query(
        "/api/v1/query",
        &[("query", "count(load)"), ("time", "1700000045")],
    );
    assert_eq!(count.data()["result"][0]["value"][1], "100000");
    // An eighth of the memory.
    assert!((1.0..=60.0).contains(&n_waiting_max), "{n_waiting_max}");
    drop((clients, sent));
    wait_until("all memory to be given back", || {
        super::held(&server) == 0.0
    });
}
