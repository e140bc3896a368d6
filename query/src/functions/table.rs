//! The table of function implementations.

use super::Implementation::{self, Extremum, OverRange, Sort, SortByLabel};
use super::SeriesFunction::{Calendar, Clamp, Map, MapHistograms, Round};
use super::window::SampleValue;
use super::{
    Direction, HistogramKernel, Kernels, Params, RangeFunction, RangeKernel, RateKind,
    SeriesFunction, native, over_time, rate, regression,
};
use crate::date::Civil;
use crate::histogram::FloatHistogram;
use crate::math::{self, float};

const fn map(f: fn(f64) -> f64) -> Implementation {
    Implementation::PerSeries(Map(f))
}

const fn calendar(f: fn(&Civil) -> f64) -> Implementation {
    Implementation::PerSeries(Calendar(f))
}

const fn map_histograms(f: fn(&FloatHistogram) -> f64) -> Implementation {
    Implementation::PerSeries(MapHistograms(f))
}

const fn per_series(function: SeriesFunction) -> Implementation {
    Implementation::PerSeries(function)
}

/// A range function of floats that ignores histograms.
const fn over(floats: RangeKernel) -> Implementation {
    OverRange(plain(kernels(floats, None)))
}

/// A range function of floats and histograms.
const fn over_all(floats: RangeKernel, histograms: HistogramKernel) -> Implementation {
    OverRange(plain(kernels(floats, Some(histograms))))
}

const fn kernels(floats: RangeKernel, histograms: Option<HistogramKernel>) -> Kernels {
    Kernels {
        floats,
        histograms,
        sliding: None,
    }
}

const fn plain(plain: Kernels) -> RangeFunction {
    let params = Params::Any;
    RangeFunction {
        plain,
        anchored: None,
        smoothed: None,
        keeps_name: false,
        needs_counter: false,
        params,
    }
}

const fn with_params(floats: RangeKernel, params: Params) -> Implementation {
    OverRange(RangeFunction {
        params,
        ..plain(kernels(floats, None))
    })
}

const fn keeping_name(floats: RangeKernel, histograms: HistogramKernel) -> Implementation {
    OverRange(RangeFunction {
        keeps_name: true,
        ..plain(kernels(floats, Some(histograms)))
    })
}

/// Implementation of a rate function for plain, anchored and smoothed ranges.
macro_rules! change_over {
    ($kind:expr) => {{
        const KIND: RateKind = $kind;
        let plain_kernels: Kernels = kernels(
            |window, _| rate::extrapolated(window, KIND),
            Some(|w, out| native::rate::extrapolated(w, KIND, out)),
        );
        let anchored: Kernels = kernels(
            |window, _| rate::extended(window, KIND, false),
            Some(|window, out| native::extended::extended(window, KIND, false, out)),
        );
        let smoothed: Kernels = kernels(
            |window, _| rate::extended(window, KIND, true),
            Some(|window, out| native::extended::extended(window, KIND, true, out)),
        );
        OverRange(RangeFunction {
            anchored: Some(anchored),
            smoothed: Some(smoothed),
            needs_counter: KIND.is_counter,
            ..plain(Kernels {
                sliding: Some(KIND),
                ..plain_kernels
            })
        })
    }};
}

const fn anchorable(floats: [RangeKernel; 2], histograms: [HistogramKernel; 2]) -> Implementation {
    let anchored = Some(kernels(floats[1], Some(histograms[1])));
    OverRange(RangeFunction {
        anchored,
        ..plain(kernels(floats[0], Some(histograms[0])))
    })
}

/// All functions, in ascending order of names. `start`, `end`, `range` and `step` are missing,
/// because a plan has numbers in their place.
#[rustfmt::skip]
pub(super) static TABLE: &[(&str, Implementation)] = &[
    ("abs", map(f64::abs)),
    ("absent", Implementation::Absent),
    ("absent_over_time", Implementation::AbsentOverTime),
    ("acos", map(math::acos)),
    ("acosh", map(math::acosh)),
    ("asin", map(math::asin)),
    ("asinh", map(math::asinh)),
    ("atan", map(math::atan)),
    ("atanh", map(math::atanh)),
    ("avg_over_time", over_all(over_time::avg, native::over_time::avg)),
    ("ceil", map(f64::ceil)),
    ("changes", anchorable(
        [over_time::changes, over_time::changes_anchored],
        [native::over_time::changes, native::over_time::changes_anchored],
    )),
    ("clamp", per_series(Clamp { min: Some(1), max: Some(2) })),
    ("clamp_max", per_series(Clamp { min: None, max: Some(1) })),
    ("clamp_min", per_series(Clamp { min: Some(1), max: None })),
    ("cos", map(math::cos)),
    ("cosh", map(math::cosh)),
    ("count_over_time", over_all(|w, _| Some(w.values.len() as f64), native::over_time::count)),
    ("day_of_month", calendar(|civil| civil.day as f64)),
    ("day_of_week", calendar(|civil| civil.weekday as f64)),
    ("day_of_year", calendar(|civil| civil.year_day as f64)),
    ("days_in_month", calendar(|civil| civil.days_in_month() as f64)),
    ("deg", map(math::deg)),
    ("delta", change_over!(rate::DELTA)),
    ("deriv", over(regression::deriv)),
    ("double_exponential_smoothing",
        with_params(regression::double_exponential_smoothing, Params::SmoothingFactors)),
    ("exp", map(math::exp)),
    ("first_over_time", keeping_name(|w, _| w.values.first().copied(), native::over_time::first)),
    ("floor", map(f64::floor)),
    ("histogram_avg", map_histograms(|histogram| histogram.sum / histogram.count)),
    ("histogram_count", map_histograms(FloatHistogram::count)),
    ("histogram_fraction", Implementation::HistogramFraction),
    ("histogram_quantile", Implementation::HistogramQuantile),
    ("histogram_quantiles", Implementation::HistogramQuantiles),
    ("histogram_stddev", map_histograms(|histogram| histogram.variance().sqrt())),
    ("histogram_stdvar", map_histograms(FloatHistogram::variance)),
    ("histogram_sum", map_histograms(FloatHistogram::sum)),
    ("hour", calendar(|civil| civil.hour as f64)),
    ("idelta", over_all(rate::idelta, native::rate::idelta)),
    ("increase", change_over!(rate::INCREASE)),
    ("info", Implementation::Info),
    ("integral", with_params(over_time::integral, Params::Strategy)),
    ("irate", over_all(rate::irate, native::rate::irate)),
    ("label_join", Implementation::LabelJoin),
    ("label_replace", Implementation::LabelReplace),
    ("last_over_time", keeping_name(|w, _| w.values.last().copied(), native::over_time::last)),
    ("ln", map(math::ln)),
    ("log10", map(math::log10)),
    ("log2", map(math::log2)),
    ("mad_over_time", over(over_time::mad)),
    ("max_of", Extremum(float::max)),
    ("max_over_time", over(over_time::max)),
    ("min_of", Extremum(float::min)),
    ("min_over_time", over(over_time::min)),
    ("minute", calendar(|civil| civil.minute as f64)),
    ("month", calendar(|civil| civil.month as f64)),
    ("pi", Implementation::Pi),
    ("predict_linear", over(regression::predict_linear)),
    ("present_over_time", over_all(|_, _| Some(1.0), |_, _| Some(SampleValue::Float(1.0)))),
    ("quantile_over_time", with_params(over_time::quantile, Params::Quantile)),
    ("rad", map(math::rad)),
    ("rate", change_over!(rate::RATE)),
    ("resets", anchorable(
        [over_time::resets, over_time::resets_anchored],
        [native::over_time::resets, native::over_time::resets_anchored],
    )),
    ("round", per_series(Round)),
    ("scalar", Implementation::Scalar),
    ("sgn", map(math::sgn)),
    ("sin", map(math::sin)),
    ("sinh", map(math::sinh)),
    ("sort", Sort(Direction::Ascending)),
    ("sort_by_label", SortByLabel(Direction::Ascending)),
    ("sort_by_label_desc", SortByLabel(Direction::Descending)),
    ("sort_desc", Sort(Direction::Descending)),
    ("sqrt", map(f64::sqrt)),
    ("start_timestamp", Implementation::StartTimestamp),
    ("stddev_over_time", over(over_time::stddev)),
    ("stdvar_over_time", over(over_time::stdvar)),
    ("sum_over_time", over_all(over_time::sum, native::over_time::sum)),
    ("tan", map(math::tan)),
    ("tanh", map(math::tanh)),
    ("time", Implementation::Time),
    ("timestamp", Implementation::Timestamp),
    ("ts_of_first_over_time", over_all(|w, _| Some(w.ends_ms().0 as f64 / 1000.0), native::over_time::ts_of_first)),
    ("ts_of_last_over_time", over_all(|w, _| Some(w.ends_ms().1 as f64 / 1000.0), native::over_time::ts_of_last)),
    ("ts_of_max_over_time", over(over_time::ts_of_max)),
    ("ts_of_min_over_time", over(over_time::ts_of_min)),
    ("vector", Implementation::Vector),
    ("year", calendar(|civil| civil.year as f64)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use varve_promql::functions::FUNCTIONS;

    #[test]
    fn every_function_of_the_language_has_an_implementation() {
        assert!(TABLE.is_sorted_by(|a, b| a.0 < b.0));
        let folded = ["end", "range", "start", "step"];
        let names: Vec<_> = FUNCTIONS
            .iter()
            .map(|f| f.name)
            .filter(|name| !folded.contains(name))
            .collect();
        assert_eq!(
            TABLE.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            names
        );
    }
}
