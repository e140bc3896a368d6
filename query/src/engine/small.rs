//! Finds queries that are so small that their caller may run them where it must not block.
//!
//! Handing a query to another thread and waking up for its result takes longer than evaluating `up{job="a"}`.
//!
//! Used by the HTTP server. A query that is not recognized as small is only evaluated on another thread.

use varve_promql::ast::{Duration, ExprKind, VectorSelector};
use varve_tsdb::{Db, QueryContext, TimeRange};

use super::{Engine, ParsedQuery, Request, grid};
use crate::eval::grid::Grid;

/// Maximum length of a small query in bytes.
const TEXT_MAX: usize = 512;
/// Maximum number of expressions in a small query.
const EXPRS_MAX: usize = 32;
/// Maximum cost of a small query: of the samples that it reads, at one per second, and of its steps. Without a result
/// cache, 40,000 take about 200 us.
const COST_MAX: u64 = 40_000;
/// The cost of a series, without its samples and steps.
const SERIES_COST: u64 = 300;

impl Engine {
    /// Returns `true` if a query takes no longer to parse than a small query. Cost: linear in [`TEXT_MAX`].
    ///
    /// A regular expression is compiled while its query is parsed. One with groups, classes or repetitions may be large.
    #[must_use]
    pub fn is_small_text(query: &str) -> bool {
        let mut quote = None;
        query.len() <= TEXT_MAX
            && query.chars().all(|char| match quote {
                Some(open) => {
                    quote = quote.filter(|_| char != open);
                    !matches!(char, '\\' | '(' | '[' | '{' | '?')
                }
                None => {
                    quote = Some(char).filter(|char| matches!(char, '"' | '\'' | '`'));
                    true
                }
            })
    }

    /// Returns `true` if a query takes about as long as waking another thread, and waits neither for a file nor for a
    /// lock: it has few expressions and no subquery, its selectors read few series and samples, and only from the
    /// heads. Looks up the number of series of each selector.
    #[must_use]
    pub fn is_small(&self, db: &Db, ctx: &QueryContext, parsed: &ParsedQuery, request: &Request<'_>) -> bool {
        let Some(grid) = grid(&parsed.expr, request.times).ok() else { return false };
        let lookback_ms = self.settings(request).lookback_ms;
        let (mut pending, mut n_exprs, mut cost) = (vec![(&parsed.expr, lookback_ms)], 0, 0_u64);
        while let Some((expr, range_ms)) = pending.pop() {
            n_exprs += 1;
            let range_ms = match &expr.kind {
                ExprKind::Vector(selector) => {
                    cost = cost.saturating_add(cost_of(db, ctx, selector, grid, range_ms).unwrap_or(u64::MAX));
                    lookback_ms
                }
                ExprKind::Matrix(matrix) => match matrix.range {
                    Duration::Fixed(range_ms) => range_ms,
                    Duration::Expr(_) => return false,
                },
                ExprKind::Subquery(_) => return false,
                // `info` selects series that the query does not name.
                ExprKind::Call(call) if call.function.name == "info" => return false,
                _ => lookback_ms,
            };
            if n_exprs > EXPRS_MAX || cost > COST_MAX {
                return false;
            }
            pending.extend(expr.children().into_iter().map(|child| (child, range_ms)));
        }
        grid.n_steps as u64 <= COST_MAX / EXPRS_MAX as u64
    }
}

/// Returns the cost of a selector, or `None` if it reads a block or may have to wait.
fn cost_of(db: &Db, ctx: &QueryContext, selector: &VectorSelector, grid: Grid, range_ms: i64) -> Option<u64> {
    let VectorSelector { matchers, offset: None, at: None, extension: None, .. } = selector else { return None };
    let range = TimeRange { start_ms: grid.start_ms.checked_sub(range_ms)?, end_ms: grid.end_ms };
    let n_seconds = u64::try_from(range.end_ms.checked_sub(range.start_ms)? / 1000).ok()?;
    let n_series = db.series_in_heads_max(ctx, matchers, range)?;
    Some(n_series.saturating_mul(SERIES_COST.saturating_add(n_seconds).saturating_add(grid.n_steps as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_with_large_regular_expressions_are_not_small() {
        for query in ["1+1", "sum(up{job=~\"a|b\"}) by (x)", "a[5m]", "a{b='c\"d'}", "rate(a{b!~\"x.+\"}[1m])"] {
            assert!(Engine::is_small_text(query), "{query}");
        }
        for query in ["a{b=~\"(x{1,60}){1,9}\"}", "a{b=~\"[a-z]\"}", "a{b=~`\\pL`}", "a{b=~'x{9}'}"] {
            assert!(!Engine::is_small_text(query), "{query}");
        }
        assert!(!Engine::is_small_text(&"1+".repeat(300)));
    }
}
