//! The parts of generated queries, without those that Prometheus 3.5, the oldest compared release,
//! does not have.

/// Functions of a range without other arguments.
pub(super) const OVER_RANGE: [&str; 24] = [
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "changes",
    "resets",
    "deriv",
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "last_over_time",
    "present_over_time",
    "mad_over_time",
    "ts_of_min_over_time",
    "ts_of_max_over_time",
    "ts_of_last_over_time",
    "rate",
    "increase",
    "avg_over_time",
];

/// Functions of each value.
pub(super) const MAPS: [&str; 10] = [
    "abs",
    "ceil",
    "deg",
    "floor",
    "rad",
    "round",
    "sgn",
    "sqrt",
    "sort",
    "sort_desc",
];

/// Functions that may differ in the last digit. They are outermost, as further operations may
/// increase the difference.
pub(super) const ROUNDED_MAPS: [&str; 13] = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "exp", "ln", "log10", "log2",
    "sinh", "tanh",
];

pub(super) const CALENDAR: [&str; 8] = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "hour",
    "minute",
    "month",
    "year",
];

/// Functions of native histograms, which have no result for floats.
pub(super) const OF_HISTOGRAMS: [&str; 5] = [
    "histogram_avg",
    "histogram_count",
    "histogram_sum",
    "histogram_stddev",
    "histogram_stdvar",
];

pub(super) const FOLDS: [&str; 8] = [
    "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar",
];
pub(super) const ARITHMETIC: [&str; 5] = ["+", "-", "*", "/", "%"];

/// Operators that may differ in the last digit.
pub(super) const ROUNDED_ARITHMETIC: [&str; 2] = ["^", "atan2"];
pub(super) const COMPARISONS: [&str; 6] = ["==", "!=", ">", "<", ">=", "<="];
pub(super) const NUMBERS: [&str; 22] = [
    "0", "1", "2", "-1", "0.5", "3.7", "-2.5", "10", "100", "1e3", "1e9", "0x1f", "1e-3", "Inf",
    "-Inf", "NaN", "5m", "1h30m", "0.1", "7", "-0", "1_000",
];
pub(super) const QUANTILES: [&str; 10] = [
    "0", "0.1", "0.5", "0.9", "0.99", "1", "-1", "2", "NaN", "0.25",
];
pub(super) const DURATIONS: [&str; 12] = [
    "1m",
    "2m",
    "5m",
    "10m",
    "90s",
    "20m",
    "37s",
    "300",
    "15s",
    "1h",
    "4m30s500ms",
    "61.5",
];
pub(super) const STEPS: [&str; 7] = ["", "30s", "1m", "13s", "2m", "45", "7m"];
pub(super) const SHIFTS: [&str; 8] = ["1m", "-1m", "5m", "10m", "-3m", "17s", "20m", "1ms"];

/// Selectors of several metrics.
pub(super) const SELECTORS_BY_NAME: [&str; 6] = [
    "{__name__=~\"memory.*\"}",
    "{job=\"node\"}",
    "{__name__!=\"up\", job=\"db\", instance=~\"host-.*:80\", mode=\"\", code=\"\", le=\"\"}",
    "{__name__=~\"up|queue_length\", job!~\"a.*\"}",
    "{kind=~\".+\", le=\"\"}",
    "{\"mésure.grad\"}",
];
