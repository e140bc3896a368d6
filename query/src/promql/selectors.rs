//! The selectors of an expression.

use varve_tsdb::Matcher;

use super::ast::{Expr, ExprKind};

/// Returns the matchers of every selector in an expression, whatever its modifiers, from left to right.
#[must_use]
pub fn selectors(expr: &Expr) -> Vec<Vec<Matcher>> {
    let mut found = Vec::new();
    visit(expr, &mut found);
    found
}

fn visit(expr: &Expr, found: &mut Vec<Vec<Matcher>>) {
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::String(_) => {}
        ExprKind::Vector(selector) => found.push(selector.matchers.clone()),
        ExprKind::Matrix(matrix) => visit(&matrix.selector, found),
        ExprKind::Subquery(subquery) => visit(&subquery.expr, found),
        ExprKind::Call(call) => call.args.iter().for_each(|arg| visit(arg, found)),
        ExprKind::Aggregate(aggregate) => {
            visit(&aggregate.expr, found);
            aggregate.param.iter().for_each(|param| visit(param, found));
        }
        ExprKind::Binary(binary) => {
            let (first, links) = binary.chain();
            visit(first, found);
            links.iter().for_each(|link| visit(&link.rhs, found));
        }
        ExprKind::Unary(unary) => visit(&unary.expr, found),
        ExprKind::Paren(inner) => visit(inner, found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CHAIN_LEN_MAX, Features, parse};
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let found = selectors(&parse(text, &Features::default()).unwrap());
        let name = |matchers: &Vec<Matcher>| matchers.last().map(|matcher| matcher.value().to_owned());
        assert_eq!(found.iter().filter_map(name).collect::<Vec<_>>(), expect, "{text}");
    }

    #[test]
    fn selectors_are_found_wherever_they_stand() {
        check("1 + 2", &[]);
        check("a", &["a"]);
        check("sum by (x) (rate(a{x=\"1\"}[5m] offset 1h)) / -b @ 5", &["a", "b"]);
        check("topk(scalar(k), (max_over_time(a[1h:5m])))", &["a", "k"]);
        check("label_replace(a, \"x\", \"y\", \"z\", \".*\") or b unless c", &["a", "b", "c"]);
    }

    #[test]
    fn a_long_chain_takes_no_stack() {
        let text = vec!["a"; CHAIN_LEN_MAX].join(" or ");
        assert_eq!(selectors(&parse(&text, &Features::default()).unwrap()).len(), CHAIN_LEN_MAX);
    }
}
