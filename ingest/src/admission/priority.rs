//! Priority of known series: a request that creates series pauses while requests of known series are active.
//!
//! Creating the series of a storm occupies one core for seconds, locks heads thousands of times, and fills the CPU's
//! caches. A request of known series takes a millisecond. So a request that creates series checks for such requests
//! after each [`SERIES_BETWEEN_YIELDS`] series. It lets them finish, but waits for at most [`YIELD_MAX`], since under
//! load there is always one.
//!
//! A request counts as a request of known series until its first unknown series.
//!
//! Threads: one short lock, taken twice per request. A yielding thread blocks and holds only its permit.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Number of series created between two yields, which takes a fraction of a millisecond.
pub(super) const SERIES_BETWEEN_YIELDS: usize = 64;
/// Maximum pause. Under constant load, a fifth of the time remains for creating series.
const YIELD_MAX: Duration = Duration::from_millis(1);

/// Counts the active requests of known series.
#[derive(Debug, Default)]
pub(super) struct Priority {
    n_active: Mutex<usize>,
    ended: Condvar,
}

/// An active request of known series, counted until this guard is dropped.
#[derive(Debug)]
pub(super) struct PriorityGuard<'a>(&'a Priority);

impl Priority {
    pub(super) fn enter(&self) -> PriorityGuard<'_> {
        *self.n_active.lock() += 1;
        PriorityGuard(self)
    }

    /// Waits until at most `n_active_max` requests of known series are active, for at most [`YIELD_MAX`].
    pub(super) fn yield_above(&self, n_active_max: usize) {
        let mut n_active = self.n_active.lock();
        let _either = self.ended.wait_while_for(&mut n_active, |n| *n > n_active_max, YIELD_MAX);
    }
}

impl Drop for PriorityGuard<'_> {
    fn drop(&mut self) {
        *self.0.n_active.lock() -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_yield_ends_when_the_last_request_ends_or_after_the_maximum() {
        let priority = Priority::default();
        priority.yield_above(0);
        let (first, second) = (priority.enter(), priority.enter());
        priority.yield_above(0);
        drop(first);
        priority.yield_above(1);
        thread::scope(|scope| {
            scope.spawn(|| priority.yield_above(0));
            drop(second);
        });
        assert_eq!(*priority.n_active.lock(), 0);
        priority.yield_above(0);
    }
}
