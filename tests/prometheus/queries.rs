//! The queries to compare. Each has a result for a scraped node exporter and Prometheus. They check
//! what is stored; the differential test (`tests/promql/differential`) checks the functions and
//! operators.

/// Instant queries.
pub(crate) const INSTANT: &[&str] = &[
    // All written samples.
    "{__name__=~\".+\"}[10m]",
    "{__name__=~\".+\"}",
    "up{job=\"node\"}",
    "node_load1 offset -1s",
    "node_cpu_seconds_total{cpu=\"0\"}[3s] offset 4s",
    "count by (job) ({__name__=~\".+\"})",
    "rate(node_cpu_seconds_total[10s])",
    "increase(prometheus_http_requests_total[15s])",
    "stddev_over_time(scrape_duration_seconds[15s])",
    "absent_over_time(nothing{job=\"x\"}[5m])",
    "topk(3, prometheus_http_request_duration_seconds_sum)",
    "sort_desc(node_cpu_seconds_total{mode=\"idle\"} or node_memory_MemTotal_bytes)",
    "up * on(instance) group_left(version) prometheus_build_info",
    "histogram_quantile(0.9, prometheus_http_request_duration_seconds_bucket{handler=\"/api/v1/query\"})",
    "max_over_time(rate(node_cpu_seconds_total[5s])[15s:1s])",
    "timestamp(up)",
];

/// Range queries with their steps.
pub(crate) const RANGE: &[(&str, &str)] = &[
    ("{job=\"node\"}", "1"),
    ("up", "0.7"),
    ("irate(prometheus_http_requests_total[5s])", "500ms"),
    (
        "100 * (1 - avg by (instance) (rate(node_cpu_seconds_total{mode=\"idle\"}[5s])))",
        "2",
    ),
    (
        "histogram_quantile(0.9, sum by (le) (rate(prometheus_http_request_duration_seconds_bucket[10s])))",
        "1",
    ),
    (
        "max_over_time(sum(rate(node_cpu_seconds_total[4s]))[8s:1s])",
        "2",
    ),
    (
        "go_goroutines unless on(job) (node_time_seconds % 4 < 2)",
        "1",
    ),
    (
        "count_values without (instance) (\"n\", go_gomaxprocs_threads or go_sched_gomaxprocs_threads)",
        "5",
    ),
];
