//! Exemplars of a write request on their way into the store, and what became of them.
//!
//! What is refused is counted. As in Prometheus none costs the sender a 400, but for those that are out of order in remote
//! write 2.0. Series are not created for them; an exemplar goes to a series that the store has in memory, or that a sample of the same request has made.

use std::collections::BTreeMap;

use varve_tsdb::{Exemplar, Labels, RejectExemplar};

use crate::batch::{DecodedBatch, ExemplarEntry};
use crate::remote_write::v1;

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

/// Parses an exemplar; `None` if its labels are none.
pub(crate) fn parse(message: &[u8], batch: &DecodedBatch, entry: &ExemplarEntry) -> Option<Exemplar> {
    let mut pairs = Vec::new();
    for (name, value) in batch.label_pairs(message, entry.fields) {
        pairs.push((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?));
    }
    let labels = Labels::from_unsorted(&mut pairs).ok()?;
    let sample = v1::exemplar_sample(message, entry.fields);
    Some(Exemplar { labels, value: sample.value, timestamp_ms: sample.timestamp_ms })
}
