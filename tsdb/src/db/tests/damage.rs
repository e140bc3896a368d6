//! Files that are damaged, foreign or left by a crash. The store opens with all valid data, reports
//! the damage, and removes nothing that may be useful.

use varve_env::damage::DamageReport;

use super::*;
use crate::batch::SeriesRef;
use crate::block::set::check_in;
use crate::block::{Block, BlockMeta, BlockOrigin, BlockWriter, PageCache};
use crate::compact::{Merging, merge};
use crate::db::BlockSummary;
use crate::wal::inspect::inspect;
use crate::wal::{Log, LogOptions};

fn block_paths(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(dir.join("blocks"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

/// Creates two parts of two windows, each with a sample of series 0.
fn two_parts(dir: &Path) -> [i64; 2] {
    let times = [NOW_MS - 7_200_000, NOW_MS];
    let db = open(dir);
    for t in times {
        append(&db, &[(0, t, 1.0), (1, t, 2.0)]);
        db.flush().unwrap();
    }
    assert_eq!(block_paths(dir).len(), 2);
    times
}

fn times_of(db: &Db, i: usize) -> Vec<i64> {
    everything(db)
        .get(&series_labels(i).to_string())
        .into_iter()
        .flatten()
        .map(|sample| sample.0)
        .collect()
}

/// A damaged block is left alone. After its repair, deleted samples stay deleted.
#[test]
fn rules_are_kept_for_a_block_that_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = two_parts(dir.path());
    let db = open(dir.path());
    db.delete(vec![Matcher::equal("i", "0")], TimeRange::at(first))
        .unwrap();
    drop(db);
    let path = block_paths(dir.path()).remove(0);
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, &good[..good.len() - 1]).unwrap();

    let db = open(dir.path());
    assert_eq!(
        (db.stats().n_damaged_blocks, times_of(&db, 0)),
        (1, vec![second])
    );
    db.delete(vec![Matcher::equal("i", "1")], TimeRange::at(first))
        .unwrap();
    // Merges drop the rules that no block needs any more.
    db.compact_fully().unwrap();
    db.clean_tombstones().unwrap();
    drop(db);

    std::fs::write(&path, &good).unwrap();
    let db = open(dir.path());
    assert_eq!(db.stats().n_damaged_blocks, 0);
    assert_eq!(
        (times_of(&db, 0), times_of(&db, 1)),
        (vec![second], vec![second])
    );
}

/// The flush of a block that does not open is unknown. A rule used to miss the block if it had the
/// last flushes.
#[test]
fn a_rule_applies_to_a_block_of_the_last_flush_that_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    append(&db, &[(0, NOW_MS, 1.0)]);
    (0..4).for_each(|_| _ = db.flush().unwrap());
    append(&db, &[(0, NOW_MS + 1, 1.0), (1, NOW_MS + 1, 1.0)]);
    db.flush().unwrap();
    drop(db);
    // The second time, the block is of a start with such a block.
    for time_ms in [NOW_MS + 2, NOW_MS + 3] {
        let path = block_paths(dir.path()).pop().unwrap();
        let good = std::fs::read(&path).unwrap();
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        let db = open(dir.path());
        assert_eq!(db.stats().n_damaged_blocks, 1);
        db.delete(vec![Matcher::equal("i", "0")], TimeRange::ALL)
            .unwrap();
        append(&db, &[(0, time_ms, 1.0), (1, time_ms, 1.0)]);
        db.flush().unwrap();
        drop(db);
        std::fs::write(&path, &good).unwrap();
        let db = open(dir.path());
        assert_eq!(
            (times_of(&db, 0), *times_of(&db, 1).last().unwrap()),
            (vec![time_ms], time_ms)
        );
    }
}

/// The directory of a block is intact, a page of its postings is damaged: the series that the rules
/// affect cannot be determined.
#[test]
fn a_block_that_cannot_apply_its_rules_is_skipped_and_the_others_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = two_parts(dir.path());
    open(dir.path())
        .delete(vec![Matcher::equal("i", "0")], TimeRange::at(first))
        .unwrap();
    let path = block_paths(dir.path()).remove(0);
    let good = std::fs::read(&path).unwrap();
    let mut n_left_out = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let db = open(dir.path());
        let set = db
            .select(&ReadContext::unbounded(), &[], TimeRange::at(second))
            .unwrap();
        assert_eq!(
            set.filter(Result::is_ok).count(),
            2,
            "damage at {at}: the other block is served"
        );
        n_left_out += db.stats().n_damaged_blocks;
        drop(db);
        assert_eq!(
            std::fs::read(&path).unwrap(),
            bad,
            "damage at {at}: the file is left alone"
        );
    }
    assert!(n_left_out > 0);
}

#[test]
fn a_delete_that_cannot_be_applied_to_a_block_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = two_parts(dir.path());
    let path = block_paths(dir.path()).remove(0);
    let good = std::fs::read(&path).unwrap();
    let mut n_refused = 0;
    for at in (0..good.len()).step_by(3) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let db = open(dir.path());
        if let Err(refused) = db.delete(vec![Matcher::equal("i", "1")], TimeRange::ALL) {
            assert!(
                matches!(refused, Error::Corrupt { path: named, .. } if named == path),
                "damage at {at}"
            );
            n_refused += 1;
            drop(db);
            std::fs::write(&path, &good).unwrap();
            assert_eq!(
                times_of(&open(dir.path()), 1),
                [first, second],
                "damage at {at}"
            );
        }
        drop(std::fs::remove_file(dir.path().join("tombstones")));
    }
    assert!(n_refused > 0);
}

/// If a file under another block's name were accepted, the list would have that block twice, and a
/// merge would remove both.
#[test]
fn a_block_under_the_name_of_another_is_skipped_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = two_parts(dir.path());
    let [older, newer] = &block_paths(dir.path())[..] else {
        panic!("two parts")
    };
    let (good, other) = (std::fs::read(older).unwrap(), std::fs::read(newer).unwrap());
    let copy = dir.path().join("blocks/00000077.block");
    std::fs::write(older, &other).unwrap();
    std::fs::write(&copy, &other).unwrap();
    let db = open(dir.path());
    assert_eq!(
        (times_of(&db, 0), db.stats().n_damaged_blocks),
        (vec![second], 2)
    );
    db.compact_fully().unwrap();
    db.snapshot("s", false).unwrap();
    drop(db);
    assert_eq!(
        (std::fs::read(older).unwrap(), std::fs::read(&copy).unwrap()),
        (other.clone(), other)
    );
    let path = block_paths(dir.path()).remove(0);
    let refused = Block::open(&RealFs, older, &Arc::new(PageCache::new(1 << 20))).map(drop);
    assert!(
        refused.is_ok(),
        "it may be read by its path, as an import does"
    );
    std::fs::write(path, good).unwrap();
    std::fs::remove_file(copy).unwrap();
    assert_eq!(times_of(&open(dir.path()), 0), [first, second]);
}

/// Merges all blocks of a store into one under its final name, as a merge does just before
/// verification.
fn merged_beside_its_sources(db: &Db) -> BlockMeta {
    let list = db.store.blocks.list();
    let metas = db.store.blocks.metas();
    let origin = BlockOrigin {
        id: db.store.blocks.next_id(),
        window: TimeRange {
            start_ms: NOW_MS - 86_400_000,
            end_ms: NOW_MS + 86_400_000,
        },
        level: 1,
        flushes: (1, 2),
        sources: metas.iter().map(|meta| meta.origin.id).collect(),
        deletions: 0,
    };
    let merging = Merging {
        fs: Arc::new(RealFs),
        dir: db.store.blocks.dir(),
        throttle: &db.store.throttle,
        stop: &AtomicBool::new(false),
    };
    merge(&list, origin, &merging).unwrap().meta.unwrap()
}

#[test]
fn a_damaged_merged_block_never_replaces_its_sources() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = two_parts(dir.path());
    let db = open(dir.path());
    merged_beside_its_sources(&db);
    drop(db);
    let [_, _, merged] = &block_paths(dir.path())[..] else {
        panic!("two sources and the merged block")
    };
    let good = std::fs::read(merged).unwrap();
    for at in (0..good.len()).chain([usize::MAX]) {
        let mut bytes = good.clone();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1;
        }
        std::fs::write(merged, &bytes).unwrap();
        let db = open(dir.path());
        assert_eq!(times_of(&db, 0), [first, second], "damage at {at}");
        let is_sound = at == usize::MAX;
        assert_eq!(
            db.stats().n_damaged_blocks,
            u64::from(!is_sound),
            "damage at {at}"
        );
        assert_eq!(
            block_paths(dir.path()).len(),
            if is_sound { 1 } else { 3 },
            "damage at {at}"
        );
    }
}

#[test]
fn foreign_names_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    two_parts(dir.path());
    let names = [
        "blocks/notes.tmp",
        "blocks/00000007.block.bak",
        "blocks/18446744073709551615.block",
        "blocks/00000000-00000099.importing",
        "wal/000000-001/000/samples-99999999999999999999999",
        "wal/000000-001/000/samples-1",
        "wal/999999-999/000/samples-00000000",
        "wal/4294967295-001/000/samples-00000000",
        "wal/000000-999999999/000/samples-00000000",
    ];
    for name in names {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "foreign").unwrap();
    }
    let db = open(dir.path());
    assert_eq!(
        (times_of(&db, 0).len(), db.stats().n_damaged_blocks),
        (2, 0)
    );
    append(&db, &[(0, NOW_MS + 1, 3.0)]);
    db.compact_fully().unwrap();
    drop(db);
    assert_eq!(times_of(&open(dir.path()), 0).len(), 3);
    for name in names {
        assert_eq!(
            std::fs::read(dir.path().join(name)).unwrap(),
            b"foreign",
            "{name}"
        );
    }
}

/// If the name alone counted, all segments before it would be removed.
#[test]
fn a_file_with_the_name_of_a_checkpoint_loses_nothing() {
    for bytes in [&b""[..], b"foreign", &[7; 5000]] {
        let (dir, db) = fresh(options());
        append(&db, &[(0, NOW_MS, 1.0)]);
        drop(db);
        std::fs::write(
            dir.path().join("wal/000000-001/000/checkpoint-00000099"),
            bytes,
        )
        .unwrap();
        let db = open(dir.path());
        assert_eq!(
            (times_of(&db, 0), db.stats().replayed.n_damaged_checkpoints),
            (vec![NOW_MS], 1)
        );
        append(&db, &[(0, NOW_MS + 1, 2.0)]);
        db.flush().unwrap();
        append(&db, &[(0, NOW_MS + 2, 3.0)]);
        drop(db);
        assert_eq!(
            times_of(&open(dir.path()), 0),
            [NOW_MS, NOW_MS + 1, NOW_MS + 2]
        );
    }
}

#[test]
fn a_segment_number_without_a_successor_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    two_parts(dir.path());
    let path = dir
        .path()
        .join("wal/000000-001/000/samples-18446744073709551615");
    std::fs::write(&path, "foreign").unwrap();
    let refused = Db::open(dir.path(), options()).unwrap_err();
    assert!(refused.to_string().contains("move it away"), "{refused}");
    std::fs::remove_file(path).unwrap();
    open(dir.path());
}

/// Refs would wrap and be reused.
#[test]
fn a_log_without_refs_for_new_series_is_rejected() {
    for (number, is_refused) in [(1 << 40, false), (u64::MAX / 2, true), (u64::MAX, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (log, fs) = (dir.path().join("wal/000000-001/000"), Arc::new(RealFs));
        let log = Log::open(LogOptions {
            number: 0,
            dir: log,
            fs,
            sync: WalSync::Never,
            segment_size_bytes: 1 << 20,
        });
        let log = log.unwrap();
        log.append_series(SeriesRef(number), &series_labels(0));
        log.commit(log.end()).unwrap();
        drop(log);
        let opened = Db::open(dir.path(), options());
        assert_eq!(opened.is_err(), is_refused, "{number}");
        if let Ok(db) = opened {
            append(&db, &[(0, NOW_MS, 1.0), (1, NOW_MS, 2.0)]);
            drop(db);
            assert_eq!(everything(&open(dir.path())).len(), 2);
        }
    }
}

/// The samples in the heads were accepted before the import.
#[test]
fn the_samples_of_the_store_win_over_imported_ones_even_before_they_are_flushed() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = open(other.path());
    append(&db, &[(0, NOW_MS, 7.0), (0, NOW_MS + 1, 7.0)]);
    db.flush().unwrap();
    let exported = block_paths(other.path()).remove(0);

    let db = open(dir.path());
    append(&db, &[(0, NOW_MS, 1.0)]);
    std::fs::create_dir_all(dir.path().join("import")).unwrap();
    std::fs::copy(&exported, dir.path().join("import/00000001.block")).unwrap();
    assert_eq!(db.import().unwrap(), 1);
    let expected = [(NOW_MS, 1.0_f64.to_bits()), (NOW_MS + 1, 7.0_f64.to_bits())];
    assert_eq!(everything(&db)[&series_labels(0).to_string()], expected);
    db.compact_fully().unwrap();
    assert_eq!(everything(&db)[&series_labels(0).to_string()], expected);
    assert_eq!(db.import().unwrap(), 0, "imported files are removed");
}

/// The imported blocks of all directories end up in one directory.
#[test]
fn blocks_in_directories_are_imported_in_order_of_names() {
    let (dir, db) = fresh(options());
    for (subdir, value) in [("00000002", 2.0), ("00000001", 1.0)] {
        let other = tempfile::tempdir().unwrap();
        let from = open(other.path());
        append(&from, &[(0, NOW_MS, value)]);
        from.flush().unwrap();
        let subdir = dir.path().join("import").join(subdir);
        std::fs::create_dir_all(&subdir).unwrap();
        std::fs::copy(
            block_paths(other.path()).remove(0),
            subdir.join("00000001.block"),
        )
        .unwrap();
    }
    std::fs::write(dir.path().join("import/00000002/notes"), "not ours").unwrap();
    assert_eq!(db.import().unwrap(), 2);
    assert_eq!(
        everything(&db)[&series_labels(0).to_string()],
        [(NOW_MS, 1.0_f64.to_bits())],
        "the first block wins"
    );
    let left = |name: &str| dir.path().join("import").join(name).exists();
    assert!(!left("00000001") && left("00000002/notes") && !left("00000002/00000001.block"));
    assert_eq!(db.import().unwrap(), 0);
}

/// A block with an unsupported level does not make others lost: it is reported, and nothing is
/// changed.
#[test]
fn an_import_with_a_damaged_block_adds_nothing() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    two_parts(other.path());
    let [good, bad] = &block_paths(other.path())[..] else {
        panic!("two parts")
    };
    let db = open(dir.path());
    std::fs::create_dir_all(dir.path().join("import")).unwrap();
    std::fs::copy(good, dir.path().join("import/00000001.block")).unwrap();
    let mut bytes = std::fs::read(bad).unwrap();
    bytes[30] ^= 1;
    let import = dir.path().join("import/00000002.block");
    std::fs::write(&import, bytes).unwrap();
    assert!(matches!(db.import().unwrap_err(), Error::Corrupt { path, .. } if path == import));
    assert_eq!(db.stats().n_blocks, 0);
    assert!(everything(&db).is_empty());
    drop(db);
    assert!(everything(&open(dir.path())).is_empty());
}

/// The writer does not overwrite an existing file.
#[test]
fn a_block_is_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    two_parts(dir.path());
    let db = open(dir.path());
    let origin = db.store.blocks.metas().remove(0).origin;
    assert!(BlockWriter::create(Arc::new(RealFs), db.store.blocks.dir(), origin).is_err());
}

/// An offline check finds every damaged byte. A list finds the blocks that do not open or have a
/// damaged index: the latter were listed. A store that verifies its blocks names those that it does
/// not use, and the others are read.
#[test]
fn a_check_lists_damaged_blocks() {
    let dir = tempfile::tempdir().unwrap();
    two_parts(dir.path());
    let counts = |n_sound: u64, damage: &DamageReport| {
        let path = damage.entries().first().map(|damage| damage.path.clone());
        (n_sound, damage.n_damaged(), path)
    };
    let check = || {
        let (n_sound, damage) = BlockSummary::check(dir.path()).unwrap();
        counts(n_sound, &damage)
    };
    let list = || {
        let (blocks, damage) = BlockSummary::list(dir.path()).unwrap();
        counts(blocks.len() as u64, &damage)
    };
    let open_verified = || {
        let options = Options {
            verified: Some(TimeRange::ALL),
            ..options()
        };
        let db = Db::open(dir.path(), options).unwrap();
        assert!(!everything(&db).is_empty());
        counts(db.blocks().len() as u64, db.damaged_blocks())
    };
    for found in [check(), list(), open_verified()] {
        assert_eq!(found, (2, 0, None));
    }
    let path = block_paths(dir.path()).remove(1);
    let good = std::fs::read(&path).unwrap();
    let damaged = (1, 1, Some(path.clone()));
    let mut n_listed = 0;
    let mut n_opened = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        assert_eq!(check(), damaged, "damage at {at}");
        assert_eq!(open_verified(), damaged, "damage at {at}");
        n_opened += u64::from(open(dir.path()).stats().n_damaged_blocks == 0);
        n_listed += u64::from(list() != damaged);
    }
    // Only damage of samples is not in the list.
    let n_bytes = good.len() as u64;
    assert!(
        0 < n_listed && n_listed < n_opened && n_opened < n_bytes,
        "{n_listed} {n_opened}"
    );
    std::fs::remove_file(path).unwrap();
    assert_eq!(check(), (1, 0, None));
}

#[test]
fn a_check_reports_damaged_delete_rules() {
    let dir = tempfile::tempdir().unwrap();
    let check = || {
        let mut damage = DamageReport::default();
        BlockSummary::check_delete_rules(dir.path(), &mut damage).unwrap();
        damage
            .entries()
            .iter()
            .map(|it| (it.path.clone(), it.offset))
            .collect::<Vec<_>>()
    };
    two_parts(dir.path());
    assert_eq!(check(), [], "there are none");
    open(dir.path())
        .delete(vec![Matcher::equal("i", "0")], TimeRange::at(NOW_MS))
        .unwrap();
    assert_eq!(check(), []);
    let path = dir.path().join("tombstones");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(check(), [(path.clone(), 24)]);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(check(), [(path, 0)], "a directory");
}

#[test]
fn a_directory_in_place_of_the_reserve_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wal/reserve");
    std::fs::create_dir_all(path.join("mine")).unwrap();
    let open = || {
        Db::open(
            dir.path(),
            Options {
                background: true,
                ..Options::default()
            },
        )
    };
    let error = open().unwrap_err();
    assert!(
        matches!(&error, Error::Io { path: found, .. } if *found == path),
        "{error}"
    );
    std::fs::remove_dir(path.join("mine")).unwrap();
    open().unwrap();
}

/// A full quota used to leave the reserve unused, so that no flush could free space.
#[test]
fn a_flush_uses_the_reserve_if_the_disk_or_a_quota_is_full() {
    for kind in [
        std::io::ErrorKind::StorageFull,
        std::io::ErrorKind::QuotaExceeded,
    ] {
        let fs = MemFs::new();
        let db = open_on(&fs, options());
        db.store.reserve.fill().unwrap();
        let size = db.store.reserve.size();
        append(&db, &[(0, NOW_MS, 1.0)]);
        fs.fail_at(fs.n_operations(), varve_env::testing::Fault::Fails(kind));
        db.store.flush_with_reserve().unwrap();
        assert_eq!(
            (db.blocks().len(), db.store.reserve.size()),
            (1, size),
            "{kind}"
        );
    }
}

/// The blocks used to count as damaged, and the blocks of an unfinished import as those of the
/// store.
#[test]
fn a_shortage_of_open_files_is_not_damage() {
    let (fs, dir) = (MemFs::new(), Path::new("/data"));
    let open = || {
        Db::open(
            dir,
            Options {
                fs: Arc::new(fs.clone()),
                background: false,
                ..Options::default()
            },
        )
    };
    let db = open().unwrap();
    append(&db, &[(0, NOW_MS, 1.0)]);
    db.flush().unwrap();
    append(&db, &[(0, NOW_MS + 1, 1.0)]);
    drop(db);
    fs.create(&dir.join("blocks/00000009-00000010.importing"))
        .unwrap();
    let files = || {
        ["blocks", "wal/000000-001/000", "quarantine"]
            .map(|name| fs.list(&dir.join(name)).unwrap_or_default())
    };
    let before = files();
    for prefix in ["00000001", "00000009", "samples-", "checkpoint-"] {
        fs.set_out_of_files(Some(prefix));
        let error = open().unwrap_err().to_string();
        assert!(
            error.contains(prefix) && error.contains("raise the limit of open files"),
            "{error}"
        );
        assert_eq!(files(), before, "{prefix}");
    }
    fs.set_out_of_files(Some("00000001"));
    assert!(check_in(&fs, dir).unwrap_err().is_out_of_files());
    fs.set_out_of_files(Some("samples-"));
    assert!(
        inspect(&fs, dir, &mut |_, _| {})
            .unwrap_err()
            .is_out_of_files()
    );
    fs.set_out_of_files(None);
    let db = open().unwrap();
    assert_eq!(
        (db.stats().n_damaged_blocks, times_of(&db, 0).len()),
        (0, 2)
    );
}

/// Retention used to wait for the merges, which fail on a full disk, so that nothing freed space.
#[test]
fn retention_removes_blocks_while_the_disk_is_too_full_for_merges() {
    const DAY_MS: i64 = 86_400_000;
    let fs = MemFs::new();
    let db = open_on(
        &fs,
        Options {
            retention_ms: Some(DAY_MS),
            ..options()
        },
    );
    append(&db, &[(0, NOW_MS - 3 * DAY_MS, 1.0)]);
    append(&db, &[(0, NOW_MS, 1.0)]);
    db.flush().unwrap();
    fs.set_room(0);
    let error = db.compact().unwrap_err();
    assert!(
        matches!(&error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{error}"
    );
    assert_eq!((db.blocks().len(), times_of(&db, 0)), (1, vec![NOW_MS]));
    fs.set_room(u64::MAX);
    db.compact().unwrap();
}
