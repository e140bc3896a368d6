//! A distributed querier: aggregations are evaluated by the leaves.

use serde_json::json;

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
            (0..80).map(|i| (T0 + i * 15_000, ((i as usize + offset) * factor) as f64)).collect()
        };
        let gauges = (0..20).map(|i| {
            let labels = [("__name__", "m"), ("i", &*i.to_string()), ("job", &*format!("j{}", i % 3))];
            series(&labels, &samples(i + 1))
        });
        let buckets = [("0.1", 1), ("0.5", 3), ("2.5", 4), ("+Inf", 5)];
        let buckets =
            buckets.map(|(le, factor)| series(&[("__name__", "latency_bucket"), ("le", le)], &samples(factor)));
        server.http().write(&WriteRequest::new(gauges.chain(buckets))).expect_status(204);
    }
    let addresses = servers.each_ref().map(|server| server.http().address());
    let flags = ["--query.replica-label=replica", "--query.promql-engine=thanos"];
    let local = Thanos::query(&addresses, &flags);
    let distributed = Thanos::query(&addresses, &[&flags[..], &["--query.mode=distributed"]].concat());
    let time_s = T0 / 1000 + 1190;
    for querier in [&local, &distributed] {
        wait_until("the querier to know the times", || !ask(querier.http(), "sum(m)", time_s, &[]).is_empty());
    }
    let (start, end) = ((T0 / 1000 + 300).to_string(), time_s.to_string());
    for query in QUERIES {
        let [expect, found] = [&local, &distributed].map(|querier| ask(querier.http(), query, time_s, &[]));
        assert_eq!(found, expect, "{query}");
        let [expect, found] = [&local, &distributed].map(|querier| {
            let params = [("query", *query), ("start", &start), ("end", &end), ("step", "60")];
            let json = querier.http().query("/api/v1/query_range", &params).expect_status(200).json();
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
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or(0.0_f64)
    };
    for server in &servers {
        assert!(calls(server, "/thanos.Query/QueryRange") >= QUERIES.len() as f64 / 2.0, "aggregation at the leaf");
    }
}
