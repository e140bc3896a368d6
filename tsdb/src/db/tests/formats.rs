//! Data directories written by earlier builds. Each opens with the expected contents. Directories
//! of a newer version are rejected and left unchanged.
//!
//! `tests/data/format/<kind>-v<N>` is such a directory, with its contents in `expected.txt`.
//! Fixtures are never rewritten: a new version of a format gets a new one, which
//! `write_what_is_missing` creates (docs/development/testing.md).

use std::fmt::Write as _;
use std::path::PathBuf;

use varve_env::testing::copy_dir;

use super::*;
use crate::batch::SeriesRef;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/format")
}

fn options(shards: usize) -> Options {
    Options {
        shards,
        clock: Arc::new(ManualClock::at(NOW_MS + 3 * 86_400_000)),
        out_of_order_window_ms: 30 * 60_000,
        ..super::options()
    }
}

/// Returns every file below a directory with its bytes. An empty directory counts as one.
fn files_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let inside = files_of(&path);
            if inside.is_empty() {
                files.insert(path, Vec::new());
            }
            files.extend(inside);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            files.insert(path, bytes);
        }
    }
    files
}

fn print(contents: &Contents) -> String {
    let mut text = String::new();
    for (labels, samples) in contents {
        writeln!(text, "{labels}").unwrap();
        for (time, bits) in samples.iter() {
            writeln!(text, "  {time} {bits:016x}").unwrap();
        }
    }
    text
}

#[test]
fn directories_of_every_version_open_with_the_expected_contents() {
    for name in ["wal-v3", "block-v1", "tombstones-v1"] {
        let expected = std::fs::read_to_string(fixtures().join(name).join("expected.txt")).unwrap();
        for shards in [2, 1] {
            let dir = tempfile::tempdir().unwrap();
            copy_dir(&fixtures().join(name), dir.path());
            let db = Db::open(dir.path(), options(shards)).unwrap();
            let replayed = db.stats().replayed;
            assert_eq!(
                (
                    db.stats().n_damaged_blocks,
                    replayed.damaged_bytes,
                    replayed.n_unknown_samples
                ),
                (0, 0, 0),
                "{name}"
            );
            assert!(
                print(&everything(&db)) == expected,
                "{name} with {shards} shards"
            );
            db.compact_fully().unwrap();
            db.clean_tombstones().unwrap();
            assert!(
                print(&everything(&db)) == expected,
                "{name} with {shards} shards, merged"
            );
        }
    }
}

/// Writes the missing fixtures of the present versions.
#[test]
#[ignore = "writes to tests/data/format: run it when a format gets a new version"]
fn write_what_is_missing() {
    write_fixture("wal-v3", &["wal"], live_logs);
    write_fixture("block-v1", &["blocks"], live_blocks);
    write_fixture("tombstones-v1", &["blocks", "tombstones"], live_deletions);
}

/// Copies `parts` of the directory that `live` has written.
fn write_fixture(name: &str, parts: &[&str], live: fn(&Path) -> Contents) {
    let (dir, fixture) = (tempfile::tempdir().unwrap(), fixtures().join(name));
    if fixture.exists() {
        return;
    }
    let expected = live(dir.path());
    for (path, bytes) in files_of(dir.path()) {
        let path = path.strip_prefix(dir.path()).unwrap();
        if parts.iter().any(|part| path.starts_with(part)) {
            std::fs::create_dir_all(fixture.join(path).parent().unwrap()).unwrap();
            std::fs::write(fixture.join(path), bytes).unwrap();
        }
    }
    std::fs::write(fixture.join("expected.txt"), print(&expected)).unwrap();
}

/// Returns a value for each form of the encodings.
fn value(i: usize, n: i64) -> f64 {
    let odd = [
        f64::NAN,
        f64::from_bits(varve_model::staleness::STALE_NAN_BITS),
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        f64::MIN,
        5e-324,
    ];
    match i % 8 {
        0 => 1_000_000.0 + (n * n) as f64,
        1 => 7.25,
        2 => n as f64 * 0.1,
        3 => -(n as f64) / 1000.0,
        4 => odd[n.unsigned_abs() as usize % odd.len()],
        5 => (n as f64).sqrt(),
        6 => (n % 3) as f64,
        _ => -(n as f64),
    }
}

/// Appends a sample to each of some series as one request, and records them.
fn write(db: &Db, series: impl IntoIterator<Item = usize>, t: i64, written: &mut Contents) {
    let samples: Vec<_> = series
        .into_iter()
        .map(|i| (i, t, value(i, (t - NOW_MS) / 1000)))
        .collect();
    assert_eq!(append(db, &samples), []);
    for (i, t, value) in samples {
        written
            .entry(series_labels(i).to_string())
            .or_default()
            .push((t, value.to_bits()));
    }
}

/// Writes logs of three epochs. The first was truncated, and the fixture does not contain the data
/// before that.
fn live_logs(dir: &Path) -> Contents {
    let (mut before, mut written) = (Contents::new(), Contents::new());
    let db = Db::open(dir, options(2)).unwrap();
    let metadata = Metadata {
        kind: "gauge".into(),
        help: "Help.".into(),
        unit: "seconds".into(),
    };
    db.set_metadata([("m", metadata.clone())]).unwrap();
    write(&db, 0..30, NOW_MS, &mut before);
    db.flush().unwrap();
    write(&db, 0..60, NOW_MS + 15_000, &mut written);
    write(&db, (0..60).rev().step_by(7), NOW_MS + 30_000, &mut written);
    let all: Vec<_> = (0..20)
        .map(|n| (3, NOW_MS + 45_000 + n * n * 1000, value(3, n)))
        .collect();
    assert_eq!(append(&db, &all), []);
    written
        .get_mut(&series_labels(3).to_string())
        .unwrap()
        .extend(all.iter().map(|&(_, t, v)| (t, v.to_bits())));
    drop(db);
    let db = Db::open(dir, options(4)).unwrap();
    db.set_metadata([("n", metadata)]).unwrap();
    for n in 0..10 {
        write(
            &db,
            (0..80).step_by(1 + n as usize),
            NOW_MS + 900_000 + n * 15_000,
            &mut written,
        );
    }
    drop(db);
    let db = Db::open(
        dir,
        Options {
            wal_logs: 2,
            ..options(4)
        },
    )
    .unwrap();
    let t = NOW_MS + 1_800_000;
    let round: Vec<_> = (0..80)
        .map(|i| {
            (
                i,
                t + i as i64 / 8 % 3 * 1000,
                [4096e3, 17e3, 0.3, 4096e3][i % 4],
            )
        })
        .collect();
    assert_eq!(append(&db, &round), []);
    for (i, t, value) in round {
        written
            .get_mut(&series_labels(i).to_string())
            .unwrap()
            .push((t, value.to_bits()));
    }
    drop(db);
    assert!(
        wal_files(&RealFs, dir, "checkpoint-")
            .iter()
            .all(|path| path.starts_with(dir.join("wal/000000-002")))
    );
    written
}

/// Writes a merged day, a merged window, and parts. One series has more samples than fit a row.
fn live_blocks(dir: &Path) -> Contents {
    let mut written = Contents::new();
    let db = Db::open(dir, options(2)).unwrap();
    for n in 0..62 {
        let t = NOW_MS + n * 1_800_000;
        write(&db, if n % 6 == 0 { 0..12 } else { 0..8 }, t, &mut written);
        if n == 20 {
            let many: Vec<_> = (0..1000).map(|i| (99, t + i * 250, value(2, i))).collect();
            assert_eq!(append(&db, &many), []);
            let many = many.iter().map(|&(_, t, v)| (t, v.to_bits())).collect();
            written.insert(series_labels(99).to_string(), many);
        }
        if n % 2 == 1 {
            db.flush().unwrap();
            db.compact().unwrap();
        }
    }
    let levels: std::collections::BTreeSet<u8> = db
        .store
        .blocks
        .metas()
        .iter()
        .map(|meta| meta.origin.level)
        .collect();
    assert!(levels.len() > 2 && levels.contains(&0), "{levels:?}");
    written
}

/// Writes rules with all four operators over parts. One part is newer than the rules.
fn live_deletions(dir: &Path) -> Contents {
    let mut written = Contents::new();
    let db = Db::open(dir, options(1)).unwrap();
    (0..20).for_each(|n| write(&db, 0..20, NOW_MS + n * 60_000, &mut written));
    let rules = [
        (MatchOp::Equal, "3", 0, i64::MAX),
        (MatchOp::NotEqual, "4", 0, 60_000),
        (MatchOp::Regexp, "1.|5", 300_000, 420_000),
        (MatchOp::NotRegexp, "[0-9]+", 0, i64::MAX / 2),
        (MatchOp::NotRegexp, "[0-8]", 900_000, 900_000),
    ];
    for (op, text, start, end) in rules {
        let matcher = Matcher::new(op, "i", text).unwrap();
        let range = TimeRange {
            start_ms: NOW_MS + start,
            end_ms: end.saturating_add(NOW_MS),
        };
        db.delete(vec![matcher.clone()], range).unwrap();
        for (i, samples) in (0..20).map(|i| (i, series_labels(i))) {
            if matcher.matches(&i.to_string()) {
                written
                    .get_mut(&samples.to_string())
                    .unwrap()
                    .retain(|(t, _)| !range.contains(*t));
            }
        }
    }
    write(&db, 0..20, NOW_MS + 20 * 60_000, &mut written);
    db.flush().unwrap();
    assert_eq!(everything(&db), written);
    written
}

/// Creates a data directory with a file of every kind, and with remains that the next start would
/// remove.
fn every_kind(dir: &Path) {
    let db = Db::open(dir, options(2)).unwrap();
    append(&db, &(0..8).map(|i| (i, NOW_MS, 1.0)).collect::<Vec<_>>());
    db.delete(vec![Matcher::equal("i", "3")], TimeRange::ALL)
        .unwrap();
    append(
        &db,
        &(0..16).map(|i| (i, NOW_MS + 1, 2.0)).collect::<Vec<_>>(),
    );
    db.store.shards[0]
        .log()
        .append_series(SeriesRef(1000), &series_labels(1000));
    db.sync().unwrap();
    drop(db);
    for left in [
        "blocks/00000090.block.tmp",
        "blocks/00000091.3.tmp",
        "tombstones.tmp",
    ] {
        std::fs::write(dir.join(left), "left").unwrap();
    }
    let torn = wal_files(&RealFs, dir, "samples-").pop().unwrap();
    let bytes = std::fs::read(&torn).unwrap();
    std::fs::write(torn, &bytes[..bytes.len() - 1]).unwrap();
}

/// Changes a file to the next version, with a correct checksum.
fn make_newer(path: &Path, crc_offset: usize) -> u8 {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[4] += 1;
    let crc = crc32c::crc32c(&bytes[..crc_offset]).to_le_bytes();
    bytes[crc_offset..crc_offset + 4].copy_from_slice(&crc);
    std::fs::write(path, &bytes).unwrap();
    bytes[4]
}

#[test]
fn a_directory_of_a_newer_version_is_rejected_and_left_unchanged() {
    let all = tempfile::tempdir().unwrap();
    every_kind(all.path());
    let first = |dir: &Path, kind: &str| match kind {
        "block" => dir
            .join("blocks")
            .join(RealFs.list(&dir.join("blocks")).unwrap().remove(0)),
        "tombstones" => dir.join("tombstones"),
        of_log => wal_files(&RealFs, dir, of_log).remove(0),
    };
    for (kind, crc_offset) in [
        ("samples-", 20),
        ("series-", 20),
        ("checkpoint-", 20),
        ("block", 12),
        ("tombstones", 20),
    ] {
        // As many shards as before, and another number, which needs new directories.
        for shards in [2, 4] {
            let dir = tempfile::tempdir().unwrap();
            copy_dir(all.path(), dir.path());
            let newer = first(dir.path(), kind);
            let version = make_newer(&newer, crc_offset);
            let before = files_of(dir.path());
            match Db::open(dir.path(), options(shards)).unwrap_err() {
                Error::Version { path, found, .. } => {
                    assert_eq!((path, found), (newer, version.into()), "{kind}")
                }
                e => panic!("{kind}: {e}"),
            }
            assert_eq!(files_of(dir.path()), before, "{kind}, {shards} shards");
        }
    }
    assert!(
        Db::open(all.path(), options(2)).is_ok(),
        "without it the directory opens"
    );
}
