//! Matchers that one side of `and` or `unless` gives to the other, so that it reads no series that cannot meet any.
//!
//! Safe are plain selectors on the side that is narrowed: they have nothing to say about series that are left out, and the
//! set operators have no errors. Functions and arithmetic have both, so that they are left alone.

use varve_tsdb::Matcher;
use varve_tsdb::labels::METRIC_NAME;

use super::{Chain, Plan, PlanKind, Selector};
use crate::functions::Implementation;
use crate::promql::ast::{BinaryOp, VectorMatching};

/// Narrows the selectors of a plan.
pub(crate) fn propagate(plan: &mut Plan) {
    plan.children_mut().into_iter().for_each(propagate);
    if let PlanKind::Chain(chain) = &mut plan.kind {
        narrow(chain);
    }
}

/// Narrows both sides of the first operator of a chain, whose left side is an expression of its own.
fn narrow(Chain { first, links }: &mut Chain) {
    let Some(link) = links.first_mut() else { return };
    let Some(matching) = &link.matching else { return };
    if !matches!(link.op, BinaryOp::And | BinaryOp::Unless) {
        return;
    }
    let of_left = given(first, matching);
    let of_right = given(&link.rhs, matching);
    if link.op == BinaryOp::And {
        take(first, of_right);
    }
    take(&mut link.rhs, of_left);
}

/// Returns the matchers that all series of an expression pass, of labels that decide with whom a series meets.
fn given(plan: &Plan, matching: &VectorMatching) -> Vec<Matcher> {
    let decides = |name: &str| {
        let named = matching.labels.iter().any(|label| label == name);
        name != METRIC_NAME && named == matching.on
    };
    let matchers = selector(plan).map_or(&[][..], |selector| &selector.matchers);
    matchers.iter().filter(|matcher| decides(matcher.name())).cloned().collect()
}

/// Returns the selector whose series are those of an expression, but for their names.
fn selector(plan: &Plan) -> Option<&Selector> {
    match &plan.kind {
        PlanKind::Selector(selector) => Some(selector),
        PlanKind::StepInvariant(inner) | PlanKind::Sign(_, inner) => selector(inner),
        PlanKind::Call(call) => match call.implementation {
            Implementation::OverRange(_) => call.args.iter().find_map(|arg| match &arg.kind {
                PlanKind::Range(range) => Some(&range.selector),
                _ => None,
            }),
            Implementation::Map(_) => call.args.first().and_then(selector),
            _ => None,
        },
        _ => None,
    }
}

/// Adds matchers to a plain selector.
fn take(plan: &mut Plan, matchers: Vec<Matcher>) {
    match &mut plan.kind {
        PlanKind::Selector(selector) if selector.extension.is_none() => {
            for matcher in matchers {
                if !selector.matchers.iter().any(|known| known.to_string() == matcher.to_string()) {
                    selector.matchers.push(matcher);
                }
            }
        }
        PlanKind::StepInvariant(inner) => take(inner, matchers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QueryTimes, build, describe};
    use super::*;
    use crate::promql::{self, Features};

    fn check(query: &str, expect: &[&str]) {
        let expr = promql::parse(query, &Features::all()).unwrap();
        let mut plan = build(&expr, &QueryTimes { start_ms: 0, end_ms: 0, step_ms: 0 }).unwrap();
        propagate(&mut plan);
        let sides: Vec<_> = plan.children().into_iter().map(describe).collect();
        assert_eq!(sides, expect, "{query}");
    }

    #[test]
    fn both_sides_of_a_set_operator_read_what_can_meet() {
        check("a{x=\"1\"} and b{y=\"2\"}", &["a{x=\"1\", y=\"2\"}", "b{y=\"2\", x=\"1\"}"]);
        check("a{x=\"1\"} and on(x) b{y=\"2\"}", &["a{x=\"1\"}", "b{y=\"2\", x=\"1\"}"]);
        check("a{x=\"1\"} unless ignoring(x) b{y=\"2\"}", &["a{x=\"1\"}", "b{y=\"2\"}"]);
        check("rate(a{x=\"1\"}[5m]) unless b{y=\"2\"}", &["rate()", "b{y=\"2\", x=\"1\"}"]);
    }

    #[test]
    fn what_could_say_something_or_fail_is_left_alone() {
        check("a{x=\"1\"} or b", &["a{x=\"1\"}", "b"]);
        check("a{x=\"1\"} * b", &["a{x=\"1\"}", "b"]);
        check("a{x=\"1\"} and rate(b[5m])", &["a{x=\"1\"}", "rate()"]);
        check("sum by (x) (a{x=\"1\"}) and b", &["sum by (x)", "b"]);
    }
}
