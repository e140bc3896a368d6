//! Rejection reasons of new series that a limit denies, for senders and for rules.

use varve_model::RejectionReason;

use crate::admission::{Denied, Exhausted, SeriesLimit};

/// An exceeded limit, for the example in an error.
pub(super) struct Exceeded {
    pub(super) reason: RejectionReason,
    pub(super) used: u64,
    pub(super) limit: u64,
    /// What is counted.
    pub(super) counted: &'static str,
}

impl Exceeded {
    pub(super) fn of(limit: SeriesLimit) -> Self {
        let (reason, counted) = match limit {
            SeriesLimit::Team { .. } => (RejectionReason::TeamSeries, "active"),
            SeriesLimit::Total { .. } => (RejectionReason::TotalSeries, "active"),
            SeriesLimit::LabelNames { limit, .. } => (too_many_label_names(limit), "label names"),
            SeriesLimit::Metric { limit, .. } => (metric_series(limit), "series of its metric"),
        };
        let (SeriesLimit::Team { used, limit }
        | SeriesLimit::Total { used, limit }
        | SeriesLimit::LabelNames { used, limit }
        | SeriesLimit::Metric { used, limit }) = limit;
        Self {
            reason,
            used,
            limit,
            counted,
        }
    }
}

/// Returns the reason why a series of a rule is not created.
pub(super) fn rule_denial(denied: Denied) -> RejectionReason {
    match denied {
        Denied::Permanent(SeriesLimit::Team { used, limit }) => RejectionReason::RulesSeries {
            used: saturated(used),
            limit: saturated(limit),
        },
        Denied::Permanent(SeriesLimit::Total { used, limit }) => RejectionReason::StoreSeries {
            used: saturated(used),
            limit: saturated(limit),
        },
        Denied::Permanent(SeriesLimit::LabelNames { limit, .. }) => too_many_label_names(limit),
        Denied::Permanent(SeriesLimit::Metric { limit, .. }) => metric_series(limit),
        Denied::Temporary(Exhausted::TeamNewSeries, _) => RejectionReason::RulesNewSeries,
        Denied::Temporary(Exhausted::Memory, _) => RejectionReason::NoMemory,
        Denied::Temporary(..) => RejectionReason::StoreNewSeries,
    }
}

fn too_many_label_names(limit: u64) -> RejectionReason {
    RejectionReason::TooManyLabelNames {
        limit: saturated(limit),
    }
}

fn metric_series(limit: u64) -> RejectionReason {
    RejectionReason::MetricSeries {
        limit: saturated(limit),
    }
}

/// A store has fewer than 2^32 series, and a reason is small, because routes hold it.
fn saturated(n_series: u64) -> u32 {
    u32::try_from(n_series).unwrap_or(u32::MAX)
}
