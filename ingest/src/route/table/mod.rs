//! One stripe of the route cache: routes in about the order of arrival, and an index of their keys.
//!
//! Senders repeat their series in the same order, so most routes of a request are neighbors. A
//! lookup first tries the entry after the one that it found last, and uses the index only if the
//! key differs. Neighbors share cache lines, and the processor fetches the next ones ahead. With
//! the index alone, each series would be a cache miss.
//!
//! Invariants
//! 1. `index` has the positions of the entries with a route, and `vacant` the positions of the
//!    others.
//! 2. No operation visits all entries, because it holds the lock of the stripe. Growing adds a
//!    piece of entries, or rebuilds a piece of the index. [`VISITED_MAX`] limits each loop over
//!    entries.

use std::time::{Duration, Instant};

use roaring::RoaringBitmap;
use varve_collections::{Column, WideTable, prefetch};

use super::cache_key::CacheKey;
use super::destination::{Route, RouteStats};

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Column<Entry>,
    index: WideTable<u32>,
    /// Filled lowest first, so that the series that replace the series of a pod are neighbors as
    /// well.
    vacant: RoaringBitmap,
    /// Position that the clock hand points to: the next entry to visit.
    hand: usize,
    /// The next piece of the index to shrink.
    next_piece: usize,
    /// Time up to which the hand has moved; `None` before the first insertion.
    swept_at: Option<Instant>,
    hits: u64,
    misses: u64,
    evicted: u64,
}

/// A route and the last 96 bits of its key. 28 bytes.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// One bit of the last word is replaced by the flag [`USED`].
    tag: [u32; 3],
    /// `None` if the entry is vacant.
    route: Option<Route>,
}

impl Entry {
    /// Creates an unused entry, so that a flood of series that are sent once does not evict others.
    fn new(key: CacheKey, route: Route) -> Self {
        let [_, a, b, c] = key.0;
        Self {
            tag: [a, b, c & !USED],
            route: Some(route),
        }
    }

    /// Returns `true` if the entry has a route for `key`.
    #[inline]
    fn is(&self, key: CacheKey) -> bool {
        let [_, a, b, c] = key.0;
        self.tag[0] == a
            && self.tag[1] == b
            && self.tag[2] | USED == c | USED
            && self.route.is_some()
    }

    /// Returns the hash of the key in the index.
    fn hash(&self) -> u64 {
        hash(self.tag)
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
    /// Returns the maximum number of routes of a table that takes at most `size_max` bytes.
    pub(super) fn len_max(size_max: usize) -> usize {
        (size_max.saturating_sub(PARTLY_FILLED) / SIZE_PER_ROUTE)
            .clamp(LEN_MAX_MIN, u32::MAX as usize)
    }

    /// Looks up keys. Stores the route of each in `found`, at the index that is given with the key.
    pub(super) fn find_all(&mut self, wanted: &[(u32, CacheKey)], found: &mut [Option<Route>]) {
        let mut expected = usize::MAX;
        let mut n_unexpected = 0;
        let mut hits = 0;
        for (i, &(idx, key)) in wanted.iter().enumerate() {
            let is_expected = self
                .entries
                .get(expected)
                .is_some_and(|entry| entry.is(key));
            n_unexpected = if is_expected { 0 } else { n_unexpected + 1 };
            // One unexpected key may begin another target. After two, the request is probably in
            // another order.
            if n_unexpected % PREFETCHED == 2 {
                self.prefetch(&wanted[i..(i + PREFETCHED).min(wanted.len())]);
            }
            let position = if is_expected {
                Some(expected)
            } else {
                self.position(key)
            };
            if let Some(position) = position {
                let entry = &mut self.entries[position];
                entry.set_used();
                found[idx as usize] = entry.route;
                expected = position + 1;
                hits += 1;
            }
        }
        self.hits += hits;
        self.misses += wanted.len() as u64 - hits;
    }

    /// Loads what [`Table::position`] needs for each key, first from the index and then from the
    /// entries.
    fn prefetch(&self, keys: &[(u32, CacheKey)]) {
        let mut positions = [u32::MAX; PREFETCHED];
        for (position, (_, key)) in positions.iter_mut().zip(keys) {
            let [_, tag @ ..] = key.0;
            *position = self
                .index
                .find(hash(tag), |_| true)
                .copied()
                .unwrap_or(u32::MAX);
        }
        prefetch(
            positions
                .iter()
                .filter_map(|&position| Some(self.entries.get(position as usize)?.tag[0])),
        );
    }

    /// Inserts routes, each of which replaces an earlier route of its key. `routes` is indexed by
    /// the number that is given with a key. Evicts a route for each that exceeds `len_max`.
    pub(super) fn insert_all(
        &mut self,
        new: &[(u32, CacheKey)],
        routes: &[(CacheKey, Route)],
        len_max: usize,
    ) {
        let mut n_visits = VISITED_MAX;
        for new in new.chunks(PREFETCHED) {
            self.prefetch(new);
            for &(idx, key) in new {
                self.insert(key, routes[idx as usize].1, len_max, &mut n_visits);
            }
        }
    }

    fn insert(&mut self, key: CacheKey, route: Route, len_max: usize, n_visits: &mut usize) {
        if let Some(position) = self.position(key) {
            self.entries[position].route = Some(route);
            return;
        }
        if self.index.len() >= len_max {
            self.evict(n_visits);
        }
        let entry = Entry::new(key, route);
        let position = self.vacant.min().unwrap_or(self.entries.len() as u32);
        if self.vacant.remove(position) {
            self.entries[position as usize] = entry;
        } else {
            self.entries.push(entry);
        }
        let entries = &self.entries;
        self.index.insert_unique(entry.hash(), position, |&other| {
            entries[other as usize].hash()
        });
    }

    /// Evicts routes that were not used since the hand passed them last, or since they were
    /// inserted. The hand makes a round in [`ROUND`], or more slowly if calls are rare. After a
    /// pause it passes at most half of the entries at once, so that the routes in use are used
    /// again before it returns to them. Frees memory.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.truncate();
        let entries = &self.entries;
        self.index.shrink_piece(self.next_piece, |&position| {
            entries[position as usize].hash()
        });
        self.next_piece = (self.next_piece + 1) % self.index.n_pieces();
        let len = self.entries.len() as u32;
        let swept_at = *self.swept_at.get_or_insert(now);
        let since = now
            .checked_sub(ROUND / 2)
            .map_or(swept_at, |earliest| swept_at.max(earliest));
        let elapsed = now.saturating_duration_since(since);
        let n_due = (u128::from(len) * elapsed.as_nanos() / ROUND.as_nanos())
            .min(VISITED_MAX as u128) as u32;
        if n_due == 0 {
            return;
        }
        self.swept_at = Some(since + ROUND * n_due / len);
        for _ in 0..n_due {
            let position = self.advance();
            if self.entries[position].route.is_some() && !self.entries[position].take_used() {
                self.remove(position);
            }
        }
    }

    /// Removes all routes. Returns a table with them, to be freed.
    pub(super) fn take(&mut self) -> Self {
        let Self {
            hits,
            misses,
            evicted,
            ..
        } = *self;
        std::mem::replace(
            self,
            Self {
                hits,
                misses,
                evicted,
                ..Self::default()
            },
        )
    }

    /// Adds the counters of this table to `sum`.
    pub(super) fn add_to(&self, sum: &mut RouteStats) {
        sum.hits += self.hits;
        sum.misses += self.misses;
        sum.evicted += self.evicted;
        sum.entries += self.index.len() as u64;
        sum.size_bytes += self.size() as u64;
    }

    fn size(&self) -> usize {
        self.entries.size() + self.index.size() + self.vacant.serialized_size()
    }

    /// Returns the position of the entry of a key.
    #[inline]
    fn position(&self, key: CacheKey) -> Option<usize> {
        let [_, tag @ ..] = key.0;
        let found = self.index.find(hash(tag), |&position| {
            self.entries[position as usize].is(key)
        });
        found.map(|&position| position as usize)
    }

    /// Evicts the first unused route that the hand meets (clock algorithm), or the next one after
    /// `n_visits` used ones. A route that is used once per round of the hand stays. No entry is
    /// vacant, because the table is full.
    fn evict(&mut self, n_visits: &mut usize) {
        loop {
            let position = self.advance();
            if !self.entries[position].take_used() || *n_visits == 0 {
                return self.remove(position);
            }
            *n_visits -= 1;
        }
    }

    /// Moves the hand, and returns the position that it pointed to.
    fn advance(&mut self) -> usize {
        if self.hand >= self.entries.len() {
            self.hand = 0;
        }
        self.hand += 1;
        self.hand - 1
    }

    /// Frees the memory after the last route: as new routes fill the lowest vacant positions, the
    /// last ones become vacant. Keeps the first entry.
    fn truncate(&mut self) {
        let n_vacant = (1..self.entries.len())
            .rev()
            .take(VISITED_MAX)
            .take_while(|&position| self.entries[position].route.is_none())
            .count();
        let len = self.entries.len() - n_vacant;
        self.entries.truncate(len);
        self.vacant.remove_range(len as u32..);
    }

    fn remove(&mut self, position: usize) {
        let hash = self.entries[position].hash();
        self.index.remove(hash, |&other| other as usize == position);
        self.entries[position].route = None;
        self.vacant.insert(position as u32);
        self.evicted += 1;
    }
}

/// Returns a hash whose bits depend on all bits of a tag except [`USED`]: keys of one label set in
/// two scopes differ in a few bits only.
#[inline]
fn hash([a, b, c]: [u32; 3]) -> u64 {
    let bits = u64::from(a ^ c & !USED) | u64::from(b) << 32;
    // The fractional part of the golden ratio.
    let product = u128::from(bits) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// Maximum bytes per route: 28 of the entry, 15 of a sparse index, 2 of a vacant position.
const SIZE_PER_ROUTE: usize = 45;
/// Maximum unused memory: the last piece of the entries.
const PARTLY_FILLED: usize = 1 << 16;
/// Smallest limit of the number of routes.
const LEN_MAX_MIN: usize = 8;
/// Maximum number of entries that a call visits to find unused ones, or vacant ones at the end.
const VISITED_MAX: usize = 1 << 14;
/// Number of keys that are looked up together if their order is not the order of arrival.
const PREFETCHED: usize = 16;
/// Time of a round of the hand. A route stays for half a round to two rounds after it was used.
const ROUND: Duration = Duration::from_secs(600);
const USED: u32 = 1;

#[cfg(test)]
mod tests;
