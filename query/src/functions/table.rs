//! The table of all functions.

use super::Implementation::{self, Calendar, Extremum, Map, OfHistograms, OverRange, Sort, SortByLabel};
use super::mixed::{self, MixedKernel};
use super::{Direction, Kernels, Kind, Params, RangeFunction, RangeKernel, date, over_time, rate, regression};
use crate::float;
use crate::histogram::FloatHistogram;
use crate::math;

/// A function of floats, which passes over histograms.
const fn over(floats: RangeKernel) -> Implementation {
    OverRange(plain(kernels(floats, None)))
}

/// A function of floats and histograms.
const fn over_all(floats: RangeKernel, mixed: MixedKernel) -> Implementation {
    OverRange(plain(kernels(floats, Some(mixed))))
}

const fn kernels(floats: RangeKernel, mixed: Option<MixedKernel>) -> Kernels {
    Kernels { floats, mixed, steady: None }
}

const fn plain(plain: Kernels) -> RangeFunction {
    let params = Params::Any;
    RangeFunction { plain, anchored: None, smoothed: None, keeps_name: false, of_counters: false, params }
}

const fn with_params(floats: RangeKernel, params: Params) -> Implementation {
    OverRange(RangeFunction { params, ..plain(kernels(floats, None)) })
}

const fn keeping_name(floats: RangeKernel, mixed: MixedKernel) -> Implementation {
    OverRange(RangeFunction { keeps_name: true, ..plain(kernels(floats, Some(mixed))) })
}

/// A function of plain, anchored and smoothed ranges.
const fn extended(floats: [RangeKernel; 3], mixed: [MixedKernel; 3], kind: Kind) -> Implementation {
    let of_plain = Kernels { steady: Some(kind), ..kernels(floats[0], Some(mixed[0])) };
    let anchored = Some(kernels(floats[1], Some(mixed[1])));
    let smoothed = Some(kernels(floats[2], Some(mixed[2])));
    OverRange(RangeFunction { anchored, smoothed, of_counters: kind.is_counter, ..plain(of_plain) })
}

const fn anchorable(floats: [RangeKernel; 2], mixed: [MixedKernel; 2]) -> Implementation {
    let of_plain = kernels(floats[0], Some(mixed[0]));
    let anchored = Some(kernels(floats[1], Some(mixed[1])));
    OverRange(RangeFunction { anchored, ..plain(of_plain) })
}

/// Names, ascending, and what they stand for. `start`, `end`, `range` and `step` are numbers in a plan already.
#[rustfmt::skip]
pub(super) static TABLE: &[(&str, Implementation)] = &[
    ("abs", Map(f64::abs)),
    ("absent", Implementation::Absent),
    ("absent_over_time", Implementation::AbsentOverTime),
    ("acos", Map(math::acos)),
    ("acosh", Map(math::acosh)),
    ("asin", Map(math::asin)),
    ("asinh", Map(math::asinh)),
    ("atan", Map(math::atan)),
    ("atanh", Map(math::atanh)),
    ("avg_over_time", over_all(over_time::avg, mixed::over_time::avg)),
    ("ceil", Map(f64::ceil)),
    ("changes", anchorable(
        [over_time::changes, over_time::changes_anchored],
        [mixed::over_time::changes, mixed::over_time::changes_anchored],
    )),
    ("clamp", Implementation::Clamp),
    ("clamp_max", Implementation::ClampMax),
    ("clamp_min", Implementation::ClampMin),
    ("cos", Map(math::cos)),
    ("cosh", Map(math::cosh)),
    ("count_over_time", over_all(over_time::count, mixed::over_time::count)),
    ("day_of_month", Calendar(date::day_of_month)),
    ("day_of_week", Calendar(date::day_of_week)),
    ("day_of_year", Calendar(date::day_of_year)),
    ("days_in_month", Calendar(date::days_in_month)),
    ("deg", Map(math::deg)),
    ("delta", extended(
        [rate::delta, rate::delta_anchored, rate::delta_smoothed],
        [mixed::rate::delta, mixed::rate::delta_anchored, mixed::rate::delta_smoothed],
        rate::DELTA,
    )),
    ("deriv", over(regression::deriv)),
    ("double_exponential_smoothing",
        with_params(regression::double_exponential_smoothing, Params::SmoothingFactors)),
    ("exp", Map(math::exp)),
    ("first_over_time", keeping_name(over_time::first, mixed::over_time::first)),
    ("floor", Map(f64::floor)),
    ("histogram_avg", OfHistograms(|histogram| histogram.sum / histogram.count)),
    ("histogram_count", OfHistograms(FloatHistogram::count)),
    ("histogram_fraction", Implementation::HistogramFraction),
    ("histogram_quantile", Implementation::HistogramQuantile),
    ("histogram_quantiles", Implementation::HistogramQuantiles),
    ("histogram_stddev", OfHistograms(|histogram| histogram.variance().sqrt())),
    ("histogram_stdvar", OfHistograms(FloatHistogram::variance)),
    ("histogram_sum", OfHistograms(FloatHistogram::sum)),
    ("hour", Calendar(date::hour)),
    ("idelta", over_all(rate::idelta, mixed::rate::idelta)),
    ("increase", extended(
        [rate::increase, rate::increase_anchored, rate::increase_smoothed],
        [mixed::rate::increase, mixed::rate::increase_anchored, mixed::rate::increase_smoothed],
        rate::INCREASE,
    )),
    ("info", Implementation::Info),
    ("irate", over_all(rate::irate, mixed::rate::irate)),
    ("label_join", Implementation::LabelJoin),
    ("label_replace", Implementation::LabelReplace),
    ("last_over_time", keeping_name(over_time::last, mixed::over_time::last)),
    ("ln", Map(math::ln)),
    ("log10", Map(math::log10)),
    ("log2", Map(math::log2)),
    ("mad_over_time", over(over_time::mad)),
    ("max_of", Extremum(float::max)),
    ("max_over_time", over(over_time::max)),
    ("min_of", Extremum(float::min)),
    ("min_over_time", over(over_time::min)),
    ("minute", Calendar(date::minute)),
    ("month", Calendar(date::month)),
    ("pi", Implementation::Pi),
    ("predict_linear", over(regression::predict_linear)),
    ("present_over_time", over_all(over_time::present, mixed::over_time::present)),
    ("quantile_over_time", with_params(over_time::quantile, Params::Quantile)),
    ("rad", Map(math::rad)),
    ("rate", extended(
        [rate::rate, rate::rate_anchored, rate::rate_smoothed],
        [mixed::rate::rate, mixed::rate::rate_anchored, mixed::rate::rate_smoothed],
        rate::RATE,
    )),
    ("resets", anchorable(
        [over_time::resets, over_time::resets_anchored],
        [mixed::over_time::resets, mixed::over_time::resets_anchored],
    )),
    ("round", Implementation::Round),
    ("scalar", Implementation::Scalar),
    ("sgn", Map(math::sgn)),
    ("sin", Map(math::sin)),
    ("sinh", Map(math::sinh)),
    ("sort", Sort(Direction::Ascending)),
    ("sort_by_label", SortByLabel(Direction::Ascending)),
    ("sort_by_label_desc", SortByLabel(Direction::Descending)),
    ("sort_desc", Sort(Direction::Descending)),
    ("sqrt", Map(f64::sqrt)),
    ("start_timestamp", Implementation::StartTimestamp),
    ("stddev_over_time", over(over_time::stddev)),
    ("stdvar_over_time", over(over_time::stdvar)),
    ("sum_over_time", over_all(over_time::sum, mixed::over_time::sum)),
    ("tan", Map(math::tan)),
    ("tanh", Map(math::tanh)),
    ("time", Implementation::Time),
    ("timestamp", Implementation::Timestamp),
    ("ts_of_first_over_time", over_all(over_time::ts_of_first, mixed::over_time::ts_of_first)),
    ("ts_of_last_over_time", over_all(over_time::ts_of_last, mixed::over_time::ts_of_last)),
    ("ts_of_max_over_time", over(over_time::ts_of_max)),
    ("ts_of_min_over_time", over(over_time::ts_of_min)),
    ("vector", Implementation::Vector),
    ("year", Calendar(date::year)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promql::functions::FUNCTIONS;

    #[test]
    fn every_function_of_the_language_has_an_implementation() {
        assert!(TABLE.is_sorted_by(|a, b| a.0 < b.0));
        let folded = ["end", "range", "start", "step"];
        let names: Vec<_> = FUNCTIONS.iter().map(|f| f.name).filter(|name| !folded.contains(name)).collect();
        assert_eq!(TABLE.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    }
}
