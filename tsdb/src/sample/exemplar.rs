//! Exemplars: examples for samples, such as the trace of one request.

use crate::labels::Labels;

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

/// Why an exemplar was not stored. Prometheus has the same messages (`storage/interface.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum RejectExemplar {
    /// Older than the newest exemplar of its series by more than the out-of-order window; or at the
    /// same timestamp, but lower in the order of values and labels.
    #[error("out of order exemplar")]
    OutOfOrder,
    /// Too far ahead of the clock.
    #[error("out of bounds")]
    OutOfBounds,
    /// Its labels have more than [`EXEMPLAR_LABELS_LEN_MAX`] characters.
    #[error(
        "label length for exemplar exceeds maximum of {EXEMPLAR_LABELS_LEN_MAX} UTF-8 characters"
    )]
    LabelsTooLong,
    /// Exemplar storage is disabled.
    #[error("exemplar storage is disabled or max exemplars is less than or equal to 0")]
    Disabled,
    /// The series was evicted from memory. Resolve it again.
    #[error("series has moved")]
    Moved,
}

/// An exemplar that was not stored.
#[derive(Debug, Clone)]
pub struct RejectedExemplar {
    /// The tag passed to [`WriteBatch::push_exemplar`](crate::WriteBatch::push_exemplar).
    pub tag: u32,
    /// The exemplar.
    pub exemplar: Exemplar,
    /// The reason of the rejection.
    pub reason: RejectExemplar,
}

/// Exemplars of a series with their ids, ascending in time, as in a checkpoint.
pub(crate) type NumberedExemplars = (Labels, Vec<(u64, Exemplar)>);
