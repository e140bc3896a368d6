//! URLs of up to 1 MiB, as Go's server accepts them, within a bound of all connections.

use crate::harness::{RawConnection, Server, wait_until};

/// Returns a query with a comment of `size` bytes.
fn target(size: usize) -> String {
    let comment = "x".repeat(size);
    format!("/api/v1/query?time=1&query=1%2B1%20%23{comment}")
}

fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

fn ask(server: &Server, request: &str) -> String {
    let mut connection = server.http().connect();
    connection.send(request.as_bytes()).read_to_end()
}

/// Python's prometheus-api-client puts every query into the URL. URLs above 64 KiB were 414.
#[test]
fn urls_up_to_a_mebibyte_are_accepted() {
    let server = Server::start(&[]);
    let result = r#""resultType":"scalar","result":[1,"2"]"#;
    for size in [10, 20 << 10, 60 << 10, 70 << 10, 300 << 10, (1 << 20) - 100] {
        let answer = ask(&server, &request(&target(size)));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{size}: {answer}");
        assert!(answer.contains(result), "{size}: {answer}");
    }
    // Several on one connection, with a form before a URL.
    let body = format!("query=3%23{}", "y".repeat(100_000));
    let form = format!(
        "POST /api/v1/query?time=2&{} HTTP/1.1\r\nHost: x\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        "z=".repeat(1_000),
        body.len()
    );
    let long = target(200 << 10);
    let keep = format!("GET {long} HTTP/1.1\r\nHost: x\r\n\r\n");
    let answers = ask(&server, &format!("{keep}{form}{}", request(&long)));
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 3, "{answers}");
    assert_eq!(answers.matches(result).count(), 2, "{answers}");
    assert!(answers.contains(r#""result":[2,"3"]"#), "{answers}");
}

#[test]
fn a_redirect_keeps_a_long_query() {
    let server = Server::start(&[]);
    let answer = ask(&server, &request(&format!("/{}", target(100 << 10))));
    assert!(answer.starts_with("HTTP/1.1 307 "), "{}", &answer[..100]);
    let location = format!("location: {}\r\n", target(100 << 10));
    assert!(answer.contains(&location), "{}", &answer[..100]);
}

fn hits(server: &Server, limit: &str) -> f64 {
    let name = format!("varve_limits_hit_total{{limit=\"{limit}\"}}");
    let metrics = server.http().get("/metrics").text();
    let line = metrics.lines().find(|line| line.starts_with(&name));
    line.map_or(0.0, |line| {
        line[name.len()..].trim().parse().expect("a number")
    })
}

#[test]
fn a_head_above_the_limits_is_refused_with_the_reason() {
    let server = Server::start(&[]);
    let headers = format!(
        "GET /-/healthy HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "x".repeat(500 << 10)
    );
    for (request, status, text, limit) in [
        (
            request(&target((1 << 20) + (8 << 10))),
            "431 ",
            "URL and headers exceed 1052672 bytes; send a long query as a form",
            "request head size",
        ),
        (
            request(&target(5 << 20)),
            "431 ",
            "URL and headers exceed 1052672 bytes",
            "request head size",
        ),
        (
            headers,
            "431 ",
            "the headers without the URL exceed",
            "request headers size",
        ),
        (
            request(&format!("/{}?a", "x".repeat(100 << 10))),
            "414 ",
            "the path exceeds",
            "URL path size",
        ),
    ] {
        let before = hits(&server, limit);
        let answer = ask(&server, &request);
        let start = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&start), "{limit}: {answer}");
        assert!(answer.contains(text), "{limit}: {answer}");
        assert_eq!(hits(&server, limit), before + 1.0, "{limit}");
    }
    let log = server.log();
    assert!(log.contains("limit=\"request head size\""), "{log}");
    assert_eq!(log.matches("Request head rejected").count(), 3, "{log}");
}

/// Many clients that send most of a long URL must not use up the memory.
#[test]
fn half_sent_urls_are_bounded_on_all_connections() {
    const CLIENTS: usize = 200;
    const SENT: usize = 900 << 10;
    let server = Server::start(&["--memory.limit=256MiB"]);
    server.http().get("/-/ready").expect_status(200);
    let before = server.resident_size();
    let part = target(SENT);
    let mut refused = 0;
    let mut waiting: Vec<RawConnection> = Vec::new();
    for _ in 0..CLIENTS {
        let mut connection = server.http().connect();
        connection.send(format!("GET {part}").as_bytes());
        waiting.push(connection);
    }
    // 200 × 900 KiB would be 176 MiB; 8 MiB, and 64 KiB of each connection, are 21.
    let grown = server.resident_size().saturating_sub(before);
    assert!(grown < 60 << 20, "{grown} bytes");
    server.http().get("/-/healthy").expect_status(200);

    for connection in &mut waiting {
        connection.send(b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = connection.read_to_end();
        if answer.starts_with("HTTP/1.1 503 ") {
            assert!(
                answer.contains("long URLs of all connections exceed"),
                "{answer}"
            );
            assert!(answer.contains("retry-after: "), "{answer}");
            refused += 1;
        } else {
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    }
    assert!(refused > CLIENTS / 2 && refused < CLIENTS, "{refused}");
    assert_eq!(hits(&server, "memory of long URLs"), refused as f64);
    drop(waiting);
    wait_until("memory for another long URL", || {
        ask(&server, &request(&part)).starts_with("HTTP/1.1 200 ")
    });
}
