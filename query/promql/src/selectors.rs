//! Finds the selectors of an expression.

use varve_model::Matcher;

use super::ast::{Expr, ExprKind};

/// Returns the matchers of every selector in an expression, from left to right. Ignores modifiers.
#[must_use]
pub fn selectors(expr: &Expr) -> Vec<Vec<Matcher>> {
    let mut found = Vec::new();
    let mut pending = vec![expr];
    while let Some(expr) = pending.pop() {
        if let ExprKind::Vector(selector) = &expr.kind {
            found.push(selector.matchers.clone());
        }
        pending.extend(expr.children().into_iter().rev());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CHAIN_LEN_MAX, Features, parse};

    fn check(text: &str, expect: &[&str]) {
        let found = selectors(&parse(text, &Features::default()).unwrap());
        let name =
            |matchers: &Vec<Matcher>| matchers.last().map(|matcher| matcher.value().to_owned());
        assert_eq!(
            found.iter().filter_map(name).collect::<Vec<_>>(),
            expect,
            "{text}"
        );
    }

    #[test]
    fn selectors_are_found_in_all_expressions() {
        check("1 + 2", &[]);
        check("a", &["a"]);
        check(
            "sum by (x) (rate(a{x=\"1\"}[5m] offset 1h)) / -b @ 5",
            &["a", "b"],
        );
        check("topk(scalar(k), (max_over_time(a[1h:5m])))", &["a", "k"]);
        check(
            "label_replace(a, \"x\", \"y\", \"z\", \".*\") or b unless c",
            &["a", "b", "c"],
        );
    }

    #[test]
    fn a_long_chain_takes_no_stack() {
        let text = vec!["a"; CHAIN_LEN_MAX].join(" or ");
        assert_eq!(
            selectors(&parse(&text, &Features::default()).unwrap()).len(),
            CHAIN_LEN_MAX
        );
    }
}
