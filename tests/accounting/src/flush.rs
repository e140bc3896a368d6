//! The memory of flushes and merges of series with many label names and values.

use std::sync::PoisonError;

use varve_model::{Labels, Sample};
use varve_tsdb::{Db, Options, WriteBatch};

use super::{ALLOCATOR, ALONE};

/// Memory of a flush and a merge that does not grow with the heads: the pages that they write.
const FIXED_SIZE_MAX: usize = 4 << 20;
const N_SERIES: usize = 20_000;
const LABELS_PER_SERIES: usize = 10;
/// Time between two flushes in milliseconds.
const INTERVAL_MS: i64 = 60_000;

/// Returns label sets whose values are all different, with `n_names` names.
fn series(n_names: usize) -> impl Iterator<Item = Labels> {
    (0..N_SERIES).map(move |i| {
        let pairs: Vec<(String, String)> = (0..LABELS_PER_SERIES)
            .map(|j| i * LABELS_PER_SERIES + j)
            .map(|n| (format!("label_{}", n % n_names), format!("value-{n}")))
            .collect();
        Labels::from_pairs(pairs.iter().map(|(name, value)| (&**name, &**value))).unwrap()
    })
}

fn append(db: &Db, n_names: usize, timestamp_ms: i64) {
    let mut batch = WriteBatch::default();
    for labels in series(n_names) {
        let sample = Sample {
            timestamp_ms,
            value: 1.0,
        };
        batch.push(db.series(&labels).unwrap(), sample, 0);
    }
    db.append(&mut batch).unwrap();
    assert!(batch.rejected().is_empty());
}

/// Returns the peak of allocated bytes while `work` runs.
fn peak(work: impl FnOnce()) -> usize {
    ALLOCATOR.start();
    work();
    ALLOCATOR.peak()
}

#[test]
fn flushes_and_merges_need_no_more_memory_than_is_reserved() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for n_names in [100, 100_000] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            background: false,
            page_cache_size_bytes: 1 << 20,
            ..Options::default()
        };
        let db = Db::open(directory.path(), options).unwrap();
        let mut flushed = 0;
        for n in 0..3 {
            append(&db, n_names, n * INTERVAL_MS);
            flushed = flushed.max(peak(|| {
                db.flush().unwrap();
            }));
        }
        let reserved = db.background_memory();
        let merged = peak(|| db.compact_fully().unwrap());
        println!("{n_names} names: {flushed} and {merged} bytes, {reserved} are reserved");
        // They may run at the same time.
        assert!(flushed + merged <= reserved + FIXED_SIZE_MAX);
    }
}
