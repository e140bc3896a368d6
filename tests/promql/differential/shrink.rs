//! Finds the smallest part of a query for which two servers give different results.

use varve_promql::ast::{Duration, Expr, ExprKind, ValueType};
use varve_promql::{Features, parse, print};

use varve_query::Steps;

use super::generator::Question;

/// Descends from the query to its subexpressions while one of them still differs.
pub(super) fn shrink(question: &Question, differs: impl Fn(&Question) -> bool) -> Question {
    let mut smallest = question.clone();
    while let Some(smaller) = smaller(&smallest).into_iter().find(&differs) {
        smallest = smaller;
    }
    smallest
}

fn smaller(question: &Question) -> Vec<Question> {
    let features = Features {
        experimental_functions: true,
        ..Features::default()
    };
    let Ok(expr) = parse(&question.query, &features) else {
        return Vec::new();
    };
    let instant = question.times.is_instant();
    let can_be_query = |expr: &&Expr| match expr.value_type() {
        ValueType::Scalar | ValueType::Vector => true,
        ValueType::Matrix => instant,
        ValueType::String => false,
    };
    // A child that cannot be a query may have children that can.
    let inner = expr
        .children()
        .into_iter()
        .flat_map(|child| [vec![child], child.children()].concat());
    let inner = inner.filter(can_be_query);
    let smaller = inner.map(|expr| Question {
        query: print(expr),
        ..question.clone()
    });
    let smaller = smaller.chain(
        [&expr]
            .into_iter()
            .chain(expr.children())
            .filter_map(|expr| evaluated(expr, question.times)),
    );
    // The operand of the sign of `+Inf` is printed as `+Inf`.
    smaller
        .filter(|smaller| smaller.query.len() < question.query.len())
        .collect()
}

/// Returns the range query that a subquery evaluates.
fn evaluated(expr: &Expr, times: Steps) -> Option<Question> {
    const DEFAULT_STEP_MS: i64 = 60_000;
    let ExprKind::Subquery(subquery) = &expr.kind else {
        return None;
    };
    let (Duration::Fixed(range_ms), None, None) = (&subquery.range, &subquery.offset, subquery.at)
    else {
        return None;
    };
    let step_ms = match subquery.step {
        None => DEFAULT_STEP_MS,
        Some(Duration::Fixed(step_ms)) => step_ms,
        Some(Duration::Expr(_)) => return None,
    };
    // Steps of a subquery are multiples of it.
    let start_ms = ((times.start_ms() - range_ms) / step_ms + 1) * step_ms;
    Some(Question {
        query: print(&subquery.expr),
        times: Steps::range(start_ms, times.end_ms(), step_ms),
    })
}
