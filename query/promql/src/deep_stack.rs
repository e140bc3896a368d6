//! A thread with a large stack, for deeply nested queries.
//!
//! Parsing, printing, planning and evaluation recurse into nested expressions. Up to
//! [`SHALLOW_DEPTH`] levels, they need less stack than any thread has. Deeper queries run on a
//! thread of their own, whose stack is charged to the request.

use std::thread::Builder;

use varve_context::{QueryContext, scheduler};

use crate::ast::{Expr, ExprKind};
use crate::error::{Error, Result};

/// Maximum nesting depth of a query that runs on the thread of its caller.
pub const SHALLOW_DEPTH: usize = 256;

/// Size of the stack for deeper queries in bytes: more than twice what
/// [`DEPTH_MAX`](crate::DEPTH_MAX) levels need in a build without optimizations.
const STACK_SIZE: usize = 64 << 20;

/// Returns `true` if an expression is nested more than [`SHALLOW_DEPTH`] levels deep. Cost: linear.
#[must_use]
pub fn is_deep(expr: &Expr) -> bool {
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
/// [`Error::Context`] if the stack exceeds the memory limit of the query. [`Error::Thread`] if the
/// thread cannot be started.
pub fn run<T: Send>(ctx: &QueryContext, is_deep: bool, f: impl FnOnce() -> T + Send) -> Result<T> {
    if !is_deep {
        return Ok(f());
    }
    let mut charge = ctx.charge();
    charge.grow(STACK_SIZE)?;
    std::thread::scope(|scope| {
        let detached = scheduler::detach();
        let thread = Builder::new()
            .name("query-deep".into())
            .stack_size(STACK_SIZE)
            .spawn_scoped(scope, || {
                scheduler::attach(detached);
                (f(), scheduler::detach())
            });
        let (result, detached) = thread
            .map_err(Error::Thread)?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        scheduler::attach(detached);
        Ok(result)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn deep_queries_in_the_background_let_others_run() {
        let n_calls = Arc::new(AtomicUsize::new(0));
        let calls = Arc::clone(&n_calls);
        let _background = scheduler::start_background(Arc::new(move || {
            calls.fetch_add(1, Ordering::Relaxed);
        }));
        let pause = || scheduler::pause_at(Instant::now() + Duration::from_secs(1));
        run(&QueryContext::unbounded(), true, pause).unwrap();
        assert_eq!(n_calls.load(Ordering::Relaxed), 1);
        pause();
        assert_eq!(n_calls.load(Ordering::Relaxed), 2);
    }
}
