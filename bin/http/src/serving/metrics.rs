//! The metrics of connections, requests and their gates.

use prometheus::proto::MetricFamily;
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use varve_server::requests::record::RequestClass;
use varve_system::metrics::{Registrar, families};

/// Bucket bounds of `prometheus_http_request_duration_seconds`, as in Prometheus.
const HTTP_SECONDS: [f64; 9] = [0.1, 0.2, 0.4, 1.0, 3.0, 8.0, 20.0, 60.0, 120.0];
const QUEUE_SECONDS: [f64; 6] = [0.001, 0.01, 0.1, 1.0, 10.0, 60.0];

/// The metrics that HTTP and gRPC update.
#[derive(Debug)]
pub struct HttpMetrics {
    /// Responses by `handler` and `code`.
    pub http_requests: IntCounterVec,
    /// Seconds up to the response headers, by `handler`.
    pub http_seconds: HistogramVec,
    /// gRPC calls by `method` and `code`.
    grpc_requests: IntCounterVec,
    /// Responses that were truncated.
    pub responses_truncated: IntCounter,
    /// Responses that wait for slow clients.
    pub responses_waiting: IntGauge,
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
}

/// Increments a gauge, and decrements it on drop.
#[derive(Debug)]
pub(crate) struct Counted<'a>(&'a IntGauge);

impl<'a> Counted<'a> {
    /// Increments `gauge`.
    pub(crate) fn new(gauge: &'a IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl HttpMetrics {
    /// Creates all metrics, at zero.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub fn new(registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            http_requests: registrar.counters("prometheus_http_requests_total")?,
            http_seconds: registrar
                .histograms("prometheus_http_request_duration_seconds", &HTTP_SECONDS)?,
            grpc_requests: registrar.counters("varve_grpc_requests_total")?,
            responses_truncated: registrar.counter("varve_http_responses_truncated_total")?,
            responses_waiting: registrar.gauge("varve_http_responses_waiting")?,
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
            active: registrar.gauges("varve_requests_active")?,
            queue_seconds: registrar
                .histograms("varve_request_queue_duration_seconds", &QUEUE_SECONDS)?,
            queued: registrar.gauges("varve_requests_queued")?,
            requests_coalesced: registrar.counters("varve_requests_coalesced_total")?,
            requests_inline: registrar.counters("varve_requests_inline_total")?,
            inline_suspensions: registrar.counters("varve_requests_inline_suspensions_total")?,
            limits_hit: registrar.counters("varve_limits_hit_total")?,
        })
    }

    /// Collects the number of active queries under Prometheus' name.
    pub fn collect(&self) -> Vec<MetricFamily> {
        let queries = self.active.with_label_values(&[RequestClass::Query.name()]);
        families([("prometheus_engine_queries", queries.get() as f64)])
    }

    /// Counts a request that a limit rejected or aborted, if one did.
    pub fn count_limit(&self, flag: Option<&'static str>) {
        if let Some(flag) = flag {
            self.limits_hit.with_label_values(&[flag]).inc();
        }
    }

    /// Counts a gRPC call by its path and the number of its status code.
    pub fn count_grpc(&self, path: &str, code: u32) {
        self.grpc_requests
            .with_label_values(&[path, &code.to_string()])
            .inc();
    }
}
