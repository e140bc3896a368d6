use super::*;
use crate::batch::RouteHasher;
use varve_model::RejectionReason;

pub(super) const A: Route = Route::Rejected(RejectionReason::EmptyLabelName);
pub(super) const B: Route = Route::Rejected(RejectionReason::InvalidUtf8);

pub(super) fn key(hasher: &RouteHasher, n: u32) -> CacheKey {
    CacheKey::new(hasher.hash(&n.to_le_bytes()), Scope::default())
}

fn lookup(cache: &RouteCache, keys: &[Option<CacheKey>]) -> Vec<Option<Route>> {
    let mut found = Vec::new();
    cache.lookup(keys.iter().copied(), &mut found, &mut Vec::new());
    found
}

#[test]
fn a_process_has_its_own_keys() {
    assert_ne!(key(&RouteHasher::new(), 1), key(&RouteHasher::new(), 1));
}

#[test]
fn keys_are_found_in_order_and_missing_ones_are_not() {
    let cache = RouteCache::new(1 << 20);
    let hasher = RouteHasher::new();
    cache.insert(&[1, 2].map(|n| (key(&hasher, n), A)));
    cache.insert(&[A, B].map(|route| (key(&hasher, 2), route)));
    let asked = [2, 3, 1, 2].map(|n| Some(key(&hasher, n)));
    assert_eq!(lookup(&cache, &asked), [Some(B), None, Some(A), Some(B)]);
    assert_eq!(
        lookup(&cache, &[None, asked[0], None]),
        [None, Some(B), None]
    );
    let stats = cache.stats();
    assert_eq!(
        (stats.entries, stats.hits, stats.misses, stats.evicted),
        (2, 4, 1, 0)
    );
}

#[test]
fn the_cache_stays_within_its_size_and_keeps_used_routes() {
    let size_max = 1 << 22;
    let cache = RouteCache::new(size_max);
    let hasher = RouteHasher::new();
    let capacity = (size_max / 42) as u32;
    let hot: Vec<_> = (0..capacity / 4).map(|n| Some(key(&hasher, n))).collect();
    hot.iter()
        .flatten()
        .for_each(|&key| cache.insert(&[(key, A)]));
    for n in 0..20 * capacity {
        if n % (capacity / 8) == 0 {
            let hits = lookup(&cache, &hot).iter().flatten().count();
            assert!(hits * 100 >= hot.len() * 99, "{hits} of {} kept", hot.len());
            hot.iter()
                .flatten()
                .for_each(|&key| cache.insert(&[(key, A)]));
        }
        cache.insert(&[(key(&hasher, u32::MAX - n), B)]);
        if n % 100_000 == 0 {
            assert!(cache.stats().size_bytes <= size_max as u64);
        }
    }
    let stats = cache.stats();
    assert!(
        stats.size_bytes <= size_max as u64 && stats.evicted > u64::from(18 * capacity),
        "{stats:?}"
    );
    assert!(stats.entries > u64::from(capacity / 2), "{stats:?}");
}
