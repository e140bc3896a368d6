//! The signatures of all functions of PromQL in Prometheus 3.16.

use crate::ast::value_type::ValueType;
use ValueType::{Matrix, Scalar, String, Vector};

/// The name and signature of a function.
#[derive(Debug, PartialEq)]
pub struct Function {
    /// The name in PromQL.
    pub name: &'static str,
    /// Types of the arguments. `variadic` determines how often the last argument repeats.
    pub args: &'static [ValueType],
    /// Number of arguments that the last type stands for, as in Prometheus: 0 means exactly one,
    /// `n` up to `n`, and a negative number any number.
    pub variadic: i8,
    /// The type of the result.
    pub return_type: ValueType,
    /// Requires the feature `promql-experimental-functions`.
    pub experimental: bool,
}

impl Function {
    /// Returns the minimum number of arguments.
    #[must_use]
    pub const fn args_min(&self) -> usize {
        self.args.len() - (self.variadic != 0) as usize
    }

    /// Returns the maximum number of arguments; `None` if there is none.
    #[must_use]
    pub const fn args_max(&self) -> Option<usize> {
        match self.variadic {
            0 => Some(self.args.len()),
            1.. => Some(self.args_min() + self.variadic as usize),
            _ => None,
        }
    }

    /// Returns the type of the argument at a position.
    #[must_use]
    pub fn arg_type(&self, position: usize) -> Option<ValueType> {
        match self.variadic {
            0 => self.args.get(position).copied(),
            _ => self.args.get(position).or(self.args.last()).copied(),
        }
    }

    const fn variadic(mut self, n: i8) -> Self {
        self.variadic = n;
        self
    }

    const fn experimental(mut self) -> Self {
        self.experimental = true;
        self
    }
}

/// Finds a function by its case-sensitive name. Cost: a binary search.
#[must_use]
pub fn lookup(name: &str) -> Option<&'static Function> {
    FUNCTIONS
        .binary_search_by(|function| function.name.cmp(name))
        .ok()
        .map(|at| &FUNCTIONS[at])
}

const fn function(
    name: &'static str,
    args: &'static [ValueType],
    return_type: ValueType,
) -> Function {
    Function {
        name,
        args,
        variadic: 0,
        return_type,
        experimental: false,
    }
}

/// All functions, in ascending order of names.
#[rustfmt::skip]
pub static FUNCTIONS: &[Function] = &[
    function("abs", &[Vector], Vector),
    function("absent", &[Vector], Vector),
    function("absent_over_time", &[Matrix], Vector),
    function("acos", &[Vector], Vector),
    function("acosh", &[Vector], Vector),
    function("asin", &[Vector], Vector),
    function("asinh", &[Vector], Vector),
    function("atan", &[Vector], Vector),
    function("atanh", &[Vector], Vector),
    function("avg_over_time", &[Matrix], Vector),
    function("ceil", &[Vector], Vector),
    function("changes", &[Matrix], Vector),
    function("clamp", &[Vector, Scalar, Scalar], Vector),
    function("clamp_max", &[Vector, Scalar], Vector),
    function("clamp_min", &[Vector, Scalar], Vector),
    function("cos", &[Vector], Vector),
    function("cosh", &[Vector], Vector),
    function("count_over_time", &[Matrix], Vector),
    function("day_of_month", &[Vector], Vector).variadic(1),
    function("day_of_week", &[Vector], Vector).variadic(1),
    function("day_of_year", &[Vector], Vector).variadic(1),
    function("days_in_month", &[Vector], Vector).variadic(1),
    function("deg", &[Vector], Vector),
    function("delta", &[Matrix], Vector),
    function("deriv", &[Matrix], Vector),
    function("double_exponential_smoothing", &[Matrix, Scalar, Scalar], Vector).experimental(),
    function("end", &[], Scalar).experimental(),
    function("exp", &[Vector], Vector),
    function("first_over_time", &[Matrix], Vector),
    function("floor", &[Vector], Vector),
    function("histogram_avg", &[Vector], Vector),
    function("histogram_count", &[Vector], Vector),
    function("histogram_fraction", &[Scalar, Scalar, Vector], Vector),
    function("histogram_quantile", &[Scalar, Vector], Vector),
    function("histogram_quantiles", &[Vector, String, Scalar, Scalar], Vector).variadic(9).experimental(),
    function("histogram_stddev", &[Vector], Vector),
    function("histogram_stdvar", &[Vector], Vector),
    function("histogram_sum", &[Vector], Vector),
    function("hour", &[Vector], Vector).variadic(1),
    function("idelta", &[Matrix], Vector),
    function("increase", &[Matrix], Vector),
    function("info", &[Vector, Vector], Vector).variadic(1).experimental(),
    function("integral", &[Matrix, Scalar], Vector).variadic(1).experimental(),
    function("irate", &[Matrix], Vector),
    function("label_join", &[Vector, String, String, String], Vector).variadic(-1),
    function("label_replace", &[Vector, String, String, String, String], Vector),
    function("last_over_time", &[Matrix], Vector),
    function("ln", &[Vector], Vector),
    function("log10", &[Vector], Vector),
    function("log2", &[Vector], Vector),
    function("mad_over_time", &[Matrix], Vector).experimental(),
    function("max_of", &[Scalar, Scalar], Scalar).experimental(),
    function("max_over_time", &[Matrix], Vector),
    function("min_of", &[Scalar, Scalar], Scalar).experimental(),
    function("min_over_time", &[Matrix], Vector),
    function("minute", &[Vector], Vector).variadic(1),
    function("month", &[Vector], Vector).variadic(1),
    function("pi", &[], Scalar),
    function("predict_linear", &[Matrix, Scalar], Vector),
    function("present_over_time", &[Matrix], Vector),
    function("quantile_over_time", &[Scalar, Matrix], Vector),
    function("rad", &[Vector], Vector),
    function("range", &[], Scalar).experimental(),
    function("rate", &[Matrix], Vector),
    function("resets", &[Matrix], Vector),
    function("round", &[Vector, Scalar], Vector).variadic(1),
    function("scalar", &[Vector], Scalar),
    function("sgn", &[Vector], Vector),
    function("sin", &[Vector], Vector),
    function("sinh", &[Vector], Vector),
    function("sort", &[Vector], Vector),
    function("sort_by_label", &[Vector, String], Vector).variadic(-1).experimental(),
    function("sort_by_label_desc", &[Vector, String], Vector).variadic(-1).experimental(),
    function("sort_desc", &[Vector], Vector),
    function("sqrt", &[Vector], Vector),
    function("start", &[], Scalar).experimental(),
    function("start_timestamp", &[Vector], Vector).experimental(),
    function("stddev_over_time", &[Matrix], Vector),
    function("stdvar_over_time", &[Matrix], Vector),
    function("step", &[], Scalar).experimental(),
    function("sum_over_time", &[Matrix], Vector),
    function("tan", &[Vector], Vector),
    function("tanh", &[Vector], Vector),
    function("time", &[], Scalar),
    function("timestamp", &[Vector], Vector),
    function("ts_of_first_over_time", &[Matrix], Vector).experimental(),
    function("ts_of_last_over_time", &[Matrix], Vector).experimental(),
    function("ts_of_max_over_time", &[Matrix], Vector).experimental(),
    function("ts_of_min_over_time", &[Matrix], Vector).experimental(),
    function("vector", &[Scalar], Vector),
    function("year", &[Vector], Vector).variadic(1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_found_by_its_name() {
        assert!(FUNCTIONS.is_sorted_by(|a, b| a.name < b.name));
        for function in FUNCTIONS {
            assert_eq!(lookup(function.name), Some(function));
        }
        assert_eq!(lookup("RATE"), None);
    }

    #[test]
    fn variadic_determines_the_number_of_arguments() {
        let bounds = |name: &str| lookup(name).map(|f| (f.args_min(), f.args_max())).unwrap();
        assert_eq!(bounds("pi"), (0, Some(0)));
        assert_eq!(bounds("hour"), (0, Some(1)));
        assert_eq!(bounds("round"), (1, Some(2)));
        assert_eq!(bounds("clamp"), (3, Some(3)));
        assert_eq!(bounds("label_join"), (3, None));
        assert_eq!(bounds("histogram_quantiles"), (3, Some(12)));
    }
}
