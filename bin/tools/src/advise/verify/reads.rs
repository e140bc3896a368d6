//! The selectors of an expression, and how far before the evaluation each reads.

use std::collections::BTreeMap;

use varve_promql::ast::{At, Duration, Expr, ExprKind, RangeExtension};
use varve_promql::print_matchers;

/// The lookback delta of the evaluation in milliseconds: a selector reads at least this long before
/// its time.
pub(super) const LOOKBACK_MS: i64 = 300_000;

/// Returns the selectors of an expression, each with the milliseconds that it reads before the
/// evaluation.
///
/// # Errors
/// The expression reads what is not known here: `@`, negative offsets, durations that are
/// expressions, ranges with `smoothed`, and `info`.
pub(super) fn selectors(expr: &Expr) -> Result<BTreeMap<String, i64>, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![(expr, LOOKBACK_MS)];
    while let Some((expr, before_ms)) = pending.pop() {
        let before_ms = match &expr.kind {
            ExprKind::Call(call) if call.function.name == "info" => {
                return Err("it calls info, which reads more than its selectors".to_owned());
            }
            ExprKind::Vector(selector) => {
                if selector.extension == Some(RangeExtension::Smoothed) {
                    return Err("it reads samples after its range (smoothed)".to_owned());
                }
                let before_ms = before_ms.saturating_add(offset(&selector.offset, selector.at)?);
                let reach_ms = found.entry(print_matchers(&selector.matchers)).or_insert(0);
                *reach_ms = before_ms.max(*reach_ms);
                continue;
            }
            ExprKind::Matrix(matrix) => before_ms.saturating_add(fixed(&matrix.range)?),
            ExprKind::Subquery(subquery) => before_ms
                .saturating_add(fixed(&subquery.range)?)
                .saturating_add(offset(&subquery.offset, subquery.at)?),
            _ => before_ms,
        };
        pending.extend(expr.children().into_iter().map(|child| (child, before_ms)));
    }
    Ok(found)
}

/// Returns the offset of a selector or subquery.
fn offset(offset: &Option<Duration>, at: Option<At>) -> Result<i64, String> {
    if at.is_some() {
        return Err("it reads at a fixed time (@)".to_owned());
    }
    match offset.as_ref().map_or(Ok(0), fixed)? {
        ms if ms < 0 => Err("it reads after the evaluation (a negative offset)".to_owned()),
        ms => Ok(ms),
    }
}

fn fixed(duration: &Duration) -> Result<i64, String> {
    match duration {
        Duration::Fixed(ms) => Ok(*ms),
        Duration::Expr(_) => Err("it has a duration that is an expression".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use varve_promql::{Features, parse};

    use super::*;

    fn check(text: &str, expect: &[(&str, i64)]) {
        let expr = parse(text, &Features::all()).unwrap();
        let found = selectors(&expr).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(selector, reach_ms)| (&**selector, (reach_ms - LOOKBACK_MS) / 60_000))
            .collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn ranges_and_offsets_add_up() {
        let a = "{__name__=\"a\"}";
        check("a + 1", &[(a, 0)]);
        check("rate(a[5m])", &[(a, 5)]);
        check("a or rate(a[5m] offset 1m)", &[(a, 6)]);
        check("max_over_time(rate(a[5m])[1h:1m] offset 10m)", &[(a, 75)]);
        check(
            "a{x=\"1\"} * on () b offset 1m",
            &[("{__name__=\"b\"}", 1), ("{x=\"1\", __name__=\"a\"}", 0)],
        );
        check("1", &[]);
    }

    #[test]
    fn unknown_times_are_refused() {
        for text in [
            "a @ 5",
            "max_over_time(a[1h:] @ end())",
            "rate(a[1m * 5])",
            "a offset -1h",
            "rate(a[5m] smoothed)",
            "sum(info(a))",
        ] {
            let expr = parse(text, &Features::all()).unwrap();
            assert!(selectors(&expr).is_err(), "{text}");
        }
    }
}
