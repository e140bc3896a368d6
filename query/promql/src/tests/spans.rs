//! The positions of the nodes of a tree.

use super::*;
use ast::{DurationExprKind, Expr, ExprKind, Span};

fn text(query: &str, span: Span) -> &str {
    &query[span.start..span.end]
}

/// Collects the texts of all nodes, parents first.
fn spans<'q>(query: &'q str, expr: &Expr, found: &mut Vec<&'q str>) {
    found.push(text(query, expr.span));
    expr.children()
        .into_iter()
        .for_each(|child| spans(query, child, found));
}

#[test]
fn every_node_has_its_span() {
    let check = |query: &str, expect: &[&str]| {
        let expr = parse(query, &features()).unwrap();
        let mut found = Vec::new();
        spans(query, &expr, &mut found);
        assert_eq!(found, expect);
    };
    check(" up ", &["up"]);
    check("a + b * -c", &["a + b * -c", "a", "b * -c", "b", "-c", "c"]);
    check("a - b - c", &["a - b - c", "a - b", "a", "b", "c"]);
    check("- 5 + +5m", &["- 5 + +5m", "- 5", "+5m"]);
    check("(( a ))", &["(( a ))", "( a )", "a"]);
    check(
        "sum(x) by (a) > 1",
        &["sum(x) by (a) > 1", "sum(x) by (a)", "x", "1"],
    );
    check("topk by (a) (2, x )", &["topk by (a) (2, x )", "x", "2"]);
    check(
        "rate( x{a=\"b\"} [5m] offset 1m )",
        &[
            "rate( x{a=\"b\"} [5m] offset 1m )",
            "x{a=\"b\"} [5m] offset 1m",
            "x{a=\"b\"}",
        ],
    );
    check("x[5m:] @ end()", &["x[5m:] @ end()", "x"]);
    check(
        "{a=\"é\"} @ 5 > y",
        &["{a=\"é\"} @ 5 > y", "{a=\"é\"} @ 5", "y"],
    );
}

#[test]
fn duration_expressions_have_their_spans() {
    let query = "x[ (5m+1) * -step() ]";
    let expr = parse(query, &features()).unwrap();
    let ExprKind::Matrix(matrix) = &expr.kind else {
        panic!("{expr:?}")
    };
    let ast::Duration::Expr(range) = &matrix.range else {
        panic!("{expr:?}")
    };
    let DurationExprKind::Binary(_, lhs, rhs) = &range.kind else {
        panic!("{range:?}")
    };
    assert_eq!(
        [range.span, lhs.span, rhs.span].map(|s| text(query, s)),
        ["(5m+1) * -step()", "(5m+1)", "-step()"]
    );
}
