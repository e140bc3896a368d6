//! A store in use while its WAL is replayed. The disk blocks reads of the WAL's samples until a
//! test releases them.

use std::thread::scope;
use std::time::Duration;

use proptest::prelude::*;
use varve_context::{Interrupt, Limit, MemoryBudget, ReadOptions};
use varve_env::testing::PowerCut;
use varve_model::Exemplar;

use super::*;
use crate::options::WalOnCorruption;
use crate::replay::ReplayState;

const HOUR: i64 = 3_600_000;

/// A store whose replay does not end before [`Slow::go_on`].
struct Slow {
    db: Db,
    fs: MemFs,
}

impl Slow {
    fn open(fs: &MemFs, options: Options) -> Self {
        fs.set_blocked_files(Some("samples-"));
        let options = Options {
            wal_replay_in_background: true,
            ..options
        };
        Self {
            db: open_on(fs, options),
            fs: fs.clone(),
        }
    }

    fn go_on(&self) {
        self.fs.set_blocked_files(None);
    }

    fn state(&self) -> ReplayState {
        self.db.replay_status().state
    }
}

impl Drop for Slow {
    /// Releases the disk, so that a failing test does not wait forever.
    fn drop(&mut self) {
        self.go_on();
    }
}

/// Returns the context of a request whose deadline has passed.
fn impatient() -> ReadContext {
    ReadContext::unrestricted(QueryContext::new(
        Duration::ZERO,
        MemoryBudget::new(Limit::Other("memory"), usize::MAX),
    ))
}

fn is_waiting<T>(result: Result<T>) -> bool {
    match result {
        Err(Error::Replaying { progress }) => {
            progress.contains("% of") && progress.contains("samples")
        }
        Err(e) => panic!("{e}"),
        Ok(_) => false,
    }
}

/// Fills a new store and closes it.
fn history(fs: &MemFs, requests: &[&[(usize, i64, f64)]]) {
    let db = open_on(fs, options());
    for request in requests.iter() {
        assert_eq!(append(&db, request), []);
    }
}

fn samples(of: &[(usize, &[(i64, f64)])]) -> Contents {
    let bits = |samples: &[(i64, f64)]| {
        samples
            .iter()
            .map(|&(t, value)| (t, value.to_bits()))
            .collect()
    };
    of.iter()
        .map(|&(i, samples)| (series_labels(i).to_string(), bits(samples)))
        .collect()
}

#[test]
fn writes_are_accepted_and_reads_wait_for_their_range() {
    let fs = MemFs::new();
    history(&fs, &[&[(0, NOW_MS, 1.0), (1, NOW_MS, 2.0)]]);
    let slow = Slow::open(&fs, options());
    let db = &slow.db;
    assert_eq!(slow.state(), ReplayState::Running);
    assert_eq!(
        append(db, &[(0, NOW_MS + 1, 3.0), (2, NOW_MS + 1, 4.0)]),
        []
    );
    let status = db.replay_status();
    assert_eq!(
        (
            status.buffered_bytes,
            status.n_files_total,
            status.n_samples
        ),
        (48, 2, 0)
    );
    assert_eq!(db.write_refusals(), Vec::<String>::new());
    // Samples that were written before become visible later: there is no version of what reads see.
    assert_eq!(db.read_version(), None);

    let (ctx, all) = (impatient(), TimeRange::ALL);
    assert!(is_waiting(db.select(&ctx, &[], all)));
    assert!(is_waiting(db.select_labels(&ctx, &[], all)));
    assert!(is_waiting(db.label_names(&ctx, &[], all)));
    assert!(is_waiting(db.label_values(&ctx, "i", &[], all)));
    assert!(is_waiting(db.wait_replayed(&ctx)));
    let canceled = ReadContext::unbounded();
    canceled.interrupt(Interrupt::Canceled);
    assert!(matches!(
        db.select(&canceled, &[], all),
        Err(Error::Interrupted(Interrupt::Canceled))
    ));

    let expected = samples(&[
        (0, &[(NOW_MS, 1.0), (NOW_MS + 1, 3.0)]),
        (1, &[(NOW_MS, 2.0)]),
        (2, &[(NOW_MS + 1, 4.0)]),
    ]);
    scope(|scope| {
        let reader = scope.spawn(|| everything(db));
        slow.go_on();
        assert_eq!(
            reader.join().unwrap(),
            expected,
            "a read waits, and then sees all"
        );
    });
    db.wait_replayed(&ReadContext::unbounded()).unwrap();
    let changes = db.changes(
        db.read_version().unwrap(),
        crate::changes::NameGroups::ALL,
        all,
    );
    assert_eq!(changes, []);
    let (status, found) = (db.replay_status(), db.stats().replayed);
    assert_eq!(
        (status.state, status.buffered_bytes),
        (ReplayState::Done, 0)
    );
    assert_eq!(
        (status.n_files, status.n_bytes),
        (status.n_files_total, status.n_bytes_total)
    );
    assert_eq!(
        (found.n_samples, found.n_buffered, found.n_buffered_repeated),
        (2, 2, 0)
    );
    assert_eq!(append(db, &[(0, NOW_MS + 2, 5.0)]), []);
    let before = everything(db);
    drop(slow);
    assert_eq!(everything(&open_on(&fs, options())), before);
}

#[test]
fn a_partial_result_comes_with_a_warning() {
    let fs = MemFs::new();
    history(&fs, &[&[(0, NOW_MS, 1.0)]]);
    let slow = Slow::open(&fs, options());
    let request = || {
        let options = ReadOptions {
            takes_partial: true,
            ..ReadOptions::default()
        };
        ReadContext::unrestricted(QueryContext::with_options(
            Duration::from_secs(3600),
            MemoryBudget::new(Limit::Other("memory"), usize::MAX),
            options,
        ))
    };
    let ctx = request();
    assert_eq!(
        slow.db.select(&ctx, &[], TimeRange::ALL).unwrap().count(),
        0
    );
    let warning = ctx.partial().unwrap();
    assert!(
        warning.starts_with("the WAL is being replayed, samples may be missing: "),
        "{warning}"
    );
    slow.go_on();
    slow.db.wait_replayed(&ReadContext::unbounded()).unwrap();
    let ctx = request();
    assert_eq!(
        slow.db.select(&ctx, &[], TimeRange::ALL).unwrap().count(),
        1
    );
    assert_eq!(ctx.partial(), None);
}

/// Samples buffered during the replay are applied in the order of the WAL, and acknowledged samples
/// are kept even if they turn out to be out of order. The result is the same if the process ends
/// before the replay does.
#[test]
fn buffered_samples_are_applied_as_the_next_replay_would() {
    let fs = MemFs::new();
    history(&fs, &[&[(0, NOW_MS, 1.0)], &[(0, NOW_MS + 10_000, 2.0)]]);
    let slow = Slow::open(&fs, options());
    // Too old, as the WAL will show.
    assert_eq!(append(&slow.db, &[(3, NOW_MS - 4 * HOUR, 7.0)]), []);
    // A repeated sample, a conflicting one, an out-of-order one, a new one, and a conflict with the
    // new one.
    let later = [
        (NOW_MS, 1.0),
        (NOW_MS, 9.0),
        (NOW_MS + 5000, 3.0),
        (NOW_MS + 20_000, 4.0),
        (NOW_MS + 20_000, 5.0),
    ];
    assert_eq!(append(&slow.db, &later.map(|(t, value)| (0, t, value))), []);
    // Rejected at once, regardless of the WAL.
    let refused = append(
        &slow.db,
        &[(0, NOW_MS + 601_000, 1.0), (0, NOW_MS - 5 * HOUR, 1.0)],
    );
    assert_eq!(
        refused,
        [
            (0, RejectionReason::TooFarInFuture),
            (1, RejectionReason::TooOld)
        ]
    );

    let image = fs.crash(PowerCut::KeepsAll);
    slow.go_on();
    let of_series_0 = [
        (NOW_MS, 1.0),
        (NOW_MS + 5000, 3.0),
        (NOW_MS + 10_000, 2.0),
        (NOW_MS + 20_000, 4.0),
    ];
    let expected = samples(&[(0, &of_series_0), (3, &[(NOW_MS - 4 * HOUR, 7.0)])]);
    assert_eq!(everything(&slow.db), expected);
    let found = slow.db.stats().replayed;
    assert_eq!(
        (
            found.n_buffered,
            found.n_buffered_repeated,
            found.n_buffered_conflicting,
            found.n_buffered_out_of_bounds
        ),
        (6, 1, 2, 1)
    );
    let replayed = open_on(&image, options());
    assert_eq!(
        everything(&replayed),
        expected,
        "after the end of the process"
    );
    assert_eq!(
        (
            replayed.stats().replayed.n_repeated,
            replayed.stats().replayed.n_conflicting
        ),
        (1, 2)
    );
    slow.db.flush().unwrap();
    assert_eq!(everything(&slow.db), expected, "after a flush");
}

/// The buffer and the log have floats first, so the float was kept even if the histogram was first
/// in the request.
#[test]
fn of_a_float_and_a_histogram_at_one_timestamp_the_first_is_kept() {
    for is_float_first in [false, true] {
        let write = |db: &Db| {
            append(db, &[(0, NOW_MS, 1.0)]);
            let (series, mut batch) =
                (db.series(&series_labels(0)).unwrap(), WriteBatch::default());
            for is_float in [is_float_first, !is_float_first] {
                if is_float {
                    batch.push(
                        series,
                        Sample {
                            timestamp_ms: NOW_MS + 1,
                            value: 1.0,
                        },
                        0,
                    );
                } else {
                    let histogram = Histogram {
                        sum: 2.0,
                        ..Histogram::default()
                    };
                    batch.push_histogram(series, NOW_MS + 1, Arc::new(histogram), 0);
                }
            }
            db.append(&mut batch).unwrap();
        };
        let (_dir, db) = fresh(options());
        write(&db);
        let expected = everything(&db);
        assert_eq!(
            expected[&series_labels(0).to_string()][1] == (NOW_MS + 1, 1.0_f64.to_bits()),
            is_float_first
        );

        let fs = MemFs::new();
        history(&fs, &[&[(1, NOW_MS, 1.0)]]);
        let slow = Slow::open(&fs, options());
        write(&slow.db);
        let image = fs.crash(PowerCut::KeepsAll);
        slow.go_on();
        for db in [&slow.db, &open_on(&image, options())] {
            let mut found = everything(db);
            found.remove(&series_labels(1).to_string());
            assert_eq!(found, expected, "{is_float_first}");
        }
    }
}

/// A sample: series, timestamp, value, start timestamp. Every other series has histograms.
type Sent = (usize, i64, f64, i64);

/// Appends as one request and returns the rejected samples.
fn send(db: &Db, samples: &[Sent]) -> Vec<(u32, RejectionReason)> {
    let mut batch = WriteBatch::default();
    for (tag, &(i, timestamp_ms, value, start_ms)) in (0..).zip(samples) {
        let series = db.series(&series_labels(i)).unwrap();
        if i % 2 == 0 {
            batch.push_with_start(
                series,
                Sample {
                    timestamp_ms,
                    value,
                },
                start_ms,
                tag,
            );
        } else {
            let histogram = Arc::new(Histogram {
                sum: value,
                ..Histogram::default()
            });
            batch.push_histogram_with_start(series, timestamp_ms, histogram, start_ms, tag);
        }
    }
    db.append(&mut batch).unwrap();
    batch
        .rejected()
        .iter()
        .map(|rejected| (rejected.index, rejected.reason))
        .collect()
}

/// Timestamps of all samples, with their values and start timestamps, by series.
type Told = BTreeMap<String, BTreeMap<i64, (u64, i64)>>;

fn told(db: &Db) -> Told {
    let mut told = Told::new();
    for series in db
        .select(&ReadContext::unbounded(), &[], TimeRange::ALL)
        .unwrap()
    {
        let series = series.unwrap();
        let mut columns = SampleColumns::default();
        series.read(&mut columns).unwrap();
        let of = |(place, sample): (usize, Sample)| {
            (
                sample.timestamp_ms,
                (sample.value.to_bits(), columns.start_ms(place)),
            )
        };
        told.insert(
            series.labels().to_string(),
            columns.iter().enumerate().map(of).collect(),
        );
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The first acknowledged of two values at one timestamp wins, with its start timestamp. It
    /// does not matter how much of the WAL was read when they arrive.
    #[test]
    fn a_crash_during_the_replay_changes_no_result(
        logged in proptest::collection::vec((0..4_usize, 0..50_i64, 0..3_u8, 0..3_i64), 1..60),
        buffered in proptest::collection::vec((0..6_usize, 0..60_i64, 0..3_u8, 0..3_i64), 0..60),
        later in proptest::collection::vec((0..6_usize, 0..80_i64, 0..3_u8, 0..3_i64), 0..20),
        (window, shards, shards_after) in (prop_oneof![Just(0), Just(HOUR)], 0..3_u32, 0..3_u32),
        has_starts in any::<bool>(),
    ) {
        let fs = MemFs::new();
        let options = |shards| Options { shards: 1_usize << shards, out_of_order_window_ms: window, ..options() };
        let request = |of: &[(usize, i64, u8, i64)], has_starts: bool| -> Vec<Sent> {
            let start_ms = |i: usize, start: i64| if has_starts && i != 0 { start * 1000 } else { 0 };
            of.iter().map(|&(i, t, value, start)| (i, NOW_MS + t * 1000, f64::from(value), start_ms(i, start))).collect()
        };
        let mut model = Told::new();
        let note = |model: &mut Told, request: &[Sent], rejected: &[(u32, RejectionReason)]| {
            let is_taken = |tag: u32| rejected.iter().all(|rejected| rejected.0 != tag);
            for (_, &(i, t, value, start_ms)) in (0..).zip(request).filter(|(tag, _)| is_taken(*tag)) {
                model.entry(series_labels(i).to_string()).or_default().entry(t).or_insert((value.to_bits(), start_ms));
            }
        };
        let db = open_on(&fs, options(shards));
        let logged = request(&logged, true);
        note(&mut model, &logged, &send(&db, &logged));
        drop(db);
        let slow = Slow::open(&fs, options(shards_after));
        for part in buffered.chunks(20) {
            let request = request(part, has_starts);
            note(&mut model, &request, &send(&slow.db, &request));
        }
        let image = fs.crash(PowerCut::KeepsAll);
        slow.go_on();
        prop_assert_eq!(&told(&slow.db), &model);
        prop_assert_eq!(&told(&open_on(&image, options(shards))), &model);
        // Samples that arrive after the replay continue from there, and a later replay sees them in
        // the same way.
        let later = request(&later, has_starts);
        note(&mut model, &later, &send(&slow.db, &later));
        prop_assert_eq!(&told(&slow.db), &model);
        drop(slow);
        prop_assert_eq!(&told(&open_on(&fs, options(shards))), &model);
    }
}

/// Appends exemplars with one label each to one series.
fn send_exemplars(db: &Db, i: usize, exemplars: &[(i64, f64)]) {
    let mut batch = WriteBatch::default();
    for &(timestamp_ms, value) in exemplars {
        let exemplar = Exemplar {
            labels: Labels::empty(),
            value,
            timestamp_ms,
        };
        batch.push_exemplar(db.series(&series_labels(i)).unwrap(), exemplar, 0);
    }
    db.append(&mut batch).unwrap();
    assert!(batch.rejected_exemplars().is_empty());
}

fn exemplars(db: &Db) -> Vec<(String, Vec<(i64, f64)>)> {
    let found = db
        .exemplars(&ReadContext::unbounded(), &[vec![]], TimeRange::ALL)
        .unwrap();
    let of = |one: &crate::shard::exemplars::SeriesExemplars| {
        let exemplars = one
            .exemplars
            .iter()
            .map(|exemplar| (exemplar.timestamp_ms, exemplar.value));
        (one.labels.to_string(), exemplars.collect())
    };
    found.series.iter().map(of).collect()
}

/// No exemplar gets the id of an exemplar in the log that was not read yet, however often the
/// process ends. A repeated exemplar is stored once.
#[test]
fn exemplars_that_arrive_during_replays_are_stored_beside_those_of_the_log() {
    let fs = MemFs::new();
    let options = || Options {
        shards: 2,
        exemplars_max: 4,
        ..options()
    };
    let db = open_on(&fs, options());
    let sample: Vec<_> = (0..4).map(|i| (i, NOW_MS, 0.0)).collect();
    append(&db, &sample);
    send_exemplars(&db, 0, &[(NOW_MS, 1.0), (NOW_MS + 1, 2.0)]);
    drop(db);
    for (i, t) in [(1, 10), (0, 20), (2, 30)] {
        let slow = Slow::open(&fs, options());
        send_exemplars(&slow.db, i, &[(NOW_MS + t, t as f64)]);
        // As if it had not been acknowledged.
        send_exemplars(&slow.db, i, &[(NOW_MS + t, t as f64)]);
        if t == 20 {
            send_exemplars(&slow.db, 1, &[(NOW_MS + 10, 10.0)]);
        }
        assert!(is_waiting(slow.db.exemplars(
            &impatient(),
            &[vec![]],
            TimeRange::ALL
        )));
        drop(slow);
    }
    // The oldest of five is evicted.
    let of = |i: usize, all: &[(i64, f64)]| {
        (
            series_labels(i).to_string(),
            all.iter().map(|&(t, v)| (NOW_MS + t, v)).collect(),
        )
    };
    let expected = [
        of(0, &[(1, 2.0), (20, 20.0)]),
        of(1, &[(10, 10.0)]),
        of(2, &[(30, 30.0)]),
    ];
    for _ in 0..2 {
        let db = open_on(&fs, options());
        assert_eq!(exemplars(&db), expected);
        db.flush().unwrap();
    }
}

#[test]
fn ranges_only_in_blocks_are_read_at_once() {
    let fs = MemFs::new();
    let db = open_on(&fs, options());
    for t in [NOW_MS - 10 * HOUR, NOW_MS] {
        append(&db, &[(0, t, 1.0), (1, t, 2.0)]);
        db.flush().unwrap();
    }
    append(&db, &[(0, NOW_MS + 1, 3.0)]);
    drop(db);
    let slow = Slow::open(&fs, options());
    let until = |end_ms| TimeRange {
        start_ms: i64::MIN,
        end_ms,
    };
    let floor_ms = NOW_MS - 3 * HOUR - Options::default().ahead_max_ms;
    let old = until(floor_ms - 1);
    let t = NOW_MS - 10 * HOUR;
    assert_eq!(
        contents(&slow.db, &[], old),
        samples(&[(0, &[(t, 1.0)]), (1, &[(t, 2.0)])])
    );
    assert_eq!(
        slow.db
            .label_values(&ReadContext::unbounded(), "i", &[], old)
            .unwrap()
            .len(),
        2
    );
    assert!(
        is_waiting(slow.db.select(&impatient(), &[], until(floor_ms))),
        "the log may have such samples"
    );
    // Older samples are not accepted.
    assert_eq!(
        append(&slow.db, &[(0, NOW_MS - 3 * HOUR - 1, 1.0)]),
        [(0, RejectionReason::TooOld)]
    );
    assert_eq!(append(&slow.db, &[(0, NOW_MS - 3 * HOUR, 1.0)]), []);
}

/// A request that does not fit is rejected entirely, and accepted after the replay.
#[test]
fn buffered_samples_are_limited_by_the_memory_of_the_replay() {
    let fs = MemFs::new();
    history(&fs, &[&[(0, NOW_MS, 1.0)]]);
    let slow = Slow::open(
        &fs,
        Options {
            wal_replay_memory_bytes: 16 << 20,
            ..options()
        },
    );
    let buffered_bytes_max = slow.db.replay_status().buffered_bytes_max;
    assert_eq!(buffered_bytes_max, 4 << 20);
    let mut batch = WriteBatch::default();
    let handle = slow.db.series(&series_labels(1)).unwrap();
    (0..100_000).for_each(|i| {
        batch.push(
            handle,
            Sample {
                timestamp_ms: NOW_MS + i,
                value: i as f64,
            },
            0,
        )
    });
    slow.db.append(&mut batch).unwrap();
    let refused = slow.db.append(&mut batch).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Limit {
                used: 4_800_000,
                limit: 4_194_304,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(slow.db.replay_status().buffered_bytes, 2_400_000);
    assert!(
        slow.db.write_refusals()[0]
            .starts_with("the buffer for samples written during the WAL replay is full"),
        "{:?}",
        slow.db.write_refusals()
    );
    slow.go_on();
    slow.db.wait_replayed(&ReadContext::unbounded()).unwrap();
    slow.db.append(&mut batch).unwrap();
    assert_eq!(slow.db.write_refusals(), Vec::<String>::new());
    assert_eq!(
        everything(&slow.db).values().map(Vec::len).sum::<usize>(),
        100_001
    );
}

#[test]
fn a_flush_waits_and_includes_buffered_samples() {
    let fs = MemFs::new();
    history(&fs, &[&[(0, NOW_MS, 1.0)]]);
    let slow = Slow::open(&fs, options());
    scope(|scope| {
        let flush = scope.spawn(|| slow.db.flush());
        append(&slow.db, &[(0, NOW_MS + 1, 2.0)]);
        slow.go_on();
        assert_eq!(flush.join().unwrap().unwrap().n_samples, 2);
    });
    assert_eq!(everything(&slow.db)[&series_labels(0).to_string()].len(), 2);
}

#[test]
fn a_failed_replay_fails_reads_and_writes_and_loses_nothing_acknowledged() {
    let fs = MemFs::new();
    let requests: Vec<_> = (0..5).map(|i| [(0, NOW_MS + i, i as f64)]).collect();
    history(
        &fs,
        &requests
            .iter()
            .map(|request| &request[..])
            .collect::<Vec<_>>(),
    );
    let file = wal_files(&fs, DATA.as_ref(), "samples-").pop().unwrap();
    let read = || fs.read(&file, u64::MAX).unwrap();
    let middle = read().len() / 2;
    fs.edit(&file, |bytes| bytes[middle] ^= 1).unwrap();
    let damaged = read();

    let slow = Slow::open(
        &fs,
        Options {
            wal_on_corruption: WalOnCorruption::Refuse,
            ..options()
        },
    );
    let db = &slow.db;
    let mut batch = WriteBatch::default();
    batch.push(
        db.series(&series_labels(0)).unwrap(),
        Sample {
            timestamp_ms: NOW_MS + 10,
            value: 10.0,
        },
        0,
    );
    db.append(&mut batch).unwrap();
    slow.go_on();
    let ctx = ReadContext::unbounded();
    let failed = db.wait_replayed(&ctx).unwrap_err();
    let reason = failed.to_string();
    assert!(
        reason.starts_with("replay of the WAL failed: ") && reason.contains("is damaged at byte"),
        "{reason}"
    );
    let fails = |result: Result<()>| assert_eq!(result.unwrap_err().to_string(), reason);
    fails(db.append(&mut batch));
    fails(db.series(&series_labels(7)).map(drop));
    fails(db.set_metadata([("m", Metadata::default())]));
    fails(
        db.select(
            &ctx,
            &[],
            TimeRange {
                start_ms: 0,
                end_ms: 1,
            },
        )
        .map(drop),
    );
    fails(db.flush().map(drop));
    assert_eq!(db.write_refusals(), [reason]);
    assert!(matches!(slow.state(), ReplayState::Failed(_)));
    drop(slow);
    assert_eq!(read(), damaged, "the WAL file is unchanged");
    assert_eq!(
        everything(&open_on(&fs, options()))
            .values()
            .map(Vec::len)
            .sum::<usize>(),
        5,
        "4 of 5, and the buffered one"
    );
}

#[test]
fn damaged_definitions_are_an_error_of_open() {
    let fs = MemFs::new();
    history(&fs, &[&[(0, NOW_MS, 1.0)]]);
    let file = wal_files(&fs, DATA.as_ref(), "series-").pop().unwrap();
    fs.edit(&file, |bytes| bytes[8] ^= 1).unwrap();
    let fs_options = Options {
        fs: Arc::new(fs.clone()),
        ..options()
    };
    let refusing = Options {
        wal_replay_in_background: true,
        wal_on_corruption: WalOnCorruption::Refuse,
        ..fs_options
    };
    assert!(matches!(
        Db::open(DATA.as_ref(), refusing),
        Err(Error::Corrupt { .. })
    ));
    open_on(&fs, options());
}

#[test]
fn closing_ends_the_replay_and_the_next_one_is_complete() {
    let fs = MemFs::new();
    let requests: Vec<_> = (0..100).map(|i| [(0, NOW_MS + i, i as f64)]).collect();
    history(
        &fs,
        &requests
            .iter()
            .map(|request| &request[..])
            .collect::<Vec<_>>(),
    );
    for i in 0..3 {
        fs.set_blocked_files(Some("samples-"));
        let db = open_on(
            &fs,
            Options {
                wal_replay_in_background: true,
                ..options()
            },
        );
        append(&db, &[(0, NOW_MS + 1000 + i, 0.0)]);
        scope(|scope| {
            scope.spawn(|| drop(db));
            fs.set_blocked_files(None);
        });
    }
    assert_eq!(
        everything(&open_on(&fs, options()))
            .values()
            .map(Vec::len)
            .sum::<usize>(),
        103
    );
}

/// The samples of the log use refs whose definitions are lost. No series created before they are
/// read may get such a ref: the next replay would assign their samples to it.
#[test]
fn a_series_created_during_the_replay_gets_a_new_ref() {
    let fs = MemFs::new();
    history(&fs, &[&[(0, NOW_MS, 1.0), (1, NOW_MS, 2.0)]]);
    fs.remove(&wal_files(&fs, DATA.as_ref(), "series-")[0])
        .unwrap();
    let slow = Slow::open(&fs, options());
    append(&slow.db, &[(2, NOW_MS + 1, 3.0)]);
    let image = fs.crash(PowerCut::KeepsAll);
    slow.go_on();
    let expected = samples(&[(2, &[(NOW_MS + 1, 3.0)])]);
    assert_eq!(everything(&slow.db), expected);
    let replayed = open_on(&image, options());
    assert_eq!(everything(&replayed), expected);
    assert_eq!(
        (
            slow.db.stats().replayed.n_unknown_samples,
            replayed.stats().replayed.n_unknown_samples
        ),
        (2, 2)
    );
}

#[test]
fn metadata_of_the_log_is_available_when_the_store_opens() {
    let fs = MemFs::new();
    let gauge = Metadata {
        kind: "gauge".into(),
        ..Metadata::default()
    };
    let db = open_on(&fs, options());
    append(&db, &[(0, NOW_MS, 1.0)]);
    db.set_metadata([("a", gauge.clone())]).unwrap();
    drop(db);
    let slow = Slow::open(&fs, options());
    slow.db.set_metadata([("b", gauge.clone())]).unwrap();
    assert_eq!(
        slow.db
            .metadata()
            .keys()
            .map(|family| &**family)
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
}
