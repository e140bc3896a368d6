//! Label cardinality over several shards, and the summaries of blocks.

use super::*;
use crate::db::cardinality::NameCount;

fn counts(list: &[NameCount]) -> Vec<(&str, u64)> {
    list.iter()
        .map(|entry| (entry.name.as_str(), entry.count))
        .collect()
}

#[test]
fn labels_are_counted_over_all_shards_and_the_largest_come_first() {
    let (_dir, db) = fresh(Options {
        shards: 4,
        ..options()
    });
    append(
        &db,
        &(0..20)
            .map(|i| (i, NOW_MS + i as i64, 1.0))
            .collect::<Vec<_>>(),
    );
    let ctx = ReadContext::unbounded();
    let found = db.cardinality(&ctx, 2).unwrap();
    assert_eq!((found.n_series, found.n_label_pairs), (20, 21));
    assert_eq!(
        found.range,
        Some(TimeRange {
            start_ms: NOW_MS,
            end_ms: NOW_MS + 19
        })
    );
    assert_eq!(counts(&found.series_by_metric), [("m", 20)]);
    assert_eq!(
        counts(&found.values_by_label),
        [("i", 20), (METRIC_NAME, 1)]
    );
    assert_eq!(
        counts(&found.series_by_pair),
        [("__name__=m", 20), ("i=0", 1)]
    );
    let bytes: BTreeMap<_, _> = counts(&found.bytes_by_label).into_iter().collect();
    // The strings of 20 values, 30 bytes, and their postings.
    assert!(
        bytes.len() == 2 && bytes["i"] > 30 && bytes[METRIC_NAME] > 1,
        "{found:?}"
    );
    assert_eq!(ctx.memory().used(), 0);
}

#[test]
fn counting_stops_at_the_memory_limit_of_the_request() {
    let (_dir, db) = fresh(options());
    append(&db, &(0..100).map(|i| (i, NOW_MS, 1.0)).collect::<Vec<_>>());
    let memory = varve_context::MemoryBudget::new(varve_context::Limit::Other("memory"), 2000);
    let ctx = ReadContext::unrestricted(QueryContext::new(
        std::time::Duration::from_secs(60),
        memory.clone(),
    ));
    assert!(matches!(db.cardinality(&ctx, 10), Err(Error::Limit { .. })));
    assert_eq!(memory.used(), 0);
}

#[test]
fn blocks_are_listed_with_their_statistics() {
    let (_dir, db) = fresh(options());
    assert!(db.blocks().is_empty());
    append(
        &db,
        &[(0, NOW_MS - 10, 1.0), (0, NOW_MS, 2.0), (1, NOW_MS, 3.0)],
    );
    db.flush().unwrap();
    let blocks = db.blocks();
    let [block] = blocks.as_slice() else {
        panic!("{blocks:?}")
    };
    assert_eq!(
        block.range,
        TimeRange {
            start_ms: NOW_MS - 10,
            end_ms: NOW_MS
        }
    );
    assert_eq!((block.level, block.n_series, block.n_samples), (0, 2, 3));
    assert!(block.sources.is_empty() && block.size_bytes > 0);
}

#[test]
fn blocks_are_removed_by_number() {
    let (_dir, db) = fresh(options());
    for i in 0..3 {
        append(&db, &[(i, NOW_MS + i as i64, 1.0)]);
        db.flush().unwrap();
    }
    let numbers: Vec<u64> = db.blocks().iter().map(|block| block.number).collect();
    db.remove_blocks(&[numbers[1], 999]).unwrap();
    assert_eq!(
        db.blocks()
            .iter()
            .map(|block| block.number)
            .collect::<Vec<_>>(),
        [numbers[0], numbers[2]]
    );
    assert_eq!(db.stats().compaction.n_expired, 1);
    assert_eq!(
        everything(&db).into_keys().collect::<Vec<_>>(),
        [0, 2].map(|i| series_labels(i).to_string())
    );
}
