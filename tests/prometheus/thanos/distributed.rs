//! A distributed querier: aggregations are evaluated by the leaves.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{T0, ask, start};
use crate::harness::{Thanos, WriteRequest, is_thanos_missing, series, wait_until};

/// Queries whose results are the same in both modes.
const QUERIES: &[&str] = &[
    "sum(m)",
    "sum by (cluster) (rate(latency_bucket[5m]))",
    "sum by (cluster) (m)",
    "sum by (cluster, job) (m{cluster=~\"a|b\"})",
    "avg by (job) (m)",
    "count by (job) (m > 50)",
    "min(m)",
    "max by (cluster) (m)",
    "topk(3, m)",
    "bottomk(2, sum by (job) (m))",
    "quantile(0.9, m)",
    "histogram_quantile(0.9, sum by (le) (rate(latency_bucket[5m])))",
    "m{job=\"j1\"}",
    "sum(m{cluster=\"a\"}) / sum(m)",
    "absent(nothing{job=\"x\"})",
    "stddev(m)",
    "count_values(\"v\", m % 3)",
    "sum(sum_over_time(m[10m:1m]))",
    "m * on (cluster, job, i) m offset 1m",
    "group by (cluster) (m)",
];

#[test]
fn queries_give_the_same_results_at_the_leaves_as_at_the_querier() {
    if is_thanos_missing() {
        return;
    }
    let servers = ["a", "b"].map(|cluster| start(&json!({"cluster": cluster, "replica": "0"})));
    for (offset, server) in servers.iter().enumerate() {
        let samples = |factor: usize| -> Vec<_> {
            (0..80)
                .map(|i| (T0 + i * 15_000, ((i as usize + offset) * factor) as f64))
                .collect()
        };
        let gauges = (0..20).map(|i| {
            let labels = [
                ("__name__", "m"),
                ("i", &*i.to_string()),
                ("job", &*format!("j{}", i % 3)),
            ];
            series(&labels, &samples(i + 1))
        });
        let buckets = [("0.1", 1), ("0.5", 3), ("2.5", 4), ("+Inf", 5)];
        let buckets = buckets.map(|(le, factor)| {
            series(
                &[("__name__", "latency_bucket"), ("le", le)],
                &samples(factor),
            )
        });
        server
            .http()
            .write(&WriteRequest::new(gauges.chain(buckets)))
            .expect_status(204);
    }
    let addresses = servers.each_ref().map(|server| server.http().address());
    let flags = [
        "--query.replica-label=replica",
        "--query.promql-engine=thanos",
    ];
    let local = Thanos::query(&addresses, &flags);
    let distributed = Thanos::query(
        &addresses,
        &[&flags[..], &["--query.mode=distributed"]].concat(),
    );
    let time_s = T0 / 1000 + 1190;
    for querier in [&local, &distributed] {
        wait_until("the querier to know the times", || {
            !ask(querier.http(), "sum(m)", time_s, &[]).is_empty()
        });
    }
    let (start, end) = ((T0 / 1000 + 300).to_string(), time_s.to_string());
    for query in QUERIES {
        let [expect, found] =
            [&local, &distributed].map(|querier| ask(querier.http(), query, time_s, &[]));
        assert_eq!(found, expect, "{query}");
        let [expect, found] = [&local, &distributed].map(|querier| {
            let params = [
                ("query", *query),
                ("start", &start),
                ("end", &end),
                ("step", "60"),
            ];
            let json = querier
                .http()
                .query("/api/v1/query_range", &params)
                .expect_status(200)
                .json();
            assert_eq!(json["warnings"], serde_json::Value::Null, "{query}");
            let mut result = json["data"]["result"].as_array().expect("a matrix").clone();
            result.sort_by_cached_key(|series| series["metric"].to_string());
            result
        });
        assert_eq!(found, expect, "{query} over a range");
    }
    let calls = |server: &crate::harness::Server, method: &str| {
        let text = server.http().get("/metrics").text();
        let series = format!("varve_grpc_requests_total{{code=\"0\",method=\"{method}\"}} ");
        text.lines()
            .find_map(|line| line.strip_prefix(&series)?.parse().ok())
            .unwrap_or(0.0_f64)
    };
    for server in &servers {
        assert!(
            calls(server, "/thanos.Query/QueryRange") >= QUERIES.len() as f64 / 2.0,
            "aggregation at the leaf"
        );
    }
}

/// Forwards connections to `target`. Returns its address, and the number of bytes from the target
/// so far.
fn start_counting_proxy(target: SocketAddr) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("a listener has an address");
    let received = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&received);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) else {
                return;
            };
            let (mut requests, mut to_server) = (
                client.try_clone().expect("clone"),
                server.try_clone().expect("clone"),
            );
            thread::spawn(move || std::io::copy(&mut requests, &mut to_server));
            let (mut client, mut server, counted) = (client, server, Arc::clone(&counted));
            thread::spawn(move || {
                let mut buffer = [0; 16 << 10];
                while let Ok(n @ 1..) = server.read(&mut buffer) {
                    counted.fetch_add(n as u64, Ordering::Relaxed);
                    if client.write_all(&buffer[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, received)
}

#[test]
fn an_aggregation_at_the_leaf_sends_a_hundredth_of_its_series() {
    if is_thanos_missing() {
        return;
    }
    let server = start(&json!({"cluster": "a", "replica": "0"}));
    for first in (0..3000).step_by(500) {
        // Without resets, which a querier removes before it extrapolates.
        let value = |i: i64, t: i64| (t * 1000 + t * i * 7 % 1000) as f64;
        let samples = |i: i64| {
            (0..240)
                .map(|t| (T0 + t * 15_000, value(i, t)))
                .collect::<Vec<_>>()
        };
        let counters = (first..first + 500).map(|i| {
            let labels = [
                ("__name__", "m"),
                ("i", &*i.to_string()),
                ("job", &*format!("j{}", i % 5)),
            ];
            series(&labels, &samples(i))
        });
        server
            .http()
            .write(&WriteRequest::new(counters))
            .expect_status(204);
    }
    let query = "sum by (job) (rate(m[5m]))";
    let (start, end) = (
        (T0 / 1000 + 300).to_string(),
        (T0 / 1000 + 3585).to_string(),
    );
    let answer = |mode: &str| {
        let (address, received) = start_counting_proxy(server.http().address());
        let flags = [
            "--query.replica-label=replica",
            "--query.promql-engine=thanos",
            mode,
        ];
        let querier = Thanos::query(&[address], &flags);
        wait_until("the querier to know the times", || {
            !ask(querier.http(), "m{i=\"1\"}", T0 / 1000, &[]).is_empty()
        });
        let before = received.load(Ordering::Relaxed);
        let params = [
            ("query", query),
            ("start", &*start),
            ("end", &*end),
            ("step", "60"),
        ];
        let mut result =
            querier.http().query("/api/v1/query_range", &params).data()["result"].take();
        result
            .as_array_mut()
            .expect("a matrix")
            .sort_by_cached_key(|series| series["metric"].to_string());
        (result, received.load(Ordering::Relaxed) - before)
    };
    let (expect, n_bytes) = answer("--query.mode=local");
    let (found, n_bytes_of_leaf) = answer("--query.mode=distributed");
    println!("{n_bytes} bytes of series, {n_bytes_of_leaf} bytes of aggregates");
    assert_eq!(found.as_array().map(Vec::len), Some(5));
    let is_close = |a: &Value, b: &Value| {
        let number = |value: &Value| {
            value[1]
                .as_str()
                .expect("a value")
                .parse::<f64>()
                .expect("a number")
        };
        a[0] == b[0] && (number(a) - number(b)).abs() <= 1e-9 * number(b).abs()
    };
    for (a, b) in found
        .as_array()
        .expect("series")
        .iter()
        .zip(expect.as_array().expect("series"))
    {
        let (a, b) = (
            a["values"].as_array().expect("samples"),
            b["values"].as_array().expect("samples"),
        );
        assert!(
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_close(a, b)),
            "{a:?} {b:?}"
        );
    }
    assert!(
        n_bytes_of_leaf * 100 <= n_bytes,
        "{n_bytes_of_leaf} of {n_bytes}"
    );
}
