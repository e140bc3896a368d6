//! Exemplars that were not stored, and exemplars as in a checkpoint.

use varve_model::{EXEMPLAR_LABELS_LEN_MAX, Exemplar, Labels};

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
