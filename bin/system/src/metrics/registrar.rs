//! Creates metrics by their name, at zero, and registers them. Help texts and labels are those of
//! docs/metrics.md.

use prometheus::core::Collector;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Registry, Result,
};

use super::summary::SummaryVec;
use super::table::{describe, opts};

/// Registers metrics. Each method fails if the name is taken or not valid.
#[derive(Debug)]
pub struct Registrar<'a>(pub &'a Registry);

impl Registrar<'_> {
    /// Creates a counter.
    pub fn counter(&self, name: &str) -> Result<IntCounter> {
        self.register(IntCounter::with_opts(opts(name))?)
    }

    /// Creates counters by labels.
    pub fn counters(&self, name: &str) -> Result<IntCounterVec> {
        self.register(IntCounterVec::new(opts(name), &describe(name).labels)?)
    }

    /// Creates a gauge of whole numbers.
    pub fn gauge(&self, name: &str) -> Result<IntGauge> {
        self.register(IntGauge::with_opts(opts(name))?)
    }

    /// Creates a gauge.
    pub fn float_gauge(&self, name: &str) -> Result<Gauge> {
        self.register(Gauge::with_opts(opts(name))?)
    }

    /// Creates gauges of whole numbers by labels.
    pub fn gauges(&self, name: &str) -> Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(opts(name), &describe(name).labels)?)
    }

    /// Creates a histogram with these upper bounds of buckets.
    pub fn histogram(&self, name: &str, bounds: &[f64]) -> Result<Histogram> {
        self.register(Histogram::with_opts(histogram_opts(name, bounds))?)
    }

    /// Creates histograms by labels.
    pub fn histograms(&self, name: &str, bounds: &[f64]) -> Result<HistogramVec> {
        self.register(HistogramVec::new(
            histogram_opts(name, bounds),
            &describe(name).labels,
        )?)
    }

    /// Creates a summary without quantiles.
    pub fn summary(&self, name: &'static str) -> Result<SummaryVec> {
        self.register(SummaryVec::new(name)?)
    }

    /// Creates a summary with these quantiles.
    pub fn summary_of(&self, name: &'static str, quantiles: &'static [f64]) -> Result<SummaryVec> {
        self.register(SummaryVec::new(name)?.with_quantiles(quantiles))
    }

    fn register<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C> {
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }
}

fn histogram_opts(name: &str, bounds: &[f64]) -> HistogramOpts {
    HistogramOpts {
        common_opts: opts(name),
        buckets: bounds.to_vec(),
    }
}
