//! One annotation: its kind, its severity, and what equal annotations add up.

use crate::histogram::{Combined, NanEffect};
use crate::step_set::StepSet;

/// The severity of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Warning,
    Info,
}

/// An annotation that an evaluation adds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Annotation {
    /// A quantile is not in [0, 1].
    InvalidQuantile(f64),
    /// The strategy of `integral` is not 0, 1 or 2.
    InvalidIntegralStrategy(f64),
    /// A ratio is not in [-1, 1] and was clamped.
    InvalidRatio(f64, f64),
    /// A bucket series has no valid `le`.
    BadBucketLabel { metric_name: String, label: String },
    /// A rate of a metric whose name is not that of a counter.
    PossibleNonCounter(String),
    /// A rate of a metric whose label `__type__` is not a counter type.
    PossibleNonCounterLabel {
        metric_name: String,
        type_label: String,
    },
    /// `sort` in a range query.
    SortInRangeQuery,
    /// The operator does not support operands of these types.
    IncompatibleTypes {
        lhs: &'static str,
        op: &'static str,
        rhs: &'static str,
    },
    /// Cumulative bucket counts decreased and were raised.
    ForcedMonotonicity(ForcedMonotonicity),
    /// An annotation about the series of a metric.
    OfMetric {
        metric_name: String,
        annotation: SeriesAnnotation,
    },
    /// An aggregation of floats and histograms.
    MixedAggregation,
    /// Classic and native histograms of the same name and labels.
    ClassicAndNative(String),
    /// Two histograms with incompatible bucket layouts.
    IncompatibleBuckets(&'static str),
    /// An aggregation that ignores histograms.
    HistogramIgnored(&'static str),
    /// A histogram of this metric has NaN observations.
    NanObservations {
        metric_name: String,
        effect: NanEffect,
    },
    /// Conflicting counter reset hints.
    CounterResetCollision(HistogramOperation),
    /// Histograms with different custom bounds were reduced to their common bounds.
    CustomBoundsReconciled(HistogramOperation),
}

/// An annotation that a kernel adds about the samples of one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeriesAnnotation {
    /// Both floats and histograms, for a function that supports only one of them at a time.
    MixedFloatsHistograms,
    /// A gauge histogram, for a function of counters.
    NotCounter,
    /// A counter histogram, for a function of gauges.
    NotGauge,
    /// Exponential and custom buckets.
    MixedSchemas,
    /// A start timestamp is before the previous sample and differs from that sample's start
    /// timestamp. Holds the number of affected windows.
    StartTimestampsOverlap(u64),
    /// A function that supports only floats ignored histograms.
    HistogramsIgnored,
    /// See [`Annotation::CounterResetCollision`].
    CounterResetCollision(HistogramOperation),
    /// See [`Annotation::CustomBoundsReconciled`].
    CustomBoundsReconciled(HistogramOperation),
}

impl SeriesAnnotation {
    /// Merges an equal annotation. Returns `false` if the other one is different.
    fn merge(&mut self, other: Self) -> bool {
        match (self, other) {
            (Self::StartTimestampsOverlap(n), Self::StartTimestampsOverlap(more)) => {
                *n += more;
                true
            }
            (known, other) => *known == other,
        }
    }

    /// Returns this annotation with the metric name of the series.
    pub(crate) fn of_metric(self, metric_name: &str) -> Annotation {
        match self {
            Self::CounterResetCollision(operation) => Annotation::CounterResetCollision(operation),
            Self::CustomBoundsReconciled(operation) => {
                Annotation::CustomBoundsReconciled(operation)
            }
            annotation => Annotation::OfMetric {
                metric_name: metric_name.to_owned(),
                annotation,
            },
        }
    }
}

/// An operation on histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistogramOperation {
    Addition,
    Subtraction,
    Aggregation,
}

/// Counts that were raised to make the buckets of classic histograms monotonic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ForcedMonotonicity {
    /// The metric name; empty if it is unknown.
    pub(crate) metric_name: String,
    pub(crate) extent: RaisedExtent,
}

/// Extent of raised counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RaisedExtent {
    /// First and last affected time, in milliseconds.
    pub(crate) times_ms: (i64, i64),
    /// Smallest and greatest bound of the raised buckets.
    pub(crate) bounds: (f64, f64),
    /// Maximum increase of a bucket count.
    pub(crate) difference_max: f64,
    /// Number of histograms that were fixed.
    pub(crate) n_histograms: u64,
}

impl RaisedExtent {
    /// Returns the extent of all steps, or `None` if there are none.
    pub(crate) fn of_all(steps: &[(usize, Self)]) -> Option<Self> {
        let ((_, first), rest) = steps.split_first()?;
        let mut all = *first;
        for (_, extent) in rest {
            all.merge(extent);
        }
        Some(all)
    }

    /// Extends this extent by another one. The result does not depend on the order of extents.
    pub(super) fn merge(&mut self, other: &Self) {
        self.times_ms.0 = self.times_ms.0.min(other.times_ms.0);
        self.times_ms.1 = self.times_ms.1.max(other.times_ms.1);
        // The total order has -0 before 0.
        if other.bounds.0.total_cmp(&self.bounds.0).is_lt() {
            self.bounds.0 = other.bounds.0;
        }
        if other.bounds.1.total_cmp(&self.bounds.1).is_gt() {
            self.bounds.1 = other.bounds.1;
        }
        self.difference_max = self.difference_max.max(other.difference_max);
        self.n_histograms += other.n_histograms;
    }
}

/// Distinct annotations that kernels add about one series, with their steps. Overlapping start
/// timestamps count their windows.
#[derive(Debug, Default)]
pub(crate) struct SeriesAnnotations {
    pub(crate) list: Vec<(SeriesAnnotation, StepSet)>,
    /// The step that is being evaluated.
    pub(crate) step: usize,
}

impl SeriesAnnotations {
    /// Adds an annotation about the step that is being evaluated.
    pub(crate) fn add(&mut self, annotation: SeriesAnnotation) {
        for (known, steps) in &mut self.list {
            if known.merge(annotation) {
                steps.extend_to(self.step + 1);
                steps.insert(self.step);
                return;
            }
        }
        self.list.push((annotation, StepSet::only(self.step)));
    }

    /// Adds all annotations of another list about the step that is being evaluated.
    pub(crate) fn extend(&mut self, other: Self) {
        for (annotation, _) in other.list {
            self.add(annotation);
        }
    }

    /// Adds the annotation about reconciled bounds if `combined` reports it. Ignores counter reset
    /// collisions.
    pub(crate) fn add_combined(&mut self, combined: Combined, operation: HistogramOperation) {
        if combined.custom_bounds_reconciled {
            self.add(SeriesAnnotation::CustomBoundsReconciled(operation));
        }
    }
}

impl Annotation {
    /// Returns the severity.
    pub(super) fn severity(&self) -> Severity {
        match self {
            Self::PossibleNonCounter(_)
            | Self::PossibleNonCounterLabel { .. }
            | Self::IncompatibleTypes { .. }
            | Self::ForcedMonotonicity(_)
            | Self::OfMetric {
                annotation: SeriesAnnotation::HistogramsIgnored,
                ..
            }
            | Self::HistogramIgnored(_)
            | Self::NanObservations { .. }
            | Self::CustomBoundsReconciled(_) => Severity::Info,
            _ => Severity::Warning,
        }
    }

    /// Returns `true` if the annotation has details that a merge adds up. As in Prometheus, its
    /// first position counts.
    pub(super) fn has_details(&self) -> bool {
        matches!(
            self,
            Self::ForcedMonotonicity(_)
                | Self::OfMetric {
                    annotation: SeriesAnnotation::StartTimestampsOverlap(_),
                    ..
                }
        )
    }

    /// Merges the details of an annotation with the same text.
    pub(super) fn merge(&mut self, other: Self) {
        match (self, other) {
            (
                Self::OfMetric {
                    annotation: SeriesAnnotation::StartTimestampsOverlap(n),
                    ..
                },
                Self::OfMetric {
                    annotation: SeriesAnnotation::StartTimestampsOverlap(more),
                    ..
                },
            ) => *n += more,
            (Self::ForcedMonotonicity(forced), Self::ForcedMonotonicity(other)) => {
                forced.extent.merge(&other.extent);
            }
            _ => {}
        }
    }
}
