//! Matcher propagation: adds the matchers of one side of `and` or `unless` to the other side, which
//! then skips series that cannot match.
//!
//! Only plain selectors are narrowed. Functions and arithmetic could add annotations or fail
//! because of the skipped series, so their inputs are left unchanged; plain selectors and set
//! operators do neither.

use hashbrown::HashSet;
use varve_model::{MatchOp, Matcher};
use varve_promql::ast::{BinaryOp, VectorMatching};

use super::label_names::{contains_name, is_name_label};
use super::tree::{Chain, Plan, PlanKind, Selector};
use crate::functions::{Implementation, SeriesFunction};

/// Narrows the selectors of all set operators in a plan.
pub(crate) fn propagate_matchers(plan: &mut Plan) {
    for child in plan.children_mut() {
        propagate_matchers(child);
    }
    if let PlanKind::Chain(chain) = &mut plan.kind {
        narrow(chain);
    }
}

/// Narrows both sides of the first operator of a chain.
fn narrow(Chain { first, links }: &mut Chain) {
    let Some(link) = links.first_mut() else {
        return;
    };
    let Some(matching) = &link.matching else {
        return;
    };
    if !matches!(link.op, BinaryOp::And | BinaryOp::Unless) {
        return;
    }
    let left_matchers = matchers_of(first, matching);
    let right_matchers = matchers_of(&link.rhs, matching);
    if link.op == BinaryOp::And {
        add_matchers(first, right_matchers);
    }
    add_matchers(&mut link.rhs, left_matchers);
}

/// Returns the matchers on signature labels that all series of an expression satisfy.
fn matchers_of(plan: &Plan, matching: &VectorMatching) -> Vec<Matcher> {
    // Operators drop the labels that make up a name, and `rate` drops them even if the signature
    // has them.
    let is_in_signature =
        |name: &str| !is_name_label(name) && contains_name(&matching.labels, name) == matching.on;
    let matchers = selector(plan).map_or(&[][..], |selector| &selector.matchers);
    matchers
        .iter()
        .filter(|matcher| is_in_signature(matcher.name()))
        .cloned()
        .collect()
}

/// Returns the selector whose series an expression returns, apart from their names.
fn selector(plan: &Plan) -> Option<&Selector> {
    match &plan.kind {
        PlanKind::Selector(selector) => Some(selector),
        PlanKind::StepInvariant(inner) | PlanKind::Sign(_, inner) => selector(inner),
        PlanKind::Call(call) => match call.implementation {
            Implementation::OverRange(_) => call.args.iter().find_map(|arg| match &arg.kind {
                PlanKind::Range(range) => Some(&range.selector),
                _ => None,
            }),
            Implementation::PerSeries(SeriesFunction::Map(_)) => {
                call.args.first().and_then(selector)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Adds matchers to a plain selector.
fn add_matchers(plan: &mut Plan, mut matchers: Vec<Matcher>) {
    match &mut plan.kind {
        PlanKind::Selector(selector) if selector.extension.is_none() => {
            let known: HashSet<_> = selector.matchers.iter().map(parts).collect();
            matchers.retain(|matcher| !known.contains(&parts(matcher)));
            drop(known);
            selector.matchers.append(&mut matchers);
        }
        PlanKind::StepInvariant(inner) => add_matchers(inner, matchers),
        _ => {}
    }
}

/// Returns the parts of a matcher that determine what it matches.
fn parts(matcher: &Matcher) -> (MatchOp, &str, &[u8]) {
    (matcher.op(), matcher.name(), matcher.value_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::describe::describe;
    use super::super::planner::build;
    use super::*;
    use crate::steps::Steps;
    use varve_promql::Features;

    fn check(query: &str, expect: &[&str]) {
        let expr = varve_promql::parse(query, &Features::all()).unwrap();
        let mut plan = build(&expr, Steps::instant(0)).unwrap();
        propagate_matchers(&mut plan);
        let sides: Vec<_> = plan.children().into_iter().map(describe).collect();
        assert_eq!(sides, expect, "{query}");
    }

    #[test]
    fn both_sides_of_a_set_operator_read_only_series_that_can_match() {
        check(
            "a{x=\"1\"} and b{y=\"2\"}",
            &["a{x=\"1\", y=\"2\"}", "b{y=\"2\", x=\"1\"}"],
        );
        check(
            "a{x=\"1\"} and on(x) b{y=\"2\"}",
            &["a{x=\"1\"}", "b{y=\"2\", x=\"1\"}"],
        );
        check(
            "a{x=\"1\"} unless ignoring(x) b{y=\"2\"}",
            &["a{x=\"1\"}", "b{y=\"2\"}"],
        );
        check(
            "rate(a{x=\"1\"}[5m]) unless b{y=\"2\"}",
            &["rate()", "b{y=\"2\", x=\"1\"}"],
        );
        check(
            "a{__type__=\"gauge\"} and b",
            &["a{__type__=\"gauge\"}", "b"],
        );
        check(
            "rate(a{__type__=\"gauge\"}[5m]) and on(__type__) b",
            &["rate()", "b"],
        );
    }

    #[test]
    fn expressions_with_annotations_or_errors_are_unchanged() {
        check("a{x=\"1\"} or b", &["a{x=\"1\"}", "b"]);
        check("a{x=\"1\"} * b", &["a{x=\"1\"}", "b"]);
        check("a{x=\"1\"} and rate(b[5m])", &["a{x=\"1\"}", "rate()"]);
        check("sum by (x) (a{x=\"1\"}) and b", &["sum by (x)", "b"]);
    }
}
