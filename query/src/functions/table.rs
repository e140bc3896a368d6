//! The table of all functions.

use super::Implementation::{self, Calendar, Extremum, Map, OfHistograms, OverRange, Sort, SortByLabel};
use super::{Direction, Params, RangeFunction, RangeKernel, date, math, over_time, rate, regression};
use crate::float;

const fn over(kernel: RangeKernel) -> Implementation {
    OverRange(plain(kernel))
}

const fn plain(kernel: RangeKernel) -> RangeFunction {
    let params = Params::Any;
    RangeFunction { kernel, anchored: None, smoothed: None, keeps_name: false, of_counters: false, params }
}

const fn with_params(kernel: RangeKernel, params: Params) -> Implementation {
    OverRange(RangeFunction { params, ..plain(kernel) })
}

const fn keeping_name(kernel: RangeKernel) -> Implementation {
    OverRange(RangeFunction { keeps_name: true, ..plain(kernel) })
}

const fn extended(kernels: [RangeKernel; 3], of_counters: bool) -> Implementation {
    let [kernel, anchored, smoothed] = kernels;
    OverRange(RangeFunction { anchored: Some(anchored), smoothed: Some(smoothed), of_counters, ..plain(kernel) })
}

const fn anchorable(kernel: RangeKernel, anchored: RangeKernel) -> Implementation {
    OverRange(RangeFunction { anchored: Some(anchored), ..plain(kernel) })
}

/// Names, ascending, and what they stand for. `start`, `end`, `range` and `step` are numbers in a plan already.
#[rustfmt::skip]
pub(super) static TABLE: &[(&str, Implementation)] = &[
    ("abs", Map(f64::abs)),
    ("absent", Implementation::Absent),
    ("absent_over_time", Implementation::AbsentOverTime),
    ("acos", Map(f64::acos)),
    ("acosh", Map(math::acosh)),
    ("asin", Map(f64::asin)),
    ("asinh", Map(math::asinh)),
    ("atan", Map(f64::atan)),
    ("atanh", Map(f64::atanh)),
    ("avg_over_time", over(over_time::avg)),
    ("ceil", Map(f64::ceil)),
    ("changes", anchorable(over_time::changes, over_time::changes_anchored)),
    ("clamp", Implementation::Clamp),
    ("clamp_max", Implementation::ClampMax),
    ("clamp_min", Implementation::ClampMin),
    ("cos", Map(f64::cos)),
    ("cosh", Map(math::cosh)),
    ("count_over_time", over(over_time::count)),
    ("day_of_month", Calendar(date::day_of_month)),
    ("day_of_week", Calendar(date::day_of_week)),
    ("day_of_year", Calendar(date::day_of_year)),
    ("days_in_month", Calendar(date::days_in_month)),
    ("deg", Map(math::deg)),
    ("delta", extended([rate::delta, rate::delta_anchored, rate::delta_smoothed], false)),
    ("deriv", over(regression::deriv)),
    ("double_exponential_smoothing",
        with_params(regression::double_exponential_smoothing, Params::SmoothingFactors)),
    ("exp", Map(f64::exp)),
    ("first_over_time", keeping_name(over_time::first)),
    ("floor", Map(f64::floor)),
    ("histogram_avg", OfHistograms),
    ("histogram_count", OfHistograms),
    ("histogram_fraction", Implementation::HistogramFraction),
    ("histogram_quantile", Implementation::HistogramQuantile),
    ("histogram_quantiles", Implementation::HistogramQuantiles),
    ("histogram_stddev", OfHistograms),
    ("histogram_stdvar", OfHistograms),
    ("histogram_sum", OfHistograms),
    ("hour", Calendar(date::hour)),
    ("idelta", over(rate::idelta)),
    ("increase", extended([rate::increase, rate::increase_anchored, rate::increase_smoothed], true)),
    ("info", Implementation::Info),
    ("irate", over(rate::irate)),
    ("label_join", Implementation::LabelJoin),
    ("label_replace", Implementation::LabelReplace),
    ("last_over_time", keeping_name(over_time::last)),
    ("ln", Map(f64::ln)),
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
    ("present_over_time", over(over_time::present)),
    ("quantile_over_time", with_params(over_time::quantile, Params::Quantile)),
    ("rad", Map(math::rad)),
    ("rate", extended([rate::rate, rate::rate_anchored, rate::rate_smoothed], true)),
    ("resets", anchorable(over_time::resets, over_time::resets_anchored)),
    ("round", Implementation::Round),
    ("scalar", Implementation::Scalar),
    ("sgn", Map(math::sgn)),
    ("sin", Map(f64::sin)),
    ("sinh", Map(math::sinh)),
    ("sort", Sort(Direction::Ascending)),
    ("sort_by_label", SortByLabel(Direction::Ascending)),
    ("sort_by_label_desc", SortByLabel(Direction::Descending)),
    ("sort_desc", Sort(Direction::Descending)),
    ("sqrt", Map(f64::sqrt)),
    ("start_timestamp", Implementation::StartTimestamp),
    ("stddev_over_time", over(over_time::stddev)),
    ("stdvar_over_time", over(over_time::stdvar)),
    ("sum_over_time", over(over_time::sum)),
    ("tan", Map(f64::tan)),
    ("tanh", Map(f64::tanh)),
    ("time", Implementation::Time),
    ("timestamp", Implementation::Timestamp),
    ("ts_of_first_over_time", over(over_time::ts_of_first)),
    ("ts_of_last_over_time", over(over_time::ts_of_last)),
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
