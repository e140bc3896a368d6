//! The functions of PromQL: kernels over numbers and slices, and a table that finds them by name.
//!
//! `eval` moves series through the kernels; nothing here knows of steps, grids or memory. The signatures are in
//! [`crate::promql::functions`].

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

pub(crate) use rate::{RateKind, boundaries, starts_overlap};
pub(crate) use sliding_rate::SlidingRate;

use crate::annotations::SeriesAnnotations;
use crate::date::Civil;
use crate::histogram::FloatHistogram;
use window::{SampleValue, Window};

/// How a function is evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Implementation {
    /// A function of each series of a vector by itself.
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

/// A function of each series by itself, which is the first argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SeriesFunction {
    /// A number for each float.
    Map(fn(f64) -> f64),
    /// A part of the date that each float is; without an argument, that of the step.
    Calendar(fn(&Civil) -> f64),
    /// `round(v, s)`
    Round,
    /// `clamp(v, min, max)` and its variants, with the positions of the arguments.
    Clamp { min: Option<usize>, max: Option<usize> },
    /// A number for each native histogram; floats are dropped.
    MapHistograms(fn(&FloatHistogram) -> f64),
}

/// The order of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The smallest value first.
    Ascending,
    /// The greatest value first.
    Descending,
}

/// Returns the number for the floats in a window, of which there is at least one, and the other arguments; `None` if there is
/// no result.
pub(crate) type RangeKernel = fn(&Window<'_>, &[f64]) -> Option<f64>;

/// Returns the value for the samples in a window that has histograms, and adds annotations; `None` if there is no result.
pub(crate) type HistogramKernel = fn(&Window<'_>, &mut SeriesAnnotations) -> Option<SampleValue>;

/// The kernels of a range function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernels {
    /// For windows of floats only.
    pub(crate) floats: RangeKernel,
    /// For windows with histograms. Without it histograms are ignored, with an info if there are floats too.
    pub(crate) histograms: Option<HistogramKernel>,
    /// Set if [`SlidingRate`] computes the same as `floats`.
    pub(crate) sliding: Option<RateKind>,
}

/// A function of the samples in a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeFunction {
    /// For plain ranges.
    pub(crate) plain: Kernels,
    /// For ranges that are `anchored`.
    pub(crate) anchored: Option<Kernels>,
    /// For ranges that are `smoothed`.
    pub(crate) smoothed: Option<Kernels>,
    /// The result is a sample of the series and keeps its name.
    pub(crate) keeps_name: bool,
    /// The series should be counters.
    pub(crate) needs_counter: bool,
    /// Constraints on the other arguments.
    pub(crate) params: Params,
}

/// Constraints on the scalar arguments of a range function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Params {
    /// None.
    Any,
    /// A quantile; other values cause a warning.
    Quantile,
    /// Two factors in (0, 1); other values are an error.
    SmoothingFactors,
}

/// Returns how a function is evaluated. Cost: a binary search.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    table::TABLE.binary_search_by(|(known, _)| (*known).cmp(name)).ok().map(|at| table::TABLE[at].1)
}
