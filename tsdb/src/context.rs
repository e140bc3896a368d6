//! What bounds a request: one deadline, one cancel switch, one memory budget.
//!
//! A [`QueryContext`] goes from the socket to the innermost loop. Whoever loops over series, chunks or steps calls
//! [`QueryContext::check`] at least once per [`CHECK_INTERVAL`] small pieces of work; whoever grows a buffer with
//! user data reserves through a [`Charge`] first. The three ways a request may end early are the variants of
//! [`Interrupt`] and [`Error::Limit`](crate::Error::Limit).
//!
//! Invariants
//! 1. Once a check has failed, every later one on the same context fails.
//! 2. The bytes of a [`Charge`] go back to the budget, and to the budget of all queries, when it is dropped.
//!
//! Threads: a context is shared by all threads that work for its request.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

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
        let interrupt = AtomicU8::new(0);
        Self { shared: Arc::new(Shared { deadline, interrupt, memory, takes_partial, partial: OnceLock::new() }) }
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
        match self.shared.interrupt.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Interrupt::Deadline),
            2 => Some(Interrupt::Canceled),
            _ => Some(Interrupt::Shutdown),
        }
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

/// A bound on bytes held; clones share it. A child also draws on its parent.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    account: Arc<Account>,
}

#[derive(Debug)]
struct Account {
    what: &'static str,
    limit: usize,
    used: AtomicUsize,
    peak: AtomicUsize,
    parent: Option<MemoryBudget>,
}

impl MemoryBudget {
    /// Makes a budget of `limit` bytes; `what` names the limit in errors, for instance its flag.
    #[must_use]
    pub fn new(what: &'static str, limit: usize) -> Self {
        Self::build(what, limit, None)
    }

    /// Makes a budget of its own limit that draws on this one as well.
    #[must_use]
    pub fn child(&self, what: &'static str, limit: usize) -> Self {
        Self::build(what, limit, Some(self.clone()))
    }

    fn build(what: &'static str, limit: usize, parent: Option<Self>) -> Self {
        let account = Account { what, limit, used: AtomicUsize::new(0), peak: AtomicUsize::new(0), parent };
        Self { account: Arc::new(account) }
    }

    /// Opens an account on the budget, at zero bytes.
    pub(crate) fn charge(&self) -> Charge {
        Charge { memory: self.clone(), size: 0 }
    }

    /// Returns the bytes that may be held.
    pub(crate) fn limit(&self) -> usize {
        self.account.limit
    }

    /// Returns the bytes held now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.account.used.load(Ordering::Relaxed)
    }

    /// Returns the most bytes that were ever held at once.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.account.peak.load(Ordering::Relaxed)
    }

    fn reserve(&self, size: usize) -> Result<()> {
        let Account { what, limit, used, peak, parent } = &*self.account;
        let before = used.fetch_add(size, Ordering::Relaxed);
        let after = before.saturating_add(size);
        if after > *limit {
            used.fetch_sub(size, Ordering::Relaxed);
            return Err(Error::Limit { what, used: after as u64, limit: *limit as u64 });
        }
        if let Some(parent) = parent
            && let Err(refused) = parent.reserve(size)
        {
            used.fetch_sub(size, Ordering::Relaxed);
            return Err(refused);
        }
        peak.fetch_max(after, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, size: usize) {
        self.account.used.fetch_sub(size, Ordering::Relaxed);
        if let Some(parent) = &self.account.parent {
            parent.release(size);
        }
    }
}

/// Bytes reserved on a [`MemoryBudget`]; they are given back on drop.
#[derive(Debug)]
pub struct Charge {
    memory: MemoryBudget,
    size: usize,
}

impl Charge {
    /// Reserves `size` bytes more; call it before the buffer grows.
    ///
    /// # Errors
    /// [`Error::Limit`] if the budget, or the one it draws on, has not that much left; nothing is reserved then.
    #[inline]
    pub fn grow(&mut self, size: usize) -> Result<()> {
        self.memory.reserve(size)?;
        self.size += size;
        Ok(())
    }

    /// Gives `size` bytes back; at most what is held.
    pub fn shrink(&mut self, size: usize) {
        let size = size.min(self.size);
        self.memory.release(size);
        self.size -= size;
    }

    /// Takes over the bytes of another charge on the same budget.
    pub fn absorb(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.memory.account, &other.memory.account), "charges of one budget");
        self.size += std::mem::take(&mut other.size);
    }

    /// Returns the bytes held.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.release(self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_bounded_by_both_budgets_and_given_back() {
        let all = MemoryBudget::new("all queries", 100);
        let one = all.child("one query", 80);
        let ctx = QueryContext::new(Duration::from_secs(60), one.clone());
        let mut charge = ctx.charge();
        charge.grow(70).unwrap();
        let refused = charge.grow(11).unwrap_err();
        assert_eq!(refused.to_string(), "one query: 81 exceeds the limit of 80");
        let mut rest = all.child("another query", 80).charge();
        assert_eq!(rest.grow(31).unwrap_err().to_string(), "all queries: 101 exceeds the limit of 100");
        assert_eq!((one.used(), all.used()), (70, 70));
        drop(charge);
        assert_eq!((one.used(), all.used(), one.peak()), (0, 0, 70));
    }

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
}
