//! Which parts of the language are on that Prometheus has behind `--enable-feature`, and how much of it a query may be.

use super::{DEPTH_MAX, QUERY_SIZE_MAX};

/// Optional parts of PromQL; the default is Prometheus'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `promql-experimental-functions`: functions and aggregations marked experimental.
    pub experimental_functions: bool,
    /// `promql-duration-expr`: arithmetic in durations. On unless turned off.
    pub duration_expr: bool,
    /// `promql-extended-range-selectors`: `anchored` and `smoothed`.
    pub extended_range_selectors: bool,
    /// `promql-binop-fill-modifiers`: `fill`, `fill_left`, `fill_right`.
    pub binop_fill_modifiers: bool,
    /// `promql-delayed-name-removal`: metric names go at the end of the evaluation.
    pub delayed_name_removal: bool,
    /// `promql-per-step-stats`: statistics of `stats=all` for each step.
    pub per_step_stats: bool,
    /// `type-and-unit-labels`: `__type__` and `__unit__` go wherever the metric name does.
    pub type_and_unit_labels: bool,
    /// `use-start-timestamps`: `rate` and its like look at start timestamps.
    pub use_start_timestamps: bool,
    /// How long and how deep a query may be.
    pub bounds: Bounds,
}

/// How long and how deep a query may be: at most [`QUERY_SIZE_MAX`] and [`DEPTH_MAX`], whatever stands here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of the text.
    pub size_max: usize,
    /// Levels of nesting.
    pub depth_max: usize,
}

impl Bounds {
    /// The widest bounds.
    pub const MAX: Self = Self { size_max: QUERY_SIZE_MAX, depth_max: DEPTH_MAX };
}

impl Features {
    /// Returns the features of a Prometheus that is started without `--enable-feature`.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            experimental_functions: false,
            duration_expr: true,
            extended_range_selectors: false,
            binop_fill_modifiers: false,
            delayed_name_removal: false,
            per_step_stats: false,
            type_and_unit_labels: false,
            use_start_timestamps: false,
            bounds: Bounds::MAX,
        }
    }

    /// Returns all features.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            experimental_functions: true,
            duration_expr: true,
            extended_range_selectors: true,
            binop_fill_modifiers: true,
            delayed_name_removal: true,
            per_step_stats: true,
            type_and_unit_labels: true,
            use_start_timestamps: true,
            bounds: Bounds::MAX,
        }
    }

    /// Turns on the feature that Prometheus calls `name`; returns whether there is one.
    pub fn enable(&mut self, name: &str) -> bool {
        let feature = match name {
            "promql-experimental-functions" => &mut self.experimental_functions,
            "promql-duration-expr" => &mut self.duration_expr,
            "promql-extended-range-selectors" => &mut self.extended_range_selectors,
            "promql-binop-fill-modifiers" => &mut self.binop_fill_modifiers,
            "promql-delayed-name-removal" => &mut self.delayed_name_removal,
            "promql-per-step-stats" => &mut self.per_step_stats,
            "type-and-unit-labels" => &mut self.type_and_unit_labels,
            "use-start-timestamps" => &mut self.use_start_timestamps,
            _ => return false,
        };
        *feature = true;
        true
    }
}

/// Operators, which are always there.
const OPERATORS: [&str; 21] = [
    "+", "/", "==", "=~", ">=", ">", "and", "or", "<", "<=", "unless", "%", "*", "!=", "!~", "^", "-", "@", "atan2",
    "</", ">/",
];

/// Aggregations, and whether they are experimental.
const AGGREGATIONS: [(&str, bool); 14] = [
    ("avg", false),
    ("bottomk", false),
    ("count", false),
    ("count_values", false),
    ("group", false),
    ("limit_ratio", true),
    ("limitk", true),
    ("max", false),
    ("min", false),
    ("quantile", false),
    ("stddev", false),
    ("stdvar", false),
    ("sum", false),
    ("topk", false),
];

impl Features {
    /// Lists the words of the language that modify expressions, and whether they are on.
    pub fn keywords(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let always = ["bool", "by", "group_left", "group_right", "ignoring", "offset", "on", "without"];
        let (extended, fill) = (self.extended_range_selectors, self.binop_fill_modifiers);
        always
            .map(|word| (word, true))
            .into_iter()
            .chain(["anchored", "smoothed"].map(|word| (word, extended)))
            .chain(["fill", "fill_left", "fill_right"].map(|word| (word, fill)))
    }

    /// Lists operators and aggregations, and whether they are on.
    pub fn operators(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let all = self.experimental_functions;
        let aggregations = AGGREGATIONS.into_iter().map(move |(name, experimental)| (name, !experimental || all));
        OPERATORS.into_iter().map(|operator| (operator, true)).chain(aggregations)
    }
}

impl Default for Features {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promql::token::TokenKind;

    #[test]
    fn every_feature_has_its_name() {
        let names = [
            "promql-experimental-functions",
            "promql-duration-expr",
            "promql-extended-range-selectors",
            "promql-binop-fill-modifiers",
            "promql-delayed-name-removal",
            "promql-per-step-stats",
            "type-and-unit-labels",
            "use-start-timestamps",
        ];
        let mut features = Features::default();
        assert!(names.iter().all(|name| features.enable(name)));
        assert_eq!(features, Features::all());
        assert!(!features.enable("promql-warp-drive"));
    }

    #[test]
    fn every_word_that_is_listed_is_known_to_the_parser() {
        for (word, _) in Features::all().keywords() {
            assert!(matches!(TokenKind::of_word(word), TokenKind::Keyword(_)), "{word}");
        }
        for (word, _) in Features::all().operators().filter(|(word, _)| word.starts_with(|c: char| c.is_alphabetic())) {
            assert!(matches!(TokenKind::of_word(word), TokenKind::Operator(_) | TokenKind::Aggregate(_)), "{word}");
        }
        assert!(Features::new().operators().any(|listed| listed == ("limitk", false)));
        assert!(Features::new().keywords().any(|listed| listed == ("fill", false)));
    }
}
