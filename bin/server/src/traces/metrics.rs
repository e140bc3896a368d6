//! Metrics of spans.

use prometheus::IntCounter;
use varve_system::metrics::Registrar;

/// Numbers of spans. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct TraceMetrics {
    pub(super) sent: IntCounter,
    /// Spans that did not fit into the queue, or whose batch was not accepted.
    pub(super) dropped: IntCounter,
}

impl TraceMetrics {
    /// Creates the metrics, at zero.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub(super) fn new(registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            sent: registrar.counter("varve_traces_spans_sent_total")?,
            dropped: registrar.counter("varve_traces_spans_dropped_total")?,
        })
    }
}

#[cfg(test)]
impl TraceMetrics {
    pub(super) fn unregistered() -> Self {
        let counter = |name| IntCounter::new(name, "x").unwrap();
        Self {
            sent: counter("sent"),
            dropped: counter("dropped"),
        }
    }
}
