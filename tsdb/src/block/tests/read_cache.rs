//! The read cache is bounded and charged, and fills again after it was cleared.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::block::reader::{COLUMN_SIZE, COLUMNS_MAX, PAGES_SIZE_MAX, TIMES_MAX};

/// Reads all series twice, in turn. After each read, calls `check` with the numbers of cached
/// timestamp columns and listed timestamps and the size of cached pages, and asserts that these are
/// charged.
fn read_all(model: &Model, check: impl Fn(usize, usize, usize)) {
    let Written {
        path, dir: _dir, ..
    } = written(2, model);
    let (block, budget) = (
        open(&path).unwrap(),
        MemoryBudget::new(varve_context::Limit::Other("a test"), usize::MAX),
    );
    let mut used = ReadCache::new(budget.charge(), false);
    let mut samples = SampleColumns::default();
    for _ in 0..2 {
        for (ordinal, expected) in (0..).zip(model) {
            samples.clear();
            block
                .read(&mut used, ordinal, TimeRange::ALL, &mut samples)
                .unwrap();
            assert!(bits(&samples) == bits(expected), "series {ordinal}");
            let (n_timestamp_columns, n_times, pages_size) = used.sizes();
            check(n_timestamp_columns, n_times, pages_size);
            assert_eq!(
                budget.used(),
                n_timestamp_columns * COLUMN_SIZE + n_times * size_of::<i64>() + pages_size
            );
        }
    }
    drop(used);
    assert_eq!(budget.used(), 0);
}

#[test]
fn cached_timestamp_columns_are_bounded() {
    let n = COLUMNS_MAX as i64 + 300;
    let model: Model = (0..n)
        .map(|i| columns([(START_MS + i, 1.0), (START_MS + HOUR_MS + i, 1.0)]))
        .collect();
    let (most, fewest) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    read_all(&model, |n_timestamp_columns, n_times, _| {
        assert_eq!(n_times, 0, "two timestamps are regular");
        most.fetch_max(n_timestamp_columns as u64, Ordering::Relaxed);
        fewest.fetch_min(n_timestamp_columns as u64, Ordering::Relaxed);
    });
    assert_eq!(
        [most.into_inner(), fewest.into_inner()],
        [COLUMNS_MAX as u64, 1]
    );
}

#[test]
fn cached_timestamps_are_bounded_to_those_of_one_column() {
    let n_samples = 200;
    let time_ms = |i: i64, k: i64| START_MS + k * 30_000 + (i + 1) * (k * k + 1) % 997;
    let n_series = (TIMES_MAX / n_samples) as i64 + 100;
    let model: Model = (0..n_series)
        .map(|i| columns((0..n_samples as i64).map(|k| (time_ms(i, k), k as f64))))
        .collect();
    let most = AtomicU64::new(0);
    read_all(&model, |_, n_times, _| {
        _ = most.fetch_max(n_times as u64, Ordering::Relaxed)
    });
    let most = most.into_inner() as usize;
    assert!(
        (TIMES_MAX..=TIMES_MAX + n_samples).contains(&most),
        "{most}"
    );
}

#[test]
fn cached_pages_are_bounded() {
    let noise = |i: i64| f64::from_bits(xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes()));
    let n_samples = (PAGES_SIZE_MAX / size_of::<f64>() + 2 * SERIES_SAMPLES_MAX) as i64;
    let model = vec![columns(
        (0..n_samples).map(|k| (START_MS + k * 10, noise(k))),
    )];
    read_all(&model, |_, _, pages_size| {
        assert!((PAGES_SIZE_MAX / 2..=PAGES_SIZE_MAX).contains(&pages_size))
    });
}

#[test]
fn a_check_is_due_after_a_page_was_read_and_every_few_thousand_samples() {
    let n_samples = 100;
    let series =
        |i: i64| columns((0..n_samples).map(move |k| (START_MS + k * 30_000, (i * k) as f64)));
    let Written {
        path, dir: _dir, ..
    } = written(2, &(0..300).map(series).collect::<Model>());
    let block = open(&path).unwrap();
    let (mut used, mut samples) = (read_cache(usize::MAX), SampleColumns::default());
    let mut due = Vec::new();
    for ordinal in 0..300 {
        if used.is_check_due() {
            due.push(ordinal);
        }
        block
            .read(&mut used, ordinal, TimeRange::ALL, &mut samples)
            .unwrap();
    }
    // The pages of the first group are read with series 0, those of the second with series 256.
    let every = (varve_context::CHECK_INTERVAL as u32).div_ceil(64 + n_samples as u32);
    let expected: Vec<_> = [0]
        .into_iter()
        .chain((1..=256).step_by(every as usize))
        .chain([257, 257 + every])
        .collect();
    assert_eq!(due, expected);
}
