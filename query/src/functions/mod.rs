//! The functions of PromQL: kernels over numbers and slices, and a table to look them up by name.
//!
//! `eval` applies the kernels to series. Kernels do not depend on steps or memory limits.
//! The signatures are in [`varve_promql::functions`].

pub(crate) mod arithmetic;
pub(crate) mod classic_histogram;
pub(crate) mod native;
pub(crate) mod operators;
pub(crate) mod over_time;
mod rate;
mod regression;
pub(crate) mod sampling;
mod sliding_rate;
pub(crate) mod sort;
mod table;
pub(crate) mod window;

pub(crate) use rate::{Boundaries, RateKind, boundaries, starts_overlap};
pub(crate) use sliding_rate::SlidingRate;

use crate::annotations::SeriesAnnotations;
use crate::date::Civil;
use crate::histogram::FloatHistogram;
use window::{SampleValue, Window};

/// The implementation of a function.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Implementation {
    /// A function that is applied to each series of a vector independently.
    PerSeries(SeriesFunction),
    /// A function of the samples of each series in a range.
    OverRange(RangeFunction),
    /// `time()`
    Time,
    /// `pi()`
    Pi,
    /// `scalar(v)`
    Scalar,
    /// `vector(s)`
    Vector,
    /// `max_of(a, b)`, `min_of(a, b)`
    Extremum(fn(f64, f64) -> f64),
    /// `timestamp(v)`
    Timestamp,
    /// `start_timestamp(v)`
    StartTimestamp,
    /// `absent(v)`
    Absent,
    /// `absent_over_time(m)`
    AbsentOverTime,
    /// `sort(v)`, `sort_desc(v)`
    Sort(Direction),
    /// `sort_by_label(v, ...)`, `sort_by_label_desc(v, ...)`
    SortByLabel(Direction),
    /// `label_replace(v, ...)`
    LabelReplace,
    /// `label_join(v, ...)`
    LabelJoin,
    /// `histogram_quantile(q, v)`
    HistogramQuantile,
    /// `histogram_quantiles(v, label, q, ...)`
    HistogramQuantiles,
    /// `histogram_fraction(lower, upper, v)`
    HistogramFraction,
    /// `info(v, ...)`
    Info,
}

/// A function that is applied to each series of its first argument independently.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SeriesFunction {
    /// Maps floats to floats.
    Map(fn(f64) -> f64),
    /// Maps times (floats, in seconds) to a component of the date. Without an argument, maps the
    /// time of the step.
    Calendar(fn(&Civil) -> f64),
    /// `round(v, s)`
    Round,
    /// `clamp(v, min, max)` and its variants, with the positions of the arguments.
    Clamp {
        min: Option<usize>,
        max: Option<usize>,
    },
    /// Maps native histograms to floats and drops floats.
    MapHistograms(fn(&FloatHistogram) -> f64),
}

/// A sort direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Smallest value first.
    Ascending,
    /// Greatest value first.
    Descending,
}

/// Computes a result from a window with at least one float, and from the scalar arguments. Returns
/// `None` if there is no result.
pub(crate) type RangeKernel = fn(&Window<'_>, &[f64]) -> Option<f64>;

/// Computes a result from a window that has histograms, and adds annotations. Returns `None` if
/// there is no result.
pub(crate) type HistogramKernel = fn(&Window<'_>, &mut SeriesAnnotations) -> Option<SampleValue>;

/// The kernels of a range function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernels {
    /// Kernel for windows of floats only.
    pub(crate) floats: RangeKernel,
    /// Kernel for windows with histograms. If `None`, histograms are ignored, with an info if the
    /// window also has floats.
    pub(crate) histograms: Option<HistogramKernel>,
    /// `Some` if [`SlidingRate`] computes the same results as `floats`.
    pub(crate) sliding: Option<RateKind>,
}

/// A function of the samples in a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeFunction {
    /// Kernels for plain ranges.
    pub(crate) plain: Kernels,
    /// Kernels for `anchored` ranges; `None` if unsupported.
    pub(crate) anchored: Option<Kernels>,
    /// Kernels for `smoothed` ranges; `None` if unsupported.
    pub(crate) smoothed: Option<Kernels>,
    /// The result is a sample of the series and keeps the metric name.
    pub(crate) keeps_name: bool,
    /// The function is meant for counters; other series cause an info.
    pub(crate) needs_counter: bool,
    /// Constraints on the scalar arguments.
    pub(crate) params: Params,
}

/// Constraints on the scalar arguments of a range function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Params {
    /// No constraints.
    Any,
    /// A quantile. A value outside of [0, 1] causes a warning.
    Quantile,
    /// The number of an integration rule of `integral`. Any other number causes a warning.
    Strategy,
    /// Two factors. A value outside of (0, 1) is an error.
    SmoothingFactors,
}

/// Returns the implementation of a function. Cost: a binary search.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    table::TABLE
        .binary_search_by(|(known, _)| (*known).cmp(name))
        .ok()
        .map(|at| table::TABLE[at].1)
}
