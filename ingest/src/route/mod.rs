//! The route cache maps the encoded bytes of a label set to its series.
//!
//! A sender repeats the labels of a series byte for byte with every sample. The key is the seeded 128-bit hash of those
//! bytes. The route is the handle of the series, or states that the label set is dropped or rejected, with the reason.
//! Two encodings of one label set are two keys with the same handle. Rationale and memory use:
//! docs/decisions/ingest/0003-route-cache.md.
//!
//! Invariants
//! 1. The bytes of a cached key have been parsed once and are well-formed.
//! 2. All slots together stay within the size limit. A full stripe evicts approximately the least recently used routes.
//!    Routes that have been unused for [`EVICTED_AFTER`] are evicted before a stripe grows, so that stale series do not
//!    fill the cache. Eviction is safe: the series is resolved again.
//! 3. At most four fifths of the slots of a table are used, so that probing ends.
//!
//! Threads: striped locks. A lookup or an insertion takes the lock of each stripe once, for all keys of the call.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use varve_collections::prefetch;
use varve_tsdb::SeriesHandle;

use crate::admission::Team;
use crate::batch::RouteKey;
use crate::outcome::Reason;
use crate::relabel::Attribution;

/// The state that a route depends on besides its label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Scope(u32, u32);

impl Scope {
    /// Creates a scope from the generation of the rules (salted by the HA pair), the generation of the budgets, and the
    /// team that the sender names.
    pub(crate) fn new(rules: u32, budgets: u32, team: Team) -> Self {
        // A slot uses the last bit as a flag.
        Self(rules ^ budgets.rotate_left(16), u32::from(team.id()) << 1)
    }
}

/// The outcome for the samples of a label set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Stored in a series.
    Series(SeriesHandle, Attribution),
    /// Dropped by relabel rules.
    Dropped(Attribution),
    /// Deduplicated, because another replica of the HA pair leads. Never cached, since leaders change.
    Standby,
    /// Rejected.
    Rejected(Reason),
}

/// Counters of the route cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteStats {
    /// Look-ups that found a route.
    pub hits: u64,
    /// Look-ups that found no route.
    pub misses: u64,
    /// Evicted routes.
    pub evicted: u64,
    /// Cached routes.
    pub entries: u64,
    /// Bytes of memory of all slots.
    pub size_bytes: u64,
}

/// See the module documentation.
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

    /// Looks up the keys of a request. Stores a route or `None` for each key in `found`. `order` is reused memory.
    pub(crate) fn lookup<I>(&self, keys: I, found: &mut Vec<Option<Route>>, order: &mut Vec<(u32, RouteKey)>)
    where
        I: ExactSizeIterator<Item = Option<RouteKey>> + Clone,
    {
        found.clear();
        found.resize(keys.len(), None);
        let ends = sort_by_stripe(keys, order);
        self.for_each_stripe(order, &ends, |table, wanted| table.find_all(wanted, found));
    }

    /// Caches routes, each of which replaces an earlier route of its key.
    pub(crate) fn insert(&self, routes: &[(RouteKey, Route)]) {
        let (mut order, now) = (Vec::new(), Instant::now());
        let ends = sort_by_stripe(routes.iter().map(|&(key, _)| Some(key)), &mut order);
        self.for_each_stripe(&order, &ends, |table, new| {
            table.prefetch(new);
            new.iter().for_each(|&(idx, key)| table.insert(key, routes[idx as usize].1, self.slots_max, now));
        });
    }

    /// Calls `visit` with each stripe that has keys, under its lock, and with its keys.
    fn for_each_stripe(
        &self,
        order: &[(u32, RouteKey)],
        ends: &[usize; N_STRIPES],
        mut visit: impl FnMut(&mut Table, &[(u32, RouteKey)]),
    ) {
        let mut start = 0;
        for (stripe, &end) in self.stripes.iter().zip(ends) {
            let keys = &order[std::mem::replace(&mut start, end)..end];
            if !keys.is_empty() {
                visit(&mut stripe.lock(), keys);
            }
        }
    }

    /// Removes all routes.
    pub(crate) fn clear(&self) {
        for stripe in &self.stripes {
            let Table { hits, misses, evicted, .. } = *stripe.lock();
            *stripe.lock() = Table { hits, misses, evicted, ..Table::default() };
        }
    }

    pub(crate) fn stats(&self) -> RouteStats {
        let mut sum = RouteStats::default();
        for stripe in &self.stripes {
            let Table { slots, len, hits, misses, evicted, .. } = &*stripe.lock();
            sum.hits += hits;
            sum.misses += misses;
            sum.evicted += evicted;
            sum.entries += *len as u64;
            sum.size_bytes += (slots.len() * size_of::<Slot>()) as u64;
        }
        sum
    }
}

/// Sorts the keys by stripe (counting sort). Stores the index and the key of each in `order`. Returns the end of each
/// stripe in `order`.
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

impl RouteKey {
    /// Returns the key within a scope. It finds no routes of other scopes.
    #[inline]
    pub(crate) fn under(self, scope: Scope) -> Self {
        let [a, b, c, d] = self.0;
        Self([a, b, c ^ scope.0, d ^ scope.1])
    }

    fn stripe(self) -> usize {
        self.0[0] as usize % N_STRIPES
    }
}

/// One stripe: open addressing with linear probing. Routes are removed only by a rebuild, so there are no tombstones.
/// The number of slots need not be a power of two, so a table grows by a quarter.
#[derive(Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    len: usize,
    /// Index of the slot that the clock hand points to.
    hand: usize,
    /// Time of the last eviction of unused routes; `None` before the first insertion.
    swept_at: Option<Instant>,
    hits: u64,
    misses: u64,
    evicted: u64,
}

/// 28 bytes.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The last 96 bits of the key. One bit of the last word is replaced by the flag [`USED`].
    tag: [u32; 3],
    route: Option<Route>,
}

impl Slot {
    const EMPTY: Self = Self { tag: [0; 3], route: None };

    /// Creates an unused slot, so that a flood of series that are sent once does not evict others.
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
    /// Fetches the home slots of keys together, where `find` then looks.
    fn prefetch(&self, keys: &[(u32, RouteKey)]) {
        let home_tag =
            |(_, key): &(u32, RouteKey)| self.slots.get(home(key.0[1], self.slots.len()))?.tag.first().copied();
        prefetch(keys.iter().filter_map(home_tag));
    }

    fn find_all(&mut self, wanted: &[(u32, RouteKey)], found: &mut [Option<Route>]) {
        self.prefetch(wanted);
        let mut hits = 0;
        for &(idx, key) in wanted {
            let route = self.find(key).map(|slot| {
                slot.set_used();
                slot.route
            });
            found[idx as usize] = route.flatten();
            hits += u64::from(route.is_some());
        }
        self.hits += hits;
        self.misses += wanted.len() as u64 - hits;
    }

    fn insert(&mut self, key: RouteKey, route: Route, slots_max: usize, now: Instant) {
        if let Some(slot) = self.find(key) {
            slot.route = Some(route);
            return;
        }
        if now.saturating_duration_since(*self.swept_at.get_or_insert(now)) >= EVICTED_AFTER {
            self.swept_at = Some(now);
            self.evict_unused();
        }
        if self.len >= filled_max(self.slots.len()) {
            self.make_room(slots_max);
        }
        self.insert_new(Slot::new(key, route));
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

    /// Inserts a slot whose key is not in the table.
    fn insert_new(&mut self, slot: Slot) {
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

    /// Evicts the routes that were not used since the last call, or since they were inserted. Resizes the table to be
    /// two thirds full, so that the next insertion does not grow it.
    fn evict_unused(&mut self) {
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

    /// Evicts an eighth of the routes: the first unused ones that the hand meets (clock algorithm). A route that is
    /// used once per round of the hand stays. The caller must rebuild the table.
    fn evict(&mut self) {
        let quota = self.len.div_ceil(8);
        let mut n_evicted = 0;
        // Terminates: after one round, every slot is marked unused.
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
        old.into_iter().filter(|slot| slot.route.is_some()).for_each(|slot| self.insert_new(slot));
    }
}

/// Returns the home slot of 32 bits of a key, without a division.
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

/// Number of stripes. With 256, two requests rarely contend, and growing a stripe holds its lock for a millisecond at
/// 15 million series.
const N_STRIPES: usize = 256;
const SLOTS_MIN: usize = 10;
/// Minimum time that an unused route stays. It is evicted after at most twice this time, at an insertion.
const EVICTED_AFTER: Duration = Duration::from_secs(600);
const USED: u32 = 1;

#[cfg(test)]
mod tests;
