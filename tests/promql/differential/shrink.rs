//! The smallest part of a query that two servers answer differently.

use varve_query::promql::ast::{Expr, ValueType};
use varve_query::promql::{Features, parse, print};

use super::generator::{Question, Times};
use crate::promql::tree::children;

/// Goes down from the query to an expression inside of it for as long as there is one that still differs.
pub(super) fn shrink(question: &Question, differs: impl Fn(&Question) -> bool) -> Question {
    let mut smallest = question.clone();
    while let Some(smaller) = smaller(&smallest).into_iter().find(&differs) {
        smallest = smaller;
    }
    smallest
}

fn smaller(question: &Question) -> Vec<Question> {
    let features = Features { experimental_functions: true, ..Features::default() };
    let Ok(expr) = parse(&question.query, &features) else { return Vec::new() };
    let instant = matches!(question.times, Times::Instant { .. });
    let may_stand_alone = |expr: &&Expr| match expr.value_type() {
        ValueType::Scalar | ValueType::Vector => true,
        ValueType::Matrix => instant,
        ValueType::String => false,
    };
    // What does not stand alone may hold what does.
    let inner = children(&expr).into_iter().flat_map(|child| [vec![child], children(child)].concat());
    let inner = inner.filter(may_stand_alone);
    let smaller = inner.map(|expr| Question { query: print(expr), ..question.clone() });
    // What is inside of the sign of `+Inf` is printed as `+Inf`.
    smaller.filter(|smaller| smaller.query.len() < question.query.len()).collect()
}
