//! [`Cancellation`]: the deadline of a request and its first interrupt.
//!
//! Invariants
//! 1. Once a check has failed, every later check fails.
//! 2. The first interrupt wins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;

/// Deadline and cancellation of one request, shared by all clones.
#[derive(Debug, Clone)]
pub struct Cancellation(Arc<State>);

#[derive(Debug)]
struct State {
    deadline: Option<Instant>,
    /// 0 while the request runs, otherwise an [`Interrupt`].
    interrupt: AtomicU8,
}

impl Cancellation {
    /// Creates the state of a request that runs until `deadline`, if there is one.
    pub(crate) fn new(deadline: Option<Instant>) -> Self {
        Self(Arc::new(State {
            deadline,
            interrupt: AtomicU8::new(0),
        }))
    }

    /// Interrupts the request: the next check on any thread fails. The first reason wins.
    pub fn interrupt(&self, reason: Interrupt) {
        let _first_stands = self.0.interrupt.compare_exchange(
            0,
            reason as u8,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Returns the reason why the request must end, or `None` while it may continue.
    #[must_use]
    pub fn interrupted(&self) -> Option<Interrupt> {
        self.interrupted_at(Instant::now)
    }

    /// Returns the reason why the request must end. Calls `now` only if there is a deadline.
    #[inline]
    fn interrupted_at(&self, now: impl FnOnce() -> Instant) -> Option<Interrupt> {
        if let Some(deadline) = self.0.deadline
            && now() >= deadline
        {
            self.interrupt(Interrupt::Deadline);
        }
        Interrupt::from_number(self.0.interrupt.load(Ordering::Relaxed))
    }

    /// Returns `Ok` while the request may continue.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    #[inline]
    pub(crate) fn check(&self, now: impl FnOnce() -> Instant) -> Result<()> {
        match self.interrupted_at(now) {
            None => Ok(()),
            Some(reason) => Err(Error::Interrupted(reason)),
        }
    }

    /// Returns the remaining time, or `None` without a deadline.
    pub(crate) fn remaining(&self) -> Option<Duration> {
        let deadline = self.0.deadline?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }
}
