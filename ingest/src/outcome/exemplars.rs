//! The outcome of the exemplars of a write request.

use std::collections::BTreeMap;

use varve_tsdb::exemplars::RejectExemplar;

/// The reason why an exemplar was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExemplarRejection {
    /// The store rejected the exemplar.
    Store(RejectExemplar),
    /// The store does not have the series in memory, or the series was rejected.
    UnknownSeries,
    /// A relabel rule drops the series.
    Dropped,
    /// Another replica of the HA pair leads.
    Standby,
    /// The labels of the exemplar are not UTF-8, or have an empty or a duplicate name.
    InvalidLabels,
}

impl ExemplarRejection {
    /// Returns the reason as the value of a metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Store(RejectExemplar::OutOfOrder) => "out_of_order",
            Self::Store(RejectExemplar::OutOfBounds) => "out_of_bounds",
            Self::Store(RejectExemplar::LabelsTooLong) => "labels_too_long",
            Self::Store(RejectExemplar::Disabled) => "disabled",
            Self::Store(RejectExemplar::Moved) | Self::UnknownSeries => "unknown_series",
            Self::Dropped => "dropped",
            Self::Standby => "ha_standby",
            Self::InvalidLabels => "invalid_labels",
        }
    }
}

/// The number of exemplars by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExemplarCounts {
    /// Stored, exact repetitions included.
    pub stored: u64,
    /// Not stored, by reason.
    pub rejected: BTreeMap<ExemplarRejection, u64>,
}

impl ExemplarCounts {
    pub(crate) fn reject(&mut self, reason: ExemplarRejection, n: u64) {
        *self.rejected.entry(reason).or_default() += n;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        for (&reason, n) in &other.rejected {
            *self.rejected.entry(reason).or_default() += n;
        }
    }
}
