//! A thread with a large stack, for deeply nested queries.
//!
//! Parsing, printing, planning and evaluation recurse into nested expressions. Up to [`SHALLOW_DEPTH`] levels, they
//! need less stack than any thread has. Deeper queries run on a thread of their own, whose stack is charged to the
//! request.

use std::thread::Builder;

use varve_tsdb::QueryContext;
use varve_tsdb::context::scheduler;

use crate::error::{Error, Result};
use crate::promql::ast::{Expr, ExprKind};

/// Maximum nesting depth of a query that runs on the thread of its caller.
pub(crate) const SHALLOW_DEPTH: usize = 256;

/// Size of the stack for deeper queries in bytes: more than twice what [`DEPTH_MAX`](crate::promql::DEPTH_MAX) levels
/// need in a build without optimizations.
const STACK_SIZE: usize = 64 << 20;

/// Returns `true` if an expression is nested more than [`SHALLOW_DEPTH`] levels deep. Cost: linear.
pub(crate) fn is_deep(expr: &Expr) -> bool {
    let mut pending = vec![(expr, 1)];
    while let Some((expr, depth)) = pending.pop() {
        if depth > SHALLOW_DEPTH {
            return true;
        }
        match &expr.kind {
            // A chain of operators is one level.
            ExprKind::Binary(binary) => {
                let (first, links) = binary.chain();
                pending.push((first, depth + 1));
                pending.extend(links.into_iter().map(|link| (&*link.rhs, depth + 1)));
            }
            _ => pending.extend(expr.children().into_iter().map(|child| (child, depth + 1))),
        }
    }
    false
}

/// Runs `f`, on a thread with a large stack if `is_deep`.
///
/// # Errors
/// [`Error::Limit`] if the stack exceeds the memory limit of the query. [`Error::Execution`] if the thread cannot be
/// started.
pub(crate) fn run<T: Send>(ctx: &QueryContext, is_deep: bool, f: impl FnOnce() -> T + Send) -> Result<T> {
    if !is_deep {
        return Ok(f());
    }
    let mut charge = ctx.charge();
    charge.grow(STACK_SIZE)?;
    std::thread::scope(|scope| {
        let current = scheduler::detach();
        let run = || {
            scheduler::attach(current);
            (f(), scheduler::detach())
        };
        let thread = Builder::new().name("query-deep".into()).stack_size(STACK_SIZE).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| Error::Execution(format!("start a thread for a nested query: {error}")))?;
        let (result, current) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        scheduler::attach(current);
        Ok(result)
    })
}
