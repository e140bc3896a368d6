//! A whole store: against a model, over restarts, damage and full disks.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::fs::{FaultFs, ManualClock, RealFs};
use crate::{Fs, METRIC_NAME, MatchOp, RejectReason, Sample, SampleColumns};

const NOW_MS: i64 = 1_700_000_000_000;

fn options() -> Options {
    Options { clock: Arc::new(ManualClock::at(NOW_MS)), wal_sync: WalSync::Never, ..Options::default() }
}

fn open(path: &Path) -> Db {
    Db::open(path, options()).unwrap()
}

fn series_labels(i: usize) -> Labels {
    Labels::from_pairs([(METRIC_NAME, "m"), ("i", &*i.to_string())]).unwrap()
}

/// Appends samples `(series, time, value)` as one request and returns what was rejected.
fn append(db: &Db, samples: &[(usize, i64, f64)]) -> Vec<(u32, RejectReason)> {
    let mut batch = WriteBatch::default();
    for (&(i, timestamp_ms, value), tag) in samples.iter().zip(0..) {
        batch.push(db.series(&series_labels(i)).unwrap(), Sample { timestamp_ms, value }, tag);
    }
    db.append(&mut batch).unwrap();
    let mut rejected: Vec<_> = batch.rejected().iter().map(|r| (r.tag, r.reason)).collect();
    rejected.sort_unstable();
    rejected
}

type Contents = BTreeMap<String, Vec<(i64, u64)>>;

fn contents(db: &Db, matchers: &[Matcher], range: TimeRange, order: Order) -> Contents {
    let mut all = Contents::new();
    for series in db.select(&QueryContext::unbounded(), matchers, range, order).unwrap() {
        let series = series.unwrap();
        let mut columns = SampleColumns::default();
        series.read(&mut columns).unwrap();
        if !columns.is_empty() {
            let samples = columns.iter().map(|s| (s.timestamp_ms, s.value.to_bits())).collect();
            assert!(all.insert(series.labels().to_string(), samples).is_none(), "a series comes once");
        }
    }
    all
}

fn everything(db: &Db) -> Contents {
    contents(db, &[], TimeRange::ALL, Order::Any)
}

fn wal_files(path: &Path, kind: &str) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for epoch in std::fs::read_dir(path.join("wal")).unwrap() {
        for shard in std::fs::read_dir(epoch.unwrap().path()).unwrap() {
            for file in std::fs::read_dir(shard.unwrap().path()).unwrap() {
                files.push(file.unwrap().path());
            }
        }
    }
    files.retain(|f| f.file_name().unwrap().to_str().unwrap().starts_with(kind));
    files.sort();
    files
}

#[test]
fn samples_are_checked_as_prometheus_checks_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let (t, hour) = (NOW_MS, 3_600_000);
    assert_eq!(append(&db, &[(0, t, 1.0), (1, t - 10, 1.0)]), []);
    let nan = f64::from_bits(crate::STALE_NAN_BITS);
    let rejected = append(
        &db,
        &[
            (0, t, 1.0),
            (0, t, 2.0),
            (0, t - 1, 1.0),
            (1, t - 3 * hour - 1, 1.0),
            (2, t - 3 * hour - 1, 1.0),
            (2, t - 3 * hour, 1.0),
            (3, t + 600_001, 1.0),
            (3, t + 600_000, nan),
            (3, t + 600_000, nan),
        ],
    );
    use RejectReason::{Duplicate, OutOfBounds, OutOfOrder, TooFarInFuture};
    let expected = [(1, Duplicate), (2, OutOfOrder), (3, OutOfBounds), (4, OutOfBounds), (6, TooFarInFuture)];
    assert_eq!(rejected, expected);
    assert_eq!(everything(&db)[&series_labels(3).to_string()], [(t + 600_000, crate::STALE_NAN_BITS)]);
}

/// A sender that did not hear the answer repeats its request: what is there is accepted, however old, and stored once.
#[test]
fn a_request_with_several_samples_of_a_series_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let samples: Vec<_> = (0..1000).map(|i| (0, NOW_MS - 4_000_000 + i * 4000, i as f64)).collect();
    for _ in 0..2 {
        assert_eq!(append(&db, &samples), []);
        assert_eq!(everything(&db).values().map(Vec::len).sum::<usize>(), 1000);
    }
    let other = append(&db, &[(0, NOW_MS - 4_000_000, 0.5), (0, NOW_MS - 3_999_999, 0.0)]);
    assert_eq!(other, [(0, RejectReason::OutOfOrder), (1, RejectReason::OutOfOrder)]);
}

#[test]
fn a_second_process_is_kept_out() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    assert!(matches!(Db::open(dir.path(), options()), Err(Error::Locked { .. })));
    drop(db);
    open(dir.path());
}

#[test]
fn options_out_of_bounds_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for shards in [0, 3, 512] {
        let refused = Db::open(dir.path(), Options { shards, ..options() }).unwrap_err();
        assert_eq!(refused.to_string(), format!("number of shards is {shards}, must be a power of two from 1 to 256"));
    }
}

#[test]
fn selections_by_label_order_come_sorted_and_series_without_samples_in_range_stay_out() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options { shards: 4, ..options() }).unwrap();
    let samples: Vec<_> = (0..300).map(|i| (i, NOW_MS + (i % 2) as i64, i as f64)).collect();
    append(&db, &samples);
    let range = TimeRange { start_ms: NOW_MS + 1, end_ms: i64::MAX };
    for order in [Order::Any, Order::Labels] {
        let set = db.select(&QueryContext::unbounded(), &[], range, order).unwrap();
        let mut labels: Vec<_> = set.map(|series| series.unwrap().labels().clone()).collect();
        if order == Order::Any {
            labels.sort_unstable();
        }
        let mut expected: Vec<_> = (0..300).filter(|i| i % 2 == 1).map(series_labels).collect();
        expected.sort_unstable();
        assert_eq!(labels, expected, "{order:?}");
    }
}

#[test]
fn label_names_and_values_come_sorted_from_all_shards() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options { shards: 4, ..options() }).unwrap();
    append(&db, &(0..20).map(|i| (i, NOW_MS, 0.0)).collect::<Vec<_>>());
    let ctx = QueryContext::unbounded();
    let names = db.label_names(&ctx, &[], TimeRange::ALL).unwrap();
    assert_eq!(names.iter().collect::<Vec<_>>(), [METRIC_NAME, "i"]);
    let some = [Matcher::new(MatchOp::Regexp, "i", "1.").unwrap()];
    let values = db.label_values(&ctx, "i", &some, TimeRange::ALL).unwrap();
    assert_eq!(values.iter().collect::<Vec<_>>(), (10..20).map(|i| i.to_string()).collect::<Vec<_>>());
    let elsewhere = TimeRange { start_ms: 0, end_ms: NOW_MS - 1 };
    assert!(db.label_values(&ctx, "i", &[], elsewhere).unwrap().is_empty());
}

#[test]
fn a_request_that_ends_gives_its_memory_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    append(&db, &(0..1000).map(|i| (i, NOW_MS, 0.0)).collect::<Vec<_>>());
    let budget = crate::MemoryBudget::new("memory", 50_000);
    let ctx = QueryContext::new(std::time::Duration::from_secs(60), budget.clone());
    assert!(matches!(db.select(&ctx, &[], TimeRange::ALL, Order::Labels), Err(Error::Limit { .. })));
    let mut set = db.select(&ctx, &[], TimeRange::ALL, Order::Any).unwrap();
    assert!(set.next().unwrap().is_ok());
    assert!(budget.used() > 0);
    ctx.interrupt(crate::Interrupt::Canceled);
    let rest: Vec<_> = set.by_ref().collect();
    assert!(matches!(rest.last(), Some(Err(Error::Interrupted(crate::Interrupt::Canceled)))));
    drop((set, rest));
    assert_eq!(budget.used(), 0);
}

#[test]
fn metadata_survives_a_restart_and_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let gauge = |help: &str| Metadata { kind: "gauge".into(), help: help.into(), unit: String::new() };
    let db = open(dir.path());
    db.set_metadata([("up", gauge("old")), ("up", gauge("new"))]).unwrap();
    let large = gauge(&"x".repeat(METADATA_SIZE_MAX));
    assert!(matches!(db.set_metadata([("large", large)]), Err(Error::Limit { .. })));
    drop(db);
    assert_eq!(*open(dir.path()).metadata(), BTreeMap::from([("up".to_owned(), gauge("new"))]));
}

#[test]
fn the_head_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options { head_size_max_bytes: 100_000, ..options() }).unwrap();
    let refused = (0..10_000).find_map(|i| db.series(&series_labels(i)).err()).unwrap();
    assert!(refused.to_string().starts_with("bytes of a shard's series and samples in memory: "), "{refused}");
    assert!((50..2000).contains(&db.stats().n_series));
    let large = Labels::from_pairs([("x", &*"x".repeat(LABELS_SIZE_MAX))]).unwrap();
    assert!(matches!(db.series(&large), Err(Error::Limit { .. })));
}

#[test]
fn a_torn_tail_costs_what_was_being_written_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    (0..3).for_each(|i| assert_eq!(append(&db, &[(0, NOW_MS + i, i as f64)]), []));
    let before = everything(&db);
    drop(db);
    let file = wal_files(dir.path(), "samples-").pop().unwrap();
    let whole = std::fs::read(&file).unwrap();
    // The last frame: header, count, ref, mode, time, value.
    let last_frame = 24 + 1 + 1 + 1 + 6 + 1;
    for cut in 1..last_frame + 5 {
        std::fs::write(&file, &whole[..whole.len() - cut]).unwrap();
        let db = open(dir.path());
        let n_lost = if cut <= last_frame { 1 } else { 2 };
        assert_eq!(everything(&db).values().map(Vec::len).sum::<usize>(), 3 - n_lost, "cut {cut}");
        assert_eq!(append(&db, &[(0, NOW_MS + 3, 3.0)]), []);
        let after = everything(&db);
        drop(db);
        assert_eq!(everything(&open(dir.path())), after, "cut {cut}: what came after the tear is kept");
        for newer in wal_files(dir.path(), "samples-").iter().filter(|f| **f != file) {
            std::fs::remove_file(newer).unwrap();
        }
    }
    std::fs::write(&file, whole).unwrap();
    assert_eq!(everything(&open(dir.path())), before);
}

#[test]
fn damage_in_the_middle_is_skipped_counted_and_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    (0..5).for_each(|i| assert_eq!(append(&db, &[(0, NOW_MS + i, i as f64)]), []));
    drop(db);
    let file = wal_files(dir.path(), "samples-").pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    for _ in 0..2 {
        let db = open(dir.path());
        assert_eq!(everything(&db).values().map(Vec::len).sum::<usize>(), 4);
        assert_eq!(db.stats().replayed.damaged_bytes, 34);
        assert_eq!(RealFs.list(&dir.path().join("quarantine")).unwrap().len(), 1);
    }
}

#[test]
fn samples_whose_definition_is_gone_are_counted_and_their_number_is_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    append(&db, &[(0, NOW_MS, 1.0), (1, NOW_MS, 2.0)]);
    drop(db);
    std::fs::remove_file(&wal_files(dir.path(), "series-")[0]).unwrap();
    let db = open(dir.path());
    assert_eq!((db.stats().replayed.n_orphaned, db.stats().n_series), (2, 0));
    append(&db, &[(2, NOW_MS + 1, 3.0)]);
    drop(db);
    let expected = Contents::from([(series_labels(2).to_string(), vec![(NOW_MS + 1, 3.0_f64.to_bits())])]);
    assert_eq!(everything(&open(dir.path())), expected);
}

#[test]
fn a_segment_of_a_newer_version_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop({
        let db = open(dir.path());
        append(&db, &[(0, NOW_MS, 1.0)]);
        db
    });
    let file = wal_files(dir.path(), "samples-").pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4] = 9;
    let crc = crc32c::crc32c(&bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&file, &bytes).unwrap();
    assert!(matches!(Db::open(dir.path(), options()), Err(Error::Version { found: 9, supported: 1, .. })));
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
}

/// A repetition that is answered "accepted" while the first attempt waits for room on the disk would lie.
#[test]
fn a_repeated_sample_is_acknowledged_only_when_the_first_attempt_is_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let fs = FaultFs::with_room(u64::MAX);
    let db = Db::open(dir.path(), Options { fs: Arc::new(fs.clone()), ..options() }).unwrap();
    append(&db, &[(0, NOW_MS, 1.0)]);
    fs.set_room(10);
    let mut batch = WriteBatch::default();
    batch.push(db.series(&series_labels(0)).unwrap(), Sample { timestamp_ms: NOW_MS + 1, value: 2.0 }, 0);
    for _ in 0..3 {
        assert!(matches!(db.append(&mut batch), Err(Error::Io { op: "write", .. })));
    }
    fs.set_room(u64::MAX);
    db.append(&mut batch).unwrap();
    assert_eq!(batch.rejected().len(), 0);
    drop(db);
    assert_eq!(everything(&open(dir.path())).values().map(Vec::len).sum::<usize>(), 2);
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<(usize, i64, u64)>),
    Reopen { shards: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let bits = prop_oneof![any::<u64>(), (0..5_u64).prop_map(|i| (i as f64).to_bits())];
    let sample = (0..12_usize, 0..400_i64, bits);
    prop_oneof![
        6 => proptest::collection::vec(sample, 0..60).prop_map(Step::Append),
        1 => (0..4_u32).prop_map(|i| Step::Reopen { shards: 1 << i }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A store is a map from series to samples, whatever restarts and changes of the number of shards come between.
    #[test]
    fn a_store_is_a_map(steps in proptest::collection::vec(step(), 1..25), start_ms in 0..400_i64, len_ms in 0..400_i64) {
        let dir = tempfile::tempdir().unwrap();
        let mut shards = 1;
        let reopen = |shards| Db::open(dir.path(), Options {
            shards, wal_segment_size_bytes: 4096, wal_replay_concurrency: 2, ..options()
        }).unwrap();
        let mut db = reopen(shards);
        let mut model: BTreeMap<usize, BTreeMap<i64, u64>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Append(samples) => {
                    let samples: Vec<_> = samples.into_iter().map(|(i, t, bits)| (i, NOW_MS + t, f64::from_bits(bits))).collect();
                    let mut expected = Vec::new();
                    for (&(i, t, value), tag) in samples.iter().zip(0..) {
                        let series = model.entry(i).or_default();
                        match series.last_key_value() {
                            Some((&last, &bits)) if last == t && bits != value.to_bits() => expected.push((tag, RejectReason::Duplicate)),
                            Some((&last, _)) if t < last => {
                                if series.get(&t) != Some(&value.to_bits()) { expected.push((tag, RejectReason::OutOfOrder)); }
                            }
                            _ => { series.insert(t, value.to_bits()); }
                        }
                    }
                    prop_assert_eq!(append(&db, &samples), expected);
                }
                Step::Reopen { shards: new } => {
                    drop(db);
                    shards = new;
                    db = reopen(shards);
                }
            }
        }
        let range = TimeRange { start_ms: NOW_MS + start_ms, end_ms: NOW_MS + start_ms + len_ms };
        for range in [TimeRange::ALL, range] {
            let expected: Contents = model.iter()
                .map(|(&i, samples)| (series_labels(i).to_string(), samples.iter()
                    .filter(|(t, _)| range.contains(**t)).map(|(&t, &bits)| (t, bits)).collect::<Vec<_>>()))
                .filter(|(_, samples)| !samples.is_empty()).collect();
            prop_assert_eq!(contents(&db, &[], range, Order::Any), expected.clone());
            prop_assert_eq!(contents(&db, &[], range, Order::Labels), expected);
        }
    }
}
