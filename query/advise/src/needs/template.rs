//! Expressions with dashboard variables, and the selectors that they may contain.
//!
//! A variable in a string is replaced by a placeholder. A matcher on a value with a placeholder
//! matches every value of the variable. Outside of strings, the expression is parsed with the
//! values of the variable, then with a name, a number and an operator, until one of them parses. An
//! expression that does not parse selects every metric that it names.

use std::collections::BTreeSet;

use varve_model::labels::METRIC_NAME;
use varve_model::{MatchOp, Matcher};
use varve_promql::Features;
use varve_promql::ast::{Expr, ExprKind};
use varve_query::usage::{self, LabelSet, SelectorUse};
use varve_regexp::Regexp;

use super::need::Selector;
use super::pieces::{Context, Piece, split};
use super::variables::{Values, Variables};

/// Maximum number of values of a variable to try outside of strings.
const VALUES_TRIED_MAX: usize = 64;
/// The duration for variables without a duration as value.
const DURATION: &str = "5m";
/// The prefix of a placeholder, which ends in `x`.
const PLACEHOLDER: &str = "varvevariable";

/// The selectors that an expression may contain.
#[derive(Debug)]
pub(super) struct Extracted {
    pub(super) selectors: Vec<Selector>,
    /// The expressions that can be evaluated: matchers match all values of their variables. There is
    /// one for each value of a variable outside of strings, and none if the expression does not
    /// parse.
    pub(super) exprs: Vec<String>,
    /// Whether the expression contains variables, or viewers can add matchers to it.
    pub(super) has_variables: bool,
    /// The reason why the expression does not parse. The selectors are then guessed from its words.
    pub(super) problem: Option<String>,
}

/// Extracts the selectors of an expression without variables.
pub(super) fn read_plain(text: &str) -> Extracted {
    Template {
        pieces: vec![Piece::Text(text)],
        values: Vec::new(),
    }
    .read(false)
}

/// Extracts the selectors of an expression of a dashboard.
pub(super) fn read(text: &str, variables: &Variables) -> Extracted {
    let (pieces, names) = split(text, variables);
    let values = names
        .iter()
        .map(|name| {
            variables
                .values
                .get(*name)
                .cloned()
                .unwrap_or_else(|| Values::Pattern(".*".to_owned()))
        })
        .collect();
    Template { pieces, values }.read(variables.has_filters)
}

/// Returns a selector for each word of a text that may be a metric name.
pub(super) fn words(text: &str) -> Vec<Selector> {
    Template {
        pieces: vec![Piece::Text(text)],
        values: Vec::new(),
    }
    .guess()
}

struct Template<'a> {
    pieces: Vec<Piece<'a>>,
    /// The values of each variable.
    values: Vec<Values>,
}

impl Template<'_> {
    fn read(&self, all_labels: bool) -> Extracted {
        let mut texts = self.attempts().into_iter();
        let mut first_problem = None;
        let parsed = texts.find_map(|text| match self.parse(&text, all_labels) {
            Ok(extracted) => Some(extracted),
            Err(problem) => {
                first_problem.get_or_insert(problem);
                None
            }
        });
        let Some(mut extracted) = parsed else {
            return Extracted {
                selectors: self.guess(),
                exprs: Vec::new(),
                has_variables: self.has_variables(all_labels),
                problem: first_problem,
            };
        };
        // Other values of a variable may give other selectors.
        for text in self.other_values() {
            if let Ok(other) = self.parse(&text, all_labels) {
                extracted.selectors.extend(other.selectors);
                extracted.exprs.extend(other.exprs);
            }
        }
        extracted
    }

    fn parse(&self, text: &str, all_labels: bool) -> Result<Extracted, String> {
        // The server may have any feature enabled.
        let mut expr =
            varve_promql::parse(text, &Features::all()).map_err(|error| error.to_string())?;
        let selectors = usage::of(&expr)
            .into_iter()
            .map(|used| self.resolve(used, all_labels))
            .collect();
        self.widen_selectors(&mut expr);
        Ok(Extracted {
            selectors,
            exprs: vec![varve_promql::print(&expr)],
            has_variables: self.has_variables(all_labels),
            problem: None,
        })
    }

    fn has_variables(&self, can_be_filtered: bool) -> bool {
        can_be_filtered || !self.values.is_empty()
    }

    /// Makes the selectors of an expression select all series that they may select.
    fn widen_selectors(&self, expr: &mut Expr) {
        let mut pending = vec![expr];
        while let Some(expr) = pending.pop() {
            let ExprKind::Vector(selector) = &mut expr.kind else {
                pending.extend(expr.children_mut());
                continue;
            };
            if selector.name.contains(PLACEHOLDER) {
                // The matchers have the name, too.
                selector.name.clear();
            }
            selector.matchers = std::mem::take(&mut selector.matchers)
                .into_iter()
                .filter(|matcher| !matcher.name().contains(PLACEHOLDER))
                .filter_map(|matcher| self.widen(matcher))
                .collect();
        }
    }

    /// Returns the expressions to try, most likely first. There is only one if no variable is
    /// outside of strings.
    fn attempts(&self) -> Vec<String> {
        let with_current = self.fill(|idx| {
            self.current(idx)
                .map_or_else(|| placeholder(idx), str::to_owned)
        });
        if !self.pieces.iter().any(|piece| piece.open().is_some()) {
            return vec![with_current];
        }
        let mut texts = vec![with_current, self.fill(placeholder)];
        texts.extend(["1", "sum", DURATION, ""].map(|text| self.fill(|_| text.to_owned())));
        texts
    }

    /// Returns the expressions with one variable at a value other than its current one.
    fn other_values(&self) -> Vec<String> {
        let open: BTreeSet<usize> = self.pieces.iter().filter_map(Piece::open).collect();
        let mut texts = Vec::new();
        for idx in open {
            let Values::Known(values) = &self.values[idx] else {
                continue;
            };
            for value in values.iter().skip(1).take(VALUES_TRIED_MAX) {
                texts.push(self.fill(|other| match self.current(other) {
                    _ if other == idx => value.clone(),
                    Some(current) => current.to_owned(),
                    None => placeholder(other),
                }));
            }
        }
        texts
    }

    fn current(&self, idx: usize) -> Option<&str> {
        match &self.values[idx] {
            Values::Known(values) => values.first().map(String::as_str),
            Values::Number(number) => Some(number),
            Values::Pattern(_) => None,
        }
    }

    fn fill(&self, of_open: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match *piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Variable {
                    idx,
                    context: Context::String,
                } => text.push_str(&placeholder(idx)),
                Piece::Variable {
                    idx,
                    context: Context::Duration,
                } => {
                    let current = self
                        .current(idx)
                        .filter(|value| varve_promql::duration::parse_duration(value).is_ok());
                    text.push_str(current.unwrap_or(DURATION));
                }
                Piece::Variable {
                    idx,
                    context: Context::Expression,
                } => text.push_str(&of_open(idx)),
            }
        }
        text
    }

    /// Turns matchers on placeholders into matchers of all values of the variable.
    fn resolve(&self, used: SelectorUse, all_labels: bool) -> Selector {
        let mut labels = match used.labels {
            LabelSet::Only(names) if names.iter().any(|name| name.contains(PLACEHOLDER)) => {
                LabelSet::all()
            }
            LabelSet::AllBut(names) => LabelSet::AllBut(
                names
                    .into_iter()
                    .filter(|n| !n.contains(PLACEHOLDER))
                    .collect(),
            ),
            labels @ LabelSet::Only(_) => labels,
        };
        let mut matchers = Vec::with_capacity(used.matchers.len());
        for matcher in used.matchers {
            if matcher.name().contains(PLACEHOLDER) {
                labels = LabelSet::all();
                continue;
            }
            labels = labels.union(LabelSet::Only([matcher.name().to_owned()].into()));
            matchers.extend(self.widen(matcher));
        }
        Selector {
            matchers,
            labels: if all_labels { LabelSet::all() } else { labels },
        }
    }

    /// Returns a matcher of all values of its variables. Returns `None` if every value matches.
    fn widen(&self, matcher: Matcher) -> Option<Matcher> {
        if !matcher.value().contains(PLACEHOLDER) {
            return Some(matcher);
        }
        let escape = match matcher.op() {
            MatchOp::Equal => true,
            MatchOp::Regexp => false,
            MatchOp::NotEqual | MatchOp::NotRegexp => return None,
        };
        Matcher::new(
            MatchOp::Regexp,
            matcher.name(),
            &self.pattern(matcher.value(), escape),
        )
        .ok()
    }

    /// Returns a regular expression for a text with placeholders.
    fn pattern(&self, text: &str, escape: bool) -> String {
        let mut pattern = String::new();
        let mut rest = text;
        while let Some((before, idx, after)) = split_at_placeholder(rest) {
            push_literal(&mut pattern, before, escape);
            match self.values.get(idx) {
                Some(values) => pattern.push_str(&values.pattern(escape)),
                None => pattern.push_str(".*"),
            }
            rest = after;
        }
        push_literal(&mut pattern, rest, escape);
        pattern
    }

    /// Returns a selector for each word that may be a metric name.
    fn guess(&self) -> Vec<Selector> {
        let text = self.fill(placeholder);
        let words = text
            .split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | ':' | '.'))
            .map(|word| word.trim_matches('.'));
        // A quoted name may contain any character.
        let quoted = text.split(['"', '\'', '`']).skip(1).step_by(2);
        let names: BTreeSet<&str> = words
            .chain(quoted)
            .filter(|word| !word.is_empty())
            .collect();
        names
            .into_iter()
            .filter_map(|name| {
                if name.contains(PLACEHOLDER) {
                    let matcher =
                        Matcher::new(MatchOp::Regexp, METRIC_NAME, &self.pattern(name, true))
                            .ok()?;
                    Some(Selector {
                        matchers: vec![matcher],
                        labels: LabelSet::all(),
                    })
                } else {
                    Some(Selector::of_metric(name))
                }
            })
            .collect()
    }
}

/// Appends a text to a regular expression.
fn push_literal(pattern: &mut String, text: &str, escape: bool) {
    if escape {
        pattern.push_str(&Regexp::escape(text));
    } else {
        pattern.push_str(text);
    }
}

fn placeholder(idx: usize) -> String {
    format!("{PLACEHOLDER}{idx}x")
}

fn split_at_placeholder(text: &str) -> Option<(&str, usize, &str)> {
    let (before, after) = text.split_once(PLACEHOLDER)?;
    let (idx, rest) = after.split_once('x')?;
    Some((before, idx.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let known = |values: &[&str]| {
            Values::Known(values.iter().map(|value| (*value).to_owned()).collect())
        };
        let values = [
            ("interval", known(&["10m", "1h"])),
            ("k", known(&["10"])),
            ("metric", known(&["a_total", "b_total"])),
            ("agg", known(&["sum", "max"])),
            ("found", Values::Pattern("node_.*".to_owned())),
            ("nodes", Values::Number("1000".to_owned())),
        ];
        let values = values
            .map(|(name, values)| (name.to_owned(), values))
            .into();
        Variables {
            values,
            has_filters: false,
        }
    }

    /// Checks which of a few names may match.
    fn check(text: &str, expect: &[&str]) {
        let reading = read(text, &variables());
        assert_eq!(reading.problem, None, "{text}");
        check_names(&reading, text, expect);
    }

    fn check_names(reading: &Extracted, text: &str, expect: &[&str]) {
        let names = ["a", "b", "a_total", "b_total", "node_cpu", "node_cpu_total"];
        let taken = |name: &&str| {
            reading
                .selectors
                .iter()
                .any(|selector| selector.may_match(METRIC_NAME, name))
        };
        assert_eq!(
            names.into_iter().filter(taken).collect::<Vec<_>>(),
            expect,
            "{text}"
        );
    }

    #[test]
    fn variables_match_all_their_values() {
        check("a", &["a"]);
        check(
            "rate(a{x=\"$y\", z=~'[[y]]|${y:regex}', u=~`$y.x`}[$__rate_interval])",
            &["a"],
        );
        check(
            "rate(a[$interval]) / rate(b[${undefined}] offset $interval)",
            &["a", "b"],
        );
        check("topk($k, a)", &["a"]);
        check("topk($undefined, a)", &["a"]);
        check("a * $nodes", &["a"]);
        check(
            "{__name__=~\"node_$nodes\"}",
            &["node_cpu", "node_cpu_total"],
        );
        check("$agg by ($undefined) (a)", &["a"]);
        check("$undefined(a)", &["a"]);
        check("$metric", &["a_total", "b_total"]);
        check("rate(${metric}[5m])", &["a_total", "b_total"]);
        check("node_${undefined}_total", &["node_cpu_total"]);
        check("{__name__=~\"$found\"}", &["node_cpu", "node_cpu_total"]);
        check("{__name__=\"$metric\"}", &["a_total", "b_total"]);
        check("a # $[[\n + b", &["a", "b"]);
    }

    #[test]
    fn a_variable_label_means_all_labels() {
        let labels = |text: &str| read(text, &variables()).selectors[0].labels.clone();
        assert_eq!(labels("sum by ($undefined) (a)"), LabelSet::all());
        assert_eq!(labels("sum(a{$undefined=\"x\"})"), LabelSet::all());
        assert_eq!(
            labels("sum(a{x=~\"$y\"})"),
            LabelSet::Only(["__name__".to_owned(), "x".to_owned()].into())
        );
        let filtered = Variables {
            has_filters: true,
            ..variables()
        };
        assert_eq!(
            read("sum(a)", &filtered).selectors[0].labels,
            LabelSet::all()
        );
    }

    #[test]
    fn matchers_use_known_values() {
        let selector = |text: &str| read(text, &variables()).selectors.remove(0);
        assert!(!selector("a{le=\"$interval\"}").may_match("le", "5"));
        assert!(selector("a{le=\"$interval\"}").may_match("le", "1h"));
        assert!(selector("a{le!~\"x$interval\"}").may_match("le", "x10m"));
        assert!(
            selector("label_replace(a{le=\"1\"}, \"x\", \"$1\", \"y\", \"(.*)\")")
                .may_match("le", "1")
        );
    }

    #[test]
    fn expressions_select_what_all_values_of_their_variables_select() {
        for (text, expect) in [
            (
                "a{x=\"$interval\", y!=\"$k\"} > 1",
                &["a{x=~\"(?:10m|1h)\"} > 1"][..],
            ),
            (
                "rate(a{x=~\"$undefined\"}[$interval])",
                &["rate(a{x=~\"(?:.*)\"}[10m])"],
            ),
            ("a{$undefined=\"1\"}", &["a"]),
            ("$metric", &["a_total", "b_total"]),
            (
                "$agg($metric)",
                &["sum(a_total)", "sum(b_total)", "max(a_total)"],
            ),
            (
                "node_${undefined}_total",
                &["{__name__=~\"node_(?:.*)_total\"}"],
            ),
            ("sum(a", &[]),
        ] {
            let mut exprs = read(text, &variables()).exprs;
            exprs.sort();
            let mut expect = expect.to_vec();
            expect.sort_unstable();
            assert_eq!(exprs, expect, "{text}");
        }
    }

    #[test]
    fn unparsable_expressions_use_every_metric_that_they_name() {
        for (text, expect) in [
            ("sum(a) by", &["a"][..]),
            ("rate(\"b\" ${agg", &["b"]),
            (
                "a{x=} node_$undefined{",
                &["a", "node_cpu", "node_cpu_total"],
            ),
        ] {
            let reading = read(text, &variables());
            assert!(reading.problem.is_some(), "{text}");
            check_names(&reading, text, expect);
        }
        check_names(
            &Extracted {
                selectors: words("{{ query `b > 1` }}"),
                exprs: Vec::new(),
                has_variables: false,
                problem: None,
            },
            "words",
            &["b"],
        );
    }
}
