//! `varve-bench query`: the queries of dashboards over a fleet, their latency and response size.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::args::QueryArgs;
use crate::client::{Client, escape};
use crate::output::print;
use crate::statistics::{geometric_mean, median};
use crate::table::table;

/// Range queries cover an hour with a step of a minute, as the panel of a dashboard.
const RANGE_S: i64 = 3_600;
const STEP_S: i64 = 60;

/// A named query.
#[derive(Debug, Clone, Copy)]
struct Query {
    name: &'static str,
    request: Request,
}

#[derive(Debug, Clone, Copy)]
enum Request {
    /// An instant query at the end of the fleet's time.
    Instant(&'static str),
    /// A range query over its last hour.
    Range(&'static str),
    /// A metadata request below `/api/v1/`. Start and end are added.
    Metadata(&'static str),
}

/// The queries of Grafana panels for machines, workloads, GPUs and the control plane, and of its
/// query editor.
const QUERIES: [Query; 31] = [
    instant("machines", "count(node_uname_info)"),
    instant(
        "cpu by machine",
        r#"1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m]))"#,
    ),
    instant(
        "memory top 10",
        "topk(10, node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)",
    ),
    instant("load quantile", "quantile(0.95, node_load1)"),
    instant(
        "disk full soon",
        r#"predict_linear(node_filesystem_avail_bytes{fstype!=""}[1h], 4 * 3600) < 0"#,
    ),
    instant(
        "disk used",
        "max by (instance) (node_filesystem_size_bytes - node_filesystem_avail_bytes)",
    ),
    instant(
        "gpu power by machine",
        "sum by (Hostname) (DCGM_FI_DEV_POWER_USAGE)",
    ),
    instant("pods by namespace", "count by (namespace) (kube_pod_info)"),
    instant(
        "network top 10 pods",
        "topk(10, sum by (namespace, pod) (rate(container_network_receive_bytes_total[5m])))",
    ),
    instant(
        "restarts",
        "sum by (namespace) (increase(kube_pod_container_status_restarts_total[1h])) > 0",
    ),
    instant(
        "requests of running pods",
        r#"sum by (namespace) (kube_pod_container_resource_requests * on (namespace, pod) group_left () max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"} == 1))"#,
    ),
    instant(
        "series by name",
        r#"count by (__name__) ({__name__=~"node_network_.+"})"#,
    ),
    instant(
        "memory of a pod's containers",
        r#"container_memory_rss{node="gpu-00001",container!=""}"#,
    ),
    instant(
        "peak cpu",
        "max_over_time(sum(rate(container_cpu_usage_seconds_total[5m]))[30m:5m])",
    ),
    range(
        "cpu of the cluster",
        r#"1 - avg(rate(node_cpu_seconds_total{mode="idle",cluster="eu-1"}[5m]))"#,
    ),
    range(
        "cpu by namespace",
        "sum by (namespace) (rate(container_cpu_usage_seconds_total[5m]))",
    ),
    range(
        "memory by namespace",
        r#"sum by (namespace) (container_memory_working_set_bytes{container!=""})"#,
    ),
    range("gpu utilisation", "avg(DCGM_FI_DEV_GPU_UTIL)"),
    range(
        "gpus of a machine",
        r#"DCGM_FI_DEV_GPU_TEMP{Hostname="gpu-00001"}"#,
    ),
    range(
        "disk of a machine",
        r#"rate(node_disk_read_bytes_total{instance="gpu-00003"}[5m])"#,
    ),
    range(
        "network of all machines",
        r#"sum(rate(node_network_receive_bytes_total{device!~"lo|veth.*"}[5m]))"#,
    ),
    range(
        "requests by code",
        "sum by (code) (rate(apiserver_request_total[5m]))",
    ),
    range(
        "api latency",
        r#"histogram_quantile(0.99, sum by (le) (rate(apiserver_request_duration_seconds_bucket{verb=~"GET|LIST"}[5m])))"#,
    ),
    range(
        "etcd fsync latency",
        "histogram_quantile(0.99, sum by (instance, le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket[5m])))",
    ),
    range(
        "kubelet operations",
        "sum by (operation_type, le) (rate(kubelet_runtime_operations_duration_seconds_bucket[5m]))",
    ),
    metadata("label names", "labels"),
    metadata("metric names", "label/__name__/values"),
    metadata(
        "namespaces of pods",
        "label/namespace/values?match[]=kube_pod_info",
    ),
    metadata(
        "pods of a namespace",
        "label/pod/values?match[]=kube_pod_info{namespace=\"research\"}",
    ),
    metadata("series of a metric", "series?match[]=node_uname_info"),
    metadata(
        "series of all buckets",
        "series?match[]={__name__=~\".+_bucket\"}",
    ),
];

const fn instant(name: &'static str, query: &'static str) -> Query {
    Query {
        name,
        request: Request::Instant(query),
    }
}

const fn range(name: &'static str, query: &'static str) -> Query {
    Query {
        name,
        request: Request::Range(query),
    }
}

const fn metadata(name: &'static str, call: &'static str) -> Query {
    Query {
        name,
        request: Request::Metadata(call),
    }
}

/// The measurements of a query.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct QueryResult {
    pub(crate) name: &'static str,
    pub(crate) is_metadata: bool,
    /// Median time until the last byte. `None` if the server returned an error.
    pub(crate) median_ms: Option<f64>,
    /// Size of the response.
    pub(crate) response_bytes: u64,
    /// Series or values in the response. 0 if it is longer than 64 MiB.
    pub(crate) n_results: usize,
    /// The status and text of an error.
    pub(crate) error: Option<String>,
}

/// Runs all queries and prints a table.
///
/// # Errors
/// If the server cannot be reached.
pub(crate) fn query(args: &QueryArgs) -> Result<()> {
    let n_repeats = usize::from(args.repeats);
    let results = run_all(&args.url, args.time / 1000, n_repeats)?;
    let mut rows = Vec::new();
    for result in results {
        let median = match result.median_ms {
            Some(ms) => format!("{ms:.2}"),
            None => result.error.unwrap_or_default(),
        };
        rows.push(vec![
            result.name.to_owned(),
            median,
            result.n_results.to_string(),
            result.response_bytes.to_string(),
        ]);
    }
    print(table(
        &["query", "median ms", "results", "bytes"].map(str::to_owned),
        &rows,
    ))
}

/// Runs every query `n_repeats` times, at the time `end_s` in seconds.
pub(crate) fn run_all(server: &str, end_s: i64, n_repeats: usize) -> Result<Vec<QueryResult>> {
    let client = Client::new(server);
    QUERIES
        .iter()
        .map(|query| run(&client, *query, end_s, n_repeats))
        .collect()
}

fn run(client: &Client, query: Query, end_s: i64, n_repeats: usize) -> Result<QueryResult> {
    let path = query.request.path(end_s);
    let mut times = Vec::with_capacity(n_repeats);
    let mut result = QueryResult {
        name: query.name,
        is_metadata: matches!(query.request, Request::Metadata(_)),
        median_ms: None,
        response_bytes: 0,
        n_results: 0,
        error: None,
    };
    for round in 0..n_repeats.max(1) {
        let started = Instant::now();
        let response = client
            .get(&path)
            .with_context(|| format!("query {}", query.name))?;
        times.push(started.elapsed());
        if !response.is_success() {
            result.error = Some(format!("{}: {}", response.status, response.text()));
            return Ok(result);
        }
        if round == 0 {
            result.response_bytes = response.size;
            result.n_results = n_results(&response.body);
        }
    }
    result.median_ms = Some(median(&mut times).as_secs_f64() * 1e3);
    Ok(result)
}

impl Request {
    fn path(self, end_s: i64) -> String {
        let start_s = end_s - RANGE_S;
        match self {
            Self::Instant(query) => instant_path(query, end_s),
            Self::Range(query) => range_path(query, start_s, end_s, STEP_S),
            Self::Metadata(call) => {
                let (path, query) = call.split_once('?').unwrap_or((call, ""));
                let matcher = query
                    .strip_prefix("match[]=")
                    .map(|text| format!("&match[]={}", escape(text)));
                format!(
                    "/api/v1/{path}?start={start_s}&end={end_s}{}",
                    matcher.unwrap_or_default()
                )
            }
        }
    }
}

/// Returns the path of an instant query. `nocache` keeps servers from using their result cache.
pub(crate) fn instant_path(query: &str, time_s: i64) -> String {
    format!(
        "/api/v1/query?nocache=1&time={time_s}&query={}",
        escape(query)
    )
}

/// Returns the path of a range query that uses no result cache.
pub(crate) fn range_path(query: &str, start_s: i64, end_s: i64, step_s: i64) -> String {
    format!(
        "/api/v1/query_range?nocache=1&start={start_s}&end={end_s}&step={step_s}&query={}",
        escape(query)
    )
}

/// Returns the expressions of the queries, without the metadata requests.
pub(crate) fn expressions() -> Vec<&'static str> {
    let mut expressions = Vec::new();
    for query in &QUERIES {
        if let Request::Instant(expression) | Request::Range(expression) = query.request {
            expressions.push(expression);
        }
    }
    expressions
}

/// Returns the number of results in a response.
fn n_results(body: &[u8]) -> usize {
    let Ok(response) = serde_json::from_slice::<Value>(body) else {
        return 0;
    };
    let data = &response["data"];
    data["result"]
        .as_array()
        .or_else(|| data.as_array())
        .map_or(0, Vec::len)
}

/// Returns the geometric mean of the medians. Returns `None` if one is missing.
pub(crate) fn geometric_mean_ms(results: &[QueryResult], is_metadata: bool) -> Option<f64> {
    let of_kind = results
        .iter()
        .filter(|result| result.is_metadata == is_metadata);
    let medians: Option<Vec<f64>> = of_kind.map(|result| result.median_ms).collect();
    geometric_mean(&medians?)
}

/// Returns the value of the first series of an instant query, 0 if there is none.
pub(crate) fn query_scalar(client: &Client, query: &str, time_ms: i64) -> Result<f64> {
    let path = format!(
        "/api/v1/query?nocache=1&query={}&time={}",
        escape(query),
        time_ms as f64 / 1e3
    );
    let response = client.get(&path)?;
    ensure!(
        response.is_success(),
        "the server returned {}: {}",
        response.status,
        response.text()
    );
    let response: Value = serde_json::from_slice(&response.body).context("parse the response")?;
    let text = response["data"]["result"][0]["value"][1].as_str();
    text.map_or(Ok(0.0), |text| {
        text.parse()
            .with_context(|| format!("parse the number {text}"))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use varve_promql::Features;

    use super::*;

    #[test]
    fn queries_have_unique_names_and_parse() {
        let names: HashSet<_> = QUERIES.iter().map(|query| query.name).collect();
        assert_eq!(names.len(), QUERIES.len());
        for query in &QUERIES {
            if let Request::Instant(query) | Request::Range(query) = query.request {
                varve_promql::parse(query, &Features::default()).unwrap();
            }
        }
    }

    #[test]
    fn paths_have_times_and_matchers() {
        let path = Request::Metadata("series?match[]=a{b=\"c\"}").path(7_200);
        assert_eq!(
            path,
            "/api/v1/series?start=3600&end=7200&match[]=a%7Bb%3D%22c%22%7D"
        );
        assert_eq!(
            Request::Metadata("labels").path(7_200),
            "/api/v1/labels?start=3600&end=7200"
        );
        assert!(
            Request::Range("up")
                .path(7_200)
                .ends_with("start=3600&end=7200&step=60&query=up")
        );
    }

    fn result(median_ms: Option<f64>) -> QueryResult {
        QueryResult {
            name: "up",
            is_metadata: false,
            median_ms,
            response_bytes: 1,
            n_results: 1,
            error: None,
        }
    }

    #[test]
    fn the_mean_needs_every_median() {
        let mean = geometric_mean_ms(&[result(Some(2.0)), result(Some(8.0))], false).unwrap();
        assert!((mean - 4.0).abs() < 1e-12);
        assert_eq!(
            geometric_mean_ms(&[result(Some(2.0)), result(None)], false),
            None
        );
        assert_eq!(geometric_mean_ms(&[result(Some(2.0))], true), None);
    }
}
