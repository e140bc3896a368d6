//! What bounds a request: one deadline, one cancel switch, one memory budget; and how far it has come.
//!
//! A [`QueryContext`] goes from the socket to the innermost loop. Whoever loops over series, chunks or steps calls
//! [`QueryContext::check`] at least once per [`CHECK_INTERVAL`] small pieces of work; whoever grows a buffer with
//! user data reserves through a [`Charge`] first. The ways a request may end early are the variants of [`Interrupt`] and
//! [`Error::Limit`](crate::Error::Limit).
//!
//! Invariants
//! 1. Once a check has failed, every later one on the same context fails.
//! 2. The first reason to end stands.
//!
//! Threads: a context is shared by all threads that work for its request; others watch and end it.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::memory::{Charge, MemoryBudget};

/// Pieces of work (samples, labels, steps) that may pass between two calls of [`QueryContext::check`].
pub const CHECK_INTERVAL: usize = 4096;

/// Why work on a request stopped before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Interrupt {
    /// The deadline has passed.
    #[error("query timed out")]
    Deadline = 1,
    /// The client has gone.
    #[error("query was canceled")]
    Canceled = 2,
    /// The server is stopping.
    #[error("query was canceled: the server is shutting down")]
    Shutdown = 3,
    /// An operator ended it.
    #[error("query was canceled: an operator ended it")]
    Killed = 4,
    /// Memory was short, and this request held the most of all.
    #[error("query was ended to free memory: it held the most of all, and --query.max-memory-total was used up")]
    Heaviest = 5,
    /// The process came close to the memory that it may take, and this request held the most of all.
    #[error("query was ended to free memory: it held the most of all, and the process was above --memory.refuse-at")]
    Pressure = 6,
}

impl Interrupt {
    fn of(code: u8) -> Option<Self> {
        use Interrupt::{Canceled, Deadline, Heaviest, Killed, Pressure, Shutdown};
        [Deadline, Canceled, Shutdown, Killed, Heaviest, Pressure].into_iter().find(|&reason| reason as u8 == code)
    }
}

/// Deadline, cancel switch and memory budget of one request; clones share them.
#[derive(Clone)]
pub struct QueryContext {
    shared: Arc<Shared>,
}

struct Shared {
    deadline: Option<Instant>,
    /// 0 while running, else an [`Interrupt`].
    interrupt: AtomicU8,
    memory: MemoryBudget,
    /// Whether reads take what is there rather than wait for the rest.
    takes_partial: bool,
    /// What was missing.
    partial: OnceLock<String>,
    /// Series that came out of the store for it, and samples that were read of them.
    n_series: AtomicU64,
    n_samples: AtomicU64,
    /// How many series may come, and what bounds them.
    series_max: OnceLock<(&'static str, u64)>,
}

impl QueryContext {
    /// Starts a request that must end within `timeout` and may hold as much memory as `memory` allows.
    #[must_use]
    pub fn new(timeout: Duration, memory: MemoryBudget) -> Self {
        Self::build(Instant::now().checked_add(timeout), memory, false)
    }

    /// Starts a request as [`QueryContext::new`] does, whose reads do not wait for the replay of the log: they give what
    /// there is, and [`QueryContext::partial`] says so.
    #[must_use]
    pub fn taking_partial(timeout: Duration, memory: MemoryBudget) -> Self {
        Self::build(Instant::now().checked_add(timeout), memory, true)
    }

    /// Returns a context without deadline and limits, for work of the store itself and for tests.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::build(None, MemoryBudget::new("memory", usize::MAX), false)
    }

    fn build(deadline: Option<Instant>, memory: MemoryBudget, takes_partial: bool) -> Self {
        let shared = Shared {
            deadline,
            interrupt: AtomicU8::new(0),
            memory,
            takes_partial,
            partial: OnceLock::new(),
            n_series: AtomicU64::new(0),
            n_samples: AtomicU64::new(0),
            series_max: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Bounds the series that the request may be given; `what` names the limit in errors. The first bound stands.
    pub fn bound_series(&self, what: &'static str, series_max: u64) {
        self.shared.series_max.get_or_init(|| (what, series_max));
    }

    /// Counts series that come out of the store for this request.
    ///
    /// # Errors
    /// [`Error::Limit`] beyond [`QueryContext::bound_series`].
    pub(crate) fn count_series(&self, n_series: u64) -> Result<()> {
        let n_before = self.shared.n_series.fetch_add(n_series, Ordering::Relaxed);
        match self.shared.series_max.get() {
            Some(&(what, limit)) if n_before.saturating_add(n_series) > limit => {
                Err(Error::Limit { what, used: n_before.saturating_add(n_series), limit })
            }
            _ => Ok(()),
        }
    }

    /// Counts samples that were read for this request.
    pub(crate) fn count_samples(&self, n_samples: usize) {
        self.shared.n_samples.fetch_add(n_samples as u64, Ordering::Relaxed);
    }

    /// Returns how many series came out of the store for this request so far. One that comes again counts again.
    #[must_use]
    pub fn n_series(&self) -> u64 {
        self.shared.n_series.load(Ordering::Relaxed)
    }

    /// Returns how many samples were read for this request so far.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.shared.n_samples.load(Ordering::Relaxed)
    }

    /// Returns what the reads of this request left out, as a warning for the one who asked; `None` if they are whole.
    #[must_use]
    pub fn partial(&self) -> Option<&str> {
        self.shared.partial.get().map(String::as_str)
    }

    /// Notes what is missing if the request takes what is there; else returns false. The first note stands.
    pub(crate) fn note_partial(&self, missing: impl FnOnce() -> String) -> bool {
        if self.shared.takes_partial {
            self.shared.partial.get_or_init(missing);
        }
        self.shared.takes_partial
    }

    /// Ends the request: the next check on any thread fails. The first reason given stands.
    pub fn interrupt(&self, reason: Interrupt) {
        let _first_stands =
            self.shared.interrupt.compare_exchange(0, reason as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns `Ok` while the request may go on. Costs a clock read, some 25 ns.
    ///
    /// # Errors
    /// [`Error::Interrupted`] after the deadline or [`QueryContext::interrupt`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.interrupted() {
            None => Ok(()),
            Some(reason) => Err(Error::Interrupted(reason)),
        }
    }

    /// Returns why the request must end, or `None` while it may go on.
    #[must_use]
    pub fn interrupted(&self) -> Option<Interrupt> {
        if let Some(deadline) = self.shared.deadline
            && Instant::now() >= deadline
        {
            self.interrupt(Interrupt::Deadline);
        }
        Interrupt::of(self.shared.interrupt.load(Ordering::Relaxed))
    }

    /// Returns the time left, or `None` if there is no deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.shared.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Opens an account on the memory budget, at zero bytes.
    #[must_use]
    pub fn charge(&self) -> Charge {
        self.shared.memory.charge()
    }

    /// Returns the memory budget.
    #[must_use]
    pub fn memory(&self) -> &MemoryBudget {
        &self.shared.memory
    }
}

impl fmt::Debug for QueryContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueryContext({:?}, {} bytes)", self.interrupted(), self.memory().used())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_interrupt_stands() {
        let ctx = QueryContext::new(Duration::ZERO, MemoryBudget::new("memory", 0));
        assert!(matches!(ctx.check(), Err(Error::Interrupted(Interrupt::Deadline))));
        ctx.interrupt(Interrupt::Canceled);
        assert_eq!(ctx.interrupted(), Some(Interrupt::Deadline));
        let endless = QueryContext::unbounded();
        endless.check().unwrap();
        endless.interrupt(Interrupt::Shutdown);
        assert!(matches!(endless.check(), Err(Error::Interrupted(Interrupt::Shutdown))));
    }

    #[test]
    fn series_are_counted_up_to_their_bound() {
        let ctx = QueryContext::unbounded();
        ctx.count_series(7).unwrap();
        ctx.bound_series("series of a call", 8);
        ctx.count_series(1).unwrap();
        let refused = ctx.count_series(1).unwrap_err();
        assert_eq!(refused.to_string(), "series of a call: 9 exceeds the limit of 8");
        ctx.count_samples(3);
        assert_eq!((ctx.n_series(), ctx.n_samples()), (9, 3));
    }
}
