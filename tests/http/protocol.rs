//! HTTP of broken clients: each gets a response or a closed connection, and the server keeps
//! running.

use std::time::Duration;

use super::T0;
use crate::harness::{Server, WriteRequest, series};

#[test]
fn malformed_requests_are_400_and_harm_nobody() {
    let server = Server::start(&[]);
    for request in [
        "nonsense\r\n\r\n",
        "GET\r\n\r\n",
        "GET /api/v1/query HTTP/9.9\r\n\r\n",
        "GET /api/v1/query HTTP/1.1\r\nHost x\r\n\r\n",
        "GET /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nzzz\r\n",
        "\0\0\0\0\r\n\r\n",
    ] {
        let answer = server
            .http()
            .connect()
            .send(request.as_bytes())
            .end()
            .read_to_end();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{request:?}: {answer}"
        );
    }
    server.http().get("/-/healthy").expect_status(200);
}

/// A request without `Host` got 200, also with `--web.allowed-hosts`.
#[test]
fn a_request_of_http_1_1_needs_one_valid_host() {
    for flags in [&[] as &[&str], &["--web.allowed-hosts=varve.example"]] {
        let server = Server::start(flags);
        let ask = |version: &str, hosts: &str| {
            // Not half-closed: the server drops the request of a client that has left.
            let head = format!("GET /-/healthy HTTP/{version}\r\nConnection: close\r\n");
            let request = format!("{head}{hosts}\r\n");
            let mut connection = server.http().connect();
            connection.send(request.as_bytes()).read_to_end()
        };
        for (hosts, reason) in [
            ("", "missing required Host header"),
            ("Host: localhost\r\nHost: b\r\n", "too many Host headers"),
            ("Host: local host\r\n", "malformed Host header"),
        ] {
            let answer = ask("1.1", hosts);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{hosts:?}: {answer}");
            assert!(answer.contains("connection: close\r\n"), "{answer}");
            let text = format!("\r\n\r\n400 Bad Request: {reason}");
            assert!(answer.ends_with(&text), "{hosts:?}: {answer}");
        }
        assert!(ask("1.1", "Host: localhost\r\n").starts_with("HTTP/1.1 200 "));
        assert!(ask("1.0", "").starts_with("HTTP/1.0 200 "));
    }
    let empty = "GET /-/healthy HTTP/1.1\r\nConnection: close\r\nHost:\r\n\r\n";
    let server = Server::start(&[]);
    let mut connection = server.http().connect();
    let answer = connection.send(empty.as_bytes()).read_to_end();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// Scripts with `curl -g` send such URLs, and Prometheus answers them.
#[test]
fn quotes_and_comparisons_in_a_url_need_not_be_escaped() {
    let server = Server::start(&[]);
    let get =
        "GET /api/v1/query?query=vector(1)<2%20or%20x{y=\"z\"}&time=1 HTTP/1.1\r\nHost: x\r\n";
    let body = "query=\"x\"&time=1";
    let form = "Content-Type: application/x-www-form-urlencoded";
    let post = format!(
        "POST /api/v1/query?stats=\"a\" HTTP/1.1\r\nHost: x\r\n{form}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // Requests on one connection, sent without waiting for responses.
    let requests = format!("{get}\r\n{post}{get}Connection: close\r\n\r\n");
    let answers = server
        .http()
        .connect()
        .send(requests.as_bytes())
        .read_to_end();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
    assert_eq!(
        answers.matches(r#""value":[1,"1"]"#).count(),
        2,
        "{answers}"
    );
    assert_eq!(
        answers
            .matches(r#""resultType":"string","result":[1,"x"]"#)
            .count(),
        1,
        "{answers}"
    );
}

#[test]
fn a_truncated_body_stores_nothing() {
    let server = Server::start(&[]);
    let body = WriteRequest::new([series(&[("__name__", "up")], &[(T0, 1.0)])]).to_body();
    let head = "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\n";
    let declared = format!("{head}Content-Length: {}\r\n\r\n", body.len() + 1);
    server
        .http()
        .connect()
        .send(declared.as_bytes())
        .send(&body)
        .end()
        .read_to_end();
    let chunked = format!(
        "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n",
        body.len()
    );
    server
        .http()
        .connect()
        .send(chunked.as_bytes())
        .send(&body)
        .send(b"\r\n")
        .end()
        .read_to_end();
    assert!(super::everything(server.http()).is_empty());
}

#[test]
fn a_client_that_sends_its_request_slowly_times_out() {
    let server = Server::start(&["--web.read-timeout=300ms"]);
    let started = std::time::Instant::now();
    // Headers, a form and the body of a write, each stalled after its start. A sender of writes
    // retries a 503, not a 408.
    let requests = [
        ("GET /api/v1/query HTTP/1.1\r\nHos", "HTTP/1.1 408 "),
        (
            "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\nquer",
            "HTTP/1.1 408 ",
        ),
        (
            "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\nContent-Length: 9\r\n\r\nquer",
            "HTTP/1.1 503 ",
        ),
    ];
    let mut connections = requests.map(|(request, _)| {
        let mut connection = server.http().connect();
        connection.send(request.as_bytes());
        connection
    });
    for (connection, (request, expect)) in connections.iter_mut().zip(requests) {
        let answer = connection.patience(Duration::from_secs(10)).read_to_end();
        assert!(
            answer.is_empty() || answer.starts_with(expect),
            "{request:?}: {answer}"
        );
    }
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn connections_over_the_limit_wait_or_replace_idle_ones() {
    let server = Server::start(&["--web.max-connections=4"]);
    let idle: Vec<_> = (0..20)
        .map(|_| {
            let mut connection = server.http().connect();
            connection.send(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(connection.read(12), "HTTP/1.1 200");
            connection
        })
        .collect();
    server.http().get("/-/ready").expect_status(200);
    drop(idle);
}
