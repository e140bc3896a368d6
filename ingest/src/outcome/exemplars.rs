//! What became of the exemplars of a write request.

use std::collections::BTreeMap;

use varve_tsdb::exemplars::RejectExemplar;

/// Why an exemplar was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExemplarRefusal {
    /// The store refused it.
    Store(RejectExemplar),
    /// The store has no such series in memory, or refused it.
    UnknownSeries,
    /// It came without a sample of its series, which version 2.0 of remote write does not take.
    NoSamples,
    /// A rule drops its series.
    Dropped,
    /// Another replica of its HA pair leads.
    Standby,
    /// Its labels are not UTF-8, have no name or one name twice.
    InvalidLabels,
}

impl ExemplarRefusal {
    /// Returns the reason as the value of a metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Store(RejectExemplar::OutOfOrder) => "out_of_order",
            Self::Store(RejectExemplar::OutOfBounds) => "out_of_bounds",
            Self::Store(RejectExemplar::LabelsTooLong) => "labels_too_long",
            Self::Store(RejectExemplar::Disabled) => "disabled",
            Self::Store(RejectExemplar::Moved) | Self::UnknownSeries => "unknown_series",
            Self::NoSamples => "no_samples",
            Self::Dropped => "dropped",
            Self::Standby => "ha_standby",
            Self::InvalidLabels => "invalid_labels",
        }
    }
}

/// What became of exemplars.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExemplarCounts {
    /// Stored, repetitions of stored ones included.
    pub stored: u64,
    /// Not stored, by reason.
    pub refused: BTreeMap<ExemplarRefusal, u64>,
}

impl ExemplarCounts {
    pub(crate) fn refuse(&mut self, refusal: ExemplarRefusal) {
        *self.refused.entry(refusal).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        for (&refusal, n) in &other.refused {
            *self.refused.entry(refusal).or_default() += n;
        }
    }
}
