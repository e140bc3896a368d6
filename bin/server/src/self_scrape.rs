//! Self-scrape: stores Varve's own metrics, as a Prometheus that scrapes itself does.
//!
//! The first scrape runs as soon as the store is open, so that a first query has a result.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::IntCounter;
use prometheus::proto::{Metric, MetricFamily, MetricType};
use tokio::time::MissedTickBehavior;
use varve_model::labels::METRIC_NAME;
use varve_model::metadata::Metadata;
use varve_model::staleness::STALE_NAN_BITS;
use varve_model::{Labels, Sample};
use varve_system::machine;
use varve_system::metrics::OWN_JOB;

use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::store::Store;

/// Stores the metrics of the server periodically.
#[derive(Debug)]
pub struct SelfScrape {
    metrics: Arc<Metrics>,
    lifecycle: Arc<Lifecycle>,
    failed: IntCounter,
}

impl SelfScrape {
    /// Creates the self-scrape of a server.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub fn new(metrics: Arc<Metrics>, lifecycle: Arc<Lifecycle>) -> prometheus::Result<Self> {
        Ok(Self {
            failed: metrics
                .registrar()
                .counter("varve_self_scrapes_failed_total")?,
            metrics,
            lifecycle,
        })
    }

    /// Stores the metrics now and then every `interval`, until the store is closed. `address` is
    /// the listening address.
    pub async fn run(self, address: String, interval: Duration) {
        let instance = instance(&address, &machine::hostname());
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // The series of the last scrape.
        let mut last = Arc::default();
        loop {
            ticks.tick().await;
            let Some(store) = self.lifecycle.store() else {
                return;
            };
            let metrics = Arc::clone(&self.metrics);
            let instance = instance.clone();
            let before = Arc::clone(&last);
            let scraping =
                tokio::task::spawn_blocking(move || scrape(&metrics, &store, &instance, &before));
            match scraping.await {
                Ok(Ok(stored)) => last = Arc::new(stored),
                Ok(Err(reason)) => {
                    self.failed.inc();
                    tracing::warn!(reason, "Self-scrape failed");
                }
                Err(_panic_is_logged) => {}
            }
        }
    }
}

/// Returns the label `instance`: the listening address. The address of all interfaces is the same
/// on every machine, so the machine's name replaces it.
fn instance(address: &str, hostname: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => format!("{hostname}:{}", address.port()),
        _ => address.to_owned(),
    }
}

/// Stores the metrics of this moment, and staleness markers for series that only the last scrape
/// had. Returns the series of this scrape.
pub fn scrape(
    metrics: &Metrics,
    store: &Store,
    instance: &str,
    last: &BTreeSet<Labels>,
) -> Result<BTreeSet<Labels>, String> {
    let started = Instant::now();
    let timestamp_ms = store.db.own_now_ms();
    let families = metrics.gather();
    let mut scraped = samples(&families, instance);
    let n_scraped = scraped.len() as f64;
    let report = [
        ("up", 1.0),
        ("scrape_duration_seconds", started.elapsed().as_secs_f64()),
        ("scrape_samples_scraped", n_scraped),
        ("scrape_samples_post_metric_relabeling", n_scraped),
    ];
    scraped.extend(report.map(|(name, value)| (labels(name, &[], instance), value)));
    let stored: BTreeSet<Labels> = scraped.iter().map(|(labels, _)| labels.clone()).collect();
    let vanished = last
        .difference(&stored)
        .map(|labels| (labels.clone(), f64::from_bits(STALE_NAN_BITS)));
    scraped.extend(vanished.collect::<Vec<_>>());
    let samples: Vec<_> = scraped
        .into_iter()
        .map(|(labels, value)| {
            (
                labels,
                Sample {
                    timestamp_ms,
                    value,
                },
            )
        })
        .collect();
    let rejections = store
        .receiver
        .append_self_metrics(&samples)
        .map_err(|error| error.to_string())?;
    store
        .db
        .set_metadata(families.iter().map(metadata))
        .map_err(|error| error.to_string())?;
    if rejections.is_empty() {
        Ok(stored)
    } else {
        Err(rejections.to_string())
    }
}

/// Flattens families into series as the text format does: a histogram has buckets, a sum and a
/// count.
fn samples(families: &[MetricFamily], instance: &str) -> Vec<(Labels, f64)> {
    let mut all = Vec::new();
    for family in families {
        for metric in family.get_metric() {
            match family.get_field_type() {
                MetricType::HISTOGRAM => histogram(family.name(), metric, instance, &mut all),
                MetricType::SUMMARY => summary(family.name(), metric, instance, &mut all),
                MetricType::COUNTER => all.push((
                    series(family.name(), metric, instance),
                    metric.get_counter().get_value(),
                )),
                _ => all.push((
                    series(family.name(), metric, instance),
                    metric.get_gauge().get_value(),
                )),
            }
        }
    }
    all
}

fn histogram(name: &str, metric: &Metric, instance: &str, all: &mut Vec<(Labels, f64)>) {
    let histogram = metric.get_histogram();
    let buckets = series(&format!("{name}_bucket"), metric, instance);
    for bucket in histogram.get_bucket() {
        if bucket.upper_bound().is_finite() {
            let bound = print_bound(bucket.upper_bound());
            all.push((buckets.with("le", &bound), bucket.cumulative_count() as f64));
        }
    }
    all.push((
        buckets.with("le", "+Inf"),
        histogram.get_sample_count() as f64,
    ));
    all.push((
        series(&format!("{name}_sum"), metric, instance),
        histogram.get_sample_sum(),
    ));
    all.push((
        series(&format!("{name}_count"), metric, instance),
        histogram.get_sample_count() as f64,
    ));
}

fn summary(name: &str, metric: &Metric, instance: &str, all: &mut Vec<(Labels, f64)>) {
    let summary = metric.get_summary();
    all.extend(summary.get_quantile().iter().map(|quantile| {
        let labels = series(name, metric, instance);
        (
            labels.with("quantile", &quantile.quantile().to_string()),
            quantile.value(),
        )
    }));
    all.push((
        series(&format!("{name}_sum"), metric, instance),
        summary.sample_sum(),
    ));
    all.push((
        series(&format!("{name}_count"), metric, instance),
        summary.sample_count() as f64,
    ));
}

/// Prometheus 3 writes bounds of classic buckets as floats: `1.0`, not `1`.
fn print_bound(bound: f64) -> String {
    format!("{bound:?}")
}

fn series(name: &str, metric: &Metric, instance: &str) -> Labels {
    let own: Vec<_> = metric
        .get_label()
        .iter()
        .map(|label| (label.name(), label.value()))
        .collect();
    labels(name, &own, instance)
}

fn labels(name: &str, own: &[(&str, &str)], instance: &str) -> Labels {
    let target = [
        (METRIC_NAME, name),
        ("instance", instance),
        ("job", OWN_JOB),
    ];
    Labels::from_pairs(target.into_iter().chain(own.iter().copied()))
        .expect("own metrics have no target labels, and no label twice")
}

fn metadata(family: &MetricFamily) -> (&str, Metadata) {
    let kind = match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::SUMMARY => "summary",
        MetricType::HISTOGRAM => "histogram",
        MetricType::UNTYPED => "unknown",
    };
    (
        family.name(),
        Metadata {
            kind: kind.to_owned(),
            help: family.help().to_owned(),
            unit: String::new(),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{HistogramOpts, HistogramVec, Registry};

    #[test]
    fn servers_on_all_interfaces_differ_by_the_name_of_their_machine() {
        for (address, expect) in [
            ("127.0.0.1:9898", "127.0.0.1:9898"),
            ("[::1]:9898", "[::1]:9898"),
            ("0.0.0.0:9898", "varve-a:9898"),
            ("[::]:9898", "varve-a:9898"),
        ] {
            assert_eq!(instance(address, "varve-a"), expect);
        }
    }

    #[test]
    fn families_become_the_series_of_a_scrape() {
        let registry = Registry::new();
        let counter = IntCounter::new("a_total", "x").unwrap();
        let opts = HistogramOpts::new("b_seconds", "x").buckets(vec![0.5, 1.0]);
        let histogram = HistogramVec::new(opts, &["handler"]).unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        registry.register(Box::new(histogram.clone())).unwrap();
        counter.inc_by(3);
        histogram.with_label_values(&["/x"]).observe(0.75);
        let printed: Vec<_> = samples(&registry.gather(), "i:1")
            .iter()
            .map(|(labels, value)| format!("{labels} {value}"))
            .collect();
        let rest = "handler=\"/x\", instance=\"i:1\", job=\"varve\"";
        assert_eq!(
            printed,
            [
                "{__name__=\"a_total\", instance=\"i:1\", job=\"varve\"} 3".to_owned(),
                format!("{{__name__=\"b_seconds_bucket\", {rest}, le=\"0.5\"}} 0"),
                format!("{{__name__=\"b_seconds_bucket\", {rest}, le=\"1.0\"}} 1"),
                format!("{{__name__=\"b_seconds_bucket\", {rest}, le=\"+Inf\"}} 1"),
                format!("{{__name__=\"b_seconds_sum\", {rest}}} 0.75"),
                format!("{{__name__=\"b_seconds_count\", {rest}}} 1"),
            ]
        );
    }
}
