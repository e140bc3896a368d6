//! Retention rules: which samples they remove, and what happens to them meanwhile.

use varve_context::Interrupt;
use varve_env::Clock;

use super::*;
use crate::block::BlockId;
use crate::compact::rewrite;
use crate::retention::{RetentionRule, RetentionSize};

const DAY_MS: i64 = 86_400_000;
/// Noon, so that a day of samples is in one block.
const NOON_MS: i64 = NOW_MS - NOW_MS % DAY_MS + DAY_MS / 2;
const N_SERIES: usize = 4;

/// Creates a rule for the series whose number matches a regular expression.
fn rule(series: &str, days: Option<i64>) -> RetentionRule {
    let matchers = vec![Matcher::new(MatchOp::Regexp, "i", series).unwrap()];
    RetentionRule {
        matchers,
        time_ms: days.map(|days| days * DAY_MS),
    }
}

/// Opens a store with one block per day, from day 0 to `last`, each with a sample of all series.
/// The clock is in the last day.
fn filled(last: i64) -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = filled_on(Arc::new(RealFs), dir.path(), last);
    (dir, db)
}

fn filled_on(fs: Arc<dyn Fs>, dir: &Path, last: i64) -> Db {
    let clock = Arc::new(ManualClock::at(NOON_MS + last * DAY_MS));
    let db = Db::open(
        dir,
        Options {
            clock,
            fs,
            ..options()
        },
    )
    .unwrap();
    for day in 0..=last {
        let samples: Vec<_> = (0..N_SERIES)
            .map(|i| (i, NOON_MS + day * DAY_MS, 1.0))
            .collect();
        assert_eq!(append(&db, &samples), []);
        db.flush().unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.blocks().len() as i64, last + 1);
    db
}

fn set_rules(db: &Db, rules: &[RetentionRule]) {
    db.set_retention(None, None, rules.to_vec());
}

/// Asserts the days of the samples of each series.
#[track_caller]
fn check(db: &Db, expect: [&[i64]; N_SERIES]) {
    let all = everything(db);
    let days = |i| {
        let samples = all
            .get(&series_labels(i).to_string())
            .map(Vec::as_slice)
            .unwrap_or_default();
        samples
            .iter()
            .map(|(t, _)| (t - NOON_MS) / DAY_MS)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        std::array::from_fn::<_, N_SERIES, _>(days),
        expect.map(<[i64]>::to_vec)
    );
}

#[test]
fn a_percentage_of_the_volume_limits_the_size() {
    let fs = MemFs::new();
    let db = filled_on(Arc::new(fs.clone()), Path::new("/data"), 4);
    fs.set_room(1 << 20);
    let volume = fs.volume(Path::new("/data")).unwrap().size;
    assert!(volume > 1 << 20, "{volume}");
    let size = |percent, otherwise| Some(RetentionSize::VolumePercent { percent, otherwise });
    let n_blocks_with = |size| {
        db.set_retention(None, size, Vec::new());
        db.compact().unwrap();
        db.blocks().len()
    };
    assert_eq!(n_blocks_with(size(100.0, Some(0))), 5);
    // While the size of the volume is not known, the other limit counts.
    fs.set_room(u64::MAX);
    assert_eq!(n_blocks_with(size(1e-3, None)), 5);
    assert_eq!(n_blocks_with(size(1e-3, Some(u64::MAX))), 5);
    fs.set_room(1 << 20);
    assert_eq!(n_blocks_with(size(1e-3, Some(u64::MAX))), 0);
}

#[test]
fn the_first_rule_that_matches_applies_and_other_rules_after_a_reload() {
    let (dir, db) = filled(4);
    let all: &[i64] = &[0, 1, 2, 3, 4];
    // Series 0 is an exception, series 1 has the longer time of its first rule, series 3 has no
    // rule.
    set_rules(
        &db,
        &[rule("0", None), rule("1", Some(4)), rule("0|1|2", Some(3))],
    );
    for _ in 0..2 {
        db.compact().unwrap();
        assert_eq!(
            db.n_held_blocks(),
            2,
            "the blocks of days 0 and 1 are too old for the last rule at once"
        );
    }
    check(&db, [all, &[1, 2, 3, 4], all, all]);
    db.confirm_retention().unwrap();
    assert_eq!(db.n_held_blocks(), 0);
    let merges = |db: &Db| db.stats().compaction.n_merges;
    let before = merges(&db);
    for _ in 0..2 {
        db.compact().unwrap();
        check(&db, [all, &[1, 2, 3, 4], &[2, 3, 4], all]);
        assert_eq!(
            (merges(&db) - before, db.n_held_blocks()),
            (2, 0),
            "each block is rewritten once"
        );
    }
    assert_eq!(db.stats().compaction.n_removed_by_rules, 3);

    set_rules(&db, &[rule("3", Some(4))]);
    db.compact().unwrap();
    let expect: [&[i64]; N_SERIES] = [all, &[1, 2, 3, 4], &[2, 3, 4], &[1, 2, 3, 4]];
    check(&db, expect);
    set_rules(&db, &[]);
    db.compact().unwrap();
    drop(db);
    check(&open(dir.path()), expect);
}

#[test]
fn a_block_that_loses_all_series_is_removed() {
    let (dir, db) = filled(3);
    set_rules(&db, &[rule(".+", Some(3))]);
    db.compact().unwrap();
    check(&db, [&[1, 2, 3]; N_SERIES]);
    assert_eq!(db.blocks().len(), 3);
    assert_eq!(
        std::fs::read_dir(dir.path().join("blocks"))
            .unwrap()
            .count(),
        3
    );
}

#[test]
fn samples_that_arrive_in_a_rewritten_block_are_removed_later() {
    let (dir, db) = filled(3);
    set_rules(&db, &[rule("1", Some(3))]);
    db.compact().unwrap();
    let all: &[i64] = &[0, 1, 2, 3];
    check(&db, [all, &[1, 2, 3], all, all]);
    // A block with the same samples, as from a backup.
    let (source, other) = filled(0);
    std::fs::create_dir(dir.path().join("import")).unwrap();
    for name in std::fs::read_dir(source.path().join("blocks")).unwrap() {
        let name = name.unwrap().file_name();
        std::fs::copy(
            source.path().join("blocks").join(&name),
            dir.path().join("import").join(&name),
        )
        .unwrap();
    }
    drop(other);
    assert_eq!(db.import().unwrap(), 1);
    check(&db, [all; N_SERIES]);
    db.compact().unwrap();
    check(&db, [all, &[1, 2, 3], all, all]);
}

/// Deletions and rewrites change the same blocks.
#[test]
fn deleted_samples_stay_deleted_while_rules_rewrite_their_blocks() {
    let (_dir, db) = filled(8);
    let delete = |i: &str| {
        db.delete(vec![Matcher::equal("i", i)], TimeRange::ALL)
            .unwrap()
    };
    delete("0");
    set_rules(&db, &[rule("1", Some(1))]);
    db.compact().unwrap();
    db.confirm_retention().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| db.compact().unwrap());
        delete("2");
    });
    let all: &[i64] = &[0, 1, 2, 3, 4, 5, 6, 7, 8];
    db.compact().unwrap();
    check(&db, [&[], &[8], &[], all]);
    db.clean_tombstones().unwrap();
    check(&db, [&[], &[8], &[], all]);
}

/// The result of the first rewrite contains samples that are deleted before it replaces its source.
#[test]
fn a_rewrite_that_a_deletion_overtakes_is_repeated() {
    let fs = MemFs::new();
    let db = filled_on(Arc::new(fs.clone()), DATA.as_ref(), 3);
    set_rules(&db, &[rule("1", Some(3))]);
    let result = BlockId(db.store.blocks.next_id().0 + 1).file_name();
    let n_merges = db.stats().compaction.n_merges;
    // The verification of the result waits.
    fs.set_blocked_files(Some(&result));
    std::thread::scope(|scope| {
        scope.spawn(|| db.compact().unwrap());
        while fs
            .open(&Path::new(DATA).join("blocks").join(&result))
            .is_err()
        {
            std::thread::yield_now();
        }
        db.delete(vec![Matcher::equal("i", "2")], TimeRange::ALL)
            .unwrap();
        fs.set_blocked_files(None);
    });
    let all: &[i64] = &[0, 1, 2, 3];
    check(&db, [all, &[1, 2, 3], &[], all]);
    let stats = db.stats().compaction;
    assert_eq!((stats.n_merges - n_merges, stats.n_failed), (2, 0));
}

#[test]
fn a_rewrite_is_a_change_for_cached_results() {
    let (_dir, db) = filled(3);
    let all = TimeRange {
        start_ms: 0,
        end_ms: NOON_MS + 9 * DAY_MS,
    };
    let changes = |version| db.changes(version, NameGroups::of_name("m"), all);
    let version = || db.read_version().unwrap();
    let before = version();
    db.compact().unwrap();
    assert_eq!(changes(before), [], "nothing to do");
    set_rules(&db, &[rule("1", Some(3))]);
    db.compact().unwrap();
    assert_eq!(
        changes(before),
        [TimeRange::at(NOON_MS)],
        "the block of day 0"
    );
    let after = version();
    db.compact().unwrap();
    assert_eq!(changes(after), []);
}

#[test]
fn a_stop_ends_a_rewrite_without_a_change() {
    let (dir, db) = filled(3);
    set_rules(&db, &[rule("1", Some(3))]);
    let stop = AtomicBool::new(true);
    let is_stopped = |result| matches!(result, Err(Error::Interrupted(Interrupt::Shutdown)));
    let blocks = db.blocks();
    assert!(
        is_stopped(db.store.compact(&stop)),
        "before the search of blocks"
    );
    // A rewrite that has begun.
    let list = db.store.blocks.list();
    let removed = list[0]
        .block
        .index
        .select(&ReadContext::unbounded(), &rule("1", None).matchers)
        .unwrap();
    assert!(is_stopped(
        db.store
            .run(&rewrite(list[0].meta()), &removed, &stop)
            .map(drop)
    ));
    assert_eq!(db.blocks(), blocks);
    assert_eq!(
        std::fs::read_dir(dir.path().join("blocks"))
            .unwrap()
            .count(),
        4,
        "no file is left"
    );
    db.compact().unwrap();
    let all: &[i64] = &[0, 1, 2, 3];
    check(&db, [all, &[1, 2, 3], all, all]);
}

/// A clock that is ahead for more than an hour makes many blocks too old at once.
#[test]
fn while_the_clock_is_ahead_rules_remove_no_samples() {
    let (dir, db) = filled(8);
    drop(db);
    let clock = ManualClock::at(NOON_MS + 8 * DAY_MS);
    let db = Db::open(
        dir.path(),
        Options {
            clock: Arc::new(clock.clone()),
            ..options()
        },
    )
    .unwrap();
    set_rules(&db, &[rule("1", Some(8))]);
    let (all, rest): (&[i64], &[i64]) = (&[0, 1, 2, 3, 4, 5, 6, 7, 8], &[1, 2, 3, 4, 5, 6, 7, 8]);
    let compact = |n_held| {
        db.compact().unwrap();
        assert_eq!(db.n_held_blocks(), n_held);
        check(&db, [all, rest, all, all]);
    };
    compact(0);
    clock.jump_to(NOON_MS + 13 * DAY_MS);
    append(&db, &[(N_SERIES, clock.now_ms(), 1.0)]);
    compact(0);
    clock.set(clock.now_ms() + 3_600_000);
    append(&db, &[(N_SERIES, clock.now_ms(), 1.0)]);
    compact(5);
    clock.set(clock.now_ms() + 60_000);
    compact(5);
    clock.jump_to(NOON_MS + 8 * DAY_MS);
    compact(0);
}

/// Rules used to wait for the merges, also while one of them cannot succeed.
#[test]
fn a_block_that_cannot_be_merged_does_not_delay_rules() {
    let fs = MemFs::new();
    let db = filled_on(Arc::new(fs.clone()), DATA.as_ref(), 3);
    append(&db, &[(0, NOON_MS + 3 * DAY_MS + 1, 1.0)]);
    db.flush().unwrap();
    let newest = db.blocks().iter().map(|block| block.number).max().unwrap();
    drop(db);
    fs.set_bad_sector(
        &Path::new(DATA)
            .join("blocks")
            .join(BlockId(newest).file_name()),
        30..40,
    )
    .unwrap();
    // Two days later, the two blocks of the last day are due for a merge.
    let clock = Arc::new(ManualClock::at(NOON_MS + 5 * DAY_MS));
    let db = open_on(&fs, Options { clock, ..options() });
    append(&db, &[(0, NOON_MS + 5 * DAY_MS, 1.0)]);
    db.flush().unwrap();
    set_rules(&db, &[rule("1", Some(3))]);
    db.compact().unwrap_err();
    let stats = db.stats().compaction;
    assert_eq!((stats.n_removed_by_rules, stats.n_failed), (1, 1));
}
