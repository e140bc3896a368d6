use proptest::prelude::*;

use super::super::tests::{A, B, key};
use super::*;
use crate::batch::RouteHasher;

impl Table {
    fn find(&mut self, key: CacheKey) -> Option<Route> {
        self.find_many(&[key])[0]
    }

    fn find_many(&mut self, keys: &[CacheKey]) -> Vec<Option<Route>> {
        let mut found = vec![None; keys.len()];
        self.find_all(
            &(0..).zip(keys.iter().copied()).collect::<Vec<_>>(),
            &mut found,
        );
        found
    }

    fn put(&mut self, key: CacheKey, route: Route, len_max: usize) {
        self.insert_all(&[(0, key)], &[(key, route)], len_max);
    }

    /// Checks invariant 1, and returns the positions of all routes.
    fn positions(&self) -> Vec<usize> {
        let (used, vacant): (Vec<_>, Vec<_>) =
            (0..self.entries.len()).partition(|&position| self.entries[position].route.is_some());
        assert!(
            self.vacant
                .iter()
                .eq(vacant.iter().map(|&position| position as u32))
        );
        assert_eq!(self.index.len(), used.len());
        for &position in &used {
            let [a, b, c] = self.entries[position].tag;
            assert_eq!(self.position(CacheKey([0, a, b, c])), Some(position));
        }
        used
    }
}

/// A table with routes for the numbers below `n`, and the hasher of their keys.
fn table(n: u32) -> (Table, RouteHasher) {
    let mut table = Table::default();
    let hasher = RouteHasher::new();
    (0..n).for_each(|n| table.put(key(&hasher, n), A, usize::MAX));
    (table, hasher)
}

#[test]
fn an_entry_takes_28_bytes() {
    assert_eq!(size_of::<Entry>(), 28);
}

#[test]
fn routes_are_found_in_any_order() {
    let (mut table, hasher) = table(1_000);
    let route = |n: u32| if n.is_multiple_of(3) { B } else { A };
    (0..1_000).for_each(|n| table.put(key(&hasher, n), route(n), usize::MAX));
    // As inserted, backward, with gaps, with unknown keys in between, and one key again and again.
    let orders: [Vec<u32>; 5] = [
        (0..1_000).collect(),
        (0..1_000).rev().collect(),
        (0..1_000).step_by(7).collect(),
        (0..2_000_u32)
            .map(|n| {
                if n.is_multiple_of(2) {
                    n / 2
                } else {
                    1_000 + n
                }
            })
            .collect(),
        vec![5; 100],
    ];
    for order in orders {
        let found = table.find_many(&order.iter().map(|&n| key(&hasher, n)).collect::<Vec<_>>());
        assert!(
            found
                .into_iter()
                .eq(order.iter().map(|&n| (n < 1_000).then(|| route(n))))
        );
    }
    assert_eq!((table.hits, table.misses), (3 * 1_000 + 143 + 100, 1_000));
}

#[test]
fn a_full_table_evicts_unused_routes_first() {
    let (mut table, hasher) = table(80);
    let is_cached = |table: &Table, n| table.position(key(&hasher, n)).is_some();
    (0..80)
        .step_by(2)
        .for_each(|n| assert_eq!(table.find(key(&hasher, n)), Some(A)));
    // The odd ones are evicted in order of arrival, and replaced.
    (80..120).for_each(|n| table.put(key(&hasher, n), B, 80));
    assert!((0..120_u32).all(|n| is_cached(&table, n) == (n.is_multiple_of(2) || n >= 80)));
    assert_eq!(
        (table.evicted, table.entries.len(), table.positions().len()),
        (40, 80, 80)
    );
    // In the next round, nothing has been used since the hand passed it.
    (120..200).for_each(|n| table.put(key(&hasher, n), B, 80));
    assert!((0..200).all(|n| is_cached(&table, n) == (n >= 120)));
}

#[test]
fn if_all_routes_are_used_one_is_evicted_at_a_time() {
    let (mut table, hasher) = table(0);
    for n in 0..10_000 {
        table.put(key(&hasher, n), A, 800);
        assert_eq!(table.entries.len(), 800.min(n as usize + 1));
        table.entries.iter_mut().for_each(Entry::set_used);
        assert_eq!(table.find(key(&hasher, n)), Some(A));
    }
    assert_eq!(table.positions().len(), 800);
}

#[test]
fn the_hand_passes_a_limited_number_of_used_routes() {
    let n = VISITED_MAX as u32 + 1_000;
    let (mut table, hasher) = table(n);
    table.entries.iter_mut().for_each(Entry::set_used);
    let routes: Vec<_> = (n..n + 500).map(|n| (key(&hasher, n), B)).collect();
    let new: Vec<_> = (0..).zip(routes.iter().map(|&(key, _)| key)).collect();
    table.insert_all(&new, &routes, n as usize);
    assert_eq!((table.hand, table.evicted), (VISITED_MAX + 500, 500));
    let evicted = VISITED_MAX as u32..VISITED_MAX as u32 + 500;
    assert!((0..n + 500).all(|n| table.find(key(&hasher, n)).is_none() == evicted.contains(&n)));
}

#[test]
fn unused_routes_are_evicted_while_others_are_inserted() {
    let (mut table, hasher) = table(1_000);
    let mut now = Instant::now();
    table.sweep(now);
    for round in 1..20 {
        // Each round replaces one series in ten; the thousand are always sent.
        (0..100).for_each(|n| table.put(key(&hasher, round * 1_000 + n), B, usize::MAX));
        for _ in 0..10 {
            (0..1_000).for_each(|n| assert_eq!(table.find(key(&hasher, n)), Some(A)));
            now += ROUND / 10;
            table.sweep(now);
        }
    }
    assert_eq!((table.positions().len(), table.evicted), (1_000, 1_900));
    assert!(
        table.entries.len() <= 1_100,
        "{} entries",
        table.entries.len()
    );
    // Nothing is used any more.
    (0..70).for_each(|n| table.sweep(now + ROUND * 2 + ROUND * n));
    assert_eq!(
        (table.index.len(), table.entries.len(), table.vacant.len()),
        (0, 1, 1)
    );
    assert!(table.index.size() < 4_096, "{} bytes", table.index.size());
}

#[test]
fn routes_in_use_stay_after_a_pause_without_insertions() {
    for (n, n_vacant) in [(1, 0), (100, 0), (1_000, 9_000), (40_000, 0)] {
        let ((mut table, hasher), now) = (table(n + n_vacant), Instant::now());
        table.sweep(now);
        (n..n + n_vacant).for_each(|n| table.remove(n as usize));
        let evicted = table.evicted;
        for pause in 1..20 {
            (0..n).for_each(|n| assert_eq!(table.find(key(&hasher, n)), Some(A)));
            // Two insertions within a scrape interval.
            for secs in [0, 30] {
                table.sweep(now + ROUND * pause + Duration::from_secs(secs));
            }
            assert_eq!(table.evicted, evicted, "of {n} routes, in pause {pause}");
        }
    }
}

#[test]
fn the_last_entries_are_freed_when_they_are_vacant() {
    let ((mut table, hasher), mut now) = (table(10_000), Instant::now());
    table.sweep(now);
    // 79 steps per round: no step ends at the end of the table.
    for _ in 0..3 * 79 {
        (0..1_001).for_each(|n| assert_eq!(table.find(key(&hasher, n)), Some(A)));
        now += ROUND / 79;
        table.sweep(now);
    }
    assert_eq!((table.entries.len(), table.evicted), (1_001, 8_999));
    table.positions();
}

#[test]
fn a_table_stays_within_its_size() {
    // The numbers of routes at which the pieces of the index are just too large for a smaller size.
    for len_max in [64 * 56, 64 * 57, 64 * 90, 64 * 113, 64 * 225, 64 * 449] {
        let (mut table, hasher) = table(0);
        (0..6 * len_max as u32).for_each(|n| table.put(key(&hasher, n), A, len_max));
        assert!(
            table.size() <= len_max * SIZE_PER_ROUTE + PARTLY_FILLED,
            "{} for {len_max}",
            table.size()
        );
        assert_eq!(table.index.len(), len_max);
    }
}

#[test]
fn a_sweep_visits_a_limited_number_of_entries() {
    let (mut table, _) = table(3 * VISITED_MAX as u32);
    let now = Instant::now();
    table.sweep(now);
    table.sweep(now + 100 * ROUND);
    assert_eq!(
        (table.hand, table.evicted),
        (VISITED_MAX, VISITED_MAX as u64)
    );
}

proptest! {
    #[test]
    fn a_table_is_a_map_that_may_evict(
        steps in proptest::collection::vec((0..4_000_u32, 1..400_u32, any::<bool>(), 0..30_u32), 1..60),
        len_max in 8..3_000_usize,
    ) {
        let ((mut table, hasher), mut now) = (table(0), Instant::now());
        let mut model = std::collections::HashMap::new();
        for (first, n, is_used, secs) in steps {
            now += Duration::from_secs(secs.into());
            table.sweep(now);
            let routes: Vec<_> =
                (first..first + n).map(|n| (key(&hasher, n), if secs.is_multiple_of(2) { A } else { B })).collect();
            let new: Vec<_> = (0..).zip(routes.iter().map(|&(key, _)| key)).collect();
            table.insert_all(&new, &routes, len_max);
            model.extend(routes);
            // All keys from the first new one on: known ones, evicted ones, and unknown ones.
            let wanted: Vec<_> = (first..first + 2 * n).map(|n| key(&hasher, n)).collect();
            if is_used {
                for (key, found) in wanted.iter().zip(table.find_many(&wanted)) {
                    prop_assert!(found.is_none() || found == model.get(key).copied());
                }
            }
            prop_assert!(table.positions().len() <= len_max && table.entries.len() <= len_max);
            prop_assert!(table.evicted > 0 || table.index.len() == model.len());
        }
    }
}
