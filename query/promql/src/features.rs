//! Optional parts of the language, which Prometheus enables with `--enable-feature`, and limits on
//! queries.

use super::ast::AggregateOp;
use crate::limits::{DEPTH_MAX, QUERY_SIZE_MAX};

/// Optional parts of PromQL. The defaults are those of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `promql-experimental-functions`: experimental functions and aggregations.
    pub experimental_functions: bool,
    /// `promql-binop-fill-modifiers`: `fill`, `fill_left`, `fill_right`.
    pub binop_fill_modifiers: bool,
    /// `promql-delayed-name-removal`: metric names are removed at the end of the evaluation.
    pub delayed_name_removal: bool,
    /// `promql-unquoted-utf8-names`: names outside of quotes may have Unicode letters and dots.
    pub unquoted_utf8_names: bool,
    /// `promql-per-step-stats`: `stats=all` has statistics per step.
    pub per_step_stats: bool,
    /// `type-and-unit-labels`: `__type__` and `__unit__` are removed with the metric name.
    pub type_and_unit_labels: bool,
    /// `use-start-timestamps`: `rate` and similar functions use start timestamps.
    pub use_start_timestamps: bool,
    /// Limits on the size of a query.
    pub limits: Limits,
}

/// Limits on the size of a query, at most [`QUERY_SIZE_MAX`] and [`DEPTH_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size in bytes.
    pub size_max: usize,
    /// Maximum nesting depth.
    pub depth_max: usize,
}

impl Limits {
    /// The highest limits.
    pub const MAX: Self = Self {
        size_max: QUERY_SIZE_MAX,
        depth_max: DEPTH_MAX,
    };
}

impl Features {
    /// Returns the features of a Prometheus that is started without `--enable-feature`.
    #[must_use]
    pub const fn new() -> Self {
        Self::with(false)
    }

    /// Returns all features.
    #[must_use]
    pub const fn all() -> Self {
        Self::with(true)
    }

    const fn with(optional: bool) -> Self {
        Self {
            experimental_functions: optional,
            binop_fill_modifiers: optional,
            delayed_name_removal: optional,
            unquoted_utf8_names: optional,
            per_step_stats: optional,
            type_and_unit_labels: optional,
            use_start_timestamps: optional,
            limits: Limits::MAX,
        }
    }

    /// Enables the feature with Prometheus' name `name`. Returns `true` if it exists.
    pub fn enable(&mut self, name: &str) -> bool {
        let feature = match name {
            "promql-experimental-functions" => &mut self.experimental_functions,
            // Always enabled, as in Prometheus.
            "promql-duration-expr" | "promql-extended-range-selectors" => return true,
            "promql-unquoted-utf8-names" => &mut self.unquoted_utf8_names,
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

/// Operators, which are always enabled.
const OPERATORS: [&str; 21] = [
    "+", "/", "==", "=~", ">=", ">", "and", "or", "<", "<=", "unless", "%", "*", "!=", "!~", "^",
    "-", "@", "atan2", "</", ">/",
];

impl Features {
    /// Returns the keywords that modify expressions, and whether they are enabled.
    pub fn keywords(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let always = [
            "bool",
            "by",
            "group_left",
            "group_right",
            "ignoring",
            "offset",
            "on",
            "without",
            "anchored",
            "smoothed",
        ];
        let fill =
            ["fill", "fill_left", "fill_right"].map(|keyword| (keyword, self.binop_fill_modifiers));
        always
            .map(|keyword| (keyword, true))
            .into_iter()
            .chain(fill)
    }

    /// Returns operators and aggregations, and whether they are enabled.
    pub fn operators(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let all = self.experimental_functions;
        let aggregations = AggregateOp::ALL
            .into_iter()
            .map(move |op| (op.as_str(), all || !op.is_experimental()));
        OPERATORS
            .into_iter()
            .map(|operator| (operator, true))
            .chain(aggregations)
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
    use crate::token::TokenKind;

    #[test]
    fn every_feature_can_be_enabled_by_name() {
        let names = [
            "promql-experimental-functions",
            "promql-duration-expr",
            "promql-extended-range-selectors",
            "promql-binop-fill-modifiers",
            "promql-delayed-name-removal",
            "promql-per-step-stats",
            "promql-unquoted-utf8-names",
            "type-and-unit-labels",
            "use-start-timestamps",
        ];
        let mut features = Features::default();
        assert!(names.iter().all(|name| features.enable(name)));
        assert_eq!(features, Features::all());
        assert!(!features.enable("promql-warp-drive"));
    }

    #[test]
    fn every_listed_keyword_is_known_to_the_parser() {
        for (word, _) in Features::all().keywords() {
            assert!(
                matches!(TokenKind::of_identifier(word), TokenKind::Keyword(_)),
                "{word}"
            );
        }
        for (word, _) in Features::all()
            .operators()
            .filter(|(word, _)| word.starts_with(|c: char| c.is_alphabetic()))
        {
            assert!(
                matches!(
                    TokenKind::of_identifier(word),
                    TokenKind::Operator(_) | TokenKind::Aggregate(_)
                ),
                "{word}"
            );
        }
        assert!(
            Features::new()
                .operators()
                .any(|listed| listed == ("limitk", false))
        );
        assert!(
            Features::new()
                .keywords()
                .any(|listed| listed == ("fill", false))
        );
    }
}
