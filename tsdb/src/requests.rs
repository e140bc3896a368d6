//! Which requests a reader sees, and when nobody looks at something any more.
//!
//! Every append has a sequence number, and is *in flight* while it changes the heads. A reader sees the requests that
//! had ended when it began, whole, and nothing of any other: the heads note for their newest samples which request
//! brought them (`head::Visible`). No lock is taken on the way of a write: both registries are arrays of atomics.
//!
//! Invariants
//! 1. What [`Requests::visible`] says is seen has been appended to all of its shards.
//! 2. While a [`Pause`] is held no request is in flight: what the heads hold then is whole requests.
//! 3. [`Readers::wait_for`] returns only when all that entered before the mark have left.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::head::Visible;

/// Most appends that change heads at the same time; more wait for their turn.
const IN_FLIGHT_MAX: usize = 128;
/// Most readers that are inside at the same time; more wait for their turn.
const READERS_MAX: usize = 1024;

/// A place is free.
const FREE: u64 = 0;
/// A place is taken, its number is about to come.
const CLAIMED: u64 = u64::MAX;
/// How long a wait sleeps between two looks.
const WAIT: Duration = Duration::from_micros(200);
/// Looks that a wait takes before it sleeps.
const SPINS: usize = 64;

/// The append requests of a store.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The next sequence number, from 1.
    next: AtomicU64,
    in_flight: Box<[AtomicU64]>,
    paused: AtomicBool,
    /// Readers that copy from the heads, by the oldest request that they may not see.
    copying: Box<[AtomicU64]>,
    /// What [`Requests::horizon`] returned last.
    horizon: AtomicU64,
}

/// An append that changes the heads; ends when dropped.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    sequence: u64,
    place: Place<'a>,
}

/// No request is in flight and none begins, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pause<'a>(&'a Requests);

/// A reader that copies from the heads.
#[derive(Debug)]
pub(crate) struct Copying<'a> {
    /// What the reader sees.
    pub(crate) visible: Visible,
    _place: Place<'a>,
}

/// A place in an array, free again when dropped.
#[derive(Debug)]
struct Place<'a>(&'a AtomicU64);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Release);
    }
}

impl Requests {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(1),
            in_flight: places(IN_FLIGHT_MAX),
            paused: AtomicBool::new(false),
            copying: places(READERS_MAX),
            horizon: AtomicU64::new(0),
        }
    }

    /// Begins an append; waits while there is a [`Pause`].
    pub(crate) fn begin(&self) -> Request<'_> {
        loop {
            wait_until(|| !self.paused.load(Ordering::SeqCst));
            let place = claim(&self.in_flight);
            // Checked again with the place taken: who pauses looks at the places after it has said so.
            if !self.paused.load(Ordering::SeqCst) {
                let sequence = self.next.fetch_add(1, Ordering::SeqCst);
                place.0.store(sequence, Ordering::SeqCst);
                return Request { sequence, place };
            }
        }
    }

    /// Keeps new requests out and waits until none is in flight.
    pub(crate) fn pause(&self) -> Pause<'_> {
        wait_until(|| self.paused.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst).is_ok());
        wait_until(|| self.in_flight.iter().all(|place| place.load(Ordering::SeqCst) == FREE));
        Pause(self)
    }

    /// Enters a reader, and says which requests it sees.
    pub(crate) fn copy(&self) -> Copying<'_> {
        let place = claim(&self.copying);
        let next = self.next.load(Ordering::SeqCst);
        let mut in_flight: Vec<u64> = self.in_flight().collect();
        in_flight.retain(|&sequence| sequence < next);
        place.0.store(in_flight.iter().copied().min().unwrap_or(next), Ordering::SeqCst);
        let visible = Visible::new(next as u32, in_flight.into_iter().map(|sequence| sequence as u32).collect());
        Copying { visible, _place: place }
    }

    /// Returns the oldest request that some reader, now or later, may not see. It never falls back.
    pub(crate) fn horizon(&self) -> u32 {
        let next = self.next.load(Ordering::SeqCst);
        let oldest = self.in_flight().fold(next, u64::min);
        let horizon = self.copying.iter().map(|place| place.load(Ordering::SeqCst)).filter(|&unseen| unseen != FREE);
        let horizon = horizon.map(|unseen| (unseen != CLAIMED).then_some(unseen));
        let horizon = horizon.chain([Some(oldest)]).min().flatten();
        // A reader that is about to say what it does not see sees all that every reader before it saw.
        let before = self.horizon.fetch_max(horizon.unwrap_or(0), Ordering::SeqCst);
        before.max(horizon.unwrap_or(0)) as u32
    }

    /// Returns the numbers of the requests in flight. One that has claimed its place gets its number within a few
    /// instructions.
    fn in_flight(&self) -> impl Iterator<Item = u64> + '_ {
        self.in_flight.iter().filter_map(|place| {
            let mut sequence = CLAIMED;
            wait_until(|| {
                sequence = place.load(Ordering::SeqCst);
                sequence != CLAIMED
            });
            (sequence != FREE).then_some(sequence)
        })
    }
}

impl Request<'_> {
    /// Returns the request's number, wrapped.
    pub(crate) fn sequence(&self) -> u32 {
        debug_assert_eq!(self.place.0.load(Ordering::Relaxed), self.sequence, "the place is ours until the drop");
        self.sequence as u32
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.paused.store(false, Ordering::SeqCst);
    }
}

/// Those who hold on to something that is to be taken away.
#[derive(Debug)]
pub(crate) struct Readers {
    next: AtomicU64,
    inside: Box<[AtomicU64]>,
}

/// A reader that is inside until this is dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    readers: std::sync::Arc<Readers>,
    place: usize,
}

impl Readers {
    pub(crate) fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { next: AtomicU64::new(1), inside: places(READERS_MAX) })
    }

    /// Enters; what is published from now on may still be taken for the state before.
    pub(crate) fn enter(self: &std::sync::Arc<Self>) -> Reader {
        let place = claim_index(&self.inside);
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.inside[place].store(number, Ordering::SeqCst);
        Reader { readers: std::sync::Arc::clone(self), place }
    }

    /// Marks this moment.
    pub(crate) fn mark(&self) -> u64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Tells whether all that had entered before the mark have left.
    pub(crate) fn have_left(&self, mark: u64) -> bool {
        // A claimed place may belong to either side of the mark: it counts as inside.
        self.inside.iter().map(|place| place.load(Ordering::SeqCst)).all(|n| n == FREE || (n != CLAIMED && n > mark))
    }

    /// Waits until all that had entered before the mark have left.
    pub(crate) fn wait_for(&self, mark: u64) {
        wait_until(|| self.have_left(mark));
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.readers.inside[self.place].store(FREE, Ordering::SeqCst);
    }
}

fn places(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(FREE)).collect()
}

fn claim(places: &[AtomicU64]) -> Place<'_> {
    Place(&places[claim_index(places)])
}

fn claim_index(places: &[AtomicU64]) -> usize {
    let mut claimed = None;
    wait_until(|| {
        claimed = places.iter().position(|place| {
            place.load(Ordering::Relaxed) == FREE
                && place.compare_exchange(FREE, CLAIMED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        });
        claimed.is_some()
    });
    claimed.expect("the wait ends when a place was claimed")
}

/// Looks again and again, first at once, then with a short sleep in between.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let mut looks = 0;
    while !holds() {
        looks += 1;
        if looks < SPINS { thread::yield_now() } else { thread::sleep(WAIT) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_reader_sees_what_has_ended_and_nothing_else() {
        let requests = Requests::new();
        let (first, second) = (requests.begin(), requests.begin());
        let (a, b) = (first.sequence(), second.sequence());
        drop(second);
        let reader = requests.copy();
        assert!(!reader.visible.sees(a) && reader.visible.sees(b));
        let third = requests.begin();
        assert!(!reader.visible.sees(third.sequence()));
        drop((first, third));
        assert!(!reader.visible.sees(a), "what a reader sees does not change");
        assert_eq!(requests.horizon(), a, "the reader is still there");
        drop(reader);
        assert!(requests.horizon() > b);
        assert!(requests.copy().visible.sees(a));
    }

    #[test]
    fn a_pause_keeps_requests_out() {
        let requests = Arc::new(Requests::new());
        let pause = requests.pause();
        let other = Arc::clone(&requests);
        let thread = thread::spawn(move || other.begin().sequence());
        assert!(!thread.is_finished());
        drop(pause);
        thread.join().unwrap();
        drop(requests.pause());
    }

    #[test]
    fn those_beyond_the_places_wait_for_one() {
        let requests = Arc::new(Requests::new());
        let mut begun: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| requests.begin()).collect();
        let other = Arc::clone(&requests);
        let one_more = thread::spawn(move || other.begin().sequence());
        assert!(!one_more.is_finished());
        let last = begun.pop().map(|request| request.sequence()).unwrap();
        assert_eq!(one_more.join().unwrap(), last + 1);

        let readers = Readers::new();
        let mut inside: Vec<_> = (0..READERS_MAX).map(|_| readers.enter()).collect();
        let other = Arc::clone(&readers);
        let one_more = thread::spawn(move || drop(other.enter()));
        assert!(!one_more.is_finished());
        inside.pop();
        one_more.join().unwrap();
    }

    #[test]
    fn readers_are_waited_for_up_to_the_mark() {
        let readers = Readers::new();
        let before = readers.enter();
        let mark = readers.mark();
        let after = readers.enter();
        assert!(!readers.have_left(mark));
        drop(before);
        readers.wait_for(mark);
        drop(after);
    }
}
