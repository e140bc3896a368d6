use proptest::prelude::*;

use super::*;
use crate::batch::RouteHasher;

const A: Route = Route::Rejected(Reason::EmptyLabelName);
const B: Route = Route::Rejected(Reason::InvalidUtf8);

fn key(hasher: &RouteHasher, n: u32) -> RouteKey {
    hasher.hash(&n.to_le_bytes())
}

fn lookup(cache: &RouteCache, keys: &[Option<RouteKey>]) -> Vec<Option<Route>> {
    let mut found = Vec::new();
    cache.lookup(keys.iter().copied(), &mut found, &mut Vec::new());
    found
}

#[test]
fn a_slot_takes_28_bytes() {
    assert_eq!(size_of::<Slot>(), 28);
}

#[test]
fn a_process_has_its_own_keys() {
    assert_ne!(key(&RouteHasher::new(), 1), key(&RouteHasher::new(), 1));
}

#[test]
fn keys_are_found_in_order_and_missing_ones_are_not() {
    let (cache, hasher) = (RouteCache::new(1 << 20), RouteHasher::new());
    cache.insert(&[1, 2].map(|n| (key(&hasher, n), A)));
    cache.insert(&[A, B].map(|route| (key(&hasher, 2), route)));
    let asked = [2, 3, 1, 2].map(|n| Some(key(&hasher, n)));
    assert_eq!(lookup(&cache, &asked), [Some(B), None, Some(A), Some(B)]);
    assert_eq!(lookup(&cache, &[None, asked[0], None]), [None, Some(B), None]);
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.hits, stats.misses, stats.evicted), (2, 4, 1, 0));
}

#[test]
fn the_cache_stays_within_its_size_and_keeps_used_routes() {
    let size_max = 1 << 20;
    let (cache, hasher) = (RouteCache::new(size_max), RouteHasher::new());
    let capacity = (size_max / 28) as u32;
    let hot: Vec<_> = (0..capacity / 4).map(|n| Some(key(&hasher, n))).collect();
    hot.iter().flatten().for_each(|&key| cache.insert(&[(key, A)]));
    for n in 0..20 * capacity {
        if n % (capacity / 8) == 0 {
            let hits = lookup(&cache, &hot).iter().flatten().count();
            assert!(hits * 100 >= hot.len() * 99, "{hits} of {} kept", hot.len());
            hot.iter().flatten().for_each(|&key| cache.insert(&[(key, A)]));
        }
        cache.insert(&[(key(&hasher, u32::MAX - n), B)]);
        if n % 100_000 == 0 {
            assert!(cache.stats().size_bytes <= size_max as u64);
        }
    }
    let stats = cache.stats();
    assert!(stats.size_bytes <= size_max as u64 && stats.evicted > u64::from(18 * capacity), "{stats:?}");
    assert!(stats.entries > u64::from(capacity / 2), "{stats:?}");
}

#[test]
fn if_all_routes_are_used_an_eighth_is_evicted_at_a_time() {
    let mut table = Table::default();
    let (hasher, now) = (RouteHasher::new(), Instant::now());
    for n in 0..10_000 {
        table.insert(key(&hasher, n), A, 1000, now);
        assert!(table.len <= 800 && table.slots.len() <= 1000);
        assert!(n < 800 || table.len > 700, "{}", table.len);
        table.slots.iter_mut().for_each(Slot::set_used);
        let found = table.find(key(&hasher, n)).map(|slot| slot.route);
        assert_eq!(found, Some(Some(A)));
    }
}

#[test]
fn unused_routes_are_evicted_before_the_cache_grows() {
    let (mut table, hasher, mut now) = (Table::default(), RouteHasher::new(), Instant::now());
    (0..1_000).for_each(|n| table.insert(key(&hasher, n), A, usize::MAX, now));
    for round in 1..20 {
        // Each round replaces one series in ten; the thousand are always sent.
        (0..100).for_each(|n| table.insert(key(&hasher, round * 1_000 + n), B, usize::MAX, now));
        (0..1_000).for_each(|n| table.find(key(&hasher, n)).expect("it is in use").set_used());
        now += EVICTED_AFTER;
    }
    table.insert(key(&hasher, u32::MAX), B, usize::MAX, now);
    assert_eq!((table.len, table.evicted), (1_001, 1_900));
    assert!(table.slots.len() <= 1_500, "{} slots", table.slots.len());
    // Nothing is used any more, so everything is evicted.
    table.insert(key(&hasher, u32::MAX - 1), B, usize::MAX, now + EVICTED_AFTER);
    assert_eq!((table.len, table.slots.len()), (1, SLOTS_MIN));
    table.insert(key(&hasher, u32::MAX - 2), B, usize::MAX, now + EVICTED_AFTER);
    assert_eq!(table.len, 2, "nothing is evicted until EVICTED_AFTER has passed again");
}

proptest! {
    #[test]
    fn a_table_is_a_map_that_may_evict(inserts in proptest::collection::vec((0..400u32, any::<bool>()), 0..2000)) {
        let (mut table, hasher, now) = (Table::default(), RouteHasher::new(), Instant::now());
        let mut model = std::collections::HashMap::new();
        for (n, which) in inserts {
            let route = if which { A } else { B };
            table.insert(key(&hasher, n), route, 200, now);
            model.insert(n, route);
            prop_assert_eq!(table.len, table.slots.iter().filter(|slot| slot.route.is_some()).count());
        }
        for n in 0..500 {
            let found = table.find(key(&hasher, n)).and_then(|slot| slot.route);
            prop_assert!(found.is_none() || found == model.get(&n).copied());
        }
        if model.len() < 50 {
            prop_assert_eq!(table.len, model.len());
        }
    }
}
