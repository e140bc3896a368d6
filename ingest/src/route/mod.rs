//! The route cache maps the encoded bytes of a label set to its series.
//!
//! A sender repeats the labels of a series byte for byte with every sample. The key is the seeded
//! 128-bit hash of those bytes and of the labels of the tenant. The route is the handle of the
//! series, or states that the label set is dropped or rejected, with the reason. Two encodings of
//! one label set are two keys with the same handle. Rationale and memory use: docs/decisions/ingest/0003-route-cache.md.
//!
//! Invariants
//! 1. The bytes of a cached key have been parsed once and are well-formed.
//! 2. All stripes together stay within the size limit. A full stripe evicts approximately the least
//!    recently used routes. Routes that have been unused for some minutes are evicted when others
//!    are inserted, so that stale series do not fill the cache. Eviction is safe: the series is
//!    resolved again.
//!
//! Threads: striped locks. A lookup or an insertion takes the lock of each stripe once, for all
//! keys of the call.

mod cache_key;
mod destination;
mod table;

use std::time::Instant;

use parking_lot::Mutex;

pub(crate) use cache_key::{CacheKey, Scope};
pub(crate) use destination::Route;
pub use destination::RouteStats;
use table::Table;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RouteCache {
    stripes: Box<[Mutex<Table>]>,
    /// Maximum number of routes of a stripe.
    stripe_len_max: usize,
}

impl RouteCache {
    pub(crate) fn new(size_max: usize) -> Self {
        let stripe_len_max = Table::len_max(size_max / N_STRIPES);
        Self {
            stripes: (0..N_STRIPES).map(|_| Mutex::default()).collect(),
            stripe_len_max,
        }
    }

    /// Looks up the keys of a request. Stores a route or `None` for each key in `found`. `order` is
    /// reused memory.
    pub(crate) fn lookup<I>(
        &self,
        keys: I,
        found: &mut Vec<Option<Route>>,
        order: &mut Vec<(u32, CacheKey)>,
    ) where
        I: ExactSizeIterator<Item = Option<CacheKey>> + Clone,
    {
        found.clear();
        found.resize(keys.len(), None);
        let ends = sort_by_stripe(keys, order);
        self.for_each_stripe(order, &ends, |table, wanted| table.find_all(wanted, found));
    }

    /// Caches routes, each of which replaces an earlier route of its key.
    pub(crate) fn insert(&self, routes: &[(CacheKey, Route)]) {
        let mut order = Vec::new();
        let now = Instant::now();
        let ends = sort_by_stripe(routes.iter().map(|&(key, _)| Some(key)), &mut order);
        self.for_each_stripe(&order, &ends, |table, new| {
            table.sweep(now);
            table.insert_all(new, routes, self.stripe_len_max);
        });
    }

    /// Calls `visit` with each stripe that has keys, under its lock, and with its keys.
    fn for_each_stripe(
        &self,
        order: &[(u32, CacheKey)],
        ends: &[usize; N_STRIPES],
        mut visit: impl FnMut(&mut Table, &[(u32, CacheKey)]),
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
            // Freed after the lock is released.
            let _old = stripe.lock().take();
        }
    }

    pub(crate) fn stats(&self) -> RouteStats {
        let mut sum = RouteStats::default();
        for stripe in &self.stripes {
            stripe.lock().add_to(&mut sum);
        }
        sum
    }
}

/// Sorts the keys by stripe (counting sort). Stores the index and the key of each in `order`.
/// Returns the end of each stripe in `order`.
fn sort_by_stripe<I>(keys: I, order: &mut Vec<(u32, CacheKey)>) -> [usize; N_STRIPES]
where
    I: ExactSizeIterator<Item = Option<CacheKey>> + Clone,
{
    let mut ends = [0; N_STRIPES];
    for key in keys.clone().flatten() {
        ends[stripe(key)] += 1;
    }
    let mut total = 0;
    for end in &mut ends {
        total += std::mem::replace(end, total);
    }
    // Every element is overwritten.
    order.resize(total, (0, CacheKey([0; 4])));
    for (idx, key) in (0u32..).zip(keys) {
        if let Some(key) = key {
            let next = &mut ends[stripe(key)];
            order[*next] = (idx, key);
            *next += 1;
        }
    }
    ends
}

fn stripe(key: CacheKey) -> usize {
    key.0[0] as usize % N_STRIPES
}

/// Number of stripes. The series of a target are spread over all stripes, so with many stripes few
/// of them are neighbors in one. With 8 and 4 million series, a request of 2,000 series holds each
/// lock for about 10 us, or for 60 us if its order is not that of arrival.
const N_STRIPES: usize = 8;

#[cfg(test)]
mod tests;
