//! Series are ranked when queries sort them and few new ones are created.

use super::*;
use crate::background::LabelOrder;
use crate::head::Ranks;

#[test]
fn series_are_ranked_once_queries_sort_them_and_few_new_ones_are_created() {
    let (_dir, db) = fresh(Options {
        shards: 1,
        ..options()
    });
    let add = |from: usize, n: usize| {
        assert!(
            append(
                &db,
                &(from..from + n)
                    .map(|i| (i, NOW_MS, 1.0))
                    .collect::<Vec<_>>()
            )
            .is_empty()
        )
    };
    let mut label_order = LabelOrder::default();
    let mut n_unranked = || {
        label_order.update(&db.store).unwrap();
        db.store.shards[0].head().n_unranked()
    };
    add(0, 1000);
    assert_eq!(
        [n_unranked(), n_unranked()],
        [1000, 1000],
        "a flush ranks a few"
    );
    add(1000, 1000);
    assert_eq!(n_unranked(), 2000, "more may follow");
    add(2000, 100);
    assert_eq!(n_unranked(), 2100, "more may follow");
    assert_eq!(n_unranked(), 2100, "no query has sorted them");
    assert_eq!(contents(&db, &[], TimeRange::ALL).len(), 2100);
    assert_eq!(n_unranked(), 0, "few new series");
    add(3000, 100);
    assert_eq!([n_unranked(), n_unranked()], [100, 100]);
    let found: Vec<_> = contents(&db, &[], TimeRange::ALL).into_keys().collect();
    let set = db
        .select_labels(&ReadContext::unbounded(), &[], TimeRange::ALL)
        .unwrap();
    let ordered: Vec<_> = set.map(|series| series.unwrap().labels().clone()).collect();
    assert!(found.len() == 2200 && ordered.is_sorted() && ordered.len() == 2200);
    db.flush().unwrap();
    assert_eq!(n_unranked(), 0);
    add(4000, 2000);
    let n_checks = (0..1000).take_while(|_| n_unranked() > 0).count();
    assert!(
        (50..200).contains(&n_checks),
        "without queries they are ranked later: {n_checks} checks"
    );
}

/// The ranks of two shards are compared only if they come from one ranking.
#[test]
fn series_of_many_shards_are_in_label_order_ranked_or_not_and_during_evictions() {
    let (_dir, db) = fresh(Options {
        shards: 8,
        series_idle_ms: 1000,
        clock: Arc::new(ManualClock::at(NOW_MS + 2000)),
        ..options()
    });
    let add = |numbers: &[usize], at_ms: i64| {
        let rejected = append(
            &db,
            &numbers.iter().map(|&i| (i, at_ms, 1.0)).collect::<Vec<_>>(),
        );
        assert!(rejected.is_empty(), "{rejected:?}");
    };
    let check = |n_expected: usize, expected: &str| {
        for range in [
            TimeRange::ALL,
            TimeRange {
                start_ms: NOW_MS + 1,
                end_ms: i64::MAX,
            },
        ] {
            let set = db.select(&ReadContext::unbounded(), &[], range).unwrap();
            let ordered: Vec<_> = set.map(|series| series.unwrap().labels().clone()).collect();
            assert!(ordered.is_sorted_by(|a, b| a < b), "{expected} {range:?}");
            assert!(
                range != TimeRange::ALL || ordered.len() == n_expected,
                "{expected}: {}",
                ordered.len()
            );
        }
    };
    let rankings = || {
        db.store
            .shards
            .iter()
            .map(|shard| shard.head().ranking())
            .collect::<Vec<_>>()
    };
    add(&(0..4000).step_by(2).collect::<Vec<_>>(), NOW_MS);
    check(2000, "no ranks");
    db.store.rank_series(&mut db.store.flushing.lock()).unwrap();
    assert_eq!(rankings(), [1; 8]);
    check(2000, "all are ranked");
    add(&(1..4000).step_by(2).collect::<Vec<_>>(), NOW_MS + 2000);
    check(4000, "every second one is ranked");
    // As during a ranking, when a read comes between two shards.
    for shard in &db.store.shards[..3] {
        let order = shard.sort_all(&ReadContext::unbounded()).unwrap();
        let mut ranks = Ranks::new(&order);
        order
            .sorted()
            .iter()
            .zip(0..)
            .for_each(|(of, rank)| ranks.set(of.slot, rank));
        shard.head_mut().set_ranks(ranks, 2);
    }
    check(4000, "three shards have other ranks");
    db.flush().unwrap();
    assert_eq!(rankings(), [2; 8]);
    // The first series are idle and were evicted; others reuse their slots.
    assert_eq!(
        db.store
            .shards
            .iter()
            .map(|shard| shard.head().len())
            .sum::<usize>(),
        2000
    );
    add(&(4000..5500).collect::<Vec<_>>(), NOW_MS + 2000);
    check(5500, "slots are reused");
    db.store.rank_series(&mut db.store.flushing.lock()).unwrap();
    check(5500, "all are ranked again");
    assert_eq!(
        db.store
            .shards
            .iter()
            .map(|shard| shard.head().n_unranked())
            .sum::<usize>(),
        0
    );
}

/// Label sets whose strings have first bytes in common, or bytes that are zero, and whose names
/// differ.
#[test]
fn ranks_by_strings_are_the_label_order() {
    let (_dir, db) = fresh(Options {
        shards: 4,
        ..options()
    });
    let mut state = 7_u64;
    let mut random = |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut text = || {
        let stem = [
            "",
            "a",
            "a\0",
            "é",
            "prefix-of-8",
            "prefix-of-8-bytes-",
            "\u{10ffff}",
        ][random(7) as usize];
        format!(
            "{stem}{}",
            ["", "0", "\0", "17", "a"][random(5) as usize].repeat(random(12) as usize)
        )
    };
    let mut batch = WriteBatch::default();
    for _ in 0..3000 {
        let labels: BTreeMap<String, String> = (0..4)
            .map(|_| (text(), text()))
            .filter(|(a, b)| *a != *b)
            .collect();
        let labels = labels
            .iter()
            .filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let labels =
            Labels::from_pairs(labels.map(|(name, value)| (name.as_str(), value.as_str())))
                .unwrap();
        batch.push(
            db.series(&labels).unwrap(),
            Sample {
                timestamp_ms: NOW_MS,
                value: 1.0,
            },
            0,
        );
    }
    db.append(&mut batch).unwrap();
    let orders = db.store.rank_series(&mut db.store.flushing.lock()).unwrap();
    assert_eq!(
        db.store
            .shards
            .iter()
            .map(|shard| shard.head().n_unranked())
            .sum::<usize>(),
        0
    );
    let mut ranked = Vec::new();
    for (shard, order) in db.store.shards.iter().zip(orders) {
        let head = shard.head();
        let labels: Vec<_> = order
            .sorted()
            .iter()
            .map(|of| (head.labels(of.slot), head.rank(of.slot)))
            .collect();
        assert!(labels.is_sorted());
        ranked.extend(labels);
    }
    ranked.sort();
    assert!(ranked.len() > 1500, "{}", ranked.len());
    assert!(
        ranked
            .iter()
            .zip(0..)
            .all(|((_, rank), expect)| *rank == Some(expect))
    );
}
