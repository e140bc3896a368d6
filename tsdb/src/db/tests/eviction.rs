//! Eviction of idle series, and the earlier eviction of stale ones.

use varve_env::testing::Fault;

use super::*;

const MINUTE_MS: i64 = 60_000;
/// A series that always has samples: it raises the newest timestamp.
const CLOCK: usize = 1_000_000;

fn open_at(dir: &Path, options: Options) -> Db {
    Db::open(
        dir,
        Options {
            shards: 2,
            clock: Arc::new(ManualClock::at(NOW_MS + 1_000 * MINUTE_MS)),
            ..options
        },
    )
    .unwrap()
}

fn stale() -> f64 {
    f64::from_bits(varve_model::staleness::STALE_NAN_BITS)
}

/// Raises the newest timestamp, flushes, and returns the number of evicted series.
fn flush_at(db: &Db, minute: i64) -> u64 {
    append(db, &[(CLOCK, NOW_MS + minute * MINUTE_MS, 1.0)]);
    db.flush().unwrap().n_evicted
}

#[test]
fn a_stale_series_is_evicted_after_minutes_and_an_idle_one_after_an_hour() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_at(dir.path(), options());
    append(
        &db,
        &[
            (0, NOW_MS, stale()),
            (1, NOW_MS, 1.0),
            (2, NOW_MS, stale()),
            (3, NOW_MS - 1, stale()),
            (3, NOW_MS, 1.0),
        ],
    );
    assert_eq!(
        [4, 5].map(|minute| flush_at(&db, minute)),
        [0, 0],
        "the marker is not older than five minutes"
    );
    append(&db, &[(2, NOW_MS + 5 * MINUTE_MS, 1.0)]);
    assert_eq!(
        flush_at(&db, 6),
        1,
        "one ended, one goes on, the others had a sample behind their marker"
    );
    assert_eq!(
        [7, 60, 61, 66].map(|minute| flush_at(&db, minute)),
        [0, 0, 2, 1]
    );
    assert_eq!(
        (db.n_series(), everything(&db).len()),
        (1, 5),
        "the samples of evicted series are in blocks"
    );
    append(&db, &[(0, NOW_MS + 66 * MINUTE_MS, 1.0)]);
    assert_eq!(
        (db.n_series(), flush_at(&db, 100)),
        (2, 0),
        "one comes back"
    );
}

/// After a restart only the newest timestamp of flushed samples is known: such a series is evicted
/// as an idle one.
#[test]
fn a_series_with_its_marker_in_the_log_is_evicted_as_early_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    append(
        &open_at(dir.path(), options()),
        &[(0, NOW_MS, 1.0), (1, NOW_MS, 1.0), (0, NOW_MS + 1, stale())],
    );
    let db = open_at(dir.path(), options());
    assert_eq!(
        [4, 6, 59, 61].map(|minute| flush_at(&db, minute)),
        [0, 1, 0, 1]
    );
}

#[test]
fn a_histogram_staleness_marker_makes_a_series_stale() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_at(dir.path(), options());
    let mut batch = WriteBatch::default();
    let marker = Arc::new(Histogram {
        sum: stale(),
        ..Histogram::default()
    });
    batch.push_histogram(db.series(&series_labels(0)).unwrap(), NOW_MS, marker, 0);
    db.append(&mut batch).unwrap();
    assert_eq!(flush_at(&db, 6), 1);
}

#[test]
fn acceptance_does_not_depend_on_eviction() {
    let t = NOW_MS + 40 * MINUTE_MS;
    for (out_of_order_window_ms, refused) in [
        (30 * MINUTE_MS, RejectionReason::TooOld),
        (0, RejectionReason::OutOfOrder),
    ] {
        for flushed in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let db = open_at(
                dir.path(),
                Options {
                    out_of_order_window_ms,
                    ..options()
                },
            );
            append(&db, &[(0, NOW_MS, stale()), (CLOCK, t, 1.0)]);
            assert_eq!(
                if flushed {
                    db.flush().unwrap().n_evicted
                } else {
                    0
                },
                u64::from(flushed)
            );
            let late = [
                (0, NOW_MS - 1, 1.0),
                (0, NOW_MS, stale()),
                (0, NOW_MS + 1, 1.0),
                (0, NOW_MS - 1, 1.0),
            ];
            assert_eq!(
                append(&db, &late),
                [(0, refused), (3, refused)],
                "{flushed}"
            );
            assert_eq!(everything(&db)[&series_labels(0).to_string()].len(), 2);
        }
    }
}

/// Selections that began before the samples were flushed keep series in the heads. Later selections
/// do not. Otherwise series would never be evicted under a constant load of queries.
#[test]
fn series_are_evicted_under_a_constant_load_of_selections() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_at(dir.path(), options());
    let n_series = 1000;
    append(
        &db,
        &(0..n_series)
            .map(|i| (i, NOW_MS, stale()))
            .collect::<Vec<_>>(),
    );
    let select = |range| {
        db.select_labels(&ReadContext::unbounded(), &[], range)
            .unwrap()
    };
    let before = select(TimeRange::ALL);
    assert_eq!(flush_at(&db, 10), 0, "a selection is looking them up");
    let later = select(TimeRange::ALL);
    db.store.evict_deferred();
    assert_eq!(db.n_series(), n_series as u64 + 1);
    assert_eq!(
        before
            .filter(|series| !series.as_ref().unwrap().labels().is_empty())
            .count(),
        n_series,
        "it began before the clock's"
    );
    db.store.evict_deferred();
    assert_eq!(db.n_series(), 1);
    assert_eq!(
        later
            .filter(|series| !series.as_ref().unwrap().labels().is_empty())
            .count(),
        n_series + 1
    );
}

/// Arrays by slot shrink only after the last slot in use, piece by piece. Other memory is freed
/// wherever the remaining series are. The newest timestamps are remembered for three hours.
#[test]
fn the_memory_of_stale_series_is_freed() {
    for (comes_first, left_of) in [(true, 8), (false, 4)] {
        let dir = tempfile::tempdir().unwrap();
        let db = open_at(dir.path(), options());
        let size = || {
            db.store
                .shards
                .iter()
                .map(|shard| shard.head().size())
                .sum::<usize>()
        };
        if comes_first {
            append(&db, &[(CLOCK, NOW_MS, 1.0)]);
        }
        for minute in 0..3 {
            let value = if minute < 2 { 1.0 } else { stale() };
            append(
                &db,
                &(0..20_000)
                    .map(|i| (i, NOW_MS + minute * MINUTE_MS, value))
                    .collect::<Vec<_>>(),
            );
        }
        let full = size();
        assert_eq!(flush_at(&db, 10), 20_000);
        assert!(size() < full / 2, "{full} {}", size());
        assert_eq!(flush_at(&db, 200), 0);
        assert!(
            db.n_series() == 1 && size() < full / left_of,
            "{full} {}",
            size()
        );
    }
}

/// The next flush would evict them as idle only an hour later.
#[test]
fn series_whose_newest_samples_are_deleted_are_evicted_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_at(dir.path(), options());
    let n_series = 1_000;
    append(
        &db,
        &(0..n_series).map(|i| (i, NOW_MS, 1.0)).collect::<Vec<_>>(),
    );
    append(&db, &[(CLOCK, NOW_MS, 1.0), (0, NOW_MS + 1, 1.0)]);
    let delete = |end_ms| {
        let all_but_clock = Matcher::new(MatchOp::NotEqual, "i", &CLOCK.to_string()).unwrap();
        db.delete(
            vec![all_but_clock],
            TimeRange {
                start_ms: i64::MIN,
                end_ms,
            },
        )
        .unwrap();
    };
    delete(NOW_MS - 1);
    assert_eq!(
        db.n_series(),
        n_series as u64 + 1,
        "no newest sample is deleted"
    );
    let reader = db
        .select_labels(&ReadContext::unbounded(), &[], TimeRange::ALL)
        .unwrap();
    delete(NOW_MS);
    assert_eq!(
        db.n_series(),
        n_series as u64 + 1,
        "a selection is looking them up"
    );
    drop(reader);
    append(&db, &[(1, NOW_MS + 1, 1.0)]);
    db.store.evict_deferred();
    assert_eq!(db.n_series(), 3, "those with newer samples stay");
    append(&db, &[(2, NOW_MS + 1, 1.0)]);
    delete(NOW_MS + 1);
    assert_eq!((db.n_series(), everything(&db).len()), (1, 1));
}

/// Otherwise, the deleted series count for their team again until they are idle.
#[test]
fn a_restart_does_not_restore_deleted_series() {
    let dir = tempfile::tempdir().unwrap();
    let db = open_at(dir.path(), options());
    append(
        &db,
        &(0..1_000).map(|i| (i, NOW_MS, 1.0)).collect::<Vec<_>>(),
    );
    append(&db, &[(CLOCK, NOW_MS, 1.0)]);
    let all_but_clock = Matcher::new(MatchOp::NotEqual, "i", &CLOCK.to_string()).unwrap();
    db.delete(vec![all_but_clock], TimeRange::ALL).unwrap();
    append(&db, &[(1, NOW_MS + 1, 1.0)]);
    drop(db);
    let db = open_at(dir.path(), options());
    assert_eq!((db.n_series(), everything(&db).len()), (2, 2));
    let too_old = append(&db, &[(0, NOW_MS - 1_000 * MINUTE_MS, 1.0)]);
    assert_eq!(too_old.len(), 1, "their newest timestamps are known");
    db.flush().unwrap();
    drop(db);
    assert_eq!(
        open_at(dir.path(), options()).n_series(),
        3,
        "series sent after the deletion are not evicted"
    );
}

/// Otherwise, a restart evicts them, and the next one forgets their newest timestamps.
#[test]
fn series_with_samples_written_after_a_deletion_stay() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = open_at(dir.path(), options());
    append(&db, &[(CLOCK, NOW_MS, 1.0)]);
    db.delete(vec![Matcher::equal("i", "1")], TimeRange::ALL)
        .unwrap();
    append(&db, &[(1, NOW_MS, 1.0)]);
    for _ in 0..2 {
        drop(db);
        db = open_at(dir.path(), options());
        db.flush().unwrap();
        assert_eq!(db.n_series(), 2);
    }
    let too_old = append(&db, &[(1, NOW_MS - 1_000 * MINUTE_MS, 1.0)]);
    assert_eq!(too_old.len(), 1);
}

/// The samples after its return used to have its earlier start timestamp after a restart.
#[test]
fn a_series_that_returns_while_the_log_has_its_start_timestamp_logs_that_it_has_none() {
    for operation in 0.. {
        let fs = MemFs::new();
        let options = || Options {
            clock: Arc::new(ManualClock::at(NOW_MS + 1_000 * MINUTE_MS)),
            ..options()
        };
        let db = open_on(&fs, options());
        let send = |minute: i64, start_ms| {
            let (mut batch, timestamp_ms) = (WriteBatch::default(), NOW_MS + minute * MINUTE_MS);
            let series = db.series(&series_labels(0)).unwrap();
            batch.push_with_start(
                series,
                Sample {
                    timestamp_ms,
                    value: 1.0,
                },
                start_ms,
                0,
            );
            db.append(&mut batch).unwrap();
        };
        send(0, NOW_MS - 1);
        append(&db, &[(CLOCK, NOW_MS + 100 * MINUTE_MS, 1.0)]);
        fs.fail_at(
            fs.n_operations() + operation,
            Fault::Fails(std::io::ErrorKind::StorageFull),
        );
        let flushed = db.flush();
        if fs.failed().is_none() {
            break;
        }
        send(101, 0);
        drop(db);
        let (db, mut columns) = (open_on(&fs, options()), SampleColumns::default());
        for series in db
            .select(
                &ReadContext::unbounded(),
                &[Matcher::equal("i", "0")],
                TimeRange::ALL,
            )
            .unwrap()
        {
            series.unwrap().read(&mut columns).unwrap();
        }
        let found = [0, 1].map(|idx| columns.start_ms(idx));
        assert_eq!(
            (columns.len(), found),
            (2, [NOW_MS - 1, 0]),
            "{:?}, then {flushed:?}",
            fs.failed()
        );
    }
}
