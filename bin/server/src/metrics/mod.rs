//! Varve's own metrics: counters that requests increment, and values collected on each scrape.
//!
//! `varve_*` names are Varve's own. Dashboards and alerts for Prometheus expect the `prometheus_*`
//! and `process_*` names. docs/metrics.md lists all of them.

mod process;
mod rules;
mod store;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::proto::MetricFamily;
use prometheus::{
    HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
};
use varve_system::metrics::{Registrar, SummaryVec, families, family};
use varve_system::version;

use super::live_config::ReloadStatus;
use super::queries::query_log::QueryLog;
use super::store::Store;
use crate::notifier::NotifierMetrics;
use crate::rules::Rules;
use crate::traces::TraceMetrics;
pub(crate) use rules::RuleMetrics;

/// Content type of the text format.
pub const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Bucket bounds of `prometheus_http_request_duration_seconds`, as in Prometheus.
const HTTP_SECONDS: [f64; 9] = [0.1, 0.2, 0.4, 1.0, 3.0, 8.0, 20.0, 60.0, 120.0];
const QUEUE_SECONDS: [f64; 6] = [0.001, 0.01, 0.1, 1.0, 10.0, 60.0];

/// The metrics that requests update.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    started_s: f64,
    /// Responses by `handler` and `code`.
    pub http_requests: IntCounterVec,
    /// Seconds up to the response headers, by `handler`.
    pub http_seconds: HistogramVec,
    /// gRPC calls by `method` and `code`.
    grpc_requests: IntCounterVec,
    /// Responses that were truncated.
    pub responses_truncated: IntCounter,
    /// Requests that panicked.
    pub panics: IntCounter,
    /// Open connections.
    pub connections: IntGauge,
    /// Idle connections that were closed in favor of others.
    pub connections_evicted: IntCounter,
    /// Slow connections that were closed in favor of others.
    pub connections_evicted_slow: IntCounter,
    /// Connections whose client did not read.
    pub connections_stalled: IntCounter,
    /// Streams of HTTP/2 whose client did not read.
    pub streams_stalled: IntCounter,
    /// Requests without valid credentials.
    pub requests_denied: IntCounter,
    /// Reloads of the web configuration that failed.
    pub web_config_failures: IntCounter,
    /// TLS handshakes that failed.
    pub handshakes_failed: IntCounter,
    pub(crate) self_scrapes_failed: IntCounter,
    /// Requests being processed, by `class`.
    pub active: IntGaugeVec,
    /// Queued requests by `class`.
    pub queued: IntGaugeVec,
    /// Seconds in the queue, by `class`.
    pub queue_seconds: HistogramVec,
    /// Requests that shared the response of another one, by `class`.
    pub requests_coalesced: IntCounterVec,
    /// Requests that ran on the thread of their connection, by `class`.
    pub requests_inline: IntCounterVec,
    /// Requests that took too long there, so that none run there for a while, by `class`.
    pub inline_suspensions: IntCounterVec,
    limits_hit: IntCounterVec,
    /// Seconds of queries, by Prometheus' names of their phases.
    query_seconds: SummaryVec,
    pub(crate) query_log: QueryLog,
    pub(crate) notifications: NotifierMetrics,
    pub(crate) traces: TraceMetrics,
    pub(crate) rules: RuleMetrics,
}

/// Increments a gauge, and decrements it on drop.
#[derive(Debug)]
pub struct Counted<'a>(&'a IntGauge);

impl<'a> Counted<'a> {
    /// Increments `gauge`.
    pub fn new(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Creates all metrics, at zero.
    ///
    /// # Errors
    /// If two have the same name, or a name is not valid.
    pub(crate) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let registrar = Registrar(&registry);
        let metrics = Self {
            started_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64(),
            http_requests: registrar.counters("prometheus_http_requests_total")?,
            http_seconds: registrar
                .histograms("prometheus_http_request_duration_seconds", &HTTP_SECONDS)?,
            grpc_requests: registrar.counters("varve_grpc_requests_total")?,
            responses_truncated: registrar.counter("varve_http_responses_truncated_total")?,
            panics: registrar.counter("varve_http_panics_total")?,
            connections: registrar.gauge("varve_http_connections")?,
            connections_evicted: registrar.counter("varve_http_connections_evicted_total")?,
            connections_evicted_slow: registrar
                .counter("varve_http_connections_evicted_slow_total")?,
            connections_stalled: registrar.counter("varve_http_connections_stalled_total")?,
            streams_stalled: registrar.counter("varve_http_streams_stalled_total")?,
            requests_denied: registrar.counter("varve_http_requests_denied_total")?,
            web_config_failures: registrar.counter("varve_web_config_reload_failures_total")?,
            handshakes_failed: registrar.counter("varve_http_tls_handshakes_failed_total")?,
            self_scrapes_failed: registrar.counter("varve_self_scrapes_failed_total")?,
            active: registrar.gauges("varve_requests_active")?,
            queue_seconds: registrar
                .histograms("varve_request_queue_duration_seconds", &QUEUE_SECONDS)?,
            queued: registrar.gauges("varve_requests_queued")?,
            requests_coalesced: registrar.counters("varve_requests_coalesced_total")?,
            requests_inline: registrar.counters("varve_requests_inline_total")?,
            inline_suspensions: registrar.counters("varve_requests_inline_suspensions_total")?,
            limits_hit: registrar.counters("varve_limits_hit_total")?,
            query_seconds: registrar.summary("prometheus_engine_query_duration_seconds")?,
            query_log: QueryLog::new(
                registrar.gauge("prometheus_engine_query_log_enabled")?,
                registrar.counter("prometheus_engine_query_log_failures_total")?,
            ),
            notifications: NotifierMetrics::new(&registrar)?,
            traces: TraceMetrics::new(&registrar)?,
            rules: RuleMetrics::new(&registrar)?,
            registry,
        };
        Ok(metrics)
    }

    /// Registers metrics of other parts.
    pub fn registrar(&self) -> Registrar<'_> {
        Registrar(&self.registry)
    }

    /// Counts a request that a limit rejected or aborted, if one did.
    pub fn count_limit(&self, flag: Option<&'static str>) {
        flag.into_iter()
            .for_each(|flag| self.limits_hit.with_label_values(&[flag]).inc());
    }

    /// Adds the times of a query that has ended.
    pub fn observe_query(&self, queued: Duration, evaluated: Duration) {
        self.query_seconds
            .observe("queue_time", queued.as_secs_f64());
        self.query_seconds
            .observe("inner_eval", evaluated.as_secs_f64());
    }

    /// Counts a gRPC call by its path and the number of its status code.
    pub fn count_grpc(&self, path: &str, code: u32) {
        self.grpc_requests
            .with_label_values(&[path, &code.to_string()])
            .inc();
    }

    /// Collects all metrics and `own`, sorted by name. Reads files of /proc, so it must not run on
    /// a tokio task.
    pub(crate) fn gather(
        &self,
        store: Option<&Store>,
        rules: Option<&Rules>,
        own: Vec<MetricFamily>,
        config: ReloadStatus,
    ) -> Vec<MetricFamily> {
        let mut all = self.registry.gather();
        all.extend(process::gather(self.started_s));
        all.extend(own);
        all.extend(families([
            (
                "prometheus_config_last_reload_successful",
                f64::from(u8::from(config.is_success)),
            ),
            (
                "prometheus_config_last_reload_success_timestamp_seconds",
                config.last_success.as_millisecond() as f64 / 1000.0,
            ),
            (
                "prometheus_engine_queries",
                self.active.with_label_values(&["query"]).get() as f64,
            ),
        ]));
        all.push(family(
            "varve_build_info",
            [([version::NUMBER, version::REVISION], 1.0)],
        ));
        let as_prometheus = [
            version::PROMETHEUS,
            version::PROMETHEUS_REVISION,
            version::BRANCH,
        ];
        all.push(family("prometheus_build_info", [(as_prometheus, 1.0)]));
        all.extend(families([(
            "prometheus_ready",
            f64::from(u8::from(store.is_some())),
        )]));
        all.extend(store.into_iter().flat_map(store::gather));
        all.extend(rules.into_iter().flat_map(RuleMetrics::gather));
        // The text format has no families without metrics.
        all.retain(|family| !family.get_metric().is_empty());
        all.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        all
    }
}

/// Writes families in the text format 0.0.4.
///
/// # Errors
/// If a family is not valid.
pub fn print(families: &[MetricFamily]) -> prometheus::Result<String> {
    TextEncoder::new().encode_to_string(families)
}

#[cfg(test)]
mod tests {
    use varve_system::metrics::counts;

    use super::*;

    #[test]
    fn metrics_are_printed_in_order_and_once() {
        let metrics = Metrics::new().unwrap();
        metrics
            .http_requests
            .with_label_values(&["/metrics", "200"])
            .inc();
        let own = counts([
            ("varve_query_memory_max_bytes", 2),
            ("prometheus_tsdb_retention_limit_bytes", 6),
        ]);
        let config = ReloadStatus {
            is_success: true,
            last_success: jiff::Timestamp::UNIX_EPOCH,
        };
        let families = metrics.gather(None, None, own, config);
        assert!(
            families
                .windows(2)
                .all(|pair| pair[0].name() < pair[1].name())
        );
        let text = print(&families).unwrap();
        for line in [
            "prometheus_http_requests_total{code=\"200\",handler=\"/metrics\"} 1",
            "varve_query_memory_max_bytes 2",
            "prometheus_tsdb_retention_limit_bytes 6",
            "# TYPE varve_http_responses_truncated_total counter",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
