//! Clocks that jump, before the start of a process and while it runs.

use std::time::Duration;

use varve_context::{Limit, MemoryBudget};
use varve_env::Clock;

use super::*;

const SECOND_MS: i64 = 1000;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const JUMPS_MS: [i64; 4] = [5 * HOUR_MS, -5 * HOUR_MS, 20 * DAY_MS, -20 * DAY_MS];
/// Series with real timestamps.
const REAL: [usize; 2] = [0, 1];
/// A series of a sender whose clock jumps together with the store's clock.
const WRONG: usize = 2;
/// The series of the process itself.
const OWN: usize = 3;

fn options_at(clock: &ManualClock) -> Options {
    Options {
        clock: Arc::new(clock.clone()),
        retention_ms: Some(15 * DAY_MS),
        ..options()
    }
}

/// Opens a store with one block for each of three days.
fn filled(dir: &Path, clock: &ManualClock) -> Db {
    let db = Db::open(dir, options_at(clock)).unwrap();
    for t in [NOW_MS - 14 * DAY_MS, NOW_MS - 7 * DAY_MS, NOW_MS] {
        write_real(&db, t);
        db.flush().unwrap();
    }
    db.compact().unwrap();
    db
}

#[track_caller]
fn write_real(db: &Db, t: i64) {
    assert_eq!(append(db, &REAL.map(|i| (i, t, 1.0))), [], "{}", t - NOW_MS);
}

fn write_own(db: &Db, timestamp_ms: i64) {
    let mut batch = WriteBatch::own();
    batch.push(
        db.series(&series_labels(OWN)).unwrap(),
        Sample {
            timestamp_ms,
            value: 1.0,
        },
        0,
    );
    db.append(&mut batch).unwrap();
}

/// Runs every operation that a wrong newest time could damage.
fn write_and_maintain(db: &Db, clock: &ManualClock, real_ms: i64) {
    write_own(db, clock.now_ms());
    write_real(db, real_ms);
    db.flush().unwrap();
    db.compact().unwrap();
    write_real(db, real_ms + SECOND_MS);
    assert!(
        REAL.iter().all(|&i| db.find(&series_labels(i)).is_some()),
        "a series was evicted"
    );
}

#[track_caller]
fn check_real(db: &Db, n_samples: usize) {
    let all = everything(db);
    for i in REAL {
        assert_eq!(
            all[&series_labels(i).to_string()].len(),
            n_samples,
            "series {i}"
        );
    }
}

#[test]
fn a_jump_while_the_store_is_open_costs_no_sample() {
    for jump_ms in JUMPS_MS {
        for is_sender_wrong in [false, true] {
            let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(NOW_MS));
            let db = filled(dir.path(), &clock);
            clock.jump_to(NOW_MS + jump_ms);
            if is_sender_wrong {
                append(&db, &[(WRONG, clock.now_ms(), 1.0)]);
            }
            write_and_maintain(&db, &clock, NOW_MS + SECOND_MS);
            clock.jump_to(NOW_MS + 10 * SECOND_MS);
            write_and_maintain(&db, &clock, NOW_MS + 10 * SECOND_MS);
            drop(db);
            let db = Db::open(dir.path(), options_at(&clock)).unwrap();
            write_and_maintain(&db, &clock, NOW_MS + 20 * SECOND_MS);
            check_real(&db, 9);
        }
    }
}

/// Each jump lasts for an hour. The store of an earlier process contains a newer sample of a
/// sender.
#[test]
fn own_samples_do_not_follow_a_jump_ahead() {
    for (jump_ms, own_ms) in [
        (0, 0),
        (5 * HOUR_MS, 0),
        (400 * DAY_MS, 0),
        (-5 * HOUR_MS, -5 * HOUR_MS),
    ] {
        let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(NOW_MS));
        let db = Db::open(dir.path(), options_at(&clock)).unwrap();
        clock.jump_to(NOW_MS + jump_ms);
        assert_eq!(db.own_now_ms(), NOW_MS + own_ms);
        append(&db, &[(WRONG, NOW_MS + jump_ms, 1.0)]);
        drop(db);
        clock.jump_to(NOW_MS);
        assert_eq!(
            Db::open(dir.path(), options_at(&clock))
                .unwrap()
                .own_now_ms(),
            NOW_MS,
            "{jump_ms}"
        );
    }
}

#[test]
fn a_jump_before_the_start_costs_no_sample() {
    for jump_ms in JUMPS_MS {
        for is_sender_wrong in [false, true] {
            let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(NOW_MS));
            drop(filled(dir.path(), &clock));
            clock.jump_to(NOW_MS + jump_ms);
            let db = Db::open(dir.path(), options_at(&clock)).unwrap();
            write_and_maintain(&db, &clock, NOW_MS + SECOND_MS);
            if is_sender_wrong {
                append(&db, &[(WRONG, clock.now_ms(), 1.0)]);
            }
            clock.jump_to(NOW_MS + 10 * SECOND_MS);
            write_and_maintain(&db, &clock, NOW_MS + 10 * SECOND_MS);
            check_real(&db, 7);
        }
    }
}

#[test]
fn own_samples_in_an_empty_store_make_no_sample_too_old() {
    let (dir, clock) = (
        tempfile::tempdir().unwrap(),
        ManualClock::at(NOW_MS + 5 * HOUR_MS),
    );
    let db = Db::open(dir.path(), options_at(&clock)).unwrap();
    write_and_maintain(&db, &clock, NOW_MS);
    assert_eq!(db.stats().newest_ms, Some(NOW_MS + 5 * HOUR_MS));
}

/// A clock that is slewed, by at most 500 us a second, or stepped back and forth, as NTP does.
#[test]
fn adjustments_cost_no_sample() {
    let step = |passed_ms: i64| passed_ms / 15_000 * 7919 % 2000 - 1000;
    let adjustments: [fn(i64) -> i64; 3] = [
        step,
        |passed_ms| passed_ms / 2000,
        |passed_ms| -passed_ms / 2000,
    ];
    for adjustment_ms in adjustments {
        let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(NOW_MS));
        let db = filled(dir.path(), &clock);
        for passed_ms in (1..1000).map(|scrape| scrape * 15 * SECOND_MS) {
            clock.set(clock.now_ms() + 15 * SECOND_MS);
            clock.jump_to(NOW_MS + passed_ms + adjustment_ms(passed_ms));
            write_own(&db, clock.now_ms());
            write_real(&db, NOW_MS + passed_ms);
        }
        db.flush().unwrap();
        db.compact().unwrap();
        check_real(&db, 3 + 999);
    }
}

#[test]
fn after_a_jump_that_lasts_retention_waits_for_a_confirmation() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(NOW_MS));
    let db = filled(dir.path(), &clock);
    clock.jump_to(NOW_MS + 20 * DAY_MS);
    write_own(&db, clock.now_ms());
    clock.set(clock.now_ms() + HOUR_MS);
    for _ in 0..2 {
        write_own(&db, clock.now_ms());
        db.flush().unwrap();
        db.compact().unwrap();
        assert_eq!(
            (db.n_held_blocks(), db.stats().compaction.n_expired),
            (3, 0)
        );
        check_real(&db, 3);
    }
    db.confirm_retention().unwrap();
    assert_eq!(
        (db.n_held_blocks(), db.stats().compaction.n_expired),
        (0, 3)
    );
    assert_eq!(
        everything(&db).into_keys().collect::<Vec<_>>(),
        [series_labels(OWN).to_string()]
    );
}

#[test]
fn a_window_is_settled_once_no_sender_can_add_a_sample() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(NOW_MS));
    let db = Db::open(dir.path(), options_at(&clock)).unwrap();
    assert_eq!(db.settled_ms(), None);
    write_real(&db, NOW_MS);
    let age_max_ms = options()
        .in_order_max_age_ms
        .max(options().out_of_order_window_ms);
    assert_eq!(db.settled_ms(), Some(NOW_MS - age_max_ms));
    // Senders lag behind, or have ended.
    for (passed_ms, expect_ms) in [(5 * HOUR_MS, NOW_MS), (30 * HOUR_MS, NOW_MS + 6 * HOUR_MS)] {
        clock.set(NOW_MS + passed_ms);
        write_own(&db, clock.now_ms());
        assert_eq!(db.settled_ms(), Some(expect_ms - age_max_ms), "{passed_ms}");
    }
    write_real(&db, NOW_MS + 7 * HOUR_MS);
    assert_eq!(db.settled_ms(), Some(NOW_MS + 7 * HOUR_MS - age_max_ms));
}

/// After a restart, the samples of the process counted as those of a sender. A clock that was still
/// wrong made all real samples too old.
#[test]
fn own_samples_of_an_earlier_process_make_no_sample_too_old() {
    for is_flushed in [false, true] {
        let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(NOW_MS));
        let db = Db::open(dir.path(), options_at(&clock)).unwrap();
        write_real(&db, NOW_MS);
        clock.jump_to(NOW_MS + 5 * HOUR_MS);
        write_own(&db, clock.now_ms());
        drop(db);
        for restart in 1..4 {
            let db = Db::open(dir.path(), options_at(&clock)).unwrap();
            write_real(&db, NOW_MS + restart * SECOND_MS);
            write_own(&db, clock.now_ms() + restart * SECOND_MS);
            if is_flushed {
                db.flush().unwrap();
            }
        }
        check_real(&Db::open(dir.path(), options_at(&clock)).unwrap(), 4);
    }
}

/// After a restart, the expected time was that of the newest sample, so each restart accepted a
/// newer one.
#[test]
fn samples_ahead_of_the_clock_do_not_raise_the_expected_time() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(NOW_MS));
    let ahead_max_ms = options().ahead_max_ms;
    for restart in 0..3 {
        let db = Db::open(dir.path(), options_at(&clock)).unwrap();
        assert_eq!(
            append(&db, &[(WRONG, NOW_MS + ahead_max_ms - 3 + restart, 1.0)]),
            []
        );
        assert_eq!(
            append(&db, &[(WRONG, NOW_MS + ahead_max_ms + 1, 1.0)]),
            [(0, RejectionReason::TooFarInFuture)]
        );
    }
}

/// Age limits counted from the newest sample, so one sample of one sender made samples of all
/// senders too old until the clock had reached its time.
#[test]
fn a_sample_ahead_of_the_clock_makes_no_sample_near_the_clock_too_old() {
    const MINUTE_MS: i64 = 60 * SECOND_MS;
    for (in_order_max_age_ms, out_of_order_window_ms, ahead_max_ms) in [
        (3 * HOUR_MS, 30 * MINUTE_MS, 10 * MINUTE_MS),
        (3 * HOUR_MS, 5 * MINUTE_MS, 10 * MINUTE_MS),
        (5 * MINUTE_MS, 5 * MINUTE_MS, 10 * MINUTE_MS),
        (HOUR_MS, 30 * MINUTE_MS, 2 * HOUR_MS),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(NOW_MS);
        let options = Options {
            in_order_max_age_ms,
            out_of_order_window_ms,
            ahead_max_ms,
            ..options_at(&clock)
        };
        let db = Db::open(dir.path(), options.clone()).unwrap();
        let ahead_ms = NOW_MS + ahead_max_ms - SECOND_MS;
        assert_eq!(append(&db, &[(WRONG, ahead_ms, 1.0)]), []);
        write_real(&db, NOW_MS - 3 * SECOND_MS);
        write_real(&db, NOW_MS - out_of_order_window_ms);
        let too_old_ms = NOW_MS - out_of_order_window_ms - 1;
        assert_eq!(
            append(&db, &[(REAL[0], too_old_ms, 1.0)]),
            [(0, RejectionReason::TooOld)]
        );
        db.flush().unwrap();
        drop(db);

        // The start finds the sample in a block.
        clock.set(NOW_MS + SECOND_MS);
        let db = Db::open(dir.path(), options).unwrap();
        write_real(&db, NOW_MS);
        write_real(&db, NOW_MS - out_of_order_window_ms + SECOND_MS);
        check_real(&db, 4);
    }
}

/// The samples were rejected as too old, which senders do not retry.
#[test]
fn while_the_file_for_samples_of_any_age_cannot_be_created_appends_fail_and_may_be_retried() {
    let (fs, clock) = (MemFs::new(), ManualClock::at(NOW_MS + 5 * HOUR_MS));
    let db = open_on(&fs, options_at(&clock));
    append(&db, &[(WRONG, NOW_MS + 5 * HOUR_MS, 1.0)]);
    clock.jump_to(NOW_MS);
    let series = db.series(&series_labels(REAL[0])).unwrap();
    let write = || {
        let mut batch = WriteBatch::default();
        batch.push(
            series,
            Sample {
                timestamp_ms: NOW_MS,
                value: 1.0,
            },
            0,
        );
        db.append(&mut batch)
            .map(|()| assert!(batch.rejected.is_empty()))
    };
    let is_unavailable =
        |written| matches!(written, Err(Error::Io { path, .. }) if path.ends_with("wal/unbounded"));
    fs.set_room(0);
    assert!(is_unavailable(write()));
    fs.set_room(u64::MAX);
    assert!(is_unavailable(write()), "one attempt a second");
    clock.set(NOW_MS + SECOND_MS);
    write().unwrap();
}

/// The oldest sample of the WAL is unknown then.
#[test]
fn reads_wait_for_the_replay_of_samples_older_than_a_wrong_newest_time() {
    let (fs, clock) = (MemFs::new(), ManualClock::at(NOW_MS + 5 * HOUR_MS));
    let has_marker = || fs.open(&Path::new(DATA).join("wal/unbounded")).is_ok();
    let db = open_on(&fs, options_at(&clock));
    append(&db, &[(WRONG, NOW_MS + 5 * HOUR_MS, 1.0)]);
    db.flush().unwrap();
    assert!(!has_marker());
    clock.jump_to(NOW_MS);
    write_real(&db, NOW_MS);
    assert!(has_marker());
    drop(db);

    fs.set_blocked_files(Some("samples-"));
    let db = open_on(
        &fs,
        Options {
            wal_replay_in_background: true,
            ..options_at(&clock)
        },
    );
    let impatient = ReadContext::unrestricted(QueryContext::new(
        Duration::ZERO,
        MemoryBudget::new(Limit::Other("memory"), usize::MAX),
    ));
    let read = db.select(&impatient, &[], TimeRange::at(NOW_MS));
    fs.set_blocked_files(None);
    assert!(matches!(read, Err(Error::Replaying { .. })));

    for t in [NOW_MS + 1, NOW_MS + 2] {
        db.flush().unwrap();
        assert!(!has_marker(), "the samples are in blocks");
        write_real(&db, t);
        assert!(has_marker());
    }
}
