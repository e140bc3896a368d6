//! Turns to do what few may do at a time, and seats for requests that wait.
//!
//! To make a series costs many times what a sample of a known one does. So few requests do it at a time, and the others
//! wait here in the order in which they came, while requests of known series pass by. Who waits holds its decoded request
//! in memory: hence the seats, which are bounded in number and in what those who sit on them hold. To decode a request takes a
//! turn of another kind, as short as decoding is, for which nobody needs a seat.
//!
//! Invariants
//! 1. At most `turns_max` turns are out; nobody gets one before those who wait already.
//! 2. At most `seats_max` wait, and they hold at most `seats_size_max` bytes.
//!
//! Threads: who waits for a turn blocks its thread, up to the time that it gives. A turn that is given back wakes who is
//! next alone: hundreds may wait.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    turns_max: usize,
    seats_max: usize,
    seats_size_max: usize,
}

#[derive(Debug, Default)]
struct State {
    n_turns: usize,
    /// Tickets of those who wait for a turn, in order, and their threads.
    queue: VecDeque<(u64, Thread)>,
    next_ticket: u64,
    n_seats: usize,
    seats_size: usize,
}

/// The right to make series, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

/// A place to wait, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    turns: &'a Turns,
    size: usize,
}

/// Who waits and works now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnStats {
    /// Requests that make series.
    pub creating: u64,
    /// Requests that wait, for a turn or for anything else that is scarce at the moment.
    pub waiting: u64,
    /// Bytes that these hold.
    pub waiting_bytes: u64,
}

impl Turns {
    pub(crate) fn new(turns_max: usize, seats_max: usize, seats_size_max: usize) -> Self {
        let turns_max = turns_max.max(1);
        Self { state: Mutex::default(), turns_max, seats_max, seats_size_max }
    }

    /// Returns a turn if there is one and nobody waits for it.
    pub(crate) fn try_turn(&self) -> Option<Turn<'_>> {
        let mut state = self.state();
        if state.n_turns >= self.turns_max || !state.queue.is_empty() {
            return None;
        }
        state.n_turns += 1;
        Some(Turn(self))
    }

    /// Waits for a turn; `None` if there is none until then.
    pub(crate) fn turn(&self, until: Instant) -> Option<Turn<'_>> {
        let mut state = self.state();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.queue.push_back((ticket, thread::current()));
        loop {
            if state.n_turns < self.turns_max && state.queue.front().is_some_and(|(first, _)| *first == ticket) {
                state.queue.pop_front();
                state.n_turns += 1;
                // There may be a turn for the next one too.
                state.wake_next(self.turns_max);
                return Some(Turn(self));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.queue.retain(|(other, _)| *other != ticket);
                state.wake_next(self.turns_max);
                return None;
            }
            drop(state);
            // Returns at once if somebody has woken this thread since it was in the queue.
            thread::park_timeout(left);
            state = self.state();
        }
    }

    /// Returns a seat for a request that holds so many bytes, if there is one. A request that is alone gets one whatever
    /// it holds.
    pub(crate) fn seat(&self, size: usize) -> Option<Seat<'_>> {
        let mut state = self.state();
        let is_full = state.n_seats >= self.seats_max || state.seats_size.saturating_add(size) > self.seats_size_max;
        if is_full && state.n_seats > 0 {
            return None;
        }
        state.n_seats += 1;
        state.seats_size += size;
        Some(Seat { turns: self, size })
    }

    pub(crate) fn stats(&self) -> TurnStats {
        let state = self.state();
        TurnStats {
            creating: state.n_turns as u64,
            waiting: state.n_seats as u64,
            waiting_bytes: state.seats_size as u64,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Seat<'a> {
    /// Waits for a turn; `None` if there is none until then.
    pub(crate) fn turn(&self, until: Instant) -> Option<Turn<'a>> {
        self.turns.turn(until)
    }
}

impl State {
    fn wake_next(&self, turns_max: usize) {
        if let Some((_, next)) = self.queue.front().filter(|_| self.n_turns < turns_max) {
            next.unpark();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.n_turns -= 1;
        state.wake_next(self.0.turns_max);
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        state.n_seats -= 1;
        state.seats_size -= self.size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn turns_are_given_in_the_order_of_arrival() {
        let turns = Turns::new(1, 10, 100);
        let first = turns.try_turn().unwrap();
        assert!(turns.try_turn().is_none());
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for i in 0..3 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let seat = turns.seat(1).unwrap();
                    let turn = seat.turn(late()).unwrap();
                    order.lock().unwrap().push(i);
                    drop(turn);
                });
                while turns.state().queue.len() <= i {
                    thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2]);
        assert_eq!(turns.stats(), TurnStats::default());
    }

    #[test]
    fn who_does_not_get_a_turn_in_time_leaves_the_queue() {
        let turns = Turns::new(1, 10, 100);
        let seat = turns.seat(5).unwrap();
        let turn = seat.turn(Instant::now()).unwrap();
        assert!(seat.turn(Instant::now()).is_none());
        assert_eq!(turns.stats(), TurnStats { creating: 1, waiting: 1, waiting_bytes: 5 });
        drop(turn);
        assert!(turns.try_turn().is_some());
    }

    #[test]
    fn seats_are_bounded_in_number_and_bytes() {
        let turns = Turns::new(1, 2, 100);
        let large = turns.seat(1000).unwrap();
        assert!(turns.seat(1).is_none());
        drop(large);
        let (_a, b) = (turns.seat(60).unwrap(), turns.seat(40).unwrap());
        assert!(turns.seat(0).is_none());
        drop(b);
        assert!(turns.seat(41).is_none() && turns.seat(40).is_some());
    }
}
