//! Varve's own metrics: counters that the parts of a server register, and values that are collected
//! from them on each scrape.
//!
//! `varve_*` names are Varve's own. Dashboards and alerts for Prometheus expect the `prometheus_*`
//! and `process_*` names. docs/metrics.md lists all of them.

mod process;
pub mod store;

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};
use varve_system::metrics::{Registrar, family};
use varve_system::version;

/// Content type of the text format.
pub const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of a server.
pub struct Metrics {
    registry: Registry,
    started_s: f64,
    sources: RwLock<Vec<Source>>,
}

/// Collects metrics from a part of the server.
type Source = Box<dyn Fn() -> Vec<MetricFamily> + Send + Sync>;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            registry: Registry::new(),
            started_s: since.as_secs_f64(),
            sources: RwLock::default(),
        }
    }
}

impl Metrics {
    /// Registers metrics that a part of the server updates.
    pub fn registrar(&self) -> Registrar<'_> {
        Registrar(&self.registry)
    }

    /// Collects metrics from `part` on each scrape.
    pub fn collect_from<T: Send + Sync + 'static>(
        &self,
        part: &Arc<T>,
        collect: fn(&T) -> Vec<MetricFamily>,
    ) {
        let part = Arc::clone(part);
        self.sources.write().push(Box::new(move || collect(&part)));
    }

    /// Collects all metrics, sorted by name. Reads files of /proc, so it must not run on a tokio
    /// task.
    pub fn gather(&self) -> Vec<MetricFamily> {
        let mut all = self.registry.gather();
        all.extend(process::gather(self.started_s));
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
        for collect in self.sources.read().iter() {
            all.extend(collect());
        }
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
        let metrics = Metrics::default();
        let registrar = metrics.registrar();
        registrar
            .counters("prometheus_http_requests_total")
            .unwrap()
            .with_label_values(&["/metrics", "200"])
            .inc();
        registrar
            .counter("varve_http_responses_truncated_total")
            .unwrap();
        metrics.collect_from(&Arc::new(6), |size| {
            counts([
                ("varve_query_memory_max_bytes", 2),
                ("prometheus_tsdb_retention_limit_bytes", *size),
            ])
        });
        let families = metrics.gather();
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
