//! Readers see requests entirely or not at all, whatever else is running.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use super::*;

const WRITERS: usize = 2;
/// Series of a writer, over all shards, like the buckets of a histogram.
const N_SERIES: usize = 64;
const N_REQUESTS: i64 = 100;
const STEP_MS: i64 = 60_000;

/// A sum over series is correct only if they all have the same number of samples. Every request
/// adds one sample to each series of its writer.
#[test]
fn no_reader_sees_a_part_of_a_request_while_flushes_and_merges_run() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(NOW_MS + N_REQUESTS * STEP_MS));
    let db = Db::open(
        dir.path(),
        Options {
            shards: 4,
            clock,
            ..options()
        },
    )
    .unwrap();
    let is_done = AtomicBool::new(false);
    scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let db = &db;
                    move || write(db, writer)
                })
            })
            .collect();
        let (db, is_done) = (&db, &is_done);
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                db.flush().unwrap();
                db.compact().unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    check(db);
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(check(&db), [N_REQUESTS as usize; WRITERS]);
}

fn write(db: &Db, writer: usize) {
    for k in 0..N_REQUESTS {
        let sample = |i| (writer * N_SERIES + i, NOW_MS + k * STEP_MS, k as f64);
        assert_eq!(
            append(db, &(0..N_SERIES).map(sample).collect::<Vec<_>>()),
            []
        );
    }
}

/// Checks that all series of a writer have the same samples without a gap. Returns their number.
fn check(db: &Db) -> [usize; WRITERS] {
    let mut seen: [Vec<usize>; WRITERS] = Default::default();
    let mut samples = SampleColumns::default();
    for series in db
        .select(&ReadContext::unbounded(), &[], TimeRange::ALL)
        .unwrap()
    {
        let series = series.unwrap();
        let i: usize = series.labels().get("i").unwrap().parse().unwrap();
        samples.clear();
        series.read(&mut samples).unwrap();
        let expected = (0..samples.len() as i64).map(|k| NOW_MS + k * STEP_MS);
        assert!(
            samples.timestamps_ms.iter().copied().eq(expected),
            "series {i} has a gap: {:?}",
            samples.timestamps_ms
        );
        // A series whose only sample is in flight is returned without samples.
        if !samples.is_empty() {
            seen[i / N_SERIES].push(samples.len());
        }
    }
    seen.map(|lens| {
        let n_samples = lens.first().copied().unwrap_or(0);
        assert!(
            lens.is_empty() || lens == [n_samples; N_SERIES],
            "a part of a request is seen: {lens:?}"
        );
        n_samples
    })
}
