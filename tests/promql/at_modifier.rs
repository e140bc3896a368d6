//! Adds `@ <time>` to the selectors of a query, so that its result does not depend on the
//! evaluation time.

use varve_promql::ast::{At, Expr, ExprKind, VectorSelector};
use varve_promql::print;

/// Functions whose value depends on the evaluation time, whatever their arguments.
const TIME_DEPENDENT: &str = "day_of_month day_of_week day_of_year days_in_month end hour minute month predict_linear range start step \
                              time timestamp year";

/// Returns the query with all selectors fixed; `None` if it still depends on the evaluation time.
pub(super) fn pin(expr: &Expr, time_ms: i64) -> Option<String> {
    if is_time_dependent(expr) {
        return None;
    }
    let mut expr = expr.clone();
    write(&mut expr, time_ms);
    Some(print(&expr))
}

fn is_time_dependent(expr: &Expr) -> bool {
    let of_call = matches!(&expr.kind, ExprKind::Call(call) if TIME_DEPENDENT.split(' ').any(|name| name == call.function.name));
    of_call || expr.children().into_iter().any(is_time_dependent)
}

fn write(expr: &mut Expr, time_ms: i64) {
    let fix = |at: &mut Option<At>| {
        if !matches!(at, Some(At::Timestamp(_))) {
            *at = Some(At::Timestamp(time_ms));
        }
    };
    match &mut expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => {}
        ExprKind::Vector(VectorSelector { at, .. }) => fix(at),
        ExprKind::Matrix(matrix) => write(&mut matrix.selector, time_ms),
        // The expression of a fixed subquery is fixed too.
        ExprKind::Subquery(subquery) => fix(&mut subquery.at),
        ExprKind::Call(call) => call.args.iter_mut().for_each(|arg| write(arg, time_ms)),
        ExprKind::Aggregate(aggregate) => {
            aggregate
                .param
                .as_deref_mut()
                .into_iter()
                .for_each(|param| write(param, time_ms));
            write(&mut aggregate.expr, time_ms);
        }
        ExprKind::Binary(binary) => {
            write(&mut binary.lhs, time_ms);
            write(&mut binary.rhs, time_ms);
        }
        ExprKind::Unary(unary) => write(&mut unary.expr, time_ms),
        ExprKind::Paren(inner) => write(inner, time_ms),
    }
}
