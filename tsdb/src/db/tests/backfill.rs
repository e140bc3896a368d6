//! Samples of the past that are written at full speed.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::*;

const INTERVAL: Duration = Duration::from_secs(3600);
const N_SERIES: usize = 1_000;
/// Together with the series: more samples than the heads may keep, of about nine bytes each.
const N_ROUNDS: i64 = 4_500;

#[test]
fn the_heads_are_flushed_when_senders_moved_by_two_intervals() {
    let (_dir, db) = fresh(Options {
        background: true,
        flush_interval: INTERVAL,
        ..options()
    });
    let series: Vec<_> = (0..N_SERIES)
        .map(|i| db.series(&series_labels(i)).unwrap())
        .collect();
    let write = |timestamp_ms: i64| {
        let mut batch = WriteBatch::default();
        for (&series, idx) in series.iter().zip(0_u32..) {
            // A double without a pattern.
            let bits = (timestamp_ms as u64 + u64::from(idx)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let value = f64::from_bits(bits >> 2);
            let sample = Sample {
                timestamp_ms,
                value,
            };
            batch.push(series, sample, idx);
        }
        db.append(&mut batch).unwrap();
        assert!(batch.rejected().is_empty());
    };

    // Less than two intervals of time.
    let start_ms = NOW_MS - 30 * 24 * 3_600_000;
    for round in 0..N_ROUNDS {
        write(start_ms + 1_500 * round);
    }
    assert!(db.stats().head_size_bytes > 40 << 20, "{:?}", db.stats());
    sleep(Duration::from_secs(2));
    assert_eq!(db.stats().n_blocks, 0);

    // The flush task looks every 100 ms, so it has not seen the first samples alone.
    write(start_ms + 3 * INTERVAL.as_millis() as i64);
    let started = Instant::now();
    while db.stats().n_blocks == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "no flush");
        sleep(Duration::from_millis(50));
    }
}
