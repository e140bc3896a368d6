//! Finds the selectors of which functions need the totals of native histograms only, as Prometheus does.
//!
//! Their buckets are left out on reading. That shows: where buckets would have been reconciled nothing is said about it.

use super::{Plan, PlanKind};
use crate::promql::ast::BinaryOp;

/// What is above an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Above {
    Nothing,
    /// A function of totals.
    Totals,
    /// Something that needs the buckets, whatever else is above.
    Buckets,
}

/// Marks the selectors of a plan.
pub(super) fn mark(plan: &mut Plan) {
    mark_below(plan, Above::Nothing);
}

fn mark_below(plan: &mut Plan, above: Above) {
    match &mut plan.kind {
        PlanKind::Number(_) | PlanKind::String(_) => {}
        PlanKind::Selector(selector) => selector.only_totals = above == Above::Totals,
        PlanKind::Range(range) => range.selector.only_totals = above == Above::Totals,
        PlanKind::Subquery(subquery) => mark_below(&mut subquery.expr, Above::Buckets),
        PlanKind::Call(call) => {
            let above = match call.function.name {
                _ if above == Above::Buckets => above,
                "histogram_count" | "histogram_sum" | "histogram_avg" => Above::Totals,
                "histogram_quantile" | "histogram_quantiles" | "histogram_fraction" => Above::Buckets,
                _ => above,
            };
            call.args.iter_mut().for_each(|arg| mark_below(arg, above));
        }
        PlanKind::Aggregate(aggregate) => {
            aggregate.param.iter_mut().for_each(|param| mark_below(param, above));
            mark_below(&mut aggregate.expr, above);
        }
        PlanKind::Chain(chain) => {
            let trims = |op: BinaryOp| matches!(op, BinaryOp::TrimUpper | BinaryOp::TrimLower);
            // An operator is above all that stands to its left.
            let last_trim = chain.links.iter().rposition(|link| trims(link.op));
            let above_of = |at: usize| if last_trim.is_some_and(|last| at <= last) { Above::Buckets } else { above };
            mark_below(&mut chain.first, above_of(0));
            for (at, link) in chain.links.iter_mut().enumerate() {
                mark_below(&mut link.rhs, above_of(at));
            }
        }
        PlanKind::Sign(_, inner) | PlanKind::StepInvariant(inner) => mark_below(inner, above),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QueryTimes, build};
    use crate::promql::{self, Features};

    #[test]
    fn buckets_are_left_out_where_only_totals_are_wanted() {
        for (query, n_totals) in [
            ("histogram_count(h)", 1),
            ("histogram_sum(sum(rate(h[5m])) + h @ 5)", 2),
            ("histogram_avg(h) / h", 1),
            ("histogram_quantile(0.5, h)", 0),
            ("histogram_count(histogram_quantile(0.5, h))", 0),
            ("histogram_fraction(0, 1, histogram_count(h))", 0),
            ("histogram_count(increase(h[5m:1m]))", 0),
            ("histogram_count(h </ 1)", 0),
            ("histogram_count((a </ 1) + b)", 1),
            ("rate(h[5m])", 0),
        ] {
            let expr = promql::parse(query, &Features::all()).unwrap();
            let plan = build(&expr, &QueryTimes { start_ms: 0, end_ms: 0, step_ms: 0 }).unwrap();
            assert_eq!(format!("{plan:?}").matches("only_totals: true").count(), n_totals, "{query}");
        }
    }
}
