//! Priority of known series: a request that creates series pauses while requests of known series are at work.
//!
//! Creating the series of a storm takes one core for seconds, thousands of locks of the heads, and the CPU's caches; a
//! request of known series takes a millisecond. So the creating request checks for such requests after each
//! [`SERIES_BETWEEN_YIELDS`] series and lets them finish, for [`YIELD_MAX`] at most, since there may always be one.
//!
//! A request counts as one of known series until its first unknown series.
//!
//! Threads: one short lock, taken twice a request. A yielding thread blocks and holds nothing but its permit.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Series that are created between two yields: a fraction of a millisecond.
pub(super) const SERIES_BETWEEN_YIELDS: usize = 64;
/// The longest pause: under constant load a fifth of the time remains for creating series.
const YIELD_MAX: Duration = Duration::from_millis(1);

/// Counts the requests of known series at work.
#[derive(Debug, Default)]
pub(super) struct Priority {
    n_at_work: Mutex<usize>,
    idle: Condvar,
}

/// A request of known series at work, until it is dropped.
#[derive(Debug)]
pub(super) struct PriorityGuard<'a>(&'a Priority);

impl Priority {
    pub(super) fn enter(&self) -> PriorityGuard<'_> {
        *self.n_at_work.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        PriorityGuard(self)
    }

    /// Waits until no request of known series is at work, for [`YIELD_MAX`] at most.
    pub(super) fn yield_now(&self) {
        let n_at_work = self.n_at_work.lock().unwrap_or_else(PoisonError::into_inner);
        let _either = self.idle.wait_timeout_while(n_at_work, YIELD_MAX, |n| *n > 0);
    }
}

impl Drop for PriorityGuard<'_> {
    fn drop(&mut self) {
        let mut n_at_work = self.0.n_at_work.lock().unwrap_or_else(PoisonError::into_inner);
        *n_at_work -= 1;
        if *n_at_work == 0 {
            self.0.idle.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_yield_ends_when_the_last_request_leaves_and_after_a_while_in_any_case() {
        let priority = Priority::default();
        priority.yield_now();
        let (first, second) = (priority.enter(), priority.enter());
        priority.yield_now();
        drop(first);
        thread::scope(|scope| {
            scope.spawn(|| priority.yield_now());
            drop(second);
        });
        assert_eq!(*priority.n_at_work.lock().unwrap(), 0);
        priority.yield_now();
    }
}
