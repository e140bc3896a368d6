//! Long parameters: they are charged, parsed apart from other requests, and errors quote only their
//! start.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{MemoryGroup, Server};

const LIMIT: u64 = 384 << 20;
const CLIENTS: usize = 32;
const FORM_SIZE: usize = 10_000_000;

#[test]
fn long_parameters_do_not_use_up_the_memory() {
    let Some(group) = MemoryGroup::make(LIMIT) else {
        return;
    };
    let mut server = Server::start_in(&group, &[]);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for (path, start) in [
        ("/api/v1/series", "match[]=up&limit="),
        ("/api/v1/query", "query=up&time="),
        ("/api/v1/query", "query=up&stats="),
        ("/api/v1/query", "query="),
        ("/api/v1/series", "match[]="),
    ] {
        let body = [start.as_bytes(), &vec![1; FORM_SIZE]].concat();
        let answers: Vec<_> = thread::scope(|scope| {
            let ask = || server.http().post(path, &form, &body);
            let asking: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask)).collect();
            asking
                .into_iter()
                .map(|client| client.join().expect("a client does not panic"))
                .collect()
        });
        for answer in answers {
            assert!(
                matches!(answer.status, 200 | 400 | 413 | 422 | 503),
                "{path} {start} {}",
                answer.status
            );
            assert!(
                answer.body.len() < 64 << 10,
                "{path} {start}: {} bytes",
                answer.body.len()
            );
        }
        assert!(
            server.is_running() && group.n_killed() == 0,
            "{path} {start}: the kernel has killed it"
        );
    }
}

#[test]
fn a_long_parameter_does_not_delay_other_requests() {
    let server = Server::start(&[]);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    // A byte that is not UTF-8 becomes U+FFFD, which is slow to escape.
    let body = [&b"query="[..], &vec![0xff; FORM_SIZE]].concat();
    thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| server.http().post("/api/v1/query", &form, &body).status))
            .collect();
        while asking.iter().any(|client| !client.is_finished()) {
            let started = Instant::now();
            server.http().get("/-/healthy").expect_status(200);
            assert!(
                started.elapsed() < Duration::from_secs(2),
                "{:?}",
                started.elapsed()
            );
            thread::sleep(Duration::from_millis(20));
        }
    });
}

/// Each selection kept a registration of the request, and waited for the next one.
#[test]
fn thousands_of_selectors_do_not_block_other_requests() {
    let server = Server::start(&[]);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let body = format!("{}start=1&end=2", "match[]=up&".repeat(2000));
    for path in ["/api/v1/export", "/api/v1/series"] {
        server
            .http()
            .post(path, &form, body.as_bytes())
            .expect_status(200);
        server
            .http()
            .query("/api/v1/query", &[("query", "up"), ("timeout", "5s")])
            .expect_status(200);
    }
}

/// The YAML library needs minutes for such texts, and knows no deadline.
#[test]
fn yaml_that_would_take_too_long_is_rejected() {
    let server = Server::start(&[]);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for path in ["/api/v1/rules/backtest", "/api/v1/status/relabel/test"] {
        let rejects = |rules: &str, expect: &str| {
            let body = format!("start=0&end=1&series={{a=\"b\"}}&rules={rules}");
            let rejected = server
                .http()
                .post(path, &form, body.as_bytes())
                .expect_status(400);
            assert!(
                rejected.text().contains(expect),
                "{path}: {}",
                rejected.text()
            );
        };
        for piece in ["[", "{a: ", "{a: #}\n"] {
            let rules = piece.repeat(100_000);
            rejects(
                &rules,
                "YAML with 100000 brackets exceeds the limit of 20000",
            );
        }
        // These are read, within their charge.
        for piece in ["- ", "? ", "a: "] {
            rejects(&piece.repeat(200_000), "invalid parameter");
        }
        rejects(
            "a: %26e x\nb: *e\n",
            "YAML aliases are not supported: b: *e",
        );
        rejects(
            &"# comment\n".repeat(200_000),
            "YAML with 2000000 bytes exceeds the limit of 1048576",
        );
    }
}
