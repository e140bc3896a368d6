//! The memory of background work, and of a start, with many and with long label names and values.

use std::path::Path;
use std::sync::PoisonError;

use varve_context::QueryContext;
use varve_model::{Labels, MatchOp, Matcher, Sample, TimeRange};
use varve_tsdb::{Db, Options, WriteBatch};

use super::{ALLOCATOR, ALONE};

/// Memory of one task of background work that does not grow with the heads: buffers of the pages
/// and frames that it reads and writes, and a few texts.
const FIXED_SIZE_MAX: usize = 5 << 20;
/// The memory of a replay, the minimum.
const REPLAY_MEMORY: usize = 16 << 20;
/// Time between two flushes in milliseconds.
const INTERVAL_MS: i64 = 60_000;
/// Bytes of the long texts: long enough that their copies are seen beside [`FIXED_SIZE_MAX`] and
/// [`REPLAY_MEMORY`].
const LONG_TEXTS_SIZE: usize = 48 << 20;

/// Kinds of label sets that made background work outgrow the memory that was reserved for it.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Many series whose values are all different, with as many names.
    Names(usize),
    /// Values of 60 kB.
    LongValues,
    /// Values of 60 kB, each of which belongs to three labels.
    SharedValues,
    /// Names of 1 kB.
    LongNames,
}

const KINDS: [Kind; 5] = [
    Kind::Names(100),
    Kind::Names(100_000),
    Kind::LongValues,
    Kind::SharedValues,
    Kind::LongNames,
];

/// Returns a value of 60 kB.
fn long_value(n: usize) -> String {
    format!("{n:x<60000}")
}

impl Kind {
    fn n_series(self) -> usize {
        match self {
            Self::Names(_) => 20_000,
            Self::LongValues => LONG_TEXTS_SIZE / (10 * 60_000),
            Self::SharedValues => LONG_TEXTS_SIZE / 60_000,
            Self::LongNames => LONG_TEXTS_SIZE / 1_000,
        }
    }

    /// Returns the labels of a series.
    fn labels(self, i: usize) -> Labels {
        let mut pairs = Vec::new();
        match self {
            Self::Names(n_names) => {
                for n in 10 * i..10 * i + 10 {
                    pairs.push((format!("label_{}", n % n_names), format!("value-{n}")));
                }
            }
            Self::LongValues => {
                for n in 0..10 {
                    pairs.push((format!("label_{n}"), long_value(10 * i + n)));
                }
            }
            Self::SharedValues => {
                for n in 0..3 {
                    pairs.push((format!("label_{n}"), long_value(i)));
                }
            }
            Self::LongNames => {
                let name = format!("label_{i}");
                pairs.push((format!("{name:x<1000}"), "v".to_owned()));
            }
        }
        Labels::from_pairs(pairs.iter().map(|(name, value)| (&**name, &**value))).unwrap()
    }
}

fn append(db: &Db, kind: Kind, timestamp_ms: i64) {
    let mut batch = WriteBatch::default();
    for i in 0..kind.n_series() {
        let sample = Sample {
            timestamp_ms,
            value: 1.0,
        };
        batch.push(db.series(&kind.labels(i)).unwrap(), sample, 0);
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

fn open(directory: &Path) -> Db {
    let options = Options {
        background: false,
        page_cache_size_bytes: 1 << 20,
        wal_replay_memory_bytes: REPLAY_MEMORY,
        wal_replay_in_background: false,
        ..Options::default()
    };
    Db::open(directory, options).unwrap()
}

/// Returns a matcher of half of the series.
fn half() -> Vec<Matcher> {
    vec![Matcher::new(MatchOp::Regexp, "label_0", ".*[02468]0x*").unwrap()]
}

#[test]
fn background_work_needs_no_more_memory_than_is_reserved() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path());
        let mut flushed = 0;
        for n in 0..3 {
            append(&db, kind, n * INTERVAL_MS);
            flushed = flushed.max(peak(|| {
                db.flush().unwrap();
            }));
        }
        append(&db, kind, 3 * INTERVAL_MS);
        let reserved = db.background_memory();
        let snapshot = peak(|| {
            db.snapshot("s", false).unwrap();
        });
        let merged = peak(|| db.compact_fully().unwrap());
        db.delete(
            half(),
            TimeRange {
                start_ms: 0,
                end_ms: INTERVAL_MS,
            },
        )
        .unwrap();
        let cleaned = peak(|| db.clean_tombstones().unwrap());
        println!(
            "{kind:?}: flush {flushed}, snapshot {snapshot}, merge {merged}, tombstones {cleaned} bytes; \
             {reserved} are reserved"
        );
        // One of each group runs at a time.
        let with_heads = flushed.max(snapshot);
        let of_blocks = merged.max(cleaned);
        assert!(with_heads + of_blocks <= reserved + 2 * FIXED_SIZE_MAX);
    }
}

/// A start needs the heads, and the memory of replay: after a process was killed for its memory, the
/// next one does not need more. Definitions are in segments of the WAL, or in a checkpoint.
#[test]
fn a_replay_needs_no_more_memory_than_its_limit_beside_the_heads() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in KINDS {
        for is_flushed in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let db = open(directory.path());
            ALLOCATOR.start();
            for n in 0..3 {
                append(&db, kind, n * INTERVAL_MS);
            }
            let written = ALLOCATOR.allocated();
            let peak_of_writes = ALLOCATOR.peak();
            if is_flushed {
                db.flush().unwrap();
            }
            drop(db);

            ALLOCATOR.start();
            let db = open(directory.path());
            db.wait_replayed(&QueryContext::unbounded()).unwrap();
            let replayed = ALLOCATOR.allocated();
            let peak = ALLOCATOR.peak();
            println!(
                "{kind:?}, flushed {is_flushed}: {written} bytes written, peak {peak_of_writes}, \
                 {replayed} replayed, peak {peak}"
            );
            assert!(peak <= peak_of_writes + REPLAY_MEMORY);
            // The peak of these writes includes the definitions of all series, which are logged at
            // once.
            if !matches!(kind, Kind::Names(_)) {
                assert!(peak <= replayed + REPLAY_MEMORY);
            }
            assert!(replayed <= written + written / 4 + FIXED_SIZE_MAX);
        }
    }
}
