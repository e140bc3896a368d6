//! Decides whether a query is cheap enough to run on an I/O thread.
//!
//! Handing a query to another thread and waking up for its result takes longer than evaluating
//! `up{job="a"}`.
//!
//! Used by the HTTP server. The decision is an estimate: a lock that is free now may be held when
//! the query runs, and the heads may have more samples per second than assumed. So the server also
//! bounds the time that such queries take.

use varve_model::TimeRange;
use varve_promql::ast::{Duration, Expr, ExprKind, VectorSelector};
use varve_tsdb::{Db, ReadContext};

use crate::steps::Steps;

/// Maximum length of a small query in bytes.
const TEXT_MAX: usize = 512;
/// Maximum number of punctuation characters outside of strings in a small query. It bounds the
/// nesting: deep queries need a thread with a large stack.
const PUNCTUATION_MAX: usize = 128;
/// Maximum number of expressions in a small query.
const EXPRS_MAX: usize = 32;
/// Maximum number of steps of a small query.
const SMALL_STEPS_MAX: usize = 1000;
/// Maximum cost of a small query. The unit is one second of one series: a sample, if there is one
/// per second. A sample takes about 4 ns, measured with an instant query of 23 series.
const COST_MAX: u64 = 40_000;
/// The cost of a series, besides its seconds.
const SERIES_COST: u64 = 300;

/// Returns `true` if a query is short and shallow, and has no string from which a large regular
/// expression could be compiled.
pub(super) fn is_small_text(query: &str) -> bool {
    if query.len() > TEXT_MAX {
        return false;
    }
    // The quote that has opened a string and that closes it.
    let mut quote = None;
    let mut n_punctuation = 0;
    for char in query.chars() {
        if let Some(open) = quote {
            if matches!(char, '\\' | '(' | '[' | '{' | '?') {
                return false;
            }
            if char == open {
                quote = None;
            }
            continue;
        }
        n_punctuation += usize::from(char.is_ascii_punctuation());
        // A comment may contain a single quote.
        if n_punctuation > PUNCTUATION_MAX || char == '#' {
            return false;
        }
        if matches!(char, '"' | '\'' | '`') {
            quote = Some(char);
        }
    }
    true
}

/// Returns `true` if the evaluation of a query takes about as long as waking another thread.
pub(super) fn is_small(
    db: &Db,
    ctx: &ReadContext,
    expr: &Expr,
    steps: Steps,
    lookback_ms: i64,
) -> bool {
    let mut pending = vec![(expr, None)];
    let mut n_exprs = 0;
    let mut cost = 0_u64;
    while let Some((expr, window_ms)) = pending.pop() {
        n_exprs += 1;
        let window_ms = match &expr.kind {
            ExprKind::Vector(selector) => {
                let selector_cost = cost_of(db, ctx, selector, steps, window_ms, lookback_ms);
                cost = cost.saturating_add(selector_cost.unwrap_or(u64::MAX));
                None
            }
            ExprKind::Matrix(matrix) => match matrix.range {
                Duration::Fixed(window_ms) => Some(window_ms),
                Duration::Expr(_) => return false,
            },
            ExprKind::Subquery(_) => return false,
            // `info` selects series that the query does not name.
            ExprKind::Call(call) if call.function.name == "info" => return false,
            _ => None,
        };
        if n_exprs > EXPRS_MAX || cost > COST_MAX {
            return false;
        }
        pending.extend(expr.children().into_iter().map(|child| (child, window_ms)));
    }
    steps.n_steps <= SMALL_STEPS_MAX
}

/// Returns the cost of a selector, which has a window if it is the selector of a range. Returns
/// `None` if it reads a block or has to wait.
fn cost_of(
    db: &Db,
    ctx: &ReadContext,
    selector: &VectorSelector,
    steps: Steps,
    window_ms: Option<i64>,
    lookback_ms: i64,
) -> Option<u64> {
    let VectorSelector {
        matchers,
        offset: None,
        at: None,
        extension: None,
        ..
    } = selector
    else {
        return None;
    };
    let range_ms = window_ms.unwrap_or(lookback_ms);
    let range = TimeRange {
        start_ms: steps.start_ms.checked_sub(range_ms)?,
        end_ms: steps.end_ms,
    };
    // The window of each step is read again.
    let per_step = seconds(window_ms.unwrap_or(0))?.saturating_add(1);
    let n_samples = seconds(range.end_ms.checked_sub(range.start_ms)?)?
        .saturating_add((steps.n_steps as u64).saturating_mul(per_step));
    let n_series = db.series_in_heads_max(ctx, matchers, range)?;
    Some(n_series.saturating_mul(n_samples.saturating_add(SERIES_COST)))
}

fn seconds(ms: i64) -> Option<u64> {
    u64::try_from(ms / 1000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_long_or_deep_or_have_a_large_regular_expression_are_not_small() {
        for query in [
            "1+1",
            "sum(up{job=~\"a|b\"}) by (x)",
            "a[5m]",
            "a{b='c\"d'}",
            "rate(a{b!~\"x.+\"}[1m])",
        ] {
            assert!(is_small_text(query), "{query}");
        }
        for query in [
            "a{b=~\"(x{1,60}){1,9}\"}",
            "a{b=~\"[a-z]\"}",
            "a{b=~`\\pL`}",
            "a{b=~'x{9}'}",
        ] {
            assert!(!is_small_text(query), "{query}");
        }
        // In a comment, a quote begins no string.
        assert!(!is_small_text("a{b=\"c\", #\"\n d=~\"(x{1,60}){1,9}\"}"));
        for query in ["1+".repeat(300), "(".repeat(200), "-".repeat(200)] {
            assert!(!is_small_text(&query), "{query}");
        }
    }
}
