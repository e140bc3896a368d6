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
pub(crate) struct Registrar<'a>(pub(super) &'a Registry);

impl Registrar<'_> {
    pub(crate) fn counter(&self, name: &str) -> Result<IntCounter> {
        self.register(IntCounter::with_opts(opts(name))?)
    }

    pub(crate) fn counters(&self, name: &str) -> Result<IntCounterVec> {
        self.register(IntCounterVec::new(opts(name), &describe(name).labels)?)
    }

    pub(crate) fn gauge(&self, name: &str) -> Result<IntGauge> {
        self.register(IntGauge::with_opts(opts(name))?)
    }

    pub(crate) fn float_gauge(&self, name: &str) -> Result<Gauge> {
        self.register(Gauge::with_opts(opts(name))?)
    }

    pub(crate) fn gauges(&self, name: &str) -> Result<IntGaugeVec> {
        self.register(IntGaugeVec::new(opts(name), &describe(name).labels)?)
    }

    pub(crate) fn histogram(&self, name: &str, bounds: &[f64]) -> Result<Histogram> {
        self.register(Histogram::with_opts(histogram_opts(name, bounds))?)
    }

    pub(crate) fn histograms(&self, name: &str, bounds: &[f64]) -> Result<HistogramVec> {
        self.register(HistogramVec::new(
            histogram_opts(name, bounds),
            &describe(name).labels,
        )?)
    }

    /// Creates a summary without quantiles.
    pub(crate) fn summary(&self, name: &'static str) -> Result<SummaryVec> {
        self.register(SummaryVec::new(name)?)
    }

    pub(crate) fn summary_of(
        &self,
        name: &'static str,
        quantiles: &'static [f64],
    ) -> Result<SummaryVec> {
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
