//! Walking syntax trees.

use varve_query::promql::ast::{Expr, ExprKind};

/// Returns the expressions directly below one.
pub(super) fn children(expr: &Expr) -> Vec<&Expr> {
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Vector(_) => Vec::new(),
        ExprKind::Matrix(matrix) => vec![&matrix.selector],
        ExprKind::Subquery(subquery) => vec![&subquery.expr],
        ExprKind::Call(call) => call.args.iter().collect(),
        ExprKind::Aggregate(aggregate) => aggregate.param.as_deref().into_iter().chain([&*aggregate.expr]).collect(),
        ExprKind::Binary(binary) => vec![&binary.lhs, &binary.rhs],
        ExprKind::Unary(unary) => vec![&unary.expr],
        ExprKind::Paren(inner) => vec![inner],
    }
}
