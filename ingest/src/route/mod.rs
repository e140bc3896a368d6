//! The route cache: from the bytes of a label set as they were sent to the place of its series.
//!
//! A sender repeats a series' labels with every sample, byte for byte. The seeded 128-bit hash of those bytes is the key;
//! what it leads to is the series' handle, or the reason why the label set is refused, which then costs one look-up too.
//! Two encodings of one label set are two keys with the same handle. Why so, and in what memory:
//! docs/decisions/0003-route-cache.md.
//!
//! Invariants
//! 1. A key is present only if its bytes have been parsed once: they are well-formed.
//! 2. The slots of all stripes take no more than the size limit. A full stripe forgets what has not been used for
//!    longest, about; and what has not been used for [`FORGOTTEN_AFTER`] is forgotten before room is made for more, so that
//!    series that ended do not fill the cache. To forget is safe: the series is resolved again.
//! 3. A table is never more than four fifths full, so that probing ends.
//!
//! Threads: striped; a request takes the lock of each stripe once, for all its keys there.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use varve_tsdb::SeriesHandle;

use crate::admission::Team;
use crate::batch::RouteKey;
use crate::outcome::Reason;
use crate::relabel::Verdict;

/// What a route depends on besides the label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Scope(u32, u32);

impl Scope {
    /// Makes one of how often the rules and the budgets have changed (or another salt), and of the team that the sender names.
    pub(crate) fn new(rules: u32, budgets: u32, team: Team) -> Self {
        // Not the last bit, which a slot has for something else.
        Self(rules ^ budgets.rotate_left(16), u32::from(team.number()) << 1)
    }
}

/// Where the samples of a label set go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// To a series.
    Series(SeriesHandle, Verdict),
    /// Nowhere: rules drop them.
    Dropped(Verdict),
    /// Nowhere: another replica of its HA pair leads. Never noted, as that changes.
    Standby,
    /// Nowhere, and the sender is told.
    Refused(Reason),
}

/// Counters of the route cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteStats {
    /// Look-ups that found a series or a refusal.
    pub hits: u64,
    /// Look-ups that found nothing.
    pub misses: u64,
    /// Label sets forgotten, for want of room or since they were not used.
    pub evicted: u64,
    /// Label sets known now.
    pub entries: u64,
    /// Bytes taken now.
    pub size_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RouteCache {
    stripes: Box<[Mutex<Table>]>,
    slots_max: usize,
}

impl RouteCache {
    pub(crate) fn new(size_max: usize) -> Self {
        let slots_max = (size_max / N_STRIPES / size_of::<Slot>()).clamp(SLOTS_MIN, u32::MAX as usize);
        Self { stripes: (0..N_STRIPES).map(|_| Mutex::default()).collect(), slots_max }
    }

    /// Looks up the keys of a request; `found` gets a route or `None` for each. `order` is scratch.
    pub(crate) fn lookup<I>(&self, keys: I, found: &mut Vec<Option<Route>>, order: &mut Vec<(u32, RouteKey)>)
    where
        I: ExactSizeIterator<Item = Option<RouteKey>> + Clone,
    {
        found.clear();
        found.resize(keys.len(), None);
        let ends = sort_by_stripe(keys, order);
        let mut start = 0;
        for (stripe, &end) in self.stripes.iter().zip(&ends) {
            let asked = &order[std::mem::replace(&mut start, end)..end];
            if !asked.is_empty() {
                lock(stripe).find_all(asked, found);
            }
        }
    }

    /// Notes where a key leads, whatever was known before.
    pub(crate) fn insert(&self, key: RouteKey, route: Route) {
        lock(&self.stripes[key.stripe()]).insert(key, route, self.slots_max, Instant::now());
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        for stripe in &self.stripes {
            let Table { hits, misses, evicted, .. } = *lock(stripe);
            *lock(stripe) = Table { hits, misses, evicted, ..Table::default() };
        }
    }

    pub(crate) fn stats(&self) -> RouteStats {
        let mut sum = RouteStats::default();
        for stripe in &self.stripes {
            let Table { slots, len, hits, misses, evicted, .. } = &*lock(stripe);
            sum.hits += hits;
            sum.misses += misses;
            sum.evicted += evicted;
            sum.entries += *len as u64;
            sum.size_bytes += (slots.len() * size_of::<Slot>()) as u64;
        }
        sum
    }
}

/// Counting sort: `order` gets index and key of each key, by stripe. Returns where each stripe ends.
fn sort_by_stripe<I>(keys: I, order: &mut Vec<(u32, RouteKey)>) -> [usize; N_STRIPES]
where
    I: ExactSizeIterator<Item = Option<RouteKey>> + Clone,
{
    let mut ends = [0; N_STRIPES];
    keys.clone().flatten().for_each(|key| ends[key.stripe()] += 1);
    let mut total = 0;
    for end in &mut ends {
        total += std::mem::replace(end, total);
    }
    order.clear();
    order.resize(total, (0, RouteKey([0; 4])));
    for (idx, key) in (0u32..).zip(keys) {
        if let Some(key) = key {
            let next = &mut ends[key.stripe()];
            order[*next] = (idx, key);
            *next += 1;
        }
    }
    ends
}

fn lock(stripe: &Mutex<Table>) -> MutexGuard<'_, Table> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RouteKey {
    /// Returns the key as it stands under rules, budgets and a team: what others have made of a label set is not found.
    #[inline]
    pub(crate) fn under(self, scope: Scope) -> Self {
        let [a, b, c, d] = self.0;
        Self([a, b, c ^ scope.0, d ^ scope.1])
    }

    fn stripe(self) -> usize {
        self.0[0] as usize % N_STRIPES
    }
}

/// One stripe: open addressing with linear probing. Nothing is ever taken out alone, only with a rebuild, hence no
/// tombstones; any number of slots will do, hence growth by a quarter and not by doubling.
#[derive(Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    len: usize,
    /// The slot that was looked at last for eviction.
    hand: usize,
    /// When what was not used was forgotten last; `None` before the first insertion.
    swept_at: Option<Instant>,
    hits: u64,
    misses: u64,
    evicted: u64,
}

/// 28 bytes.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The key without its first 32 bits, and without its last one: that says whether the slot was used of late.
    tag: [u32; 3],
    route: Option<Route>,
}

impl Slot {
    const EMPTY: Self = Self { tag: [0; 3], route: None };

    /// A new slot counts as unused: a flood of series that come once does not drive out those that come again.
    fn new(key: RouteKey, route: Route) -> Self {
        let [_, a, b, c] = key.0;
        Self { tag: [a, b, c & !USED], route: Some(route) }
    }

    #[inline]
    fn is(&self, key: RouteKey) -> bool {
        let [_, a, b, c] = key.0;
        self.tag[0] == a && self.tag[1] == b && self.tag[2] | USED == c | USED
    }

    fn set_used(&mut self) {
        self.tag[2] |= USED;
    }

    fn take_used(&mut self) -> bool {
        let was_used = self.tag[2] & USED != 0;
        self.tag[2] &= !USED;
        was_used
    }
}

impl Table {
    fn find_all(&mut self, asked: &[(u32, RouteKey)], found: &mut [Option<Route>]) {
        let mut hits = 0;
        for &(idx, key) in asked {
            let route = self.find(key).map(|slot| {
                slot.set_used();
                slot.route
            });
            found[idx as usize] = route.flatten();
            hits += u64::from(route.is_some());
        }
        self.hits += hits;
        self.misses += asked.len() as u64 - hits;
    }

    fn insert(&mut self, key: RouteKey, route: Route, slots_max: usize, now: Instant) {
        if let Some(slot) = self.find(key) {
            slot.route = Some(route);
            return;
        }
        if now.saturating_duration_since(*self.swept_at.get_or_insert(now)) >= FORGOTTEN_AFTER {
            self.swept_at = Some(now);
            self.forget_unused();
        }
        if self.len >= filled_max(self.slots.len()) {
            self.make_room(slots_max);
        }
        self.place(Slot::new(key, route));
    }

    #[inline]
    fn find(&mut self, key: RouteKey) -> Option<&mut Slot> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = home(key.0[1], self.slots.len());
        while self.slots[at].route.is_some() {
            if self.slots[at].is(key) {
                return Some(&mut self.slots[at]);
            }
            at = next(at, self.slots.len());
        }
        None
    }

    /// Puts in a slot whose key is not there yet.
    fn place(&mut self, slot: Slot) {
        let mut at = home(slot.tag[0], self.slots.len());
        while self.slots[at].route.is_some() {
            at = next(at, self.slots.len());
        }
        self.slots[at] = slot;
        self.len += 1;
    }

    fn make_room(&mut self, slots_max: usize) {
        let n_slots = (self.slots.len() + self.slots.len() / 4).clamp(SLOTS_MIN, slots_max);
        if filled_max(n_slots) <= self.len {
            self.evict();
        }
        self.rebuild(n_slots);
    }

    /// Forgets what was not used since this was called last, or since it came, and takes no more slots than the rest fills
    /// to two thirds: what comes next does not make it grow at once.
    fn forget_unused(&mut self) {
        let len = self.len;
        for slot in self.slots.iter_mut().filter(|slot| slot.route.is_some()) {
            if !slot.take_used() {
                slot.route = None;
                self.len -= 1;
            }
        }
        self.evicted += (len - self.len) as u64;
        self.hand = 0;
        self.rebuild((self.len + self.len / 2).clamp(SLOTS_MIN, self.slots.len().max(SLOTS_MIN)));
    }

    /// Empties an eighth of the slots, those that the hand meets unused (the clock algorithm): what is used once in the
    /// time that the hand takes to go round stays. The table must be rebuilt after that.
    fn evict(&mut self) {
        let quota = self.len.div_ceil(8);
        let mut n_evicted = 0;
        // It ends: once round, every slot is marked unused.
        while n_evicted < quota {
            self.hand = next(self.hand, self.slots.len());
            let slot = &mut self.slots[self.hand];
            if slot.route.is_some() && !slot.take_used() {
                slot.route = None;
                n_evicted += 1;
            }
        }
        self.evicted += n_evicted as u64;
    }

    fn rebuild(&mut self, n_slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::EMPTY; n_slots]);
        self.len = 0;
        old.into_iter().filter(|slot| slot.route.is_some()).for_each(|slot| self.place(slot));
    }
}

/// Returns the slot that 32 bits of a key lead to, without a division.
#[inline]
fn home(bits: u32, n_slots: usize) -> usize {
    ((u64::from(bits) * n_slots as u64) >> 32) as usize
}

#[inline]
fn next(at: usize, n_slots: usize) -> usize {
    if at + 1 == n_slots { 0 } else { at + 1 }
}

fn filled_max(n_slots: usize) -> usize {
    n_slots * 4 / 5
}

/// Enough that two requests seldom meet, and that growing one holds its lock for a millisecond at 15 million series.
const N_STRIPES: usize = 256;
const SLOTS_MIN: usize = 10;
/// How long a label set is kept at least that nobody sends, and at most twice as long where others come.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
const USED: u32 = 1;

#[cfg(test)]
mod tests;
