//! Long parameters: they are charged, parsed apart from other requests, and errors quote only their
//! start.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{MemoryGroup, Server, WriteRequest, series, wait_until};

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

/// Labels, annotations and errors of a backtest's alerts were not charged: one such request killed
/// the server.
#[test]
fn a_backtest_is_charged_with_what_it_keeps() {
    let Some(group) = MemoryGroup::make(LIMIT) else {
        return;
    };
    let mut server = Server::start_in(&group, &["--query.max-memory=64MiB"]);
    super::ingest(&server, 5_000);
    let long = "x".repeat(60_000);
    for i in ["1", "2"] {
        let labels = [("__name__", "m"), ("i", i), ("long", &long)];
        let request = WriteRequest::new([series(&labels, &[(super::T0, 1.0)])]);
        server.http().write(&request).expect_status(204);
    }

    let annotation = "{alert: A, expr: load, annotations: {x: '{{ printf \"%1000000d\" 1 }}'}}";
    let label = "{alert: A, expr: load, labels: {x: '{{ printf \"%2000d\" 1 }}'}}";
    let query = "{alert: A, expr: load, labels: {x: '{{ query (printf \"%900000d\" 1) }}'}}";
    let error = "{alert: A, expr: m * on() m},".repeat(3_000);
    for rules in [annotation, label, query, &error] {
        let rules = format!("groups: [{{name: g, interval: 10s, rules: [{rules}]}}]");
        let form = [
            ("rules", rules.as_str()),
            ("start", "1700000000"),
            ("end", "1700000050"),
        ];
        let answer = server.http().form("/api/v1/rules/backtest", &form);
        assert!(matches!(answer.status, 200 | 422 | 503), "{answer:?}");
        assert!(
            server.is_running() && group.n_killed() == 0,
            "the kernel has killed it: {}",
            &rules[..100]
        );
        wait_until("all memory to be given back", || {
            super::held(&server) == 0.0
        });
    }
}

/// The evaluation's own deadline replaced that of the request: a backtest went on for minutes after
/// its timeout.
#[test]
fn the_templates_of_a_backtest_end_at_its_deadline() {
    let server = Server::start(&[]);
    super::ingest(&server, 5_000);
    let template = "{{ $x := printf \"%100000d\" 1 }}{{ range 100 }}{{ if match \"x.*y\" $x }}{{ end }}{{ end }}";
    let rules = format!(
        "groups: [{{name: g, interval: 10s, rules: [{{alert: A, expr: load, annotations: {{x: '{template}'}}}}]}}]"
    );
    let started = Instant::now();
    let answer = server.http().form(
        "/api/v1/rules/backtest",
        &[
            ("rules", rules.as_str()),
            ("start", "1700000000"),
            ("end", "1700000050"),
            ("timeout", "1s"),
        ],
    );
    answer.expect_status(503);
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
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
        for piece in ["[", "{a: ", "{a: #}\n", "- "] {
            let rules = piece.repeat(100_000);
            rejects(&rules, "recursion limit exceeded");
        }
        rejects(&format!("[{}", "b,".repeat(400_000)), "invalid parameter");
        for piece in ["? ", "a: "] {
            rejects(&piece.repeat(200_000), "invalid parameter");
        }
        // A scan for aliases beside the parser missed the last two.
        for alias in ["\nb: *e\n", "\nb: {\"b\":*e}\n", "\r*e : x"] {
            rejects(
                &format!("a: %26e x{alias}"),
                "YAML aliases are not supported",
            );
        }
        rejects(
            &"# comment\n".repeat(200_000),
            "YAML with 2000000 bytes exceeds the limit of 1048576",
        );
    }
}
