//! The rejected part of a request: counts per reason, with one example each.

use std::fmt;

use varve_model::Sample;
use varve_model::labels::LABELS_SIZE_MAX;
use varve_tsdb::RejectReason;

use crate::limits::CLUSTERS_MAX;

/// The reason why a part of a request was rejected. Its text is that of Prometheus if Prometheus
/// has such an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The store rejected a sample.
    #[error("{0}")]
    Sample(RejectReason),
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
    #[error("more labels than --ingest.labels-per-series-max allows")]
    TooManyLabels,
    /// A label name is too long.
    #[error("label name is too long")]
    LabelNameTooLong,
    /// A label value is too long.
    #[error("label value longer than --ingest.label-value-size-max")]
    LabelValueTooLong,
    /// All labels together exceed [`LABELS_SIZE_MAX`].
    #[error("label set larger than {} bytes", LABELS_SIZE_MAX)]
    LabelSetTooLarge,
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
    /// A new HA cluster exceeds [`CLUSTERS_MAX`].
    #[error("more than {} clusters of HA pairs", CLUSTERS_MAX)]
    TooManyClusters,
    /// A new series exceeds its team's budget of active series.
    #[error("new series exceeds the maximum of active series of its team (ingest.teams)")]
    TeamSeries,
    /// A new series exceeds the total budget of active series.
    #[error("new series exceeds the maximum of active series of all teams (ingest.budget)")]
    TotalSeries,
}

/// The rejects of one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct RejectionCount {
    /// The reason.
    pub reason: Reason,
    /// Number of samples, series, histograms or metric families, depending on the reason.
    pub count: u64,
    /// Number of rejected samples, floats and histograms together.
    pub n_samples: u64,
    /// The first rejected sample, series or metric family.
    pub example: Example,
}

/// A rejected sample, series or metric family.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Example {
    /// The description for the sender.
    pub text: String,
    /// The labels as sent, truncated if long; empty if the reason does not concern a series.
    pub labels: String,
    /// The timestamp of the sample, if the reason concerns a sample.
    pub timestamp_ms: Option<i64>,
    /// The value of the sample, or the sum of the histogram.
    pub value: Option<f64>,
}

/// The rejects of a request, in the order in which their reasons first occurred. The `Display`
/// output is the body of the 400: a single line, because senders log the first line or the first
/// kilobyte of a response.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rejections {
    counts: Vec<RejectionCount>,
}

/// A sample of a rule that was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRejection {
    /// Its index in the request.
    pub index: usize,
    /// The reason.
    pub reason: String,
    /// `true` if the series has another value at this time.
    pub is_duplicate: bool,
}

impl Reason {
    /// Returns the reason as the value of a metric's label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sample(RejectReason::OutOfOrder) => "out_of_order",
            Self::Sample(RejectReason::Duplicate) => "duplicate_timestamp",
            Self::Sample(RejectReason::OutOfBounds) => "out_of_bounds",
            Self::Sample(RejectReason::TooOld) => "too_old",
            Self::Sample(RejectReason::TooFarInFuture) => "too_far_in_future",
            Self::Sample(RejectReason::HistogramTooLarge) => "histogram_too_large",
            Self::Sample(RejectReason::Moved) => "moved",
            Self::MissingMetricName => "missing_metric_name",
            Self::EmptyLabelName => "empty_label_name",
            Self::DuplicateLabelName => "duplicate_label_name",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::TooManyLabels => "too_many_labels",
            Self::LabelNameTooLong => "label_name_too_long",
            Self::LabelValueTooLong => "label_value_too_long",
            Self::LabelSetTooLarge => "label_set_too_large",
            Self::NoSamples => "no_samples",
            Self::ExemplarOutOfOrder => "exemplar_out_of_order",
            Self::Untranslatable => "otlp_untranslatable",
            Self::InvalidHistogram => "invalid_histogram",
            Self::InvalidMetadata => "invalid_metadata",
            Self::TooManyClusters => "too_many_ha_clusters",
            Self::TeamSeries => "team_active_series",
            Self::TotalSeries => "active_series",
        }
    }

    /// Returns `true` if rejects of the reason are counted in samples.
    pub(crate) fn counts_samples(self) -> bool {
        !matches!(
            self,
            Self::NoSamples | Self::ExemplarOutOfOrder | Self::InvalidMetadata
        )
    }

    /// Returns the unit that the reason counts, in singular and plural.
    fn unit(self) -> (&'static str, &'static str) {
        match self {
            Self::Sample(_) => ("sample", "samples"),
            Self::ExemplarOutOfOrder => ("exemplar", "exemplars"),
            Self::Untranslatable => ("data point", "data points"),
            Self::InvalidHistogram => ("histogram", "histograms"),
            Self::InvalidMetadata => ("metric family", "metric families"),
            _ => ("series", "series"),
        }
    }
}

impl fmt::Display for RejectionCount {
    /// Writes `out of order sample: 3 samples, e.g. series {__name__="up"} at 1700000000000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, many) = self.reason.unit();
        write!(
            f,
            "{}: {} {}",
            self.reason,
            self.count,
            if self.count == 1 { one } else { many }
        )?;
        if one == "series" && self.n_samples > 0 {
            write!(
                f,
                " with {} {}",
                self.n_samples,
                if self.n_samples == 1 {
                    "sample"
                } else {
                    "samples"
                }
            )?;
        }
        write!(f, ", e.g. {}", self.example.text)
    }
}

impl Rejections {
    /// Returns `true` if nothing was rejected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Iterates over the reasons.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &RejectionCount> {
        self.counts.iter()
    }

    /// Returns the number of rejected samples.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.counts.iter().map(|reject| reject.n_samples).sum()
    }

    /// Adds the rejects of another part of the same body.
    pub(crate) fn merge(&mut self, other: Self) {
        for RejectionCount {
            reason,
            count,
            n_samples,
            example,
        } in other.counts
        {
            self.add(reason, count, n_samples, || example);
        }
    }

    /// Adds `count` rejects of a reason with `n_samples` samples in total. Calls `example` only for
    /// the first reject of a reason.
    pub(crate) fn add<E: Into<Example>>(
        &mut self,
        reason: Reason,
        count: u64,
        n_samples: u64,
        example: impl FnOnce() -> E,
    ) {
        if let Some(reject) = self
            .counts
            .iter_mut()
            .find(|reject| reject.reason == reason)
        {
            reject.count += count;
            reject.n_samples += n_samples;
        } else {
            self.counts.push(RejectionCount {
                reason,
                count,
                n_samples,
                example: example().into(),
            });
        }
    }
}

impl Example {
    /// Describes a series.
    pub(crate) fn of_series(labels: String) -> Self {
        Self {
            text: format!("series {labels}"),
            labels,
            ..Self::default()
        }
    }

    /// Describes a sample of a series.
    pub(crate) fn of_sample(labels: String, sample: Sample) -> Self {
        let text = format!("series {labels} at {}", sample.timestamp_ms);
        Self {
            text,
            labels,
            ..Self::default()
        }
        .with(Some(sample))
    }

    /// Adds a sample.
    pub(crate) fn with(self, sample: Option<Sample>) -> Self {
        Self {
            timestamp_ms: sample.map(|sample| sample.timestamp_ms),
            value: sample.map(|sample| sample.value),
            ..self
        }
    }
}

impl From<String> for Example {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl fmt::Display for Rejections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, reject) in self.counts.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{reject}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_counted_once_with_its_first_example() {
        let mut rejections = Rejections::default();
        assert!(rejections.is_empty());
        for t in [5, 6, 7] {
            let example = || format!("series {{__name__=\"up\"}} at {t}");
            rejections.add(Reason::Sample(RejectReason::OutOfOrder), 1, 1, example);
        }
        rejections.add(Reason::EmptyLabelName, 1, 1, || {
            "series {\"\"=\"x\"}".to_owned()
        });
        rejections.add(Reason::InvalidMetadata, 2, 0, || "series {}".to_owned());
        assert_eq!(
            rejections.to_string(),
            "out of order sample: 3 samples, e.g. series {__name__=\"up\"} at 5; \
             label name is empty: 1 series with 1 sample, e.g. series {\"\"=\"x\"}; \
             invalid metadata: 2 metric families, e.g. series {}"
        );
        assert_eq!((rejections.n_samples(), rejections.iter().len()), (4, 3));
    }
}
