//! Memory budgets: bytes are reserved before a buffer grows, and released when the buffer is
//! dropped.
//!
//! Each request has its own budget, which also draws on the shared budget of all requests. When the
//! shared budget is exhausted, its [`MemoryReclaimer`] decides which request must end: the one that
//! uses the most memory. The request that needs memory waits briefly for the release or, if it
//! cannot wait, uses a small reserve.
//!
//! Invariants
//! 1. The bytes of a [`Charge`] are reserved of the budget and of all above it, and released when
//!    it is dropped.
//! 2. A budget holds at most its limit, plus at most a sixteenth for callers that cannot wait.
//! 3. No thread waits for memory longer than [`WAIT_MAX`], or while it holds a lock. No worker of a
//!    thread pool waits at all. The request that is about to release memory may need that lock or
//!    worker, so every wait ends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::scheduler;

/// Reclaims memory when a budget is exhausted.
pub trait MemoryReclaimer: fmt::Debug + Send + Sync {
    /// Called when `asking`, a child of the budget, needs `size` bytes more than are free. May
    /// interrupt other requests. Returns `true` if memory is about to be released, so that the
    /// caller should retry. Must not wait or reserve memory of the budget itself.
    fn make_room(&self, asking: &MemoryBudget, size: usize) -> bool;
}

/// Maximum time that a request waits for memory that others are about to release.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Interval between attempts while waiting.
const WAIT_INTERVAL: Duration = Duration::from_millis(2);
/// Fraction of a budget reserved for callers that cannot wait: a sixteenth.
const RESERVE_PART: usize = 16;

/// A limit on reserved bytes, shared by all clones. A child also draws on its parent, and on the
/// parents of that.
#[derive(Debug, Clone)]
pub struct MemoryBudget {
    account: Arc<Account>,
}

#[derive(Debug)]
struct Account {
    what: Limit,
    limit: AtomicUsize,
    used: AtomicUsize,
    peak: AtomicUsize,
    parent: Option<MemoryBudget>,
    reclaimer: Option<Arc<dyn MemoryReclaimer>>,
}

/// Why bytes were not reserved.
enum Refused {
    /// The budget itself is exhausted, or one between it and the topmost.
    Own(Error),
    /// The topmost budget is exhausted.
    Shared(Error),
}

impl Refused {
    fn into_error(self) -> Error {
        match self {
            Self::Own(error) | Self::Shared(error) => error,
        }
    }
}

impl MemoryBudget {
    /// Creates a budget of `limit` bytes; `what` is the limit in errors.
    #[must_use]
    pub fn new(what: Limit, limit: usize) -> Self {
        Self::build(what, limit, None, None)
    }

    /// Creates a budget that calls `reclaimer` before it rejects a reservation of a child.
    #[must_use]
    pub fn with_reclaimer(what: Limit, limit: usize, reclaimer: Arc<dyn MemoryReclaimer>) -> Self {
        Self::build(what, limit, None, Some(reclaimer))
    }

    /// Creates a child: a budget with its own limit that also draws on this one.
    #[must_use]
    pub fn child(&self, what: Limit, limit: usize) -> Self {
        Self::build(what, limit, Some(self.clone()), None)
    }

    fn build(
        what: Limit,
        limit: usize,
        parent: Option<Self>,
        reclaimer: Option<Arc<dyn MemoryReclaimer>>,
    ) -> Self {
        let limit = AtomicUsize::new(limit);
        let used = AtomicUsize::new(0);
        let peak = AtomicUsize::new(0);
        Self {
            account: Arc::new(Account {
                what,
                limit,
                used,
                peak,
                parent,
                reclaimer,
            }),
        }
    }

    /// Returns `true` if both are clones of one budget.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.account, &other.account)
    }

    /// Creates an empty charge on the budget.
    #[must_use]
    pub fn charge(&self) -> Charge {
        Charge {
            memory: self.clone(),
            size: 0,
        }
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.account.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit. What is reserved beyond it stays reserved.
    pub fn set_limit(&self, limit: usize) {
        self.account.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns the reserved bytes.
    #[must_use]
    pub fn used(&self) -> usize {
        self.account.used.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of bytes reserved at any time.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.account.peak.load(Ordering::Relaxed)
    }

    /// Reserves bytes of the budget and of all budgets above it. The topmost of those may exceed
    /// its limit by `slack` bytes.
    fn reserve(&self, size: usize, slack: usize) -> Result<(), Refused> {
        self.take(size, 0).map_err(Refused::Own)?;
        if let Some(parent) = &self.account.parent
            && let Err(refused) = parent.reserve_shared(size, slack)
        {
            self.account.used.fetch_sub(size, Ordering::Relaxed);
            return Err(refused);
        }
        self.account.peak.fetch_max(self.used(), Ordering::Relaxed);
        Ok(())
    }

    /// Reserves bytes for a child.
    fn reserve_shared(&self, size: usize, slack: usize) -> Result<(), Refused> {
        match self.account.parent {
            None => self.take(size, slack).map_err(Refused::Shared),
            Some(_) => self.reserve(size, slack),
        }
    }

    /// Returns the topmost budget that this one draws on, or `None` if it draws on none.
    fn shared(&self) -> Option<&Self> {
        let parent = self.account.parent.as_ref()?;
        Some(parent.shared().unwrap_or(parent))
    }

    /// Returns `true` if half of the budget and of its parents stays free after `size` more bytes.
    #[must_use]
    pub fn has_plenty(&self, size: usize) -> bool {
        let parent = &self.account.parent;
        self.used().saturating_add(size) <= self.limit() / 2
            && parent.as_ref().is_none_or(|parent| parent.has_plenty(size))
    }

    fn take(&self, size: usize, slack: usize) -> Result<()> {
        let Account { what, used, .. } = &*self.account;
        let limit = self.limit();
        let max = limit.saturating_add(slack);
        // Compare and swap: a refused size is never visible to other threads, which it would make
        // fail, too.
        let reserved = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(size).filter(|&after| after <= max)
        });
        let refused = |used: usize| Error::Limit {
            what: *what,
            used: used.saturating_add(size) as u64,
            limit: limit as u64,
        };
        reserved.map(drop).map_err(refused)
    }

    /// Reserves bytes. Waits for memory that others are about to release, unless the thread is a
    /// worker of a pool.
    fn reserve_waiting(&self, size: usize) -> Result<()> {
        // Fast path: memory is free.
        let refused = match self.reserve(size, 0) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        if rayon::current_thread_index().is_some() {
            return self.reserve_without_waiting(size);
        }
        scheduler::blocking(|| self.retry(size, refused))
    }

    /// Reserves bytes that were refused, once others have released them.
    fn retry(&self, size: usize, mut refused: Refused) -> Result<()> {
        let started = Instant::now();
        let mut is_expected = true;
        while is_expected && matches!(refused, Refused::Shared(_)) && started.elapsed() < WAIT_MAX {
            is_expected = self.make_room(size);
            if is_expected {
                thread::sleep(WAIT_INTERVAL);
            }
            // Another request may have released its memory just before `make_room` looked for it.
            match self.reserve(size, 0) {
                Ok(()) => return Ok(()),
                Err(again) => refused = again,
            }
        }
        Err(refused.into_error())
    }

    /// Reserves bytes without waiting. Uses the reserve while other requests end.
    pub(crate) fn reserve_without_waiting(&self, size: usize) -> Result<()> {
        let mut reserved = self.reserve(size, 0);
        if let (Err(Refused::Shared(_)), Some(shared)) = (&reserved, self.shared()) {
            let slack = if self.make_room(size) {
                shared.limit() / RESERVE_PART
            } else {
                0
            };
            reserved = self.reserve(size, slack);
        }
        reserved.map_err(Refused::into_error)
    }

    fn make_room(&self, size: usize) -> bool {
        let reclaimer = self
            .shared()
            .and_then(|shared| shared.account.reclaimer.as_ref());
        reclaimer.is_some_and(|reclaimer| reclaimer.make_room(self, size))
    }

    pub(crate) fn release(&self, size: usize) {
        self.account.used.fetch_sub(size, Ordering::Relaxed);
        if let Some(parent) = &self.account.parent {
            parent.release(size);
        }
    }
}

/// Bytes reserved on a [`MemoryBudget`]; released on drop.
#[derive(Debug)]
pub struct Charge {
    memory: MemoryBudget,
    size: usize,
}

impl Charge {
    /// Reserves `size` more bytes. Call this before the buffer grows. If the shared budget is
    /// exhausted, waits up to a second while heavier requests are ended. A worker of a thread pool
    /// does not wait. Must not be called while holding a lock, or where waiting is not allowed.
    ///
    /// # Errors
    /// [`Error::Limit`] if the budget or its parent has too few free bytes. Nothing is reserved
    /// then.
    #[inline]
    pub fn grow(&mut self, size: usize) -> Result<()> {
        // Fast path: a request for 0 bytes succeeds even if the budget has shrunk below its use.
        if size == 0 {
            return Ok(());
        }
        self.memory.reserve_waiting(size)?;
        self.size += size;
        Ok(())
    }

    /// Like [`Charge::grow`], but never waits. For callers that hold a lock.
    ///
    /// # Errors
    /// The errors of [`Charge::grow`].
    #[inline]
    pub fn grow_without_waiting(&mut self, size: usize) -> Result<()> {
        // Fast path, as in `grow`.
        if size == 0 {
            return Ok(());
        }
        self.memory.reserve_without_waiting(size)?;
        self.size += size;
        Ok(())
    }

    /// Reserves `size` more bytes if they are free, without ending other requests: for caches.
    /// Returns `true` on success.
    #[inline]
    pub fn grow_if_free(&mut self, size: usize) -> bool {
        let is_reserved = self.memory.reserve(size, 0).is_ok();
        self.size += if is_reserved { size } else { 0 };
        is_reserved
    }

    /// Reserves `size` more bytes if half of the budget and of its parent stays free: for large
    /// caches. Returns `true` on success.
    pub fn grow_if_plenty(&mut self, size: usize) -> bool {
        self.memory.has_plenty(size) && self.grow_if_free(size)
    }

    /// Releases `size` bytes, at most those reserved.
    pub fn shrink(&mut self, size: usize) {
        let size = size.min(self.size);
        self.memory.release(size);
        self.size -= size;
    }

    /// Reserves or releases bytes, so that `size` bytes are reserved.
    ///
    /// # Errors
    /// The errors of [`Charge::grow`].
    #[inline]
    pub fn resize(&mut self, size: usize) -> Result<()> {
        if size >= self.size {
            self.grow(size - self.size)
        } else {
            self.shrink(self.size - size);
            Ok(())
        }
    }

    /// Takes over the bytes of another charge on the same budget.
    pub fn absorb(&mut self, mut other: Self) {
        debug_assert!(
            Arc::ptr_eq(&self.memory.account, &other.memory.account),
            "charges on one budget"
        );
        self.size += std::mem::take(&mut other.size);
    }

    /// Returns the reserved bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // Fast path: nothing was reserved.
        if self.size > 0 {
            self.memory.release(self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QueryContext;
    use std::sync::Mutex;

    #[test]
    fn a_charge_is_limited_by_both_budgets_and_released() {
        let all = MemoryBudget::new(Limit::Other("all queries"), 100);
        let one = all.child(Limit::Other("one query"), 80);
        let ctx = QueryContext::new(Duration::from_secs(60), one.clone());
        let mut charge = ctx.charge();
        charge.grow(70).unwrap();
        let refused = charge.grow(11).unwrap_err();
        assert_eq!(refused.to_string(), "one query: 81 exceeds the limit of 80");
        let mut rest = all.child(Limit::Other("another query"), 80).charge();
        assert_eq!(
            rest.grow(31).unwrap_err().to_string(),
            "all queries: 101 exceeds the limit of 100"
        );
        assert_eq!((one.used(), all.used()), (70, 70));
        all.set_limit(60);
        assert!(rest.grow(1).is_err() && charge.grow(1).is_err());
        drop(charge);
        assert_eq!((one.used(), all.used(), one.peak()), (0, 0, 70));
        rest.grow(60).unwrap();
    }

    #[test]
    fn a_budget_between_two_others_has_its_own_limit() {
        let all = MemoryBudget::new(Limit::Other("all queries"), 100);
        let tenant = all.child(Limit::Other("a tenant"), 50);
        let mut first = tenant.child(Limit::Other("one"), 40).charge();
        let mut second = tenant.child(Limit::Other("another"), 40).charge();
        first.grow(40).unwrap();
        assert_eq!(
            second.grow(11).unwrap_err().to_string(),
            "a tenant: 51 exceeds the limit of 50"
        );
        let mut other = all.child(Limit::Other("one"), 80).charge();
        other.grow(60).unwrap();
        assert_eq!(
            second.grow(10).unwrap_err().to_string(),
            "all queries: 110 exceeds the limit of 100"
        );
        assert_eq!((tenant.used(), all.used()), (40, 100));
        drop((first, second, other));
        assert_eq!((tenant.used(), all.used()), (0, 0));
    }

    #[test]
    fn caches_leave_half_of_each_budget_free() {
        let all = MemoryBudget::new(Limit::Other("all queries"), 100);
        let mut charge = all.child(Limit::Other("one query"), 80).charge();
        assert!(
            charge.grow_if_plenty(30) && !charge.grow_if_plenty(11) && charge.grow_if_plenty(10)
        );
        let mut other = all.child(Limit::Other("another query"), 80).charge();
        assert!(!other.grow_if_plenty(11) && other.grow_if_plenty(10));
        assert_eq!(all.used(), 50);
    }

    /// Releases its charges when called, one at a time.
    #[derive(Debug, Default)]
    struct Givers(Mutex<Vec<Charge>>);

    impl MemoryReclaimer for Givers {
        fn make_room(&self, _asking: &MemoryBudget, _size: usize) -> bool {
            self.0.lock().unwrap().pop().is_some()
        }
    }

    fn relieved(limit: usize, held: &[usize]) -> (MemoryBudget, Arc<Givers>) {
        let givers = Arc::new(Givers::default());
        let all = MemoryBudget::with_reclaimer(
            Limit::Other("all queries"),
            limit,
            Arc::<Givers>::clone(&givers),
        );
        for &size in held {
            let mut charge = all.child(Limit::Other("another query"), limit).charge();
            charge.grow(size).unwrap();
            givers.0.lock().unwrap().push(charge);
        }
        (all, givers)
    }

    #[test]
    fn a_caller_without_room_gets_what_others_release() {
        let (all, givers) = relieved(100, &[30, 30, 40]);
        let mut charge = all.child(Limit::Other("one query"), 100).charge();
        charge.grow(60).unwrap();
        assert_eq!((all.used(), givers.0.lock().unwrap().len()), (90, 1));
        charge.grow(50).unwrap_err();
        assert_eq!(
            all.used(),
            90,
            "only the shared limit ends other requests, not the request's own"
        );
    }

    #[test]
    fn a_caller_that_cannot_wait_uses_the_reserve_while_others_end() {
        #[derive(Debug)]
        struct Ending(bool);
        impl MemoryReclaimer for Ending {
            fn make_room(&self, _asking: &MemoryBudget, _size: usize) -> bool {
                self.0
            }
        }
        for (ending, expect) in [(true, 106), (false, 100)] {
            let all = MemoryBudget::with_reclaimer(
                Limit::Other("all queries"),
                100,
                Arc::new(Ending(ending)),
            );
            let mut first = all.child(Limit::Other("one query"), 100).charge();
            first.grow(100).unwrap();
            let mut second = all.child(Limit::Other("another query"), 100).charge();
            assert_eq!(second.grow_without_waiting(6).is_ok(), ending);
            second.grow_without_waiting(1).unwrap_err();
            assert!(
                !second.grow_if_free(1),
                "no request is ended for it, and it does not use the reserve"
            );
            assert_eq!(all.used(), expect);
        }
    }

    /// A pool with one worker, which an ending request needs to release its memory.
    #[test]
    fn a_worker_does_not_wait_for_a_request_that_needs_it() {
        #[derive(Debug)]
        struct Ending;
        impl MemoryReclaimer for Ending {
            fn make_room(&self, _asking: &MemoryBudget, _size: usize) -> bool {
                true
            }
        }
        let all = MemoryBudget::with_reclaimer(Limit::Other("all queries"), 100, Arc::new(Ending));
        let mut ending = all.child(Limit::Other("another query"), 100).charge();
        ending.grow(100).unwrap();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .unwrap();
        let mut charge = all.child(Limit::Other("one query"), 100).charge();
        pool.install(|| {
            rayon::spawn(move || drop(ending));
            charge.grow(6).unwrap();
            assert_eq!(all.used(), 106);
        });
        charge.grow(90).unwrap();
        assert_eq!(all.used(), 96);
    }

    /// Releases its charge while the caller looks for requests to end, and finds none.
    #[test]
    fn memory_that_was_just_released_is_used() {
        #[derive(Debug)]
        struct Ended(Mutex<Option<Charge>>);
        impl MemoryReclaimer for Ended {
            fn make_room(&self, _asking: &MemoryBudget, _size: usize) -> bool {
                *self.0.lock().unwrap() = None;
                false
            }
        }
        for grow in [Charge::grow, Charge::grow_without_waiting] {
            let ended = Arc::new(Ended(Mutex::default()));
            let all = MemoryBudget::with_reclaimer(
                Limit::Other("all queries"),
                100,
                Arc::<Ended>::clone(&ended),
            );
            let mut other = all.child(Limit::Other("another query"), 100).charge();
            other.grow(100).unwrap();
            *ended.0.lock().unwrap() = Some(other);
            let mut charge = all.child(Limit::Other("one query"), 100).charge();
            grow(&mut charge, 100).unwrap();
            grow(&mut charge, 1).unwrap_err();
        }
    }
}
