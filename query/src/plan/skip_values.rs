//! Finds the selectors of which only the times of samples are needed, as in `count(up)`.
//!
//! Their values are not decoded, so such a query costs a fraction of one that reads values. The
//! results are the same.

use std::collections::HashSet;

use varve_promql::ast::AggregateOp;

use super::tree::{Plan, PlanKind, Selector};

/// Marks the selectors of a plan. If an equal selector needs values, both read them, because equal
/// selectors are read once.
pub(super) fn mark(plan: &mut Plan) {
    let mut with_values = HashSet::new();
    visit(plan, Need::Values, &mut |selector, need| {
        if need == Need::Values {
            with_values.insert(format!("{selector:?}"));
        }
    });
    visit(plan, Need::Values, &mut |selector, need| {
        selector.skip_values =
            need == Need::Times && !with_values.contains(&format!("{selector:?}"));
    });
}

/// What the operator above an expression needs of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Values,
    Times,
}

/// Calls `found` with each selector.
fn visit(plan: &mut Plan, need: Need, found: &mut impl FnMut(&mut Selector, Need)) {
    let below = match &plan.kind {
        PlanKind::StepInvariant(_) => need,
        PlanKind::Aggregate(aggregate)
            if matches!(aggregate.op, AggregateOp::Count | AggregateOp::Group) =>
        {
            Need::Times
        }
        PlanKind::Call(call) => match call.function.name {
            "absent" | "absent_over_time" | "count_over_time" | "present_over_time" => Need::Times,
            _ => Need::Values,
        },
        _ => Need::Values,
    };
    match &mut plan.kind {
        PlanKind::Selector(selector) if selector.extension.is_some() => {
            found(selector, Need::Values)
        }
        PlanKind::Selector(selector) => found(selector, need),
        PlanKind::Range(range) if range.selector.extension.is_some() => {
            found(&mut range.selector, Need::Values)
        }
        PlanKind::Range(range) => found(&mut range.selector, need),
        _ => {
            for child in plan.children_mut() {
                visit(child, below, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::planner::build;
    use crate::steps::Steps;
    use varve_promql::Features;

    #[test]
    fn values_are_skipped_if_only_times_are_needed() {
        for (query, n_skipped) in [
            ("count(up)", 1),
            ("group by (job) (up) + on (job) count by (job) (down)", 2),
            ("count(up @ 5)", 1),
            ("count(count by (a) (up))", 1),
            ("count_over_time(up[5m]) > 3", 1),
            (
                "absent(up) or absent_over_time(up[1m]) or present_over_time(up[1m])",
                3,
            ),
            // Values matter.
            ("up", 0),
            ("sum(up)", 0),
            ("count(up == 1)", 0),
            ("count(-up)", 0),
            ("count(rate(up[5m]))", 0),
            ("count_values(\"v\", up)", 0),
            ("count(up smoothed)", 0),
            ("count_over_time((up > 1)[5m:1m])", 0),
            // Equal selectors are read once.
            ("sum(up) / count(up)", 0),
            ("count(up) / sum(up)", 0),
            ("count(up) / count by (job) (up)", 2),
            ("count(up) / sum(up offset 1m)", 1),
        ] {
            let expr = varve_promql::parse(query, &Features::all()).unwrap();
            let plan = build(&expr, Steps::range(0, 60_000, 15_000)).unwrap();
            assert_eq!(
                format!("{plan:?}").matches("skip_values: true").count(),
                n_skipped,
                "{query}"
            );
        }
    }
}
