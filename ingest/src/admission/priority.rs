//! Priority of known series: rules and requests that create series pause while requests of known
//! series are active.
//!
//! A request of known series takes a millisecond. Creating the series of a storm occupies one core
//! for seconds, locks heads thousands of times, and fills the CPU's caches. An evaluation of rules
//! occupies cores for seconds, too. So both yield to requests of known series: the creation of
//! series after each [`SERIES_BETWEEN_YIELDS`] series, rules as in
//! docs/decisions/rules/0030-rules-yield-to-writes.md. A yield lasts at most [`YIELD_MAX`], since
//! under load there is always an active request of known series.
//!
//! A request counts as a request of known series until its first unknown series or its first wait
//! for a sync of the log. It needs no core while it waits.
//!
//! Threads: one short lock, taken twice per request. A yielding thread blocks and holds no lock. A
//! request keeps its memory and its permit to create series meanwhile, a rule keeps its thread.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Number of series created between two yields, which takes a fraction of a millisecond.
pub(super) const SERIES_BETWEEN_YIELDS: usize = 64;
/// Maximum pause. Under constant load, a fifth of the time remains for creating series.
const YIELD_MAX: Duration = Duration::from_millis(1);

/// Counts the active requests of known series.
#[derive(Debug, Default)]
pub(super) struct Priority {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    n_active: usize,
    n_waiting: usize,
    /// Upper bound of the `n_active_max` of all waiting threads. While more requests are active, no
    /// thread wakes up.
    wake_at: usize,
}

/// An active request of known series, counted until this guard is dropped.
#[derive(Debug)]
pub(super) struct PriorityGuard<'a>(&'a Priority);

/// The outcome of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// There was nothing to wait for.
    NotNeeded,
    /// Enough requests have ended.
    Ended,
    TimedOut,
}

impl Priority {
    pub(super) fn enter(&self) -> PriorityGuard<'_> {
        self.state.lock().n_active += 1;
        PriorityGuard(self)
    }

    /// Waits until at most `n_active_max` requests of known series are active, for at most
    /// [`YIELD_MAX`]. Returns `true` if it waited.
    pub(super) fn yield_above(&self, n_active_max: usize) -> bool {
        self.wait(n_active_max, YIELD_MAX) != Wait::NotNeeded
    }

    fn wait(&self, n_active_max: usize, timeout: Duration) -> Wait {
        let mut state = self.state.lock();
        if state.n_active <= n_active_max {
            return Wait::NotNeeded;
        }
        state.add_waiting(n_active_max);
        let waited =
            self.ended
                .wait_while_for(&mut state, |state| state.n_active > n_active_max, timeout);
        state.n_waiting -= 1;
        if waited.timed_out() {
            Wait::TimedOut
        } else {
            Wait::Ended
        }
    }
}

impl State {
    fn add_waiting(&mut self, n_active_max: usize) {
        self.wake_at = if self.n_waiting == 0 {
            n_active_max
        } else {
            self.wake_at.max(n_active_max)
        };
        self.n_waiting += 1;
    }

    /// Ends a request. Returns `true` if a waiting thread may have to wake up.
    fn end(&mut self) -> bool {
        self.n_active -= 1;
        self.n_waiting > 0 && self.n_active <= self.wake_at
    }
}

impl Drop for PriorityGuard<'_> {
    fn drop(&mut self) {
        let wakes = self.0.state.lock().end();
        if wakes {
            self.0.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Longer than any test.
    const FOREVER: Duration = Duration::from_secs(600);

    #[test]
    fn a_yield_waits_only_above_its_maximum_and_not_for_long() {
        let priority = Priority::default();
        assert!(!priority.yield_above(0));
        let first = priority.enter();
        let second = priority.enter();
        assert!(priority.yield_above(0) && priority.yield_above(1) && !priority.yield_above(2));
        assert_eq!(priority.wait(0, Duration::from_nanos(1)), Wait::TimedOut);
        drop(first);
        assert!(priority.yield_above(0) && !priority.yield_above(1));
        drop(second);
        assert!(!priority.yield_above(0));
        let state = priority.state.lock();
        assert_eq!((state.n_active, state.n_waiting), (0, 0));
    }

    #[test]
    fn a_wait_ends_when_enough_requests_have_ended() {
        let priority = Priority::default();
        let first = priority.enter();
        let second = priority.enter();
        let has_waiting = |n| {
            while priority.state.lock().n_waiting != n {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            let at_0 = scope.spawn(|| priority.wait(0, FOREVER));
            let at_1 = scope.spawn(|| priority.wait(1, FOREVER));
            has_waiting(2);
            drop(first);
            assert_eq!(at_1.join().unwrap(), Wait::Ended);
            assert!(!at_0.is_finished());
            drop(second);
            assert_eq!(at_0.join().unwrap(), Wait::Ended);
        });
    }

    #[test]
    fn an_end_that_nobody_waits_for_wakes_nobody() {
        let mut state = State {
            n_active: 4,
            ..State::default()
        };
        assert!(!state.end(), "nobody waits");
        state.add_waiting(1);
        assert!(!state.end(), "two are active");
        assert!(state.end() && state.end());
        state.n_active = 4;
        state.add_waiting(2);
        state.add_waiting(0);
        assert!(!state.end() && state.end());
        (state.n_waiting, state.n_active) = (0, 4);
        state.add_waiting(0);
        assert!(
            !state.end() && !state.end() && !state.end() && state.end(),
            "earlier waits do not count"
        );
    }
}
