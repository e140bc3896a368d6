//! Prometheus' metrics of notifications, by Alertmanager.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};

use varve_system::metrics::{Registrar, SummaryVec};

/// Bucket bounds of `prometheus_notifications_latency_histogram_seconds`, as in Prometheus.
const LATENCY_SECONDS: [f64; 4] = [0.01, 0.1, 1.0, 10.0];

/// The metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct NotifierMetrics {
    pub(crate) latency: SummaryVec,
    pub(crate) latency_histogram: HistogramVec,
    pub(crate) errors: IntCounterVec,
    pub(crate) sent: IntCounterVec,
    pub(crate) dropped: IntCounterVec,
    pub(crate) queue_length: IntGaugeVec,
    pub(crate) queue_capacity: IntGauge,
    pub(crate) discovered: IntGauge,
    /// Number of deliveries by URL.
    pub(crate) deliveries: Arc<Mutex<HashMap<String, usize>>>,
}

impl NotifierMetrics {
    /// Creates the metrics of all Alertmanagers.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub(crate) fn new(registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            latency: registrar.summary("prometheus_notifications_latency_seconds")?,
            latency_histogram: registrar.histograms(
                "prometheus_notifications_latency_histogram_seconds",
                &LATENCY_SECONDS,
            )?,
            errors: registrar.counters("prometheus_notifications_errors_total")?,
            sent: registrar.counters("prometheus_notifications_sent_total")?,
            dropped: registrar.counters("prometheus_notifications_dropped_total")?,
            queue_length: registrar.gauges("prometheus_notifications_queue_length")?,
            queue_capacity: registrar.gauge("prometheus_notifications_queue_capacity")?,
            discovered: registrar.gauge("prometheus_notifications_alertmanagers_discovered")?,
            deliveries: Arc::default(),
        })
    }

    /// Creates the metrics of a delivery's Alertmanager, at zero unless another delivery to it has
    /// created them.
    pub(super) fn create(&self, url: &str) {
        let mut deliveries = self.deliveries.lock();
        let n_deliveries = deliveries.entry(url.to_owned()).or_default();
        *n_deliveries += 1;
        if *n_deliveries > 1 {
            return;
        }
        for counter in [&self.errors, &self.sent, &self.dropped] {
            counter.with_label_values(&[url]);
        }
        self.queue_length.with_label_values(&[url]).set(0);
    }

    pub(super) fn count_sent(&self, url: &str, n: usize, latency: Duration) {
        self.sent.with_label_values(&[url]).inc_by(n as u64);
        self.latency.observe(url, latency.as_secs_f64());
        self.latency_histogram
            .with_label_values(&[url])
            .observe(latency.as_secs_f64());
    }

    /// Removes the metrics of a delivery's Alertmanager, unless another delivery to it is left: an
    /// old delivery drains while its successor already sends. Ignores errors, because unused metrics
    /// do not exist.
    pub(super) fn remove(&self, url: &str) {
        let mut deliveries = self.deliveries.lock();
        if let Some(n_deliveries) = deliveries
            .get_mut(url)
            .filter(|n_deliveries| **n_deliveries > 1)
        {
            *n_deliveries -= 1;
            return;
        }
        deliveries.remove(url);
        for counter in [&self.errors, &self.sent, &self.dropped] {
            drop(counter.remove_label_values(&[url]));
        }
        drop(self.queue_length.remove_label_values(&[url]));
        drop(self.latency_histogram.remove_label_values(&[url]));
        self.latency.remove(url);
    }
}
