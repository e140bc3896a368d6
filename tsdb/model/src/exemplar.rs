//! Exemplars: examples for samples, such as the trace of one request.

use crate::label_set::Labels;

/// Maximum number of characters in an exemplar's label names and values together (OpenMetrics 1.0,
/// "Exemplars").
pub const EXEMPLAR_LABELS_LEN_MAX: usize = 128;

/// An example for a sample of a series.
#[derive(Debug, Clone)]
pub struct Exemplar {
    /// Labels that identify the example, for instance `trace_id`.
    pub labels: Labels,
    /// Any double, bit for bit.
    pub value: f64,
    /// Milliseconds since the Unix epoch.
    pub timestamp_ms: i64,
}
