//! Isolation: which appends a reader sees, and when memory that readers may still use can be
//! reclaimed.
//!
//! Every append has an id and is *in flight* while it changes the heads. A reader sees the appends
//! that had finished when it began, each in full, and no others: the heads record the append id of
//! their newest samples (see [`ReadView`]). Registering takes no lock: both registries are arrays
//! of atomics.
//!
//! Appends are numbered in the order in which they begin. The heads store ids of 32 bits: these wrap
//! and are compared by their difference, so two compared ids must be less than 2^31 apart.
//!
//! Invariants
//! 1. An append that a [`ReadView`] sees has been applied to all of its shards.
//! 2. While a [`Pause`] is held, no append is in flight: the heads hold whole requests only.
//! 3. [`Readers::wait_for`] returns only when all readers that entered before the epoch have left.

pub(crate) mod changes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use varve_context::QueryContext;

use crate::error::Result;

/// Maximum number of appends that change heads at the same time. Further appends wait for a slot.
const IN_FLIGHT_MAX: usize = 128;
/// Maximum number of registered readers. Further readers wait for a slot.
const READERS_MAX: usize = 1024;

/// A free slot.
const FREE: u64 = 0;
/// A claimed slot whose id is not stored yet.
const CLAIMED: u64 = u64::MAX;
/// Duration of the sleep between two checks of a wait.
const WAIT: Duration = Duration::from_micros(200);
/// Number of checks before a wait sleeps for the first time.
const SPINS: usize = 64;

/// The append ids of a store.
#[derive(Debug)]
pub(crate) struct Isolation {
    /// The next append id, from 1.
    next: AtomicU64,
    in_flight: Box<[AtomicU64]>,
    paused: AtomicBool,
    /// Readers that copy from the heads, each with the oldest append that is not visible to it.
    open_reads: Box<[AtomicU64]>,
    /// The last value that [`Isolation::horizon`] returned.
    horizon: AtomicU64,
}

/// An append that changes the heads. It ends when the guard is dropped.
#[derive(Debug)]
pub(crate) struct AppendGuard<'a> {
    id: u64,
    slot: Slot<'a>,
}

/// Keeps appends out until it is dropped.
#[derive(Debug)]
pub(crate) struct Pause<'a>(&'a Isolation);

/// A reader that copies from the heads.
#[derive(Debug)]
pub(crate) struct OpenRead<'a> {
    /// What the reader sees.
    pub(crate) view: ReadView,
    _slot: Slot<'a>,
}

/// A claimed slot of a registry; freed on drop.
#[derive(Debug)]
struct Slot<'a>(&'a AtomicU64);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // `Release`, not `SeqCst`: whoever loads `FREE` sees all that the owner of the slot did before.
        // Nothing that follows the drop needs an order against other slots.
        self.0.store(FREE, Ordering::Release);
    }
}

impl Isolation {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(1),
            in_flight: slots(IN_FLIGHT_MAX),
            paused: AtomicBool::new(false),
            open_reads: slots(READERS_MAX),
            horizon: AtomicU64::new(0),
        }
    }

    /// Begins an append. Waits while a [`Pause`] is held.
    pub(crate) fn begin_append(&self) -> AppendGuard<'_> {
        let mut n_checks = 0;
        loop {
            wait_until(|| !self.paused.load(Ordering::SeqCst));
            let Some(idx) = claim_free(&self.in_flight) else {
                pause_before_check(&mut n_checks);
                continue;
            };
            let slot = Slot(&self.in_flight[idx]);
            // Checks again after claiming the slot: `pause` sets the flag before it reads the
            // slots.
            if !self.paused.load(Ordering::SeqCst) {
                let id = self.next.fetch_add(1, Ordering::SeqCst);
                slot.0.store(id, Ordering::SeqCst);
                return AppendGuard { id, slot };
            }
        }
    }

    /// Keeps new appends out and waits until none is in flight.
    ///
    /// The wait has no deadline. It ends with the appends in flight, which wait for no reader and no
    /// flush, only for the locks of shards and logs.
    pub(crate) fn pause(&self) -> Pause<'_> {
        wait_until(|| {
            self.paused
                .compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        });
        wait_until(|| {
            self.in_flight
                .iter()
                .all(|slot| slot.load(Ordering::SeqCst) == FREE)
        });
        Pause(self)
    }

    /// Registers a reader and returns which appends it sees.
    ///
    /// # Errors
    /// If the request is interrupted while it waits for a slot.
    pub(crate) fn begin_read(&self, ctx: &QueryContext) -> Result<OpenRead<'_>> {
        let slot = Slot(&self.open_reads[claim(&self.open_reads, ctx)?]);
        let next = self.next.load(Ordering::SeqCst);
        let mut in_flight: Vec<u64> = self.wait_in_flight().collect();
        in_flight.retain(|&id| id < next);
        slot.0.store(
            in_flight.iter().copied().min().unwrap_or(next),
            Ordering::SeqCst,
        );
        let view = ReadView::new(
            next as u32,
            in_flight.into_iter().map(|id| id as u32).collect(),
        );
        Ok(OpenRead { view, _slot: slot })
    }

    /// Returns an id below which every append has ended. Reads that begin after this call see these
    /// appends.
    pub(crate) fn all_ended_before(&self) -> u64 {
        let next = self.next.load(Ordering::SeqCst);
        self.wait_in_flight().fold(next, u64::min)
    }

    /// Returns the id of the oldest append that some present or future reader may not see. It never
    /// decreases.
    pub(crate) fn horizon(&self) -> u32 {
        let oldest = self.all_ended_before();
        let unseen = self
            .open_reads
            .iter()
            .map(|slot| slot.load(Ordering::SeqCst))
            .filter(|&unseen| unseen != FREE);
        // A reader that has claimed a slot but stored no id yet will see every append that earlier
        // readers see.
        let unseen = unseen.map(|unseen| if unseen == CLAIMED { 0 } else { unseen });
        let horizon = unseen.chain([oldest]).min().unwrap_or(0);
        self.horizon
            .fetch_max(horizon, Ordering::SeqCst)
            .max(horizon) as u32
    }

    /// Returns the ids of the appends in flight. Waits for the id of a slot that is claimed: its
    /// owner stores the id or frees the slot within a few instructions, unless it is preempted.
    fn wait_in_flight(&self) -> impl Iterator<Item = u64> + '_ {
        self.in_flight.iter().filter_map(|slot| {
            let mut id = CLAIMED;
            wait_until(|| {
                id = slot.load(Ordering::SeqCst);
                id != CLAIMED
            });
            (id != FREE).then_some(id)
        })
    }
}

impl AppendGuard<'_> {
    /// Returns the append id.
    pub(crate) fn full_id(&self) -> u64 {
        self.id
    }

    /// Returns the append id, truncated to 32 bits.
    pub(crate) fn id(&self) -> u32 {
        debug_assert_eq!(
            self.slot.0.load(Ordering::Relaxed),
            self.id,
            "the slot is ours until the drop"
        );
        self.id as u32
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        // `Release`, as in `Slot::drop`: an append that loads `false` sees all that happened during
        // the pause.
        self.0.paused.store(false, Ordering::Release);
    }
}

/// The appends that a reader sees: all appends that had finished when the reader began.
#[derive(Debug, Clone)]
pub(crate) struct ReadView {
    next: u32,
    in_flight: Vec<u32>,
    /// Appends below this id are visible.
    horizon: u32,
}

impl ReadView {
    /// Creates a view of all appends before `next` except the appends in `in_flight`.
    pub(crate) fn new(next: u32, in_flight: Vec<u32>) -> Self {
        let horizon = in_flight
            .iter()
            .copied()
            .reduce(|a, b| if before(a, b) { a } else { b })
            .unwrap_or(next);
        Self {
            next,
            in_flight,
            horizon,
        }
    }

    /// Returns the oldest append that is not visible.
    #[cfg(test)]
    pub(crate) fn horizon(&self) -> u32 {
        self.horizon
    }

    /// Returns `true` if the samples of an append are visible.
    #[inline]
    pub(crate) fn sees(&self, append: u32) -> bool {
        // Fast path: the append finished long ago.
        before(append, self.horizon)
            || before(append, self.next) && !self.in_flight.contains(&append)
    }
}

/// Readers registered for deferred reclamation: memory that was unpublished is freed once all
/// readers of earlier epochs have left.
#[derive(Debug)]
pub(crate) struct Readers {
    next: AtomicU64,
    inside: Box<[AtomicU64]>,
}

/// A registered reader; it leaves when dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    readers: Arc<Readers>,
    slot: usize,
}

impl Readers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(1),
            inside: slots(READERS_MAX),
        })
    }

    /// Registers a reader. It may see state that is unpublished after this call. A request with
    /// many selections registers once: requests that wait for slots while they have some would wait
    /// for each other.
    ///
    /// # Errors
    /// If the request is interrupted while it waits for a slot.
    pub(crate) fn enter(self: &Arc<Self>, ctx: &QueryContext) -> Result<Reader> {
        let slot = claim(&self.inside, ctx)?;
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.inside[slot].store(number, Ordering::SeqCst);
        Ok(Reader {
            readers: Arc::clone(self),
            slot,
        })
    }

    /// Starts a new epoch and returns it.
    pub(crate) fn advance_epoch(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns `true` if all readers that entered before the epoch have left.
    pub(crate) fn all_left(&self, epoch: u64) -> bool {
        // A claimed slot without an id may be of any epoch, so it counts as an earlier one.
        self.inside
            .iter()
            .map(|slot| slot.load(Ordering::SeqCst))
            .all(|n| n == FREE || (n != CLAIMED && n > epoch))
    }

    /// Waits until all readers that entered before the epoch have left.
    pub(crate) fn wait_for(&self, epoch: u64) {
        wait_until(|| self.all_left(epoch));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // `Release`, for the reason given at `Slot::drop`.
        self.readers.inside[self.slot].store(FREE, Ordering::Release);
    }
}

/// Returns `true` if append `a` comes before append `b`.
#[inline]
pub(crate) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

fn slots(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(FREE)).collect()
}

/// Claims a slot for a request and returns its index. Waits until one is free.
fn claim(slots: &[AtomicU64], ctx: &QueryContext) -> Result<usize> {
    let mut n_checks = 0;
    loop {
        if let Some(idx) = claim_free(slots) {
            return Ok(idx);
        }
        ctx.check()?;
        pause_before_check(&mut n_checks);
    }
}

/// Claims a slot if one is free, and returns its index.
fn claim_free(slots: &[AtomicU64]) -> Option<usize> {
    slots.iter().position(|slot| {
        slot.load(Ordering::Relaxed) == FREE
            && slot
                .compare_exchange(FREE, CLAIMED, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    })
}

/// Checks a condition until it holds.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let mut n_checks = 0;
    while !holds() {
        pause_before_check(&mut n_checks);
    }
}

/// Yields before the first checks of a wait. Sleeps briefly before later ones.
fn pause_before_check(n_checks: &mut usize) {
    *n_checks += 1;
    if *n_checks < SPINS {
        thread::yield_now()
    } else {
        thread::sleep(WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use varve_context::{Interrupt, Limit, MemoryBudget};

    #[test]
    fn a_reader_sees_finished_appends_and_no_others() {
        let isolation = Isolation::new();
        let ctx = QueryContext::unbounded();
        let first = isolation.begin_append();
        let second = isolation.begin_append();
        let a = first.id();
        let b = second.id();
        drop(second);
        let reader = isolation.begin_read(&ctx).unwrap();
        assert!(!reader.view.sees(a) && reader.view.sees(b));
        let third = isolation.begin_append();
        assert!(!reader.view.sees(third.id()));
        drop((first, third));
        assert!(!reader.view.sees(a), "what a reader sees does not change");
        assert_eq!(isolation.horizon(), a, "the reader is still there");
        drop(reader);
        assert!(isolation.horizon() > b);
        assert!(isolation.begin_read(&ctx).unwrap().view.sees(a));
    }

    #[test]
    fn finished_appends_are_visible_even_when_ids_wrap() {
        for base in [0_u32, 1000, u32::MAX - 4, u32::MAX / 2] {
            let at = |i: u32| base.wrapping_add(i);
            let view = ReadView::new(at(8), vec![at(5), at(3)]);
            let seen: Vec<_> = (0..12).filter(|&i| view.sees(at(i))).collect();
            assert_eq!(seen, [0, 1, 2, 4, 6, 7], "from {base}");
            assert_eq!(view.horizon(), at(3));
            assert_eq!(ReadView::new(at(8), vec![]).horizon(), at(8));
        }
    }

    #[test]
    fn a_pause_keeps_appends_out() {
        let isolation = Arc::new(Isolation::new());
        let pause = isolation.pause();
        let other = Arc::clone(&isolation);
        let thread = thread::spawn(move || other.begin_append().id());
        assert!(!thread.is_finished());
        drop(pause);
        thread.join().unwrap();
        drop(isolation.pause());
    }

    #[test]
    fn appends_and_readers_beyond_the_limit_wait_for_a_slot() {
        let isolation = Arc::new(Isolation::new());
        let mut begun: Vec<_> = (0..IN_FLIGHT_MAX)
            .map(|_| isolation.begin_append())
            .collect();
        let other = Arc::clone(&isolation);
        let one_more = thread::spawn(move || other.begin_append().id());
        assert!(!one_more.is_finished());
        let last = begun.pop().map(|append| append.id()).unwrap();
        assert_eq!(one_more.join().unwrap(), last + 1);

        let readers = Readers::new();
        let unbounded = QueryContext::unbounded();
        let mut inside: Vec<_> = (0..READERS_MAX)
            .map(|_| readers.enter(&unbounded).unwrap())
            .collect();
        let ctx = QueryContext::new(
            Duration::from_millis(20),
            MemoryBudget::new(Limit::Other(""), 0),
        );
        assert!(matches!(
            readers.enter(&ctx),
            Err(Error::Interrupted(Interrupt::Deadline))
        ));
        let other = Arc::clone(&readers);
        let one_more = thread::spawn(move || drop(other.enter(&unbounded).unwrap()));
        assert!(!one_more.is_finished());
        inside.pop();
        one_more.join().unwrap();
    }

    #[test]
    fn wait_for_returns_when_readers_of_earlier_epochs_have_left() {
        let readers = Readers::new();
        let ctx = QueryContext::unbounded();
        let before = readers.enter(&ctx).unwrap();
        let epoch = readers.advance_epoch();
        let after = readers.enter(&ctx).unwrap();
        assert!(!readers.all_left(epoch));
        drop(before);
        readers.wait_for(epoch);
        drop(after);
    }
}
