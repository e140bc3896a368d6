//! Parts of a write that were not stored, each with the reason.

use varve_context::Limit;

use crate::label_set::LABELS_SIZE_MAX;

/// A sample, or a series with all its samples, that was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// The index in the write. What it counts is up to the writer: samples for the store, series
    /// for the samples of a rule.
    pub index: u32,
    /// The reason.
    pub reason: RejectionReason,
}

/// The reason why a part of a write was not stored. Its text is that of Prometheus if Prometheus
/// has such an error (`storage/interface.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum RejectionReason {
    // Samples, by the store.
    /// Older than the newest sample of its series, with out-of-order samples disabled.
    #[error("out of order sample")]
    OutOfOrder,
    /// The series has another value at this timestamp.
    #[error("duplicate sample for timestamp")]
    Duplicate,
    /// Too far behind the newest timestamp of the store, with out-of-order samples disabled.
    #[error("out of bounds")]
    OutOfBounds,
    /// Older than the out-of-order window; for an in-order sample, older than the maximum age of
    /// the store.
    #[error("too old sample")]
    TooOld,
    /// Too far ahead of the clock.
    #[error("out of bounds: timestamp is too far in the future")]
    TooFarInFuture,
    /// The histogram has more buckets, spans or bounds than
    /// [`HISTOGRAM_BUCKETS_MAX`](crate::histogram::HISTOGRAM_BUCKETS_MAX).
    #[error("histogram has too many buckets")]
    HistogramTooLarge,
    /// The series was evicted from memory. Resolve it again.
    #[error("series has moved")]
    Moved,

    // Label sets.
    /// A label set has no metric name, or an empty one.
    #[error("missing metric name (__name__ label)")]
    MissingMetricName,
    /// A label name is empty.
    #[error("label name is empty")]
    EmptyLabelName,
    /// A label set has a label name twice.
    #[error("duplicate label name")]
    DuplicateLabelName,
    /// A label name or value is not UTF-8.
    #[error("invalid UTF-8 in label name or value")]
    InvalidUtf8,
    /// A label set has too many labels.
    #[error("more than {limit} labels ({})", Limit::LabelsPerSeries)]
    TooManyLabels {
        /// Their maximum number.
        limit: u32,
    },
    /// A label name is too long.
    #[error("label name longer than {limit} bytes")]
    LabelNameTooLong {
        /// Its maximum size.
        limit: u32,
    },
    /// A label value is too long.
    #[error("label value longer than {limit} bytes ({})", Limit::LabelValueSize)]
    LabelValueTooLong {
        /// Its maximum size.
        limit: u32,
    },
    /// All labels together exceed [`LABELS_SIZE_MAX`].
    #[error("label set larger than {} bytes", LABELS_SIZE_MAX)]
    LabelSetTooLarge,

    // Parts of a request.
    /// A series has neither samples nor exemplars, which remote write 2.0 does not allow.
    #[error("TimeSeries must contain at least one sample or histogram")]
    NoSamples,
    /// An exemplar is older than the newest one of its series.
    #[error("out of order exemplar")]
    ExemplarOutOfOrder,
    /// A metric or data point of OTLP cannot be translated.
    #[error("OTLP that cannot be translated")]
    Untranslatable,
    /// A histogram is invalid by Prometheus' rules.
    #[error("invalid native histogram")]
    InvalidHistogram,
    /// Metadata has no metric family name, is too long or not UTF-8.
    #[error("invalid metadata")]
    InvalidMetadata,

    // New series.
    /// A new cluster of HA pairs exceeds the maximum.
    #[error("more than {clusters_max} clusters of HA pairs")]
    TooManyClusters {
        /// The maximum number of clusters.
        clusters_max: u32,
    },
    /// A new series exceeds its team's budget of active series.
    #[error(
        "new series exceeds the maximum of active series of its team ({})",
        Limit::TeamSeries
    )]
    TeamSeries,
    /// A new series exceeds the total budget of active series.
    #[error(
        "new series exceeds the maximum of active series of all teams ({})",
        Limit::TotalSeries
    )]
    TotalSeries,

    /// A new series has a label name that no series in memory has, and there are too many.
    #[error(
        "new label name beyond {limit} of all series in memory ({})",
        Limit::LabelNames
    )]
    TooManyLabelNames {
        /// The maximum number of label names.
        limit: u32,
    },
    /// A new series exceeds the maximum of series of its metric.
    #[error("new series beyond {limit} of its metric ({})", Limit::SeriesPerMetric)]
    MetricSeries {
        /// The maximum number of series.
        limit: u32,
    },

    // New series of rules. They never wait, and their reasons carry the numbers that a sender finds
    // in an example.
    /// A new series of a rule exceeds the budget of active series of rules.
    #[error("series exceeds the budget of team \"(rules)\", with {used} of {limit} active")]
    RulesSeries {
        /// Number of active series of rules.
        used: u32,
        /// Their maximum.
        limit: u32,
    },
    /// A new series of a rule exceeds the total budget of active series.
    #[error("series exceeds the budget of the store, with {used} of {limit} active")]
    StoreSeries {
        /// Number of active series.
        used: u32,
        /// Their maximum.
        limit: u32,
    },
    /// Rules create more series per second than their budget allows.
    #[error("series is not created now: team_new_series is exhausted")]
    RulesNewSeries,
    /// More series are created per second than the total budget allows.
    #[error("series is not created now: new_series is exhausted")]
    StoreNewSeries,
    /// Too little memory is free for new series of rules.
    #[error("series is not created now: memory is exhausted")]
    NoMemory,
}

impl RejectionReason {
    /// Returns the reason as the value of a metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfOrder => "out_of_order",
            Self::Duplicate => "duplicate_timestamp",
            Self::OutOfBounds => "out_of_bounds",
            Self::TooOld => "too_old",
            Self::TooFarInFuture => "too_far_in_future",
            Self::HistogramTooLarge => "histogram_too_large",
            Self::Moved => "moved",
            Self::MissingMetricName => "missing_metric_name",
            Self::EmptyLabelName => "empty_label_name",
            Self::DuplicateLabelName => "duplicate_label_name",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::TooManyLabels { .. } => "too_many_labels",
            Self::LabelNameTooLong { .. } => "label_name_too_long",
            Self::LabelValueTooLong { .. } => "label_value_too_long",
            Self::LabelSetTooLarge => "label_set_too_large",
            Self::NoSamples => "no_samples",
            Self::ExemplarOutOfOrder => "exemplar_out_of_order",
            Self::Untranslatable => "otlp_untranslatable",
            Self::InvalidHistogram => "invalid_histogram",
            Self::InvalidMetadata => "invalid_metadata",
            Self::TooManyClusters { .. } => "too_many_ha_clusters",
            Self::TeamSeries | Self::RulesSeries { .. } => "team_active_series",
            Self::TotalSeries | Self::StoreSeries { .. } => "active_series",
            Self::TooManyLabelNames { .. } => "too_many_label_names",
            Self::MetricSeries { .. } => "metric_series",
            Self::RulesNewSeries => "team_new_series",
            Self::StoreNewSeries => "new_series",
            Self::NoMemory => "memory",
        }
    }
}
