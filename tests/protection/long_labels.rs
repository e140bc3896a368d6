//! Series with labels of almost 1 MiB, and wide native histograms: what a request builds of them is
//! charged before it is built.

use std::thread;

use prost::Message as _;

use super::{T0, held};
use crate::harness::messages::thanos::QueryRangeRequest;
use crate::harness::{
    BucketSpan, Histogram, Http2, MemoryGroup, Server, WriteRequest, series, wait_until,
};

const LIMIT: u64 = 400 << 20;
const T0_SECONDS: i64 = T0 / 1000;

/// Writes 80 series with labels of 480 kB.
fn write_long_labels(server: &Server) {
    let names: Vec<_> = (0..8).map(|n| format!("l{n}")).collect();
    for i in 0..80 {
        let i = i.to_string();
        let long = format!("{i}{}", "x".repeat(60_000));
        let mut labels = vec![("__name__", "m"), ("i", &*i)];
        labels.extend(names.iter().map(|name| (&**name, &*long)));
        let request = WriteRequest::new([series(&labels, &[(T0, 1.0)])]);
        server.http().write(&request).expect_status(204);
    }
}

/// Each of these requests looked up the labels of 64 series before it charged them: 30 MB.
#[test]
fn concurrent_requests_for_long_labels_do_not_use_up_the_memory() {
    let Some(group) = MemoryGroup::make(LIMIT) else {
        return;
    };
    let mut server = Server::start_in(&group, &["--self-scrape-interval=0s"]);
    write_long_labels(&server);
    for (path, parameter, text) in [
        ("/api/v1/query", "query", "m"),
        ("/api/v1/query", "query", "m * on () m"),
        ("/api/v1/query", "query", "count by (l1, l2, l3) (m)"),
        ("/api/v1/query", "query", "count_values('x', m)"),
        (
            "/api/v1/query",
            "query",
            "label_join(m, 'z', '', 'l1', 'l2', 'l3')",
        ),
        ("/federate", "match[]", "m"),
    ] {
        thread::scope(|scope| {
            for i in 0..40 {
                let server = &server;
                scope.spawn(move || {
                    // Different requests: identical ones are computed once.
                    let timeout = format!("3{i}s");
                    let parameters = [
                        (parameter, text),
                        ("timeout", &*timeout),
                        ("time", "1700000001"),
                    ];
                    let answer = server.http().query(path, &parameters);
                    assert!(matches!(answer.status, 200 | 422 | 503), "{answer:?}");
                });
            }
        });
        assert!(
            server.is_running() && group.n_killed() == 0,
            "{path} {text}: the kernel has killed it"
        );
        wait_until("all memory to be given back", || held(&server) == 0.0);
    }
}

/// The message of a series and its frame were built before they were charged.
#[test]
fn native_histograms_over_grpc_are_charged_before_they_are_built() {
    let Some(group) = MemoryGroup::make(LIMIT) else {
        return;
    };
    let mut server = Server::start_in(&group, &["--self-scrape-interval=0s"]);
    let wide = Histogram {
        count_int: Some(160),
        sum: 5.0,
        zero_count_int: Some(0),
        positive_spans: vec![BucketSpan {
            offset: 0,
            length: 160,
        }],
        positive_deltas: [vec![1], vec![0; 159]].concat(),
        timestamp_ms: T0,
        ..Histogram::default()
    };
    for i in ["1", "2"] {
        let mut native = series(&[("__name__", "m"), ("i", i)], &[]);
        native.histograms = vec![wide.clone()];
        server
            .http()
            .write(&WriteRequest::new([native]))
            .expect_status(204);
    }

    let request = QueryRangeRequest {
        query: "last_over_time(m[1d])".into(),
        start_time_seconds: T0_SECONDS,
        end_time_seconds: T0_SECONDS + 10_990,
        interval_seconds: 1,
    }
    .encode_to_vec();
    thread::scope(|scope| {
        for _ in 0..20 {
            let server = &server;
            let request = &request;
            scope.spawn(move || {
                let http2 = Http2::connect(server.http().address());
                let (_, call) = http2.measure("/thanos.Query/QueryRange", request);
                // OK, ResourceExhausted, Unavailable.
                assert!(matches!(&*call.status, "0" | "8" | "14"), "{call:?}");
            });
        }
    });
    assert!(
        server.is_running() && group.n_killed() == 0,
        "the kernel has killed it"
    );
    wait_until("all memory to be given back", || held(&server) == 0.0);
}
