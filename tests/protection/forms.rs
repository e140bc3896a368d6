//! Long parameters: they are charged, parsed apart from other requests, and errors quote only their start.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{MemoryGroup, Server};

const LIMIT: u64 = 384 << 20;
const CLIENTS: usize = 32;
const FORM_SIZE: usize = 10_000_000;

#[test]
fn long_parameters_do_not_use_up_the_memory() {
    let Some(group) = MemoryGroup::make(LIMIT) else { return };
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
            asking.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
        });
        for answer in answers {
            assert!(matches!(answer.status, 200 | 400 | 413 | 422 | 503), "{path} {start} {}", answer.status);
            assert!(answer.body.len() < 64 << 10, "{path} {start}: {} bytes", answer.body.len());
        }
        assert!(server.is_running() && group.n_killed() == 0, "{path} {start}: the kernel has killed it");
    }
}

#[test]
fn a_long_parameter_does_not_delay_other_requests() {
    let server = Server::start(&[]);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    // A byte that is not UTF-8 becomes U+FFFD, which is slow to escape.
    let body = [&b"query="[..], &vec![0xff; FORM_SIZE]].concat();
    thread::scope(|scope| {
        let asking: Vec<_> =
            (0..4).map(|_| scope.spawn(|| server.http().post("/api/v1/query", &form, &body).status)).collect();
        while asking.iter().any(|client| !client.is_finished()) {
            let started = Instant::now();
            server.http().get("/-/healthy").expect_status(200);
            assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
            thread::sleep(Duration::from_millis(20));
        }
    });
}
