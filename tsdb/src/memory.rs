//! Memory budgets: bytes are reserved before a buffer grows, and given back when it is dropped.
//!
//! A request has a budget of its own that draws on that of all requests. Where the common one is used up, its [`Relief`]
//! decides who has to end: the heaviest, not the one that asks. That one waits briefly for what the other gives back, or,
//! where it cannot wait, takes of a small reserve meanwhile.
//!
//! Invariants
//! 1. The bytes of a [`Charge`] go back to the budget, and to the one that it draws on, when it is dropped.
//! 2. A budget holds at most its limit, and of those who cannot wait at most a sixteenth more.
//! 3. Nobody waits for memory longer than [`WAIT_MAX`], and nobody with a lock held: so a wait ends whatever others do.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Makes room in a budget that is used up.
pub trait Relief: fmt::Debug + Send + Sync {
    /// Is asked when `asking`, a child of the budget, wants `size` bytes more than there are. May have others end.
    /// Returns whether memory is about to come back, so that trying again makes sense. Must not wait, nor take memory
    /// of the budget itself.
    fn make_room(&self, asking: &MemoryBudget, size: usize) -> bool;
}

/// How long a request waits for memory that others are about to give back.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// How often it looks whether it is there.
const WAIT_INTERVAL: Duration = Duration::from_millis(2);
/// Part of a budget that those may take in addition who cannot wait: a sixteenth.
const RESERVE_PART: usize = 16;

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
    relief: Option<Arc<dyn Relief>>,
}

/// Why bytes were not reserved.
enum Refused {
    /// The budget itself is used up.
    Own(Error),
    /// The one that it draws on is.
    Parent(Error),
}

impl Refused {
    fn into_error(self) -> Error {
        match self {
            Self::Own(error) | Self::Parent(error) => error,
        }
    }
}

impl MemoryBudget {
    /// Makes a budget of `limit` bytes; `what` names the limit in errors, for instance its flag.
    #[must_use]
    pub fn new(what: &'static str, limit: usize) -> Self {
        Self::build(what, limit, None, None)
    }

    /// Makes a budget that asks `relief` for room before it refuses its children.
    #[must_use]
    pub fn with_relief(what: &'static str, limit: usize, relief: Arc<dyn Relief>) -> Self {
        Self::build(what, limit, None, Some(relief))
    }

    /// Makes a budget of its own limit that draws on this one as well.
    #[must_use]
    pub fn child(&self, what: &'static str, limit: usize) -> Self {
        Self::build(what, limit, Some(self.clone()), None)
    }

    fn build(what: &'static str, limit: usize, parent: Option<Self>, relief: Option<Arc<dyn Relief>>) -> Self {
        let (used, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { account: Arc::new(Account { what, limit, used, peak, parent, relief }) }
    }

    /// Tells whether two are clones of one budget.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.account, &other.account)
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

    /// Reserves bytes of the budget and of the one that it draws on. That one may give away `slack` bytes more than its limit.
    fn reserve(&self, size: usize, slack: usize) -> Result<(), Refused> {
        self.take(size, 0).map_err(Refused::Own)?;
        if let Some(parent) = &self.account.parent
            && let Err(refused) = parent.take(size, slack)
        {
            self.account.used.fetch_sub(size, Ordering::Relaxed);
            return Err(Refused::Parent(refused));
        }
        self.account.peak.fetch_max(self.used(), Ordering::Relaxed);
        Ok(())
    }

    fn has_plenty(&self, size: usize) -> bool {
        let Account { limit, parent, .. } = &*self.account;
        self.used().saturating_add(size) <= limit / 2 && parent.as_ref().is_none_or(|parent| parent.has_plenty(size))
    }

    fn take(&self, size: usize, slack: usize) -> Result<()> {
        let Account { what, limit, used, .. } = &*self.account;
        let after = used.fetch_add(size, Ordering::Relaxed).saturating_add(size);
        if after > limit.saturating_add(slack) {
            used.fetch_sub(size, Ordering::Relaxed);
            return Err(Error::Limit { what, used: after as u64, limit: *limit as u64 });
        }
        Ok(())
    }

    /// Reserves bytes; waits for what others are about to give back.
    fn reserve_patiently(&self, size: usize) -> Result<()> {
        // Fast path: there is room.
        let mut refused = match self.reserve(size, 0) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        let started = Instant::now();
        while matches!(refused, Refused::Parent(_)) && self.make_room(size) && started.elapsed() < WAIT_MAX {
            thread::sleep(WAIT_INTERVAL);
            match self.reserve(size, 0) {
                Ok(()) => return Ok(()),
                Err(again) => refused = again,
            }
        }
        Err(refused.into_error())
    }

    /// Reserves bytes without waiting: while others end, from the reserve.
    fn reserve_at_once(&self, size: usize) -> Result<()> {
        let slack = self.account.parent.as_ref().map_or(0, |parent| parent.limit() / RESERVE_PART);
        match self.reserve(size, 0) {
            Err(Refused::Parent(_)) if self.make_room(size) => self.reserve(size, slack).map_err(Refused::into_error),
            reserved => reserved.map_err(Refused::into_error),
        }
    }

    fn make_room(&self, size: usize) -> bool {
        let parent = self.account.parent.as_ref();
        parent.and_then(|parent| parent.account.relief.as_ref()).is_some_and(|relief| relief.make_room(self, size))
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
    /// Reserves `size` bytes more; call it before the buffer grows. Where all requests together hold what they may, waits up
    /// to a second while heavier ones are ended: not to be called with a lock held, nor where waiting is not allowed.
    ///
    /// # Errors
    /// [`Error::Limit`] if the budget, or the one it draws on, has not that much left; nothing is reserved then.
    #[inline]
    pub fn grow(&mut self, size: usize) -> Result<()> {
        self.memory.reserve_patiently(size)?;
        self.size += size;
        Ok(())
    }

    /// Reserves as [`Charge::grow`] does and never waits: for who holds a lock that others need.
    ///
    /// # Errors
    /// As [`Charge::grow`].
    #[inline]
    pub fn grow_at_once(&mut self, size: usize) -> Result<()> {
        self.memory.reserve_at_once(size)?;
        self.size += size;
        Ok(())
    }

    /// Reserves `size` bytes more if they are free; nobody has to end for them. For what is kept only to be faster. Returns
    /// whether it did.
    #[inline]
    pub(crate) fn grow_if_free(&mut self, size: usize) -> bool {
        let is_reserved = self.memory.reserve(size, 0).is_ok();
        self.size += if is_reserved { size } else { 0 };
        is_reserved
    }

    /// Reserves `size` bytes more if half of every budget that is drawn on stays free: for what is kept only to be faster and
    /// may be much. Returns whether it did.
    pub(crate) fn grow_if_plenty(&mut self, size: usize) -> bool {
        self.memory.has_plenty(size) && self.grow_if_free(size)
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
        // Fast path: nothing was reserved.
        if self.size > 0 {
            self.memory.release(self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::QueryContext;
    use std::sync::Mutex;

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
    fn what_only_saves_time_leaves_half_of_each_budget_free() {
        let all = MemoryBudget::new("all queries", 100);
        let mut charge = all.child("one query", 80).charge();
        assert!(charge.grow_if_plenty(30) && !charge.grow_if_plenty(11) && charge.grow_if_plenty(10));
        let mut other = all.child("another query", 80).charge();
        assert!(!other.grow_if_plenty(11) && other.grow_if_plenty(10));
        assert_eq!(all.used(), 50);
    }

    /// Has charges that it holds go back when it is asked, one at a time.
    #[derive(Debug, Default)]
    struct Givers(Mutex<Vec<Charge>>);

    impl Relief for Givers {
        fn make_room(&self, _asking: &MemoryBudget, _size: usize) -> bool {
            self.0.lock().unwrap().pop().is_some()
        }
    }

    fn relieved(limit: usize, held: &[usize]) -> (MemoryBudget, Arc<Givers>) {
        let givers = Arc::new(Givers::default());
        let all = MemoryBudget::with_relief("all queries", limit, Arc::<Givers>::clone(&givers));
        for &size in held {
            let mut charge = all.child("another query", limit).charge();
            charge.grow(size).unwrap();
            givers.0.lock().unwrap().push(charge);
        }
        (all, givers)
    }

    #[test]
    fn who_finds_no_room_gets_what_others_give_back() {
        let (all, givers) = relieved(100, &[30, 30, 40]);
        let mut charge = all.child("one query", 100).charge();
        charge.grow(60).unwrap();
        assert_eq!((all.used(), givers.0.lock().unwrap().len()), (90, 1));
        charge.grow(50).unwrap_err();
        assert_eq!(all.used(), 90, "its own limit is nobody else's affair, what all hold is");
    }

    #[test]
    fn who_cannot_wait_takes_of_the_reserve_while_others_end() {
        #[derive(Debug)]
        struct Ending(bool);
        impl Relief for Ending {
            fn make_room(&self, _asking: &MemoryBudget, _size: usize) -> bool {
                self.0
            }
        }
        for (ending, expect) in [(true, 106), (false, 100)] {
            let all = MemoryBudget::with_relief("all queries", 100, Arc::new(Ending(ending)));
            let mut first = all.child("one query", 100).charge();
            first.grow(100).unwrap();
            let mut second = all.child("another query", 100).charge();
            assert_eq!(second.grow_at_once(6).is_ok(), ending);
            second.grow_at_once(1).unwrap_err();
            assert!(!second.grow_if_free(1), "nobody ends for it, and the reserve is not for it");
            assert_eq!(all.used(), expect);
        }
    }
}
