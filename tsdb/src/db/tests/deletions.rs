//! Deletions: what they leave behind until their blocks are merged, and when a merge, an import or
//! a file fails them.

use varve_env::testing::Fault;

use super::*;
use crate::block::tombstones::Tombstones;

const DAY_MS: i64 = 86_400_000;

fn delete(db: &Db, i: usize) {
    db.delete(vec![Matcher::equal("i", &i.to_string())], TimeRange::ALL)
        .unwrap();
}

/// Returns the number of tombstones in a data directory.
fn n_rules(fs: &MemFs) -> usize {
    Tombstones::open(Arc::new(fs.clone()), DATA.as_ref(), 0)
        .unwrap()
        .as_slice()
        .len()
}

fn wait_until(is_true: impl Fn() -> bool) {
    let started = std::time::Instant::now();
    while !is_true() {
        assert!(
            started.elapsed() < std::time::Duration::from_secs(60),
            "waited for a minute"
        );
        std::thread::yield_now();
    }
}

/// Each repetition used to take memory, and time of each read, until the block was merged.
#[test]
fn a_deletion_that_covers_earlier_ones_replaces_them() {
    let (_dir, db) = fresh(options());
    append(
        &db,
        &[(0, NOW_MS, 1.0), (0, NOW_MS + 1, 1.0), (1, NOW_MS, 1.0)],
    );
    let n_deleted = || {
        db.store
            .blocks
            .list()
            .iter()
            .map(|stored| stored.deleted(0).count())
            .sum::<usize>()
    };
    for end_ms in [NOW_MS, NOW_MS, NOW_MS + 1] {
        db.delete(
            vec![Matcher::equal("i", "0")],
            TimeRange {
                start_ms: 0,
                end_ms,
            },
        )
        .unwrap();
        assert_eq!(n_deleted(), 1);
    }
    db.delete(vec![Matcher::equal("i", "0")], TimeRange::at(NOW_MS))
        .unwrap();
    assert_eq!((n_deleted(), everything(&db).len()), (2, 1));
    db.delete(vec![Matcher::equal(METRIC_NAME, "m")], TimeRange::ALL)
        .unwrap();
    assert_eq!((n_deleted(), everything(&db).len()), (1, 0));
}

/// They were listed until the next merge of their block.
#[test]
fn labels_of_deleted_series_are_not_listed() {
    let (_dir, db) = fresh(options());
    let last_ms = NOW_MS + 10;
    append(
        &db,
        &[(0, NOW_MS, 1.0), (0, last_ms, 1.0), (1, NOW_MS, 1.0)],
    );
    let values = |matchers: &[Matcher]| {
        let ctx = ReadContext::unbounded();
        let found = db.label_values(&ctx, "i", matchers, TimeRange::ALL);
        let found = found.unwrap();
        found.iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let names = || {
        let ctx = ReadContext::unbounded();
        let found = db.label_names(&ctx, &[], TimeRange::ALL).unwrap();
        found.iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let of_metric = [Matcher::equal(METRIC_NAME, "m")];
    delete(&db, 1);
    assert_eq!(
        (values(&[]), values(&of_metric)),
        (vec!["0".to_owned()], vec!["0".to_owned()])
    );

    // One deletion after the other, until no sample is left.
    let delete_range = |start_ms, end_ms| {
        db.delete(of_metric.to_vec(), TimeRange { start_ms, end_ms })
            .unwrap();
    };
    delete_range(NOW_MS + 1, NOW_MS + 9);
    delete_range(last_ms, last_ms);
    assert_eq!((values(&[]), names().len()), (vec!["0".to_owned()], 2));
    delete_range(NOW_MS, NOW_MS);
    assert_eq!(
        (values(&[]), values(&of_metric), names()),
        (vec![], vec![], vec![])
    );

    append(&db, &[(1, last_ms + 1, 1.0)]);
    assert_eq!(values(&[]), ["1"]);
}

/// A list that was interrupted kept nothing, so no list with a short deadline ever ended.
#[test]
fn lists_of_labels_with_short_deadlines_examine_deletions_in_turn() {
    let (_dir, db) = fresh(options());
    let samples: Vec<_> = (0..20_000)
        .flat_map(|i| [(i, NOW_MS, 1.0), (i, NOW_MS + 2, 1.0)])
        .collect();
    append(&db, &samples);
    // Samples are left on both sides, so that the block must be read.
    db.delete(
        vec![Matcher::equal(METRIC_NAME, "m")],
        TimeRange::at(NOW_MS + 1),
    )
    .unwrap();
    let list = |timeout| {
        let memory = varve_context::MemoryBudget::new(Limit::Other("memory"), usize::MAX);
        let ctx = ReadContext::restricted(QueryContext::new(timeout, memory), [].into());
        db.label_names(&ctx, &[], TimeRange::ALL)
    };
    assert!(list(std::time::Duration::ZERO).is_err());
    let mut n_interrupted = 0;
    while list(std::time::Duration::from_millis(2)).is_err() {
        n_interrupted += 1;
        assert!(n_interrupted < 2_000, "no list ends");
    }
    assert!(n_interrupted > 0, "a faster machine needs more series");
}

/// A rule used to count against the limit as long as any block had its time.
#[test]
fn rules_that_affect_no_block_are_dropped() {
    let fs = MemFs::new();
    let db = open_on(&fs, options());
    append(&db, &[(0, NOW_MS - DAY_MS, 1.0)]);
    append(&db, &(0..4).map(|i| (i, NOW_MS, 1.0)).collect::<Vec<_>>());
    delete(&db, 1);
    delete(&db, 2);
    append(&db, &[(0, NOW_MS + 1, 1.0)]);
    db.flush().unwrap();
    assert_eq!(n_rules(&fs), 2);
    db.clean_tombstones().unwrap();
    assert_eq!(n_rules(&fs), 0);
    // No block has had such a series.
    delete(&db, 7);
    append(&db, &[(0, NOW_MS + 2, 1.0)]);
    delete(&db, 3);
    db.clean_tombstones().unwrap();
    assert_eq!(n_rules(&fs), 1);
    // The checkpoint still has the series, so the rule is needed until a flush follows it.
    drop(db);
    let db = open_on(&fs, options());
    assert_eq!((db.n_series(), everything(&db).len()), (1, 1));
}

/// The rule used to be dropped once no other block needed it, and the file of the block came back
/// at the next start.
#[test]
fn deleted_samples_stay_deleted_if_the_file_of_their_block_cannot_be_removed() {
    for operation in 0.. {
        let fs = MemFs::new();
        let db = open_on(&fs, options());
        append(&db, &[(0, NOW_MS, 1.0)]);
        delete(&db, 0);
        let n_operations = fs.n_operations();
        fs.fail_at(
            n_operations + operation,
            Fault::Fails(std::io::ErrorKind::PermissionDenied),
        );
        let cleaned = db.clean_tombstones();
        if fs.n_operations() <= n_operations + operation {
            break;
        }
        // This rule is dropped, and the first one with it.
        append(&db, &[(1, NOW_MS, 1.0), (2, NOW_MS, 1.0)]);
        db.flush().unwrap();
        delete(&db, 1);
        append(&db, &[(2, NOW_MS + 1, 1.0)]);
        db.flush().unwrap();
        db.clean_tombstones().unwrap();
        drop(db);
        let found: Vec<_> = everything(&open_on(&fs, options())).into_keys().collect();
        assert_eq!(
            found,
            [series_labels(2).to_string()],
            "{:?}, then {cleaned:?}",
            fs.failed()
        );
    }
}

/// It used to remain until the next start, and to count for nothing.
#[test]
fn a_file_that_could_not_be_removed_is_removed_later() {
    let fs = MemFs::new();
    let db = open_on(
        &fs,
        Options {
            retention_ms: Some(DAY_MS),
            ..options()
        },
    );
    for day in [-3, -2, 0] {
        append(&db, &[(0, NOW_MS + day * DAY_MS, 1.0)]);
    }
    db.flush().unwrap();
    fs.fail_at(
        fs.n_operations(),
        Fault::Fails(std::io::ErrorKind::PermissionDenied),
    );
    db.confirm_retention().unwrap_err();
    append(&db, &[(0, NOW_MS + 1, 1.0)]);
    db.compact_fully().unwrap();
    assert_eq!(
        (
            db.blocks().len(),
            fs.list(&Path::new(DATA).join("blocks")).unwrap().len()
        ),
        (1, 1)
    );
}

/// Such deletions, repeated as the days pass, used to take memory each time.
#[test]
fn a_deletion_replaces_those_that_it_covers_within_a_block() {
    let (dir, db) = fresh(options());
    append(&db, &[(0, NOW_MS, 1.0), (1, NOW_MS, 1.0)]);
    let n_deleted = |db: &Db| {
        db.store
            .blocks
            .list()
            .iter()
            .map(|stored| stored.deleted(0).count())
            .sum::<usize>()
    };
    for day in 0..3 {
        let range = TimeRange {
            start_ms: NOW_MS - (9 - day) * DAY_MS,
            end_ms: NOW_MS + day * DAY_MS,
        };
        db.delete(vec![Matcher::equal("i", "0")], range).unwrap();
        assert_eq!(n_deleted(&db), 1);
    }
    drop(db);
    let db = open(dir.path());
    assert_eq!((n_deleted(&db), everything(&db).len()), (1, 1));
}

/// The blocks of an import are added after a deletion that runs meanwhile, but there is no later
/// checkpoint.
#[test]
fn a_restart_after_a_deletion_during_an_import_does_not_restore_deleted_series() {
    let fs = MemFs::new();
    let other = Db::open(
        "/other".as_ref(),
        Options {
            fs: Arc::new(fs.clone()),
            ..options()
        },
    )
    .unwrap();
    append(&other, &[(7, NOW_MS - DAY_MS, 1.0), (7, NOW_MS, 1.0)]);
    other.flush().unwrap();
    let db = open_on(&fs, options());
    let (blocks, import) = (
        Path::new(DATA).join("blocks"),
        Path::new(DATA).join("import"),
    );
    fs.create_dir(&import).unwrap();
    for (from, to) in [
        ("00000001.block", "00000077.block"),
        ("00000002.block", "00000088.block"),
    ] {
        fs.hard_link(&Path::new("/other/blocks").join(from), &import.join(to))
            .unwrap();
    }
    append(&db, &[(0, NOW_MS, 1.0), (1, NOW_MS, 1.0), (2, NOW_MS, 1.0)]);
    db.flush().unwrap();
    let n_blocks = fs.list(&blocks).unwrap().len();
    fs.set_blocked_files(Some("00000088"));
    std::thread::scope(|scope| {
        let imported = scope.spawn(|| db.import().unwrap());
        // The marker of the import, and its first block.
        let n_named = || {
            fs.list(&blocks)
                .unwrap()
                .iter()
                .filter(|name| !name.ends_with(".tmp"))
                .count()
        };
        wait_until(|| n_named() >= n_blocks + 2);
        delete(&db, 1);
        fs.set_blocked_files(None);
        assert_eq!(imported.join().unwrap(), 2);
    });
    assert_eq!((db.n_series(), everything(&db).len()), (2, 3));
    drop(db);
    let db = open_on(&fs, options());
    assert_eq!((db.n_series(), everything(&db).len()), (2, 3));
    // Series that are sent again after the import stay.
    append(&db, &[(1, NOW_MS, 1.0)]);
    db.flush().unwrap();
    drop(db);
    assert_eq!(open_on(&fs, options()).n_series(), 3);
}

/// Puts two blocks into the import directory. Blocks the import before the second one, and runs
/// `meanwhile` then.
fn import_slowly(fs: &MemFs, samples: &[(usize, i64, f64); 2], meanwhile: impl FnOnce(&Db)) -> Db {
    let other = Db::open(
        "/other".as_ref(),
        Options {
            fs: Arc::new(fs.clone()),
            ..options()
        },
    )
    .unwrap();
    append(&other, samples);
    other.flush().unwrap();
    let db = open_on(fs, options());
    let (blocks, import) = (
        Path::new(DATA).join("blocks"),
        Path::new(DATA).join("import"),
    );
    fs.create_dir(&import).unwrap();
    for name in fs.list("/other/blocks".as_ref()).unwrap() {
        fs.hard_link(&Path::new("/other/blocks").join(&name), &import.join(&name))
            .unwrap();
    }
    fs.set_blocked_files(Some("00000002.block"));
    std::thread::scope(|scope| {
        let imported = scope.spawn(|| db.import().unwrap());
        wait_until(|| fs.open(&blocks.join("00000001.block")).is_ok());
        meanwhile(&db);
        fs.set_blocked_files(None);
        assert_eq!(imported.join().unwrap(), 2);
    });
    db
}

/// It used to affect only the blocks that had been rewritten.
#[test]
fn a_deletion_during_an_import_affects_all_its_blocks() {
    let fs = MemFs::new();
    let db = import_slowly(&fs, &[(7, NOW_MS - DAY_MS, 1.0), (7, NOW_MS, 1.0)], |db| {
        delete(db, 7)
    });
    assert_eq!(everything(&db).len(), 0);
    drop(db);
    assert_eq!(everything(&open_on(&fs, options())).len(), 0);
}

/// The number of the flush used to be below that of the second block, so the value changed once the
/// flush succeeded.
#[test]
fn a_failed_flush_during_an_import_does_not_change_the_value_of_a_sample() {
    let fs = MemFs::new();
    let db = import_slowly(&fs, &[(7, NOW_MS - DAY_MS, 1.0), (7, NOW_MS, 1.0)], |db| {
        append(db, &[(7, NOW_MS, 2.0)]);
        fs.set_out_of_files(Some("00000003.block"));
        db.flush().unwrap_err();
        fs.set_out_of_files(None);
    });
    let before = everything(&db);
    db.flush().unwrap();
    assert_eq!(everything(&db), before);
    drop(db);
    assert_eq!(everything(&open_on(&fs, options())), before);
}

/// A rewrite that a deletion overtakes used to be skipped, although its block contains deleted
/// samples.
#[test]
fn a_cleaning_that_a_deletion_overtakes_is_repeated() {
    let fs = MemFs::new();
    let db = open_on(&fs, options());
    append(&db, &[(0, NOW_MS, 1.0), (1, NOW_MS, 1.0), (2, NOW_MS, 1.0)]);
    delete(&db, 0);
    let result = crate::block::BlockId(db.store.blocks.next_id().0 + 1).file_name();
    fs.set_blocked_files(Some(&result));
    std::thread::scope(|scope| {
        let cleaned = scope.spawn(|| db.clean_tombstones().unwrap());
        wait_until(|| {
            fs.open(&Path::new(DATA).join("blocks").join(&result))
                .is_ok()
        });
        delete(&db, 1);
        fs.set_blocked_files(None);
        cleaned.join().unwrap();
    });
    assert_eq!((db.stats().blocks_samples, everything(&db).len()), (1, 1));
}

/// A block whose rename fails although it happened is not used, but its file used to be in the
/// store after a restart.
#[test]
fn deleted_samples_stay_deleted_if_a_flush_failed_before_in_any_operation() {
    for operation in 0.. {
        let fs = MemFs::new();
        let db = open_on(&fs, options());
        append(&db, &[(0, NOW_MS, 1.0), (1, NOW_MS, 1.0)]);
        fs.fail_at(fs.n_operations() + operation, Fault::Cut);
        let flushed = db.flush();
        if fs.failed().is_none() {
            break;
        }
        delete(&db, 0);
        append(&db, &[(1, NOW_MS + 1, 1.0)]);
        db.flush().unwrap();
        db.clean_tombstones().unwrap();
        drop(db);
        let found: Vec<_> = everything(&open_on(&fs, options())).into_keys().collect();
        assert_eq!(
            found,
            [series_labels(1).to_string()],
            "{:?}, then {flushed:?}",
            fs.failed()
        );
    }
}
