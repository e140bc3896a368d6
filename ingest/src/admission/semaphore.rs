//! A counting semaphore that serves its waiters in the order of arrival.
//!
//! Limits how many requests decode, and how many create series, at the same time.
//!
//! Invariants
//! 1. At most `permits_max` permits are held; a new request never overtakes a waiting one.
//!
//! Threads: a waiter parks its thread, up to its deadline. A released permit wakes only the first
//! waiter, since there may be hundreds.

use std::collections::VecDeque;
use std::thread::{self, Thread};
use std::time::Instant;

use parking_lot::Mutex;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct FifoSemaphore {
    state: Mutex<State>,
    permits_max: usize,
}

#[derive(Debug, Default)]
struct State {
    n_held: usize,
    /// Ticket and thread of each waiter, in the order of arrival.
    waiters: VecDeque<(u64, Thread)>,
    next_ticket: u64,
}

/// One permit of a [`FifoSemaphore`], released on drop.
#[derive(Debug)]
pub(super) struct SemaphorePermit<'a>(&'a FifoSemaphore);

impl FifoSemaphore {
    /// Creates a semaphore with `permits_max` permits, at least one.
    pub(super) fn new(permits_max: usize) -> Self {
        Self {
            state: Mutex::default(),
            permits_max: permits_max.max(1),
        }
    }

    /// Returns a permit if one is free and no thread waits.
    pub(super) fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        let mut state = self.state.lock();
        if state.n_held >= self.permits_max || !state.waiters.is_empty() {
            return None;
        }
        state.n_held += 1;
        Some(SemaphorePermit(self))
    }

    /// Waits for a permit. Returns `None` after the deadline.
    pub(super) fn acquire_until(&self, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        let mut state = self.state.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiters.push_back((ticket, thread::current()));
        loop {
            if state.n_held < self.permits_max
                && state
                    .waiters
                    .front()
                    .is_some_and(|(first, _)| *first == ticket)
            {
                state.waiters.pop_front();
                state.n_held += 1;
                // Another permit may be free for the next waiter.
                state.wake_first(self.permits_max);
                return Some(SemaphorePermit(self));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.waiters.retain(|(other, _)| *other != ticket);
                state.wake_first(self.permits_max);
                return None;
            }
            drop(state);
            // Returns immediately if the thread was already unparked since it joined the queue.
            thread::park_timeout(left);
            state = self.state.lock();
        }
    }

    /// Returns the number of held permits.
    pub(super) fn n_held(&self) -> usize {
        self.state.lock().n_held
    }
}

impl State {
    fn wake_first(&self, permits_max: usize) {
        if self.n_held >= permits_max {
            return;
        }
        if let Some((_, first)) = self.waiters.front() {
            first.unpark();
        }
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.n_held -= 1;
        state.wake_first(self.0.permits_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn permits_are_given_in_the_order_of_arrival() {
        let semaphore = FifoSemaphore::new(1);
        let first = semaphore.try_acquire().unwrap();
        assert!(semaphore.try_acquire().is_none());
        let order = Mutex::new(Vec::new());
        let deadline = Instant::now() + Duration::from_secs(600);
        thread::scope(|scope| {
            for i in 0..3 {
                let semaphore = &semaphore;
                let order = &order;
                scope.spawn(move || {
                    let permit = semaphore.acquire_until(deadline).unwrap();
                    order.lock().push(i);
                    drop(permit);
                });
                while semaphore.state.lock().waiters.len() <= i {
                    thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!((order.into_inner(), semaphore.n_held()), (vec![0, 1, 2], 0));
    }

    #[test]
    fn a_waiter_leaves_the_queue_at_its_deadline() {
        let semaphore = FifoSemaphore::new(1);
        let permit = semaphore.acquire_until(Instant::now()).unwrap();
        assert!(semaphore.acquire_until(Instant::now()).is_none());
        assert_eq!(semaphore.n_held(), 1);
        drop(permit);
        assert!(semaphore.try_acquire().is_some());
    }
}
