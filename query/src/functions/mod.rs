//! What the functions of PromQL compute: kernels over numbers and slices, and one table that finds them by name.
//!
//! `eval` moves series through the kernels; nothing here knows of steps, grids or memory. The signatures are in
//! [`crate::promql::functions`].

pub(crate) mod date;
pub(crate) mod histogram;
pub(crate) mod label;
pub(crate) mod mixed;
pub(crate) mod over_time;
mod rate;
mod regression;
mod steady;
mod table;
pub(crate) mod window;

use crate::histogram::FloatHistogram;
use date::Civil;
use mixed::MixedKernel;
use window::Window;

/// How a function is evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Implementation {
    /// A number for every value of a vector.
    Map(fn(f64) -> f64),
    /// A part of the date that every value of a vector is, or that the step is.
    Calendar(fn(&Civil) -> f64),
    /// A number for the samples of every series in a range.
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
    /// `round(v, s)`
    Round,
    /// `clamp(v, min, max)`
    Clamp,
    /// `clamp_min(v, min)`
    ClampMin,
    /// `clamp_max(v, max)`
    ClampMax,
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
    /// A number for every native histogram; floats are passed over.
    OfHistograms(fn(&FloatHistogram) -> f64),
    /// `info(v, ...)`
    Info,
    /// Parsed, and not evaluated yet.
    NotYet,
}

/// Which end comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The smallest.
    Ascending,
    /// The greatest.
    Descending,
}

/// The number for the floats in a window, given the function's other arguments; `None` if there is none.
/// There is a float in the window.
pub(crate) type RangeKernel = fn(&Window<'_>, &[f64]) -> Option<f64>;

/// How a range is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernels {
    /// Where there are only floats.
    pub(crate) floats: RangeKernel,
    /// Where there are histograms; without it they are passed over, with an info if there are floats too.
    pub(crate) mixed: Option<MixedKernel>,
    /// What [`Steady`] can compute for all windows of a series, if it can.
    pub(crate) steady: Option<Kind>,
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
    /// The result is a sample of the series, and keeps its name.
    pub(crate) keeps_name: bool,
    /// The series should be counters.
    pub(crate) of_counters: bool,
    /// What the other arguments must be.
    pub(crate) params: Params,
}

/// What the scalar arguments of a range function must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Params {
    /// Anything.
    Any,
    /// A quantile; others give a warning.
    Quantile,
    /// Two factors in (0, 1); others are an error.
    SmoothingFactors,
}

/// Returns how a function is evaluated. Cost: a binary search.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    table::TABLE.binary_search_by(|(known, _)| (*known).cmp(name)).ok().map(|at| table::TABLE[at].1)
}

pub(crate) use rate::{Kind, boundaries, starts_overlap};
pub(crate) use steady::Steady;
