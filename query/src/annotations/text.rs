//! The messages of annotations.

use std::fmt;

use varve_promql::decimal::{self, General};
use varve_promql::quote::quoted;

use super::annotation::{Annotation, HistogramOperation, SeriesAnnotation, Severity};
use crate::date::Civil;
use crate::histogram::NanEffect;

impl Annotation {
    /// Returns the message without details.
    pub(super) fn text(&self) -> String {
        let severity = match self.severity() {
            Severity::Warning => "PromQL warning",
            Severity::Info => "PromQL info",
        };
        format!("{severity}: {self}")
    }

    /// Returns the details. The text omits them, so that annotations that differ only in details
    /// are equal.
    pub(super) fn details(&self) -> String {
        if let Self::OfMetric {
            annotation: SeriesAnnotation::StartTimestampsOverlap(n @ 2..),
            ..
        } = self
        {
            return format!(" ({n} occurrences)");
        }
        let Self::ForcedMonotonicity(forced) = self else {
            return String::new();
        };
        let extent = &forced.extent;
        format!(
            ", from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            General(extent.bounds.0),
            General(extent.bounds.1),
            decimal::two_digits(extent.difference_max),
            extent.n_histograms,
            print_time(extent.times_ms.0),
            print_time(extent.times_ms.1),
        )
    }
}

impl fmt::Display for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidQuantile(q) => {
                write!(
                    f,
                    "quantile value should be between 0 and 1, got {}",
                    General(*q)
                )
            }
            Self::InvalidIntegralStrategy(strategy) => {
                write!(
                    f,
                    "strategy should be 0, 1, or 2 (default), using 2, got {}",
                    General(*strategy)
                )
            }
            Self::InvalidRatio(ratio, to) => {
                let ratio = General(*ratio);
                let to = General(*to);
                write!(
                    f,
                    "ratio value should be between -1 and 1, got {ratio}, capping to {to}"
                )
            }
            Self::BadBucketLabel { metric_name, label } => {
                write!(
                    f,
                    "bucket label \"le\" is missing or has a malformed value of {}",
                    quoted(label)
                )?;
                write_metric_name(f, metric_name)
            }
            Self::PossibleNonCounter(name) => {
                let suffixes = "_total/_sum/_count/_bucket";
                write!(
                    f,
                    "metric might not be a counter, name does not end in {suffixes}: {}",
                    quoted(name)
                )
            }
            Self::PossibleNonCounterLabel {
                metric_name,
                type_label,
            } => {
                let types = "\"counter\" or \"histogram\"";
                write!(
                    f,
                    "metric might not be a counter, __type__ label is not set to {types}"
                )?;
                write!(f, ", got {}: {}", quoted(type_label), quoted(metric_name))
            }
            Self::SortInRangeQuery => f.write_str(
                "sort is ineffective for range queries since results are always ordered by labels",
            ),
            Self::IncompatibleTypes { lhs, op, rhs } => {
                let types = format!("{lhs} {op} {rhs}");
                write!(
                    f,
                    "incompatible sample types encountered for binary operator {}: {types}",
                    quoted(op)
                )
            }
            Self::ForcedMonotonicity(forced) => {
                let page = "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile";
                write!(
                    f,
                    "input to histogram_quantile needed to be fixed for monotonicity (see {page})"
                )?;
                write_metric_name(f, &forced.metric_name)
            }
            Self::OfMetric {
                metric_name,
                annotation,
            } => write!(f, "{} {}", annotation.text(), quoted(metric_name)),
            Self::MixedAggregation => {
                f.write_str("encountered a mix of histograms and floats for aggregation")
            }
            Self::ClassicAndNative(metric_name) => {
                f.write_str("vector contains a mix of classic and native histograms")?;
                write_metric_name(f, metric_name)
            }
            Self::IncompatibleBuckets(op) => {
                write!(
                    f,
                    "incompatible bucket layout encountered for binary operator {op}"
                )
            }
            Self::HistogramIgnored(aggregation) => {
                write!(f, "ignored histogram in {aggregation} aggregation")
            }
            Self::NanObservations {
                metric_name,
                effect,
            } => {
                f.write_str(match effect {
                    NanEffect::Result => "input to histogram_quantile has NaN observations, result is NaN",
                    NanEffect::Skew => "input to histogram_quantile has NaN observations, result is skewed higher",
                    NanEffect::Excluded => {
                        "input to histogram_fraction has NaN observations, which are excluded from all fractions"
                    }
                })?;
                write_metric_name(f, metric_name)
            }
            Self::CounterResetCollision(operation) => {
                write!(f, "conflicting counter resets during histogram {operation}")
            }
            Self::CustomBoundsReconciled(operation) => {
                write!(
                    f,
                    "mismatched custom buckets were reconciled during {operation}"
                )
            }
        }
    }
}

impl SeriesAnnotation {
    /// Returns the text before the metric name.
    fn text(self) -> &'static str {
        match self {
            Self::MixedFloatsHistograms => {
                "encountered a mix of histograms and floats for metric name"
            }
            Self::NotCounter => "this native histogram metric is not a counter:",
            Self::NotGauge => "this native histogram metric is not a gauge:",
            Self::MixedSchemas => {
                "vector contains a mix of histograms with exponential and custom buckets schemas for metric name"
            }
            Self::StartTimestampsOverlap(_) => {
                "sample has start time that overlaps with previous sample timestamp for metric"
            }
            Self::HistogramsIgnored => {
                "ignored histograms in a range containing both floats and histograms for metric name"
            }
            Self::CounterResetCollision(_) | Self::CustomBoundsReconciled(_) => "",
        }
    }
}

fn write_metric_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    if name.is_empty() {
        Ok(())
    } else {
        write!(f, " for metric name {}", quoted(name))
    }
}

/// Formats a time as `2006-01-02T15:04:05Z`; milliseconds are truncated.
fn print_time(time_ms: i64) -> String {
    let civil = Civil::of_seconds(time_ms / 1000);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
    )
}

impl fmt::Display for HistogramOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Addition => "addition",
            Self::Subtraction => "subtraction",
            Self::Aggregation => "aggregation",
        })
    }
}
