//! Power cuts and failing disks at every operation: data acknowledged under `always` survives,
//! nothing is duplicated, and deleted samples do not reappear.

mod blocks;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use varve_env::testing::{Fault, PowerCut};
use varve_model::Exemplar;
use varve_model::histogram::{BucketSpan, HistogramCounts};

use super::*;

const N_ROUNDS: i64 = 5;
const N_SERIES: usize = 6;

fn options(fs: &MemFs, shards: usize) -> Options {
    Options {
        shards,
        clock: Arc::new(ManualClock::at(NOW_MS + 3 * 86_400_000)),
        wal_sync: WalSync::Always,
        wal_segment_size_bytes: 4096,
        in_order_max_age_ms: 40 * 3_600_000,
        retention_ms: None,
        background: false,
        fs: Arc::new(fs.clone()),
        ..Options::default()
    }
}

/// The acknowledgements of a history.
#[derive(Debug, Default)]
struct Told {
    /// Acknowledged samples.
    stored: BTreeSet<(usize, i64)>,
    /// Timestamps of acknowledged exemplars.
    exemplars: BTreeSet<i64>,
    /// Samples sent.
    sent: BTreeSet<(usize, i64)>,
    /// Samples of an acknowledged deletion.
    deleted: BTreeSet<(usize, i64)>,
    /// Samples of an attempted deletion.
    maybe_deleted: BTreeSet<(usize, i64)>,
}

fn value(i: usize, t: i64) -> f64 {
    i as f64 + (t % 1_000_003) as f64 / 7.0
}

/// Returns the histogram of a sample, with the value as sum. Only some series have histograms.
fn histogram(i: usize, t: i64) -> Option<Histogram> {
    let counts = HistogramCounts::Integer {
        count: 9,
        zero_count: t.unsigned_abs() % 7,
        positive: vec![4, 5],
        negative: vec![],
    };
    let positive_spans = vec![BucketSpan {
        offset: 3,
        length: 2,
    }];
    let of = Histogram {
        sum: value(i, t),
        schema: 3,
        counts,
        positive_spans,
        ..Histogram::default()
    };
    (i >= N_SERIES - 2).then_some(of)
}

/// Returns the start timestamp of a sample. Some series have none, others lack it now and then.
fn start_of(i: usize, t: i64) -> i64 {
    if i < 2 {
        0
    } else {
        (t / 600_000 + i as i64) / 2 % 3 * 1000
    }
}

/// Writes, flushes, merges, deletes and reopens with another number of shards, until something
/// fails.
fn live(fs: &MemFs, told: &mut Told) -> Result<()> {
    for round in 0..N_ROUNDS {
        let db = Db::open(DATA.as_ref(), options(fs, 1 << (round % 2)))?;
        for part in 0..3 {
            let t = NOW_MS + round * 7_200_000 + part * 600_000;
            write(&db, t, told)?;
            if part == 1 {
                db.flush()?;
            }
        }
        if round == 2 {
            delete(&db, told)?;
        }
        db.compact()?;
        if round == 3 {
            db.clean_tombstones()?;
        }
    }
    let db = Db::open(DATA.as_ref(), options(fs, 2))?;
    db.compact_fully()
}

fn write(db: &Db, t: i64, told: &mut Told) -> Result<()> {
    let mut batch = WriteBatch::default();
    for i in 0..N_SERIES {
        let (handle, start_ms) = (db.series(&series_labels(i))?, start_of(i, t));
        match histogram(i, t) {
            None => batch.push_with_start(
                handle,
                Sample {
                    timestamp_ms: t,
                    value: value(i, t),
                },
                start_ms,
                0,
            ),
            Some(histogram) => {
                batch.push_histogram_with_start(handle, t, Arc::new(histogram), start_ms, 0)
            }
        }
        if i == 1 {
            batch.push_exemplar(
                handle,
                Exemplar {
                    labels: Labels::empty(),
                    value: 1.0,
                    timestamp_ms: t,
                },
                0,
            );
        }
        told.sent.insert((i, t));
    }
    db.append(&mut batch)?;
    assert_eq!(
        (batch.rejected().len(), batch.rejected_exemplars().len()),
        (0, 0)
    );
    told.exemplars.insert(t);
    told.stored.extend((0..N_SERIES).map(|i| (i, t)));
    Ok(())
}

/// Deletes all samples of series 0.
fn delete(db: &Db, told: &mut Told) -> Result<()> {
    let concerned: Vec<_> = told.sent.iter().copied().filter(|&(i, _)| i == 0).collect();
    told.maybe_deleted.extend(concerned.iter().copied());
    db.delete(vec![Matcher::equal("i", "0")], TimeRange::ALL)?;
    told.deleted.extend(concerned);
    Ok(())
}

/// Opens the disk after a crash, and compares it with the acknowledgements. Does so twice, as
/// opening changes files.
fn check(fs: &MemFs, told: &Told, case: &str) {
    for _ in 0..2 {
        let db = Db::open(DATA.as_ref(), options(fs, 2)).unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!(db.stats().n_damaged_blocks, 0, "{case}: a block is damaged");
        let found = found(&db);
        let bits = |&(i, t): &(usize, i64)| value(i, t).to_bits();
        assert!(
            told.exemplars.is_subset(&exemplars(&db)),
            "{case}: an exemplar was acknowledged and is lost"
        );
        for (key, (stored, start_ms)) in &found {
            assert!(told.sent.contains(key), "{case}: {key:?} was never sent");
            assert!(!told.deleted.contains(key), "{case}: {key:?} was deleted");
            assert_eq!(*stored, bits(key), "{case}: {key:?}");
            if told.stored.contains(key) {
                assert_eq!(
                    *start_ms,
                    start_of(key.0, key.1),
                    "{case}: the start of {key:?}"
                );
            }
        }
        for key in told.stored.difference(&told.maybe_deleted) {
            assert!(
                found.contains_key(key),
                "{case}: {key:?} was acknowledged and is lost"
            );
        }
        db.compact_fully().unwrap_or_else(|e| panic!("{case}: {e}"));
        db.clean_tombstones()
            .unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!(
            db.stats().blocks_samples,
            found.len() as u64,
            "{case}: samples are there twice"
        );
    }
}

/// Returns the timestamps of the exemplars of series 1, each of which must be unique.
fn exemplars(db: &Db) -> BTreeSet<i64> {
    let found = db
        .exemplars(
            &ReadContext::unbounded(),
            &[vec![Matcher::equal("i", "1")]],
            TimeRange::ALL,
        )
        .unwrap();
    let times: Vec<_> = found
        .series
        .iter()
        .flat_map(|one| &one.exemplars)
        .map(|e| e.timestamp_ms)
        .collect();
    assert!(times.is_sorted_by(|a, b| a < b), "an exemplar comes twice");
    times.into_iter().collect()
}

/// Returns bits and start timestamp of every sample.
fn found(db: &Db) -> BTreeMap<(usize, i64), (u64, i64)> {
    let mut found = BTreeMap::new();
    for series in db
        .select(&ReadContext::unbounded(), &[], TimeRange::ALL)
        .unwrap()
    {
        let series = series.unwrap();
        let i = series.labels().get("i").unwrap().parse().unwrap();
        let mut samples = SampleColumns::default();
        series.read(&mut samples).unwrap();
        for (idx, sample) in samples.iter().enumerate() {
            let of = samples.histogram(idx).map(|of| fingerprint(of));
            assert_eq!(
                of,
                histogram(i, sample.timestamp_ms).as_ref().map(fingerprint),
                "{i} at {}",
                sample.timestamp_ms
            );
            let of_sample = (sample.value.to_bits(), samples.start_ms(idx));
            assert_eq!(
                found.insert((i, sample.timestamp_ms), of_sample),
                None,
                "a sample comes twice"
            );
        }
    }
    found
}

/// Runs the history on a disk with one failing operation, then cuts the power in several ways.
fn survive(operation: u64, fault: Fault, stride: u64) {
    let fs = MemFs::new();
    fs.fail_at(operation, fault);
    let mut told = Told::default();
    let ended = live(&fs, &mut told);
    let failed = fs.failed().unwrap_or_default();
    let cuts = [
        PowerCut::LosesAll,
        PowerCut::KeepsAll,
        PowerCut::Seeded(operation),
        PowerCut::Seeded(operation + stride),
    ];
    for cut in cuts {
        check(
            &fs.crash(cut),
            &told,
            &format!("{failed}, then {ended:?}, then {cut:?}"),
        );
    }
}

/// Writes right after each start, then cuts the power, before or after the end of the replay.
#[test]
fn power_cuts_during_replays_lose_and_duplicate_nothing() {
    for seed in 0..12 {
        for cut in [
            PowerCut::LosesAll,
            PowerCut::KeepsAll,
            PowerCut::Seeded(seed),
        ] {
            let (mut fs, mut told) = (MemFs::new(), Told::default());
            for round in 0..4 {
                let options = Options {
                    wal_replay_in_background: true,
                    ..options(&fs, 1 << ((round + seed) % 2))
                };
                let db = Db::open(DATA.as_ref(), options).unwrap();
                for part in 0..4 {
                    write(&db, NOW_MS + (4 * round as i64 + part) * 600_000, &mut told).unwrap();
                }
                fs = fs.crash(cut);
                check(
                    &fs.crash(PowerCut::KeepsAll),
                    &told,
                    &format!("round {round} of seed {seed}, {cut:?}"),
                );
            }
        }
    }
}

/// Samples used to be lost with the definition of their series, and repeated ones because they were
/// not logged again.
#[test]
fn a_power_cut_after_a_restart_loses_nothing_although_the_process_before_synced_nothing() {
    for wal_replay_in_background in [false, true] {
        let (fs, mut told) = (MemFs::new(), Told::default());
        let never = Options {
            wal_sync: WalSync::Never,
            ..options(&fs, 2)
        };
        write(
            &Db::open(DATA.as_ref(), never).unwrap(),
            NOW_MS,
            &mut Told::default(),
        )
        .unwrap();
        let db = Db::open(
            DATA.as_ref(),
            Options {
                wal_replay_in_background,
                ..options(&fs, 2)
            },
        )
        .unwrap();
        db.wait_replayed(&ReadContext::unbounded()).unwrap();
        (0..2).for_each(|part| write(&db, NOW_MS + part, &mut told).unwrap());
        check(
            &fs.crash(PowerCut::LosesAll),
            &told,
            &format!("{wal_replay_in_background}"),
        );
    }
}

/// A process that dies between the writes of two logs may leave a part of the request (decision
/// 0005).
#[test]
fn a_request_cut_by_the_end_of_the_process_is_complete_once_it_is_repeated() {
    let live = |fs: &MemFs, told: &mut Told, dies_at: Option<u64>| {
        let db = Db::open(DATA.as_ref(), options(fs, 2)).unwrap();
        write(&db, NOW_MS, told).unwrap();
        let before = fs.n_operations();
        fs.fail_at(dies_at.map_or(u64::MAX, |n| before + n), Fault::Dies);
        let _ended = write(&db, NOW_MS + 1, told);
        fs.n_operations() - before
    };
    for dies_at in 0..live(&MemFs::new(), &mut Told::default(), None) {
        let (fs, mut told) = (MemFs::new(), Told::default());
        live(&fs, &mut told, Some(dies_at));
        let fs = fs.crash(PowerCut::KeepsAll);
        write(
            &Db::open(DATA.as_ref(), options(&fs, 2)).unwrap(),
            NOW_MS + 1,
            &mut told,
        )
        .unwrap();
        check(
            &fs.crash(PowerCut::LosesAll),
            &told,
            &format!("it died in operation {dies_at} of the request"),
        );
    }
}

fn n_operations() -> u64 {
    let fs = MemFs::new();
    let mut told = Told::default();
    live(&fs, &mut told).unwrap();
    check(&fs.crash(PowerCut::LosesAll), &told, "no fault");
    fs.n_operations()
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_dies_in_any_operation() {
    let n = n_operations();
    (0..n).for_each(|operation| survive(operation, Fault::Dies, n));
}

#[test]
fn nothing_acknowledged_is_lost_when_any_operation_fails() {
    let n = n_operations();
    for operation in 0..n {
        survive(operation, Fault::Fails(ErrorKind::StorageFull), n);
        survive(operation, Fault::Cut, n);
    }
}

/// The store that the imported blocks come from.
const OTHER: &str = "/other";
/// The import directory.
const IMPORT: &str = "/data/import";

/// Creates blocks of two windows in another store and puts them into the import directory. Returns
/// their samples.
fn prepare_import(fs: &MemFs) -> BTreeSet<(usize, i64)> {
    let mut told = Told::default();
    let db = Db::open(OTHER.as_ref(), options(fs, 1)).unwrap();
    for window in 0..2 {
        write(&db, NOW_MS + window * 7_200_000, &mut told).unwrap();
    }
    db.flush().unwrap();
    fs.create_dir(IMPORT.as_ref()).unwrap();
    let names = fs.list("/other/blocks".as_ref()).unwrap();
    assert_eq!(names.len(), 2);
    for name in &names {
        let [from, to] = ["/other/blocks", IMPORT].map(|dir| Path::new(dir).join(name));
        fs.hard_link(&from, &to).unwrap();
    }
    for dir in ["/", DATA, IMPORT] {
        fs.sync_dir(dir.as_ref()).unwrap();
    }
    told.stored
}

#[test]
fn an_import_adds_all_blocks_or_none_whatever_fails() {
    let fs = MemFs::new();
    let imported = prepare_import(&fs);
    let db = Db::open(DATA.as_ref(), options(&fs, 1)).unwrap();
    let start = fs.n_operations();
    assert_eq!(db.import().unwrap(), 2);
    let n = fs.n_operations() - start;
    drop(db);
    for (operation, fault) in (0..n).flat_map(|n| {
        [
            (n, Fault::Dies),
            (n, Fault::Cut),
            (n, Fault::Fails(ErrorKind::Other)),
        ]
    }) {
        let fs = MemFs::new();
        prepare_import(&fs);
        let db = Db::open(DATA.as_ref(), options(&fs, 1)).unwrap();
        fs.fail_at(fs.n_operations() + operation, fault);
        let ended = db.import();
        let case = format!("{:?}, then {ended:?}", fs.failed());
        if !matches!(fault, Fault::Dies) {
            assert_eq!(
                found(&db).len(),
                if ended.is_ok() { imported.len() } else { 0 },
                "{case}"
            );
        }
        drop(db);
        for cut in [
            PowerCut::LosesAll,
            PowerCut::KeepsAll,
            PowerCut::Seeded(operation),
        ] {
            let fs = fs.crash(cut);
            let db =
                Db::open(DATA.as_ref(), options(&fs, 1)).unwrap_or_else(|e| panic!("{case}: {e}"));
            let seen: BTreeSet<_> = found(&db).into_keys().collect();
            assert!(
                seen.is_empty() || seen == imported,
                "{case}, {cut:?}: {} samples",
                seen.len()
            );
            assert!(
                seen.len() == imported.len() || ended.is_err(),
                "{case}, {cut:?}: imported samples are lost"
            );
            db.import()
                .unwrap_or_else(|e| panic!("{case}, {cut:?}: {e}"));
            assert_eq!(
                found(&db).len(),
                imported.len(),
                "{case}, {cut:?}: the import can be repeated"
            );
        }
    }
}

/// The files of the first import used to be imported again if they were still there, or were back.
#[test]
fn deleted_samples_of_an_import_stay_deleted_if_another_import_follows_a_crash() {
    for operation in 0.. {
        let fs = MemFs::new();
        prepare_import(&fs);
        let db = Db::open(DATA.as_ref(), options(&fs, 1)).unwrap();
        fs.fail_at(fs.n_operations() + operation, Fault::Dies);
        let ended = db.import();
        drop(db);
        let failed = fs.failed();
        for cut in [PowerCut::LosesAll, PowerCut::KeepsAll] {
            let fs = fs.crash(cut);
            let db = Db::open(DATA.as_ref(), options(&fs, 1)).unwrap();
            let mut told = Told {
                sent: found(&db).into_keys().collect(),
                ..Told::default()
            };
            if !told.sent.is_empty() {
                delete(&db, &mut told).unwrap();
                db.import().unwrap();
                drop(db);
                check(&fs, &told, &format!("{failed:?}, then {ended:?}, {cut:?}"));
            }
        }
        if failed.is_none() {
            break;
        }
    }
}
