//! A server in a cgroup stays below its memory limit, so that the kernel does not kill it, and
//! stores samples of known series meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{SERIES, T0, held, ingest};
use crate::harness::{Answer, MemoryGroup, Server, WriteRequest, series, wait_until};

/// Less than the requests below would use: 24 responses of about 40 MiB, and queries that hold
/// hundreds.
const LIMIT: u64 = 448 << 20;
const CLIENTS: usize = 24;

/// Returns `true` if a response is complete, an error that names a limit, or truncated after its
/// start.
fn is_clear(answer: &Answer) -> bool {
    let names_a_bound = |error: &str| {
        ["--query.", "--memory.", "timed out"]
            .iter()
            .any(|name| error.contains(name))
    };
    answer.status == 200 || matches!(answer.status, 422 | 503) && names_a_bound(&answer.error().1)
}

/// A request of 1,000 series that [`ingest`] has created.
fn known(t: i64) -> WriteRequest {
    WriteRequest::new((0..1_000).map(|i| {
        let (pod, node) = (format!("pod-{i}"), format!("node-{}", i / 100));
        let labels = [
            ("__name__", "load"),
            ("namespace", "default"),
            ("node", &*node),
            ("pod", &*pod),
        ];
        series(&labels, &[(T0 + 45_000 + t, 1.0)])
    }))
}

#[test]
fn a_server_in_a_small_cgroup_is_not_killed() {
    let Some(group) = MemoryGroup::make(LIMIT) else {
        return;
    };
    let mut server = Server::start_in(&group, &[]);
    assert_eq!(server.metric("varve_memory_limit_bytes"), LIMIT as f64);
    let of_queries = server.metric("varve_query_memory_max_bytes");
    assert!(
        of_queries <= LIMIT as f64 * 0.4 && of_queries > LIMIT as f64 * 0.39,
        "{of_queries}"
    );
    ingest(&server, SERIES);
    eprintln!(
        "{} bytes resident with {SERIES} series",
        server.resident_size()
    );
    let is_over = AtomicBool::new(false);
    let (answers, writes): (Vec<Answer>, Vec<Answer>) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let times = (1..).take_while(|_| !is_over.load(Ordering::Relaxed));
            times.map(|t| server.http().write(&known(t))).collect()
        });
        let ask = |i: usize| {
            let server = &server;
            scope.spawn(move || match i % 3 {
                0 => server.http().query("/api/v1/series", &[("match[]", "{__name__=~\".+\"}")]),
                1 => {
                    // Different queries: identical ones are computed once.
                    let query = format!("max_over_time(load[{}s]) * on(pod) load", 300 + i);
                    let range = [("start", "1700000000"), ("end", "1700000400"), ("step", "2")];
                    server.http().query("/api/v1/query_range", &[&[("query", &*query)], &range[..]].concat())
                }
                _ => {
                    let query =
                        format!("count_values(\"v\", label_replace(load, \"x{i}\", \"$1\", \"pod\", \"(.*)\"))");
                    server.http().query("/api/v1/query", &[("query", &query), ("time", "1700000045")])
                }
            })
        };
        let asking: Vec<_> = (0..CLIENTS).map(ask).collect();
        let answers = asking
            .into_iter()
            .map(|client| client.join().expect("a client does not panic"))
            .collect();
        is_over.store(true, Ordering::Relaxed);
        (answers, writer.join().expect("the writer does not panic"))
    });
    let rejected: Vec<_> = writes
        .iter()
        .filter(|answer| answer.status != 204)
        .collect();
    assert!(
        rejected.is_empty(),
        "of {} writes of known series: {rejected:?}",
        writes.len()
    );
    let unclear: Vec<_> = answers.iter().filter(|answer| !is_clear(answer)).collect();
    assert!(unclear.is_empty(), "{unclear:?}");
    assert!(
        answers
            .iter()
            .any(|answer| answer.status != 200 || answer.cut.is_some()),
        "the limit was not felt"
    );
    assert!(
        server.is_running() && group.n_killed() == 0,
        "the kernel has killed it"
    );
    wait_until("all memory to be given back", || held(&server) == 0.0);
    let one = [("query", "load{pod=\"pod-7\"}"), ("time", "1700000045")];
    wait_until("a query to be let in", || {
        server.http().query("/api/v1/query", &one).status == 200
    });
}

/// The least memory that docs/limits.md names.
const LIMIT_MIN: u64 = 128 << 20;

#[test]
fn a_single_large_request_does_not_exceed_the_least_memory() {
    let Some(group) = MemoryGroup::make(LIMIT_MIN) else {
        return;
    };
    let mut server = Server::start_in(&group, &[]);
    // Values that hardly compress: a body of 15 MiB, a message of 21 MiB.
    let value = |i: u64| f64::from_bits(1023 << 52 | i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12);
    for (n_series, n_samples) in [(60, 20_000), (1_200, 1_000), (400_000, 1)] {
        let samples = |of: u64| {
            (0..n_samples)
                .map(|i| (T0 + 15_000 * i, value(of * 1_000_000 + i as u64)))
                .collect()
        };
        let named = |i: u64| (format!("large_{n_series}_{i}"), samples(i));
        let all: Vec<(String, Vec<_>)> = (0..n_series).map(named).collect();
        let request = all
            .iter()
            .map(|(name, samples)| series(&[("__name__", name)], samples));
        let status = server.http().write(&WriteRequest::new(request)).status;
        assert!(
            server.is_running() && group.n_killed() == 0,
            "{n_series} series: the kernel has killed it"
        );
        assert!(
            matches!(status, 204 | 413 | 503),
            "{n_series} series: {status}"
        );
    }
    let content_type = [("content-type", "application/x-www-form-urlencoded")];
    for start in ["query=", "query=up&time=", "query=up&lookback_delta="] {
        let body = [start.as_bytes(), &vec![0xff; 10_000_000]].concat();
        let status = server
            .http()
            .post("/api/v1/query", &content_type, &body)
            .status;
        assert!(
            server.is_running() && group.n_killed() == 0,
            "{start}: the kernel has killed it"
        );
        assert!(matches!(status, 400 | 422 | 503), "{start} {status}");
    }
}
