//! Requests of known series go first: who makes series gives way while one is at work.
//!
//! To make the series of a storm takes one core for seconds, locks of the heads thousands of times, and the caches. A request
//! of known series is through in a millisecond. So who makes series looks after each [`SERIES_BETWEEN`] whether such a
//! request is at work, and lets it pass; not for ever, as there may always be one.
//!
//! Used by `pipeline` and `request`. A request is taken for one of known series until its first one that is not.
//!
//! Threads: one short lock, taken twice a request; who gives way blocks its thread, and holds nothing but its turn.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Series that are made between two looks: a fraction of a millisecond.
pub(crate) const SERIES_BETWEEN: usize = 64;
/// The longest that others are let pass at a time: where they never end, a fifth of the time is left for making series.
const WAY_MAX: Duration = Duration::from_millis(1);

/// Counts the requests at work that go first.
#[derive(Debug, Default)]
pub(crate) struct Precedence {
    n_at_work: Mutex<usize>,
    none_at_work: Condvar,
}

/// A request that goes first, until it is dropped.
#[derive(Debug)]
pub(crate) struct First<'a>(&'a Precedence);

impl Precedence {
    /// Begins the work of a request.
    pub(crate) fn go_first(&self) -> First<'_> {
        *self.n_at_work.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        First(self)
    }

    /// Lets those pass that go first, for a moment at most.
    pub(crate) fn give_way(&self) {
        let n_at_work = self.n_at_work.lock().unwrap_or_else(PoisonError::into_inner);
        let _either = self.none_at_work.wait_timeout_while(n_at_work, WAY_MAX, |n| *n > 0);
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        let mut n_at_work = self.0.n_at_work.lock().unwrap_or_else(PoisonError::into_inner);
        *n_at_work -= 1;
        if *n_at_work == 0 {
            self.0.none_at_work.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn who_gives_way_goes_on_when_the_last_one_has_passed_and_after_a_while_in_any_case() {
        let precedence = Precedence::default();
        precedence.give_way();
        let (first, second) = (precedence.go_first(), precedence.go_first());
        precedence.give_way();
        drop(first);
        thread::scope(|scope| {
            scope.spawn(|| precedence.give_way());
            drop(second);
        });
        assert_eq!(*precedence.n_at_work.lock().unwrap(), 0);
        precedence.give_way();
    }
}
