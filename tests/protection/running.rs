//! Active requests: listed, canceled by their client or an operator, coalesced, and logged.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{SERIES_PER_REQUEST, T0, endless, endless_query, ingest};
use crate::harness::{ConfigFile, Server, WriteRequest, series, wait_for, wait_until};

/// How soon a query ends after its client disconnects.
const END_MAX: Duration = Duration::from_millis(100);

pub(super) fn running(server: &Server) -> Vec<Value> {
    server
        .http()
        .get("/api/v1/status/queries")
        .data()
        .as_array()
        .expect("an array")
        .clone()
}

#[test]
fn a_query_is_listed_and_killed() {
    let server = Server::start(&["--web.enable-admin-api"]);
    ingest(&server, SERIES_PER_REQUEST);
    assert!(running(&server).is_empty());
    let mut connection = endless_query(&server);
    let listed = wait_for("the query to read", || {
        running(&server).into_iter().find(|query| {
            query["samples"].as_u64() > Some(0) && query["memoryBytes"].as_u64() > Some(0)
        })
    });
    assert_eq!(
        (&listed["path"], &listed["userAgent"]),
        (&"/api/v1/query_range".into(), &"endless".into()),
        "{listed}"
    );
    assert!(
        listed["query"]
            .as_str()
            .is_some_and(|query| query.starts_with("(sum(max_over_time")),
        "{listed}"
    );
    assert!(
        listed["series"].as_u64() > Some(0) && listed["ageSeconds"].as_f64() > Some(0.0),
        "{listed}"
    );
    let path = format!("/api/v1/status/queries/{}", listed["id"]);
    assert_eq!(server.http().delete(&path).expect_status(204).body, b"");
    let answer = connection.read(2000);
    assert!(
        answer.starts_with("HTTP/1.1 499 ") && answer.contains("an operator ended it"),
        "{answer}"
    );
    wait_until("the list to be empty", || running(&server).is_empty());
    assert_eq!(
        server.http().delete(&path).expect_status(404).error().0,
        "not_found"
    );
    server
        .http()
        .delete("/api/v1/status/queries/x")
        .expect_status(400);
}

#[test]
fn killing_needs_the_admin_api() {
    let server = Server::start(&[]);
    assert_eq!(
        server
            .http()
            .delete("/api/v1/status/queries/1")
            .expect_status(500)
            .error()
            .1,
        "admin APIs disabled"
    );
}

#[test]
fn a_query_ends_within_a_tenth_of_a_second_of_a_disconnect() {
    let server = Server::start(&[]);
    ingest(&server, SERIES_PER_REQUEST);
    let ends_after = || {
        let connection = endless_query(&server);
        let gone = Instant::now();
        drop(connection);
        wait_until("the query to end", || running(&server).is_empty());
        gone.elapsed()
    };
    // The machine may be busy: one undisturbed round is enough.
    let quickest = (0..10)
        .map(|_| ends_after())
        .find(|elapsed| *elapsed < END_MAX);
    assert!(quickest.is_some(), "no query ended within {END_MAX:?}");
}

#[test]
fn identical_queries_are_computed_once() {
    const CLIENTS: usize = 8;
    let server = Server::start(&["--query.max-concurrency=1"]);
    ingest(&server, SERIES_PER_REQUEST);
    // They are queued together, and computed together.
    let busy = endless_query(&server);
    let params = [
        ("query", "sum by (node) (load)"),
        ("start", "1700000000"),
        ("end", "1700000045"),
        ("step", "15"),
    ];
    let answers: Vec<_> = thread::scope(|scope| {
        let ask = || {
            scope.spawn(|| {
                server
                    .http()
                    .query("/api/v1/query_range", &params)
                    .expect_status(200)
                    .body
            })
        };
        let asking: Vec<_> = (0..CLIENTS).map(|_| ask()).collect();
        wait_until("all to be there", || {
            server.metric("varve_http_connections") > CLIENTS as f64 + 1.0
        });
        drop(busy);
        asking
            .into_iter()
            .map(|client| client.join().expect("a client does not panic"))
            .collect()
    });
    assert!(
        answers
            .iter()
            .all(|answer| *answer == answers[0] && answer.len() > 1000)
    );
    let shared = server.metric("varve_requests_coalesced_total{class=\"query\"}");
    assert!(shared >= 1.0 && shared < CLIENTS as f64, "{shared}");
}

#[test]
fn a_coalesced_query_ends_with_its_last_client() {
    let server = Server::start(&[]);
    ingest(&server, SERIES_PER_REQUEST);
    let first = endless_query(&server);
    let mut second = server.http().connect();
    second.send(endless("").as_bytes());
    // A second request on the same connection is served after the first, so it uses another
    // connection.
    wait_until("the second to be there", || {
        server.metric("varve_http_connections") >= 3.0
    });
    server
        .http()
        .query("/api/v1/query", &[("query", "1")])
        .expect_status(200);
    drop(first);
    assert!(
        second
            .patience(Duration::from_millis(300))
            .try_read(1)
            .is_none(),
        "it has been answered"
    );
    assert_eq!(running(&server).len(), 1);
    drop(second);
    wait_until("the query to end", || running(&server).is_empty());
}

#[test]
fn a_query_sees_earlier_writes_even_if_an_identical_query_runs() {
    let server = Server::start(&[]);
    let count = || {
        let answer = server.http().query(
            "/api/v1/query",
            &[("query", "count(x)"), ("time", "1700000000")],
        );
        answer.data()["result"][0]["value"][1]
            .as_str()
            .map_or(0, |n| n.parse::<u64>().expect("a count"))
    };
    thread::scope(|scope| {
        let others: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| (0..200).map(|_| count()).max()))
            .collect();
        for i in 1..=100 {
            let name = i.to_string();
            let request =
                WriteRequest::new([series(&[("__name__", "x"), ("i", &name)], &[(T0, 1.0)])]);
            server.http().write(&request).expect_status(204);
            assert_eq!(count(), i);
        }
        for other in others {
            assert!(other.join().expect("a reader does not panic") <= Some(100));
        }
    });
}

#[test]
fn queries_are_logged_with_their_error() {
    let config = ConfigFile::new("global: {query_log_file: queries.log}");
    let server = Server::start(&["--web.enable-admin-api", &config.flag()]);
    ingest(&server, SERIES_PER_REQUEST);
    server
        .http()
        .query(
            "/api/v1/query",
            &[("query", "load"), ("time", "1700000045")],
        )
        .expect_status(200);
    server
        .http()
        .query("/api/v1/query", &[("query", "load"), ("timeout", "1e-9")])
        .expect_status(503);
    // As in Prometheus, a query that does not parse is not logged.
    server
        .http()
        .query("/api/v1/query", &[("query", "load(")])
        .expect_status(400);
    server
        .http()
        .query("/api/v1/series", &[("match[]", "load")])
        .expect_status(200);
    let connection = endless_query(&server);
    // A request stays listed for a moment after its response.
    let its_id = || {
        running(&server)
            .iter()
            .find(|query| query["userAgent"] == "endless")
            .map(|query| query["id"].clone())
    };
    let id = wait_for("the query to be listed", its_id);
    server
        .http()
        .delete(&format!("/api/v1/status/queries/{id}"))
        .expect_status(204);
    let lines: Vec<Value> = wait_for("three lines", || {
        let text = std::fs::read_to_string(config.dir().join("queries.log")).expect("read the log");
        let lines: Vec<_> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect();
        (lines.len() == 3).then_some(lines)
    });
    drop(connection);
    // A line may be written after the response, so lines may be in another order.
    let line = |reason: Option<&str>| {
        let is_it = |line: &&Value| match (reason, line["error"].as_str()) {
            (Some(reason), Some(error)) => error.contains(reason),
            (reason, error) => reason.is_none() && error.is_none(),
        };
        lines
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no line of {reason:?} in {lines:?}"))
    };
    let answered = line(None);
    assert_eq!(answered["params"]["start"], "2023-11-14T22:14:05.000Z");
    assert_eq!(answered["httpRequest"]["clientIP"], "127.0.0.1");
    let stats = &answered["stats"];
    assert_eq!(
        stats["samples"]["totalQueryableSamples"],
        SERIES_PER_REQUEST
    );
    assert!(
        stats["samples"]["peakSamples"].as_u64() >= Some(SERIES_PER_REQUEST as u64),
        "{stats}"
    );
    let times = stats["timings"].as_object().expect("an object");
    let second = |name: &str| {
        times[name]
            .as_f64()
            .unwrap_or_else(|| panic!("no {name} in {stats}"))
    };
    assert!(
        times.len() == 6 && second("execTotalTime") >= second("evalTotalTime"),
        "{stats}"
    );
    assert!(
        second("evalTotalTime") >= second("innerEvalTime") && second("innerEvalTime") > 0.0,
        "{stats}"
    );
    line(Some("query timed out in expression evaluation"));
    let killed = line(Some("an operator ended it"));
    assert_eq!(
        (
            &killed["params"]["step"],
            server.metric("prometheus_engine_query_log_enabled")
        ),
        (&1.into(), 1.0)
    );
}

#[test]
fn a_slow_query_is_logged_with_its_plan() {
    let config = ConfigFile::new("global: {query_log_file: queries.log}");
    let server = Server::start(&[&config.flag()]);
    // Each step reads a day of seconds.
    let logged = |n_steps: u32| {
        let query = format!("sum(stddev_over_time(vector({n_steps})[1d:1s]))");
        let range = [
            ("query", &*query),
            ("start", "0"),
            ("end", &*n_steps.to_string()),
            ("step", "1"),
        ];
        server
            .http()
            .query("/api/v1/query_range", &range)
            .expect_status(200);
        wait_for("the query to be logged", || {
            let text =
                std::fs::read_to_string(config.dir().join("queries.log")).expect("read the log");
            // The server may be in the middle of a line.
            let line = text
                .split_inclusive('\n')
                .find(|line| line.contains(&query) && line.ends_with('\n'))?;
            Some(serde_json::from_str::<Value>(line).expect("a line is JSON")["stats"].take())
        })
    };
    let seconds = |stats: &Value| stats["timings"]["evalTotalTime"].as_f64().expect("a time");
    let slow = (0..14).map(|n| logged(1 << n)).find(|stats| {
        let is_slow = seconds(stats) >= 1.0;
        assert_eq!(stats["varve"]["plan"].is_array(), is_slow, "{stats}");
        is_slow
    });
    let slow = slow.expect("a query that takes a second");
    let plan = slow["varve"]["plan"].as_array().expect("it has a plan");
    assert!(
        plan[0]["operator"]
            .as_str()
            .is_some_and(|text| text.starts_with("sum")),
        "{slow}"
    );
    assert!(
        plan.len() > 1 && plan[0]["seconds"].as_f64() >= plan[1]["seconds"].as_f64(),
        "{slow}"
    );
}
