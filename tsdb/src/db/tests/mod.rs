//! The whole store: restarts, damage, full disks, background replay, a model, and power cuts.

mod backfill;
mod cardinality;
mod clock;
mod crash;
mod damage;
mod deletions;
mod eviction;
mod first_labels;
mod formats;
mod groups;
mod histograms;
mod isolation;
mod kept_selections;
mod label_hints;
mod label_order;
mod label_queries;
mod model;
mod read_only;
mod replaying;
mod retention_rules;
mod snapshot;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use varve_context::{Limit, QueryContext};
use varve_env::testing::{ManualClock, MemFs};
use varve_env::{Fs, RealFs};
use varve_model::histogram::{Histogram, ResetHint};
use varve_model::labels::{LABELS_SIZE_MAX, METRIC_NAME};
use varve_model::metadata::{Families, METADATA_SIZE_MAX, Metadata};
use varve_model::{Labels, MatchOp, Matcher, RejectionReason, Sample, SampleColumns, TimeRange};

use super::Db;
use crate::batch::WriteBatch;
use crate::chunk::histogram::{Layout, encode_counts};
use crate::error::{Error, Result};
use crate::isolation::changes::NameGroups;
use crate::options::{Options, WalSync};
use crate::read_context::ReadContext;
use crate::select::SelectHints;

const NOW_MS: i64 = 1_700_000_000_000;
const DATA: &str = "/data";

fn options() -> Options {
    Options {
        clock: Arc::new(ManualClock::at(NOW_MS)),
        wal_sync: WalSync::Never,
        background: false,
        ..Options::default()
    }
}

fn open(path: &Path) -> Db {
    Db::open(path, options()).unwrap()
}

/// Opens the store in the directory [`DATA`] of a disk.
fn open_on(fs: &MemFs, options: Options) -> Db {
    Db::open(
        DATA.as_ref(),
        Options {
            fs: Arc::new(fs.clone()),
            ..options
        },
    )
    .unwrap()
}

/// Opens a store in a new directory, which is removed with the returned guard.
fn fresh(options: Options) -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options).unwrap();
    (dir, db)
}

fn series_labels(i: usize) -> Labels {
    Labels::from_pairs([(METRIC_NAME, "m"), ("i", &*i.to_string())]).unwrap()
}

/// Appends samples `(series, timestamp, value)` as one request and returns the rejected ones.
fn append(db: &Db, samples: &[(usize, i64, f64)]) -> Vec<(u32, RejectionReason)> {
    let mut batch = WriteBatch::default();
    for (&(i, timestamp_ms, value), tag) in samples.iter().zip(0..) {
        batch.push(
            db.series(&series_labels(i)).unwrap(),
            Sample {
                timestamp_ms,
                value,
            },
            tag,
        );
    }
    db.append(&mut batch).unwrap();
    let mut rejected: Vec<_> = batch
        .rejected()
        .iter()
        .map(|r| (r.index, r.reason))
        .collect();
    rejected.sort_unstable();
    rejected
}

#[test]
fn an_append_announces_a_sync_that_it_waits_for() {
    let announced = |wal_sync| {
        let (_dir, db) = fresh(Options {
            wal_sync,
            ..options()
        });
        let (mut batch, mut n_calls) = (WriteBatch::default(), 0);
        batch.push(
            db.series(&series_labels(1)).unwrap(),
            Sample {
                timestamp_ms: NOW_MS,
                value: 1.0,
            },
            0,
        );
        db.append_with(&mut batch, || n_calls += 1).unwrap();
        assert!(batch.rejected().is_empty());
        n_calls
    };
    assert_eq!(
        [WalSync::Always, WalSync::Interval, WalSync::Never].map(announced),
        [1, 0, 0]
    );
}

/// Timestamps, and the bits of floats or the fingerprints of histograms.
type Contents = BTreeMap<String, Vec<(i64, u64)>>;

/// Returns a hash that is equal for two histograms if and, except with a probability of 2^-64, only
/// if they are equal.
fn fingerprint(histogram: &Histogram) -> u64 {
    let mut bytes = Vec::new();
    Layout::of(histogram).encode(&mut bytes);
    encode_counts(
        &Histogram {
            reset_hint: ResetHint::Unknown,
            ..histogram.clone()
        },
        &mut bytes,
    );
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

fn contents(db: &Db, matchers: &[Matcher], range: TimeRange) -> Contents {
    let mut all = Contents::new();
    for series in db
        .select(&ReadContext::unbounded(), matchers, range)
        .unwrap()
    {
        let series = series.unwrap();
        let mut columns = SampleColumns::default();
        series.read(&mut columns).unwrap();
        if !columns.is_empty() {
            let bits = |idx| match columns.histogram(idx) {
                None => columns.values[idx].to_bits(),
                Some(histogram) => fingerprint(histogram),
            };
            let samples = columns
                .timestamps_ms
                .iter()
                .enumerate()
                .map(|(idx, &t)| (t, bits(idx)))
                .collect();
            assert!(
                all.insert(series.labels().to_string(), samples).is_none(),
                "a series is returned once"
            );
        }
    }
    all
}

fn everything(db: &Db) -> Contents {
    contents(db, &[], TimeRange::ALL)
}

fn wal_files(fs: &dyn Fs, path: &Path, kind: &str) -> Vec<PathBuf> {
    let below = |dir: PathBuf| {
        fs.list(&dir)
            .unwrap()
            .into_iter()
            .map(move |name| dir.join(name))
    };
    let files = below(path.join("wal")).flat_map(below).flat_map(below);
    files
        .filter(|file| {
            file.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(kind)
        })
        .collect()
}

/// Out-of-order samples are accepted for half an hour by default. Without an out-of-order window
/// the bounds are the same as in Prometheus.
#[test]
fn samples_are_checked_against_the_newest_one_and_the_clock() {
    use RejectionReason::{Duplicate, OutOfBounds, OutOfOrder, TooFarInFuture, TooOld};
    let (t, hour) = (NOW_MS, 3_600_000);
    let nan = f64::from_bits(varve_model::staleness::STALE_NAN_BITS);
    let samples = [
        (0, t, 1.0),
        (0, t, 2.0),
        (0, t - 1, 1.0),
        (1, t - hour, 1.0),
        (1, t - hour - 1, 1.0),
        (2, t - hour - 1, 1.0),
        (2, t - hour, 1.0),
        (3, t + 600_001, 1.0),
        (3, t + 600_000, nan),
        (3, t + 600_000, nan),
    ];
    let with_window = [
        (1, Duplicate),
        (3, TooOld),
        (4, TooOld),
        (7, TooFarInFuture),
    ];
    let without = [
        (1, Duplicate),
        (2, OutOfOrder),
        (3, OutOfOrder),
        (4, OutOfBounds),
        (5, OutOfBounds),
        (7, TooFarInFuture),
    ];
    for (window, expected) in [(30 * 60_000, &with_window[..]), (0, &without)] {
        let (_dir, db) = fresh(Options {
            out_of_order_window_ms: window,
            ..options()
        });
        assert_eq!(append(&db, &[(0, t, 1.0), (1, t - 10, 1.0)]), []);
        assert_eq!(append(&db, &samples), expected, "window {window}");
        assert_eq!(
            everything(&db)[&series_labels(3).to_string()],
            [(t + 600_000, varve_model::staleness::STALE_NAN_BITS)]
        );
    }
}

/// A sender that missed the response repeats its request. Samples that the store already has are
/// accepted, however old, and stored once.
#[test]
fn a_request_with_several_samples_of_a_series_can_be_repeated() {
    let (_dir, db) = fresh(options());
    let samples: Vec<_> = (0..1000)
        .map(|i| (0, NOW_MS - 4_000_000 + i * 4000, i as f64))
        .collect();
    for _ in 0..2 {
        assert_eq!(append(&db, &samples), []);
        assert_eq!(everything(&db).values().map(Vec::len).sum::<usize>(), 1000);
    }
    let other = append(
        &db,
        &[(0, NOW_MS - 4_000_000, 0.5), (0, NOW_MS - 3_999_999, 0.0)],
    );
    assert_eq!(
        other,
        [
            (0, RejectionReason::Duplicate),
            (1, RejectionReason::TooOld)
        ]
    );
}

/// A rule writes many samples at once. Head and log have them in the same order: the first of two
/// values stays.
#[test]
fn many_samples_of_this_process_are_appended_in_parts() {
    const N_SERIES: usize = 3000;
    let dir = tempfile::tempdir().unwrap();
    let (db, mut batch) = (open(dir.path()), WriteBatch::own());
    let handles: Vec<_> = (0..N_SERIES)
        .map(|i| db.series(&series_labels(i)).unwrap())
        .collect();
    let samples = handles.iter().cycle().take(2 * N_SERIES + 1).zip(0..);
    for (&series, tag) in samples {
        // The last sample repeats the time of the first one.
        let of_round = i64::from(tag) % (2 * N_SERIES as i64) / N_SERIES as i64;
        batch.push(
            series,
            Sample {
                timestamp_ms: NOW_MS + of_round,
                value: f64::from(tag),
            },
            tag,
        );
    }
    let shard_batch = batch.shard_batch(0).unwrap();
    let parts: Vec<_> = (0..)
        .map_while(|idx| shard_batch.part(idx, 256))
        .map(|part| part.floats.len())
        .collect();
    let (last, full) = parts.split_last().unwrap();
    assert!(
        full.len() > 1 && full.iter().all(|&n| n == 256) && (1..=256).contains(last),
        "{parts:?}"
    );
    assert_eq!(parts.iter().sum::<usize>(), shard_batch.floats.len());
    db.append(&mut batch).unwrap();
    let rejected: Vec<_> = batch
        .rejected()
        .iter()
        .map(|rejected| (rejected.index, rejected.reason))
        .collect();
    assert_eq!(
        rejected,
        [(2 * N_SERIES as u32, RejectionReason::Duplicate)]
    );
    let bits = |value: usize| (value as f64).to_bits();
    let expect: Contents = (0..N_SERIES)
        .map(|i| {
            (
                series_labels(i).to_string(),
                vec![(NOW_MS, bits(i)), (NOW_MS + 1, bits(N_SERIES + i))],
            )
        })
        .collect();
    assert_eq!(everything(&db), expect);
    drop(db);
    assert_eq!(everything(&open(dir.path())), expect);
}

/// Prometheus 3.16 accepts them too, if they arrive as several series with equal labels.
#[test]
fn floats_and_histograms_of_a_series_are_appended_in_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(
        dir.path(),
        Options {
            out_of_order_window_ms: 0,
            ..options()
        },
    )
    .unwrap();
    let others = [1, 2].map(|i| db.series(&series_labels(i)).unwrap());
    let series = db.series(&series_labels(0)).unwrap();
    let append = |samples: &str| {
        let mut batch = WriteBatch::default();
        for (tag, sample) in (0..).zip(samples.split(' ')) {
            let (kind, offset) = sample.split_at(1);
            let timestamp_ms = NOW_MS + offset.parse::<i64>().unwrap();
            let value = f64::from(tag);
            for handle in [others[0], series, others[1]] {
                match kind {
                    "f" => batch.push(
                        handle,
                        Sample {
                            timestamp_ms,
                            value,
                        },
                        tag,
                    ),
                    _ => {
                        let histogram = Arc::new(Histogram {
                            sum: value,
                            ..Histogram::default()
                        });
                        batch.push_histogram(handle, timestamp_ms, histogram, tag);
                    }
                }
            }
        }
        db.append(&mut batch).unwrap();
        let mut rejected: Vec<_> = batch
            .rejected()
            .iter()
            .map(|rejected| (rejected.index, rejected.reason))
            .collect();
        rejected.sort_unstable();
        rejected.dedup();
        rejected
    };
    for (samples, rejected) in [
        ("f1 f3 h2 h4", &[][..]),
        ("h5 f6 h7 f8 h10 h9", &[]),
        ("h15 h14 h13 f12 f16 h17", &[]),
        // At one timestamp, the first sample of the request wins.
        ("f20 h20", &[(1, RejectionReason::Duplicate)]),
        ("h21 f21", &[(1, RejectionReason::Duplicate)]),
        (
            "f22 h22 f23 h19",
            &[
                (1, RejectionReason::Duplicate),
                (3, RejectionReason::OutOfOrder),
            ],
        ),
        ("h18", &[(0, RejectionReason::OutOfOrder)]),
    ] {
        assert_eq!(append(samples), rejected, "{samples}");
    }
    let stored = |db: &Db| {
        let print = |found: Result<crate::select::Series>| {
            let mut columns = SampleColumns::default();
            found.unwrap().read(&mut columns).unwrap();
            let kind = |idx| {
                if columns.histogram(idx).is_some() {
                    'h'
                } else {
                    'f'
                }
            };
            let samples = columns.timestamps_ms.iter().enumerate();
            samples
                .map(|(idx, t)| format!("{}{}", kind(idx), t - NOW_MS))
                .collect::<Vec<_>>()
                .join(" ")
        };
        db.select(&ReadContext::unbounded(), &[], TimeRange::ALL)
            .unwrap()
            .map(print)
            .collect::<Vec<_>>()
    };
    let expect = "f1 h2 f3 h4 h5 f6 h7 f8 h9 h10 f12 h13 h14 h15 f16 h17 f20 h21 f22 f23";
    assert_eq!(stored(&db), [expect; 3]);
    drop(db);
    let db = Db::open(dir.path(), options()).unwrap();
    assert_eq!(stored(&db), [expect; 3], "after a replay");
}

#[test]
fn a_second_process_is_rejected() {
    let (dir, db) = fresh(options());
    assert!(matches!(
        Db::open(dir.path(), options()),
        Err(Error::Locked { .. })
    ));
    drop(db);
    open(dir.path());
}

#[test]
fn options_out_of_bounds_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    for shards in [0, 3, 512] {
        let refused = Db::open(
            dir.path(),
            Options {
                shards,
                ..options()
            },
        )
        .unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("number of shards is {shards}, must be a power of two from 1 to 256")
        );
    }
}

#[test]
fn selections_are_sorted_by_labels_and_omit_series_without_samples_in_range() {
    let (_dir, db) = fresh(Options {
        shards: 4,
        ..options()
    });
    let samples: Vec<_> = (0..300)
        .map(|i| (i, NOW_MS + (i % 2) as i64, i as f64))
        .collect();
    append(&db, &samples[..200]);
    db.flush().unwrap();
    append(&db, &samples[200..]);
    let range = TimeRange {
        start_ms: NOW_MS + 1,
        end_ms: i64::MAX,
    };
    let set = db.select(&ReadContext::unbounded(), &[], range).unwrap();
    let labels: Vec<_> = set.map(|series| series.unwrap().labels().clone()).collect();
    let mut expected: Vec<_> = (0..300).filter(|i| i % 2 == 1).map(series_labels).collect();
    expected.sort_unstable();
    assert_eq!(labels, expected);
}

#[test]
fn label_names_and_values_of_all_shards_are_sorted() {
    let (_dir, db) = fresh(Options {
        shards: 4,
        ..options()
    });
    append(&db, &(0..20).map(|i| (i, NOW_MS, 0.0)).collect::<Vec<_>>());
    let ctx = ReadContext::unbounded();
    let names = db.label_names(&ctx, &[], TimeRange::ALL).unwrap();
    assert_eq!(names.iter().collect::<Vec<_>>(), [METRIC_NAME, "i"]);
    let some = [Matcher::new(MatchOp::Regexp, "i", "1.").unwrap()];
    let values = db.label_values(&ctx, "i", &some, TimeRange::ALL).unwrap();
    assert_eq!(
        values.iter().collect::<Vec<_>>(),
        (10..20).map(|i| i.to_string()).collect::<Vec<_>>()
    );
    let elsewhere = TimeRange {
        start_ms: 0,
        end_ms: NOW_MS - 1,
    };
    assert!(
        db.label_values(&ctx, "i", &[], elsewhere)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn an_interrupted_request_frees_its_memory() {
    let (_dir, db) = fresh(options());
    append(
        &db,
        &(0..1000).map(|i| (i, NOW_MS, 0.0)).collect::<Vec<_>>(),
    );
    let request = |size_max| {
        let budget = varve_context::MemoryBudget::new(Limit::Other("memory"), size_max);
        (
            ReadContext::unrestricted(QueryContext::new(
                std::time::Duration::from_secs(60),
                budget.clone(),
            )),
            budget,
        )
    };
    let (ctx, budget) = request(20_000);
    assert!(matches!(
        db.select(&ctx, &[], TimeRange::ALL),
        Err(Error::Limit { .. })
    ));
    assert_eq!(budget.used(), 0);
    let (ctx, budget) = request(1_000_000);
    let mut set = db.select(&ctx, &[], TimeRange::ALL).unwrap();
    assert!(set.next().unwrap().is_ok());
    assert!(budget.used() > 0);
    ctx.interrupt(varve_context::Interrupt::Canceled);
    let rest: Vec<_> = set.by_ref().collect();
    assert!(matches!(
        rest.last(),
        Some(Err(Error::Interrupted(varve_context::Interrupt::Canceled)))
    ));
    drop((set, rest));
    assert_eq!(budget.used(), 0);
}

#[test]
fn metadata_survives_a_restart_and_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let gauge = |help: &str| Metadata {
        kind: "gauge".into(),
        help: help.into(),
        unit: String::new(),
    };
    let db = open(dir.path());
    db.set_metadata([("up", gauge("old")), ("up", gauge("new"))])
        .unwrap();
    let large = gauge(&"x".repeat(METADATA_SIZE_MAX));
    assert!(matches!(
        db.set_metadata([("large", large)]),
        Err(Error::Limit { .. })
    ));
    drop(db);
    assert_eq!(
        *open(dir.path()).metadata(),
        Families::from([("up".into(), gauge("new").into())])
    );
}

#[test]
fn metadata_above_its_limit_is_evicted_also_by_a_replay() {
    // A flush writes the metadata to a checkpoint.
    for is_flushed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let open = |size| {
            Db::open(
                dir.path(),
                Options {
                    metadata_size_max_bytes: size,
                    ..options()
                },
            )
            .unwrap()
        };
        let db = open(10_000);
        let names: Vec<_> = (0..1000).rev().map(|i| format!("m{i:03}")).collect();
        let help = Metadata {
            help: "h".repeat(100),
            ..Metadata::default()
        };
        db.set_metadata(names.iter().map(|name| (name.as_str(), help.clone())))
            .unwrap();
        let stats = db.stats().metadata;
        assert_eq!((stats.n_families, stats.n_evicted), (27, 973));
        assert!(stats.size_bytes <= 10_000 && db.metadata().contains_key("m000"));
        if is_flushed {
            db.flush().unwrap();
        }
        drop(db);
        let db = open(1000);
        assert_eq!(
            db.metadata().keys().map(|name| &**name).collect::<Vec<_>>(),
            ["m000", "m001"],
            "{is_flushed}"
        );
    }
}

#[test]
fn the_head_is_bounded() {
    let (_dir, db) = fresh(Options {
        head_size_max_bytes: 4_000_000,
        ..options()
    });
    let refused = (0..100_000)
        .find_map(|i| db.series(&series_labels(i)).err())
        .unwrap();
    assert!(
        refused
            .to_string()
            .starts_with("bytes in the head of a shard: "),
        "{refused}"
    );
    assert!((2000..80_000).contains(&db.stats().n_series));
    assert_eq!(
        append(&db, &[(0, NOW_MS, 1.0)]),
        [],
        "samples of known series are rejected last"
    );
    let large = Labels::from_pairs([("x", &*"x".repeat(LABELS_SIZE_MAX))]).unwrap();
    assert!(matches!(db.series(&large), Err(Error::Limit { .. })));
}

#[test]
fn full_heads_are_the_reason_why_writes_are_rejected() {
    let (_dir, db) = fresh(Options {
        head_size_max_bytes: 4_000_000,
        ..options()
    });
    let n_series = (0..100_000)
        .find(|&i| db.series(&series_labels(i)).is_err())
        .unwrap();
    assert_eq!(db.write_refusals(), Vec::<String>::new());
    let rejected = (0..10_000).find_map(|step| {
        let mut batch = WriteBatch::default();
        for i in 0..n_series {
            let sample = Sample {
                timestamp_ms: NOW_MS + step,
                value: (step * 31 + i as i64).pow(3) as f64 / 7.0,
            };
            batch.push(db.series(&series_labels(i)).unwrap(), sample, 0);
        }
        db.append(&mut batch).err()
    });
    let full = db.write_refusals();
    assert_eq!(full.len(), 1, "{full:?}");
    let prefix = "bytes in the head of a shard: ";
    assert!(full[0].starts_with(prefix), "{full:?}");
    assert!(rejected.unwrap().to_string().starts_with(prefix));
}

#[test]
fn a_torn_tail_loses_only_the_record_being_written() {
    let (dir, db) = fresh(options());
    (0..3).for_each(|i| assert_eq!(append(&db, &[(0, NOW_MS + i, i as f64)]), []));
    let before = everything(&db);
    drop(db);
    let file = wal_files(&RealFs, dir.path(), "samples-").pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    // The last frame: header, count, flags, ref, time, value.
    let last_frame = 12 + 1 + 1 + 1 + 6 + 1;
    for cut in 1..last_frame + 5 {
        std::fs::write(&file, &whole[..whole.len() - cut]).unwrap();
        let db = open(dir.path());
        let n_lost = if cut <= last_frame { 1 } else { 2 };
        assert_eq!(
            everything(&db).values().map(Vec::len).sum::<usize>(),
            3 - n_lost,
            "cut {cut}"
        );
        assert_eq!(append(&db, &[(0, NOW_MS + 3, 3.0)]), []);
        let after = everything(&db);
        drop(db);
        assert_eq!(
            everything(&open(dir.path())),
            after,
            "cut {cut}: records after the tear are kept"
        );
        for newer in wal_files(&RealFs, dir.path(), "samples-")
            .iter()
            .filter(|f| **f != file)
        {
            std::fs::remove_file(newer).unwrap();
        }
    }
    std::fs::write(&file, whole).unwrap();
    assert_eq!(everything(&open(dir.path())), before);
}

#[test]
fn damage_in_the_middle_is_skipped_counted_and_quarantined() {
    let (dir, db) = fresh(options());
    (0..5).for_each(|i| assert_eq!(append(&db, &[(0, NOW_MS + i, i as f64)]), []));
    drop(db);
    let file = wal_files(&RealFs, dir.path(), "samples-").pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    for _ in 0..2 {
        let db = open(dir.path());
        assert_eq!(everything(&db).values().map(Vec::len).sum::<usize>(), 4);
        assert_eq!(db.stats().replayed.damaged_bytes, 22);
        assert_eq!(
            RealFs.list(&dir.path().join("quarantine")).unwrap().len(),
            1
        );
    }
}

#[test]
fn samples_without_a_definition_are_counted_and_their_ref_is_not_reused() {
    let (dir, db) = fresh(options());
    append(&db, &[(0, NOW_MS, 1.0), (1, NOW_MS, 2.0)]);
    drop(db);
    std::fs::remove_file(&wal_files(&RealFs, dir.path(), "series-")[0]).unwrap();
    let db = open(dir.path());
    assert_eq!(
        (db.stats().replayed.n_unknown_samples, db.stats().n_series),
        (2, 0)
    );
    append(&db, &[(2, NOW_MS + 1, 3.0)]);
    drop(db);
    let expected = Contents::from([(
        series_labels(2).to_string(),
        vec![(NOW_MS + 1, 3.0_f64.to_bits())],
    )]);
    assert_eq!(everything(&open(dir.path())), expected);
}

/// Acknowledging a repetition while the first attempt waits for disk space would be wrong.
#[test]
fn a_repeated_sample_is_acknowledged_only_when_the_first_attempt_is_on_the_disk() {
    let fs = MemFs::new();
    let db = open_on(&fs, options());
    append(&db, &[(0, NOW_MS, 1.0)]);
    fs.set_room(10);
    let mut batch = WriteBatch::default();
    batch.push(
        db.series(&series_labels(0)).unwrap(),
        Sample {
            timestamp_ms: NOW_MS + 1,
            value: 2.0,
        },
        0,
    );
    for _ in 0..3 {
        assert!(matches!(
            db.append(&mut batch),
            Err(Error::Io { op: "write", .. })
        ));
    }
    fs.set_room(u64::MAX);
    db.append(&mut batch).unwrap();
    assert_eq!(batch.rejected().len(), 0);
    drop(db);
    assert_eq!(
        everything(&open_on(&fs, options()))
            .values()
            .map(Vec::len)
            .sum::<usize>(),
        2
    );
}
