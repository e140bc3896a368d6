//! Varve's own metrics: counters that requests increment, and values collected on each scrape.
//!
//! `varve_*` names are Varve's own; `prometheus_*` and `process_*` names are those that dashboards and alerts for Prometheus
//! expect. docs/metrics.md lists all of them.

mod process;
mod store;

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use super::live_config::ReloadStatus;
use super::query_log::QueryLog;
use super::store::Store;

/// Content type of the text format.
pub(crate) const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bucket bounds of `prometheus_http_request_duration_seconds`, as in Prometheus.
const HTTP_SECONDS: [f64; 9] = [0.1, 0.2, 0.4, 1.0, 3.0, 8.0, 20.0, 60.0, 120.0];
const QUEUE_SECONDS: [f64; 6] = [0.001, 0.01, 0.1, 1.0, 10.0, 60.0];

/// The metrics that requests update.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    started_s: f64,
    /// Responses by `handler` and `code`.
    pub(crate) http_requests: IntCounterVec,
    /// Seconds up to the response headers, by `handler`.
    pub(crate) http_seconds: HistogramVec,
    pub(crate) responses_truncated: IntCounter,
    pub(crate) panics: IntCounter,
    pub(crate) connections: IntGauge,
    pub(crate) connections_evicted: IntCounter,
    pub(crate) connections_evicted_slow: IntCounter,
    pub(crate) connections_stalled: IntCounter,
    pub(crate) streams_stalled: IntCounter,
    pub(crate) requests_denied: IntCounter,
    pub(crate) web_config_failures: IntCounter,
    pub(crate) handshakes_failed: IntCounter,
    pub(crate) self_scrapes_failed: IntCounter,
    active: IntGaugeVec,
    queued: IntGaugeVec,
    queue_seconds: HistogramVec,
    requests_coalesced: IntCounterVec,
    limits_hit: IntCounterVec,
    query_log: QueryLog,
}

impl Metrics {
    /// Creates all metrics, at zero.
    ///
    /// # Errors
    /// If two have the same name, or a name is not valid.
    pub(crate) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| registered(&registry, IntCounter::new(name, help)?);
        let counters = |name: &str, help: &str, labels: &[&str]| {
            registered(&registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let gauges =
            |name: &str, help: &str| registered(&registry, IntGaugeVec::new(Opts::new(name, help), &["class"])?);
        let http_seconds = HistogramOpts::new(
            "prometheus_http_request_duration_seconds",
            "Histogram of latencies for HTTP requests, up to the response headers.",
        );
        let queue_seconds = HistogramOpts::new(
            "varve_request_queue_duration_seconds",
            "Time that requests waited in the queue, by class: query, metadata, remote_read, write.",
        );
        let metrics = Self {
            started_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            http_requests: counters(
                "prometheus_http_requests_total",
                "Counter of HTTP requests.",
                &["handler", "code"],
            )?,
            http_seconds: registered(
                &registry,
                HistogramVec::new(http_seconds.buckets(HTTP_SECONDS.to_vec()), &["handler"])?,
            )?,
            responses_truncated: counter(
                "varve_http_responses_truncated_total",
                "Responses aborted after their first bytes were sent, because of a deadline, the client, memory or a failure.",
            )?,
            panics: counter("varve_http_panics_total", "Requests whose handler panicked.")?,
            connections: registered(&registry, IntGauge::new("varve_http_connections", "Open connections.")?)?,
            connections_evicted: counter(
                "varve_http_connections_evicted_total",
                "Idle connections closed because --web.max-connections was reached.",
            )?,
            connections_evicted_slow: counter(
                "varve_http_connections_evicted_slow_total",
                "Connections closed because --web.max-connections was reached and their request body arrived most slowly.",
            )?,
            connections_stalled: counter(
                "varve_http_connections_stalled_total",
                "Connections closed because the client read nothing for --web.write-stall-timeout.",
            )?,
            streams_stalled: counter(
                "varve_http_streams_stalled_total",
                "HTTP/2 streams reset because the client read nothing of the response for --web.write-stall-timeout.",
            )?,
            requests_denied: counter(
                "varve_http_requests_denied_total",
                "Requests denied because of their credentials, their host, or the web page that sent them.",
            )?,
            web_config_failures: counter(
                "varve_web_config_reload_failures_total",
                "Reloads of --web.config.file that were rejected: the file is invalid, or would disable authentication or TLS.",
            )?,
            handshakes_failed: counter(
                "varve_http_tls_handshakes_failed_total",
                "Connections that failed during the TLS handshake.",
            )?,
            self_scrapes_failed: counter(
                "varve_self_scrapes_failed_total",
                "Self-scrapes whose samples could not all be stored.",
            )?,
            active: gauges("varve_requests_active", "Requests being processed, by class.")?,
            queue_seconds: registered(
                &registry,
                HistogramVec::new(queue_seconds.buckets(QUEUE_SECONDS.to_vec()), &["class"])?,
            )?,
            queued: gauges("varve_requests_queued", "Requests waiting in the queue, by class.")?,
            requests_coalesced: counters(
                "varve_requests_coalesced_total",
                "Requests that shared the response of an identical concurrent request, by class.",
                &["class"],
            )?,
            limits_hit: counters(
                "varve_limits_hit_total",
                "Requests rejected or aborted because of a limit, by limit.",
                &["limit"],
            )?,
            query_log: QueryLog::new(
                registered(
                    &registry,
                    IntGauge::new("prometheus_engine_query_log_enabled", "State of the query log.")?,
                )?,
                counter("prometheus_engine_query_log_failures_total", "The number of query log failures.")?,
            ),
            registry,
        };
        Ok(metrics)
    }

    /// Returns the gauge of requests of a class being processed.
    pub(crate) fn active(&self, class: &str) -> IntGauge {
        self.active.with_label_values(&[class])
    }

    /// Returns the gauge of queued requests of a class.
    pub(crate) fn queued(&self, class: &str) -> IntGauge {
        self.queued.with_label_values(&[class])
    }

    /// Returns the counter of requests of a class that shared the response of another one.
    pub(crate) fn requests_coalesced(&self, class: &str) -> IntCounter {
        self.requests_coalesced.with_label_values(&[class])
    }

    /// Counts a request that a limit rejected or aborted, if one did.
    pub(crate) fn count_limit(&self, flag: Option<&'static str>) {
        flag.into_iter().for_each(|flag| self.limits_hit.with_label_values(&[flag]).inc());
    }

    /// Returns the query log, whose metrics are registered here.
    pub(crate) fn query_log(&self) -> QueryLog {
        self.query_log.clone()
    }

    /// Returns the histogram of the queue times of a class.
    pub(crate) fn queue_seconds(&self, class: &str) -> Histogram {
        self.queue_seconds.with_label_values(&[class])
    }

    /// Collects all metrics, sorted by name. Reads files of /proc: not for a tokio task.
    pub(crate) fn gather(
        &self,
        store: Option<&Store>,
        memory: &MemoryStats,
        config: ReloadStatus,
    ) -> Vec<MetricFamily> {
        let mut families = self.registry.gather();
        families.extend(process::gather(self.started_s));
        families.extend(memory.families());
        families.extend(config_families(config));
        families.push(build_info());
        families.push(family(
            "prometheus_engine_queries",
            "The current number of queries being executed or waiting.",
            MetricType::GAUGE,
            self.active("query").get() as f64,
        ));
        families.extend(store.into_iter().flat_map(store::gather));
        families.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        families
    }
}

/// Memory use and its limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryStats {
    pub(crate) queries_bytes: usize,
    pub(crate) queries_max_bytes: usize,
    pub(crate) queries_concurrent_max: usize,
    pub(crate) write_bodies_bytes: usize,
    /// Bytes in use and their limit, of the process or its cgroup.
    pub(crate) process: (u64, u64),
    /// Records that are missing in the active-request log.
    pub(crate) active_request_log_dropped: u64,
}

impl MemoryStats {
    fn families(&self) -> [MetricFamily; 7] {
        let gauge = |name, help, value: usize| family(name, help, MetricType::GAUGE, value as f64);
        let help = "Requests not recorded in the active-request log because it was full or a write to it failed.";
        let lost = family(
            "varve_active_request_log_dropped_total",
            help,
            MetricType::COUNTER,
            self.active_request_log_dropped as f64,
        );
        let (used, limit) = self.process;
        [
            lost,
            family(
                "varve_memory_used_bytes",
                "Memory in use, as compared with --memory.refuse-at.",
                MetricType::GAUGE,
                used as f64,
            ),
            family(
                "varve_memory_limit_bytes",
                "Memory from which defaults are derived: --memory.limit, else the limit of the cgroup, else the memory of the machine.",
                MetricType::GAUGE,
                limit as f64,
            ),
            gauge("varve_query_memory_bytes", "Memory used by all queries.", self.queries_bytes),
            gauge("varve_ingest_body_bytes", "Memory used by the bodies of write requests.", self.write_bodies_bytes),
            gauge(
                "varve_query_memory_max_bytes",
                "Maximum memory of all queries, which shrinks while memory is short.",
                self.queries_max_bytes,
            ),
            gauge(
                "prometheus_engine_queries_concurrent_max",
                "The max number of concurrent queries.",
                self.queries_concurrent_max,
            ),
        ]
    }
}

/// Writes families in the text format 0.0.4.
///
/// # Errors
/// If a family is not valid.
pub(crate) fn print(families: &[MetricFamily]) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(families)
}

fn config_families(config: ReloadStatus) -> [MetricFamily; 2] {
    [
        family(
            "prometheus_config_last_reload_successful",
            "Whether the last configuration reload attempt was successful.",
            MetricType::GAUGE,
            f64::from(u8::from(config.is_success)),
        ),
        family(
            "prometheus_config_last_reload_success_timestamp_seconds",
            "Timestamp of the last successful configuration reload.",
            MetricType::GAUGE,
            config.last_success.as_millisecond() as f64 / 1000.0,
        ),
    ]
}

fn build_info() -> MetricFamily {
    let mut info =
        family("varve_build_info", "A metric with a constant value of 1, labeled by version.", MetricType::GAUGE, 1.0);
    let label = label("version", env!("CARGO_PKG_VERSION"));
    info.mut_metric().iter_mut().for_each(|metric| metric.set_label(vec![label.clone()]));
    info
}

/// Returns a family of one counter or gauge without labels.
fn family(name: &str, help: &str, kind: MetricType, value: f64) -> MetricFamily {
    family_of(name, help, kind, [(Vec::new(), value)])
}

/// Returns a family of counters or gauges.
fn family_of(
    name: &str,
    help: &str,
    kind: MetricType,
    values: impl IntoIterator<Item = (Vec<LabelPair>, f64)>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(values.into_iter().map(|(labels, value)| metric(kind, labels, value)).collect());
    family
}

fn metric(kind: MetricType, labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut metric = Metric::default();
    metric.set_label(labels);
    if kind == MetricType::COUNTER {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    } else {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    }
    metric
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn registered<C>(registry: &Registry, collector: C) -> prometheus::Result<C>
where
    C: prometheus::core::Collector + Clone + 'static,
{
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_printed_in_order_and_once() {
        let metrics = Metrics::new().unwrap();
        metrics.http_requests.with_label_values(&["/metrics", "200"]).inc();
        let memory = MemoryStats {
            queries_bytes: 1,
            queries_max_bytes: 2,
            queries_concurrent_max: 20,
            write_bodies_bytes: 0,
            process: (3, 4),
            active_request_log_dropped: 0,
        };
        let config = ReloadStatus { is_success: true, last_success: jiff::Timestamp::UNIX_EPOCH };
        let families = metrics.gather(None, &memory, config);
        assert!(families.windows(2).all(|pair| pair[0].name() < pair[1].name()));
        let text = print(&families).unwrap();
        for line in [
            "prometheus_http_requests_total{code=\"200\",handler=\"/metrics\"} 1",
            "varve_query_memory_max_bytes 2",
            "# TYPE varve_http_responses_truncated_total counter",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
