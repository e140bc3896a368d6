//! A server in a cgroup stays below its memory limit, so that the kernel does not kill it.

use std::thread;

use super::{SERIES, held, ingest};
use crate::harness::{Answer, MemoryGroup, Server, wait_until};

/// Less than the requests below would use: 24 responses of about 40 MiB, and queries that hold hundreds.
const LIMIT: u64 = 448 << 20;
const CLIENTS: usize = 24;

/// Returns `true` if a response is complete, an error that names a limit, or truncated after its start.
fn is_clear(answer: &Answer) -> bool {
    let names_a_bound = |error: &str| ["--query.", "--memory.", "timed out"].iter().any(|name| error.contains(name));
    answer.status == 200 || matches!(answer.status, 422 | 503) && names_a_bound(&answer.error().1)
}

#[test]
fn a_server_in_a_small_cgroup_is_not_killed() {
    let Some(group) = MemoryGroup::make(LIMIT) else { return };
    let mut server = Server::start_in(&group, &[]);
    assert_eq!(server.metric("varve_memory_limit_bytes"), LIMIT as f64);
    let of_queries = server.metric("varve_query_memory_max_bytes");
    assert!(of_queries <= LIMIT as f64 * 0.4 && of_queries > LIMIT as f64 * 0.39, "{of_queries}");
    ingest(&server, SERIES);
    eprintln!("{} bytes resident with {SERIES} series", server.resident_size());
    let answers: Vec<Answer> = thread::scope(|scope| {
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
        asking.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
    });
    let unclear: Vec<_> = answers.iter().filter(|answer| !is_clear(answer)).collect();
    assert!(unclear.is_empty(), "{unclear:?}");
    assert!(answers.iter().any(|answer| answer.status != 200 || answer.cut.is_some()), "the limit was not felt");
    assert!(server.is_running() && group.n_killed() == 0, "the kernel has killed it");
    wait_until("all memory to be given back", || held(&server) == 0.0);
    let one = [("query", "load{pod=\"pod-7\"}"), ("time", "1700000045")];
    wait_until("a query to be let in", || server.http().query("/api/v1/query", &one).status == 200);
}
