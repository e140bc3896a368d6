//! Many calls over all series at once, and an ingestor that is killed under load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use prost::Message as _;
use serde_json::json;

use super::T0;
use crate::harness::messages::thanos::{Matcher, SeriesRequest};
use crate::harness::{
    ConfigFile, Http, Http2, PATIENCE, Server, Thanos, WriteRequest, frame, free_address,
    is_thanos_missing, now_ms, series, wait_until, write_to_router,
};

const SERIES: &str = "/thanos.Store/Series";
/// Calls at once.
const N_CALLS: usize = 16;
const MEMORY_MAX: f64 = (512 << 20) as f64;
/// Series that are written to the router.
const N_SERIES: usize = 10;

/// Writes a sample of each of `n_series` series.
fn write(http: &Http, name: &str, n_series: usize, time_ms: i64) {
    for first in (0..n_series).step_by(5000) {
        let one = |i: usize| {
            let (pod, node) = (format!("pod-{i}"), format!("node-{}", i / 100));
            series(
                &[("__name__", name), ("node", &node), ("pod", &pod)],
                &[(time_ms, i as f64)],
            )
        };
        http.write(&WriteRequest::new(
            (first..n_series.min(first + 5000)).map(one),
        ))
        .expect_status(204);
    }
}

#[test]
fn calls_over_all_series_stay_within_the_memory_and_stop_no_writes() {
    let n_series =
        std::env::var("VARVE_SERIES_CALL_SERIES").map_or(50_000, |n| n.parse().expect("a number"));
    let server = Server::start(&[
        "--query.max-memory-total=512MiB",
        "--query.max-concurrency=16",
    ]);
    let (http, address) = (server.http(), server.http().address());
    write(http, "m", n_series, T0);
    let matchers = vec![Matcher::equal("__name__", "m")];
    let request = SeriesRequest {
        min_time: T0 - 1,
        max_time: T0 + 1,
        matchers,
        ..SeriesRequest::default()
    };
    let message = request.encode_to_vec();
    let used = || server.metric("varve_query_memory_bytes");

    let (expect, alone) = Http2::connect(address).measure(SERIES, &message);
    assert_eq!(alone.status, "0", "{alone:?}");
    assert!(expect > 50 * n_series, "{expect} bytes");
    {
        let http2 = Http2::connect(address);
        let headers = [("content-type", "application/grpc"), ("te", "trailers")];
        drop(http2.head(http2.send("POST", SERIES, &headers, &frame(false, &message))));
        let canceled = Instant::now();
        wait_until("a canceled call to free its memory", || used() == 0.0);
        // The server has 100 ms. The rest is for the machine.
        assert!(
            canceled.elapsed() < Duration::from_secs(2),
            "{:?}",
            canceled.elapsed()
        );
    }

    let rate = |time_ms: i64| {
        let started = Instant::now();
        write(http, "written", 20_000, time_ms);
        20_000.0 / started.elapsed().as_secs_f64()
    };
    let (new, before) = (rate(T0), rate(T0 + 15_000));
    let (mut used_max, mut during) = (0.0_f64, Vec::new());
    thread::scope(|scope| {
        let calls: Vec<_> = (0..N_CALLS)
            .map(|_| scope.spawn(|| Http2::connect(address).measure(SERIES, &message)))
            .collect();
        for i in 2.. {
            if calls.iter().all(|call| call.is_finished()) {
                break;
            }
            used_max = used_max.max(used());
            during.push(rate(T0 + i * 15_000));
        }
        let ended: Vec<_> = calls
            .into_iter()
            .map(|call| call.join().expect("a call ends"))
            .collect();
        for (size, call) in &ended {
            let is_exhausted = call.status == "8" && call.message.contains("--query.max-memory");
            assert!(
                is_exhausted || (call.status == "0" && *size == expect),
                "{size} of {expect} bytes, {call:?}"
            );
        }
        assert!(
            ended.iter().any(|(_, call)| call.status == "0"),
            "{ended:?}"
        );
    });
    println!("samples per second: {new:.0} new, {before:.0} before, {during:.0?} during the calls");
    println!(
        "memory of calls: at most {used_max} bytes; resident {}",
        server.resident_size()
    );
    assert!(used_max <= MEMORY_MAX, "{used_max}");
    wait_until("all memory to be free", || used() == 0.0);
}

/// Returns the number of servers that have a sample, by series and time.
fn stored(servers: &[Server], until_s: i64) -> BTreeMap<(String, i64), usize> {
    let mut counts = BTreeMap::new();
    for server in servers {
        let params = [("query", "m[1h]"), ("time", &*until_s.to_string())];
        for one in server.http().query("/api/v1/query", &params).data()["result"]
            .as_array()
            .expect("series")
        {
            let i = one["metric"]["i"].as_str().expect("a label");
            for sample in one["values"].as_array().expect("samples") {
                let time_ms = (sample[0].as_f64().expect("a time") * 1000.0).round() as i64;
                *counts.entry((i.to_owned(), time_ms)).or_default() += 1;
            }
        }
    }
    counts
}

#[test]
fn a_killed_ingestor_costs_no_request_and_no_acknowledged_sample() {
    if is_thanos_missing() {
        return;
    }
    let addresses = [(); 3].map(|()| free_address());
    let configs = ["a", "b", "c"].map(|name| {
        ConfigFile::new(&json!({"global": {"external_labels": {"replica": name}}}).to_string())
    });
    let flags = |i: usize| {
        [
            configs[i].flag(),
            format!("--grpc-address={}", addresses[i]),
        ]
    };
    let mut servers = [0, 1, 2].map(|i| Server::start(&flags(i).each_ref().map(String::as_str)));
    let (_router, http) = Thanos::router(&addresses, &["--receive.replication-factor=3"]);
    let querier = Thanos::query(&addresses, &["--query.replica-label=replica"]);
    let start_ms = now_ms() - 600_000;
    let send = |time_ms: i64| {
        let one = |i: usize| {
            series(
                &[("__name__", "m"), ("i", &*i.to_string())],
                &[(time_ms, time_ms as f64)],
            )
        };
        write_to_router(&http, &WriteRequest::new((0..N_SERIES).map(one)), "t")
    };
    wait_until("the router to reach its ingestors", || {
        send(start_ms).status == 200
    });

    let stop = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let (started, mut sent) = (Instant::now(), vec![start_ms]);
            while !stop.load(Ordering::Relaxed) && started.elapsed() < PATIENCE {
                // A fast machine sends thousands of requests, and none may be in the future.
                let time_ms = start_ms + 50 * sent.len() as i64;
                send(time_ms).expect_status(200);
                sent.push(time_ms);
            }
            sent
        });
        let look = |duration: Duration| {
            let started = Instant::now();
            while started.elapsed() < duration && !load.is_finished() {
                let params = [
                    ("query", "count(m)"),
                    ("time", &*(start_ms / 1000 + 60).to_string()),
                ];
                let answer = querier
                    .http()
                    .query("/api/v1/query", &params)
                    .expect_status(200)
                    .json();
                assert_eq!(
                    answer["data"]["result"][0]["value"][1],
                    N_SERIES.to_string(),
                    "{answer}"
                );
                thread::sleep(Duration::from_millis(50));
            }
        };
        look(Duration::from_secs(1));
        servers[2].kill();
        look(Duration::from_secs(3));
        servers[2].restart(&flags(2).each_ref().map(String::as_str));
        look(Duration::from_secs(3));
        stop.store(true, Ordering::Relaxed);
        load.join().expect("no write fails")
    });
    assert!(sent.len() > 20, "{} requests", sent.len());
    let until_s = start_ms / 1000 + 3600;
    let is_stored = |n_servers: usize| {
        let counts = stored(&servers, until_s);
        let count =
            |i: usize, time_ms: i64| counts.get(&(i.to_string(), time_ms)).copied().unwrap_or(0);
        sent.iter()
            .all(|&time_ms| (0..N_SERIES).all(|i| count(i, time_ms) >= n_servers))
    };
    assert!(is_stored(1), "a sample that was acknowledged is missing");
    wait_until("all samples in two servers", || is_stored(2));
    wait_until("the killed server to be a store again", || {
        querier.healthy_stores().len() == 3
    });
}
