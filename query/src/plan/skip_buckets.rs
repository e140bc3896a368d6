//! Finds the selectors that need only the count and the sum of native histograms, by Prometheus'
//! rules.
//!
//! The buckets of these selectors are not read. This is visible: buckets that are not read cause no
//! annotations.

use varve_promql::ast::{AggregateOp, BinaryOp};

use super::tree::{Plan, PlanKind};

/// What the functions above an expression need of its histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// No function determines the need. Buckets are read.
    Unknown,
    /// Only count and sum.
    Totals,
    /// The buckets. Takes precedence over all functions below.
    Buckets,
}

/// Marks the selectors of a plan.
pub(super) fn mark(plan: &mut Plan) {
    mark_below(plan, Need::Unknown);
}

fn mark_below(plan: &mut Plan, need: Need) {
    match &mut plan.kind {
        PlanKind::Number(_) | PlanKind::String(_) => {}
        PlanKind::Selector(selector) => selector.skip_buckets = need == Need::Totals,
        PlanKind::Range(range) => range.selector.skip_buckets = need == Need::Totals,
        PlanKind::Subquery(subquery) => mark_below(&mut subquery.expr, Need::Buckets),
        PlanKind::Call(call) => {
            let need = match call.function.name {
                _ if need == Need::Buckets => need,
                "histogram_count" | "histogram_sum" | "histogram_avg" => Need::Totals,
                // These functions do not read values.
                "timestamp" | "start_timestamp" | "absent" => Need::Totals,
                "histogram_quantile" | "histogram_quantiles" | "histogram_fraction" => {
                    Need::Buckets
                }
                "histogram_stddev" | "histogram_stdvar" | "changes" => Need::Buckets,
                _ => need,
            };
            for arg in &mut call.args {
                mark_below(arg, need);
            }
        }
        PlanKind::Aggregate(aggregate) => {
            let need = if aggregate.op == AggregateOp::CountValues {
                Need::Buckets
            } else {
                need
            };
            if let Some(param) = &mut aggregate.param {
                mark_below(param, need);
            }
            mark_below(&mut aggregate.expr, need);
        }
        PlanKind::Chain(chain) => {
            use BinaryOp::{Eq, Ne, TrimLower, TrimUpper};
            // An operator is a parent of its right side and of all operands to its left.
            let n_below = chain
                .links
                .iter()
                .rposition(|link| matches!(link.op, TrimUpper | TrimLower | Eq | Ne))
                .map_or(0, |last| last + 1);
            let first_need = if n_below > 0 { Need::Buckets } else { need };
            mark_below(&mut chain.first, first_need);
            for (idx, link) in chain.links.iter_mut().enumerate() {
                let link_need = if idx < n_below { Need::Buckets } else { need };
                mark_below(&mut link.rhs, link_need);
            }
        }
        PlanKind::Sign(_, inner) | PlanKind::StepInvariant(inner) => mark_below(inner, need),
    }
}

#[cfg(test)]
mod tests {
    use super::super::planner::build;
    use crate::steps::Steps;
    use varve_promql::Features;

    #[test]
    fn buckets_are_skipped_if_only_totals_are_needed() {
        for (query, n_skipped) in [
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
            ("absent(h) + timestamp(h)", 2),
            ("histogram_sum(h == h)", 0),
            ("histogram_sum(changes(h[5m]))", 0),
            ("histogram_sum(count_values(\"v\", h))", 0),
            ("histogram_count(histogram_stddev(h))", 0),
        ] {
            let expr = varve_promql::parse(query, &Features::all()).unwrap();
            let plan = build(&expr, Steps::instant(0)).unwrap();
            assert_eq!(
                format!("{plan:?}").matches("skip_buckets: true").count(),
                n_skipped,
                "{query}"
            );
        }
    }
}
