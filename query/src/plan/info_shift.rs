//! The time at which `info(v)` reads info series.

use varve_promql::ast::ValueType;

use super::tree::{Plan, PlanKind, RangeSelector, Shift};
use crate::functions::Implementation;

/// Returns the time shift of the selectors of the argument of `info`, which info series have, too.
/// Returns `None` if the selectors read different times: then info series are read at the time of
/// the step.
///
/// The offsets of the subqueries around a selector are added to its own, up to the first `@`.
pub(crate) fn info_shift(plan: &Plan) -> Option<Shift> {
    // Shifts that select the same time at every step are equal.
    let normal = |shift: Shift| match shift.at_ms {
        Some(_) => Shift {
            offset_ms: 0,
            at_ms: Some(shift.apply(0)),
        },
        None => shift,
    };
    let mut shifts = Vec::new();
    let all_selectors = add_shifts(plan, Shift::NONE, &mut shifts);
    let is_uniform = all_selectors
        && shifts
            .windows(2)
            .all(|pair| normal(pair[0]) == normal(pair[1]));
    if is_uniform {
        shifts.first().copied()
    } else {
        None
    }
}

/// Adds the shifts of the selectors that an expression reads its series from. Returns `false` if
/// some of its series come from no selector. `outer` is the shift of the subqueries around the
/// expression.
fn add_shifts(plan: &Plan, outer: Shift, shifts: &mut Vec<Shift>) -> bool {
    if !matches!(plan.value_type, ValueType::Vector | ValueType::Matrix) {
        return true;
    }
    let within = |inner: Shift| match inner.at_ms {
        Some(_) => inner,
        None => Shift {
            offset_ms: inner.offset_ms.saturating_add(outer.offset_ms),
            at_ms: outer.at_ms,
        },
    };
    let n_before = shifts.len();
    let all = match &plan.kind {
        PlanKind::Selector(selector) | PlanKind::Range(RangeSelector { selector, .. }) => {
            shifts.push(within(selector.shift));
            true
        }
        PlanKind::Subquery(subquery) => add_shifts(&subquery.expr, within(subquery.shift), shifts),
        // The second argument of `info` has the syntax of a selector, and is none.
        PlanKind::Call(call) if matches!(call.implementation, Implementation::Info) => {
            add_shifts(&call.args[0], outer, shifts)
        }
        _ => plan
            .children()
            .into_iter()
            .all(|child| add_shifts(child, outer, shifts)),
    };
    all && shifts.len() > n_before
}
