//! Damaged, truncated, half-renamed, foreign and newer files, and a full disk: the server reports
//! the problem, serves all other data and deletes nothing.

mod full_disk;

use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Server, WriteRequest, series, try_serve, wait_until};

const DAY_MS: i64 = 86_400_000;
/// Noon of two days, whose samples are in separate blocks.
const OLD: i64 = 1_700_000_000_000 / DAY_MS * DAY_MS + DAY_MS / 2;
const NEW: i64 = OLD + 2 * DAY_MS;
const SERIES: usize = 300;
const FLAGS: [&str; 2] = ["--web.enable-admin-api", "--storage.tsdb.retention.time=0"];

/// Writes a sample of each series.
fn write(server: &Server, time: i64) {
    let timeseries = (0..SERIES).map(|i| {
        let value = (i as f64).sqrt();
        series(
            &[
                ("__name__", "m"),
                ("i", &*i.to_string()),
                ("pod", &*format!("{:x}", i * 7_919)),
            ],
            &[(time, value)],
        )
    });
    server
        .http()
        .write(&WriteRequest::new(timeseries))
        .expect_status(204);
}

/// Returns the number of series at a time, or the error.
fn count(server: &Server, time: i64) -> Result<usize, String> {
    let time = (time / 1000).to_string();
    let answer = server.http().query(
        "/api/v1/query",
        &[("query", "count(m + 0)"), ("time", &time)],
    );
    if answer.status != 200 {
        assert_eq!(answer.status, 500, "{answer:?}");
        return Err(answer.error().1);
    }
    let result = answer.data()["result"].take();
    Ok(result[0]["value"][1]
        .as_str()
        .map_or(0, |count| count.parse().expect("a count")))
}

/// Returns status and warnings of a read of all series around a time.
fn read_of(server: &Server, path: &str, time: i64) -> (u16, Value) {
    let (start, end) = (time / 1000 - 10, time / 1000 + 10);
    let params = [
        ("query", "m"),
        ("match[]", "m"),
        ("start", &*start.to_string()),
        ("end", &*end.to_string()),
        ("step", "10"),
    ];
    let answer = server.http().query(path, &params);
    let json: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status, json["warnings"].clone())
}

/// Asserts that all reads around a time name the block whose samples are missing.
fn assert_tells_what_is_missing(server: &Server, time: i64, block: &Path) {
    let names_block = |warnings: &Value| {
        let warning = warnings[0].as_str().unwrap_or_default();
        assert!(warning.contains(&*block.to_string_lossy()), "{warnings}");
    };
    for path in ["query_range", "series", "labels", "label/i/values"] {
        let (status, warnings) = read_of(server, &format!("/api/v1/{path}"), time);
        assert_eq!(status, 200, "{path}");
        names_block(&warnings);
    }
    let export = read_of(server, "/api/v1/export", time);
    assert_eq!(export.0, 503, "it has no place for a warning");
    for format in ["varve", "prometheus"] {
        let snapshot = server
            .http()
            .form("/api/v1/admin/tsdb/snapshot", &[("format", format)])
            .expect_status(200);
        let json: Value = serde_json::from_slice(&snapshot.body).expect("a JSON body");
        names_block(&json["warnings"]);
    }
}

/// Returns a killed server with a block for each of two days, and the paths of the blocks.
fn two_blocks() -> (Server, [PathBuf; 2]) {
    let mut server = Server::start(&FLAGS);
    for time in [OLD, NEW] {
        write(&server, time);
        server
            .http()
            .form("/api/v1/admin/tsdb/compact", &[])
            .expect_status(204);
    }
    server.kill();
    let blocks: Vec<_> = files(&server.data_dir().join("blocks"))
        .into_keys()
        .collect();
    (server, blocks.try_into().expect("two blocks"))
}

/// Returns the contents of all files below a directory, except the lock, the reserve and the
/// active-request logs.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("list a directory") {
        let path = entry.expect("list a directory").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else if !path.ends_with("lock")
            && !path.ends_with("reserve")
            && path.extension().is_none_or(|of| of != "active")
        {
            let bytes = std::fs::read(&path).expect("read a file");
            files.insert(path, bytes);
        }
    }
    files
}

/// Asserts that a server does not start on a data directory and changes nothing. Returns its
/// output.
#[track_caller]
fn failed_start(server: &Server, flags: &[&str]) -> String {
    let before = files(&server.data_dir());
    let (status, output) = try_serve(&server.data_dir(), flags);
    assert!(!status.success(), "{output}");
    assert_eq!(files(&server.data_dir()), before, "nothing was changed");
    output
}

/// Asserts that a message contains a path, an offset and a remedy.
#[track_caller]
fn assert_helps(text: &str, path: &Path, remedy: &str) {
    assert!(
        text.contains(&path.display().to_string()),
        "{} is not named in {text}",
        path.display()
    );
    assert!(text.contains("at byte "), "no offset in {text}");
    assert!(text.contains(remedy), "no {remedy:?} in {text}");
}

#[test]
fn a_damaged_block_is_reported_and_unchanged_and_the_others_are_served() {
    let (mut server, [old, _]) = two_blocks();
    let good = std::fs::read(&old).expect("read a block");
    let cut = good[..good.len() / 2].to_vec();
    let mut footer = good.clone();
    footer[good.len() - 40] ^= 1;
    let mut header = good.clone();
    header[5] = 1;
    let longer = [&good[..], b"more"].concat();
    for bad in [
        cut,
        footer,
        header,
        longer,
        Vec::new(),
        b"a foreign text\n".repeat(10),
    ] {
        std::fs::write(&old, &bad).expect("write a block");
        server.restart(&FLAGS);
        assert_helps(
            &server.log(),
            &old,
            "restore the file from a snapshot, or move it away to continue without it",
        );
        assert_eq!(server.metric("varve_tsdb_blocks_damaged"), 1.0);
        assert_eq!(
            (count(&server, OLD), count(&server, NEW)),
            (Ok(0), Ok(SERIES))
        );
        assert_tells_what_is_missing(&server, OLD, &old);
        wait_until("a notification", || {
            let notifications = server.http().get("/api/v1/notifications").text();
            notifications
                .contains("Results are incomplete: samples may be missing: 1 of the blocks")
        });
        server
            .http()
            .form("/api/v1/admin/tsdb/compact", &[])
            .expect_status(204);
        server.kill();
        assert_eq!(std::fs::read(&old).expect("read a block"), bad);
    }
    std::fs::write(&old, &good).expect("write a block");
    server.restart(&FLAGS);
    assert_eq!(
        (count(&server, OLD), count(&server, NEW)),
        (Ok(SERIES), Ok(SERIES))
    );
}

#[test]
fn a_page_that_cannot_be_read_fails_the_query_that_needs_it() {
    let (mut server, [old, _]) = two_blocks();
    let good = std::fs::read(&old).expect("read a block");
    let mut n_failed = 0;
    for tenth in 1..9 {
        let mut bad = good.clone();
        bad[good.len() * tenth / 9] ^= 0x10;
        std::fs::write(&old, &bad).expect("write a block");
        server.restart(&FLAGS);
        assert_eq!(count(&server, NEW), Ok(SERIES), "the other block");
        match count(&server, OLD) {
            Ok(SERIES) => {}
            Ok(_) => {
                assert_eq!(server.metric("varve_tsdb_blocks_damaged"), 1.0);
                assert_tells_what_is_missing(&server, OLD, &old);
                // The footer is valid, so the block's time range is known.
                let (status, warnings) = read_of(&server, "/api/v1/series", NEW);
                assert_eq!((status, warnings), (200, Value::Null));
                assert_eq!(read_of(&server, "/api/v1/export", NEW).0, 200);
            }
            Err(reason) => {
                assert_helps(
                    &reason,
                    &old,
                    "restore the file from a snapshot, or move it away to continue without it",
                );
                n_failed += 1;
            }
        }
        server.kill();
    }
    assert!(n_failed > 0, "no query has read a damaged page");
}

/// A block that is truncated while it is open fails the queries that need it, never the process.
#[test]
fn a_block_that_is_truncated_while_it_is_open_fails_only_its_queries() {
    let (mut server, [old, _]) = two_blocks();
    server.restart(&FLAGS);
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .open(&old)
        .expect("open a block");
    file.set_len(100).expect("truncate a block");
    assert_helps(
        &count(&server, OLD).expect_err("the block is truncated"),
        &old,
        "restore the file from a snapshot",
    );
    assert_eq!(count(&server, NEW), Ok(SERIES));
    // A merge that cannot read the block fails and keeps its sources.
    file.rewind().expect("seek");
    file.write_all(b"damage").expect("write");
    write(&server, OLD + 2 * DAY_MS + 1000);
    drop(server.http().form("/api/v1/admin/tsdb/compact", &[]));
    assert!(old.exists());
    assert_eq!(count(&server, NEW), Ok(SERIES));
}

#[test]
fn a_damaged_log_is_replayed_without_the_damage_which_is_quarantined() {
    let mut server = Server::start(&["--storage.tsdb.shards=1"]);
    (0..20).for_each(|i| write(&server, NEW + i * 1000));
    server.kill();
    let wal = server.data_dir().join("wal");
    let samples = |path: &&PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("samples-"))
    };
    let path = files(&wal).keys().find(samples).expect("a segment").clone();
    let good = std::fs::read(&path).expect("read a segment");
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    std::fs::write(&path, &bad).expect("write a segment");

    let output = failed_start(
        &server,
        &[
            "--storage.tsdb.shards=1",
            "--storage.wal.on-corruption=refuse",
        ],
    );
    assert_helps(
        &output,
        &path,
        "restore the file, or set --storage.wal.on-corruption=quarantine",
    );

    server.restart(&["--storage.tsdb.shards=1"]);
    assert_eq!(
        count(&server, NEW + 19_000),
        Ok(SERIES),
        "samples after the damage"
    );
    let damaged = server.metric("varve_tsdb_replayed_damaged_bytes");
    let kept = files(&server.data_dir().join("quarantine"));
    assert_eq!(kept.values().map(Vec::len).sum::<usize>() as f64, damaged);
    let (name, bytes) = kept.first_key_value().expect("the damaged bytes");
    let offset = name
        .to_string_lossy()
        .rsplit_once(".at-")
        .expect("the name has the offset")
        .1
        .parse()
        .expect("an offset");
    assert_eq!(bytes[..], bad[offset..][..bytes.len()]);
    assert!(
        server.log().contains(&path.display().to_string()),
        "{}",
        server.log()
    );
}

#[test]
fn damaged_delete_rules_prevent_a_start() {
    let (mut server, _) = two_blocks();
    server.restart(&FLAGS);
    server
        .http()
        .form(
            "/api/v1/admin/tsdb/delete_series",
            &[("match[]", r#"{i="7"}"#)],
        )
        .expect_status(204);
    assert_eq!(
        (count(&server, OLD), count(&server, NEW)),
        (Ok(SERIES - 1), Ok(SERIES - 1))
    );
    server.kill();
    let path = server.data_dir().join("tombstones");
    let good = std::fs::read(&path).expect("read the rules");
    let flipped = |at: usize| {
        let mut bad = good.clone();
        bad[at] ^= 1;
        bad
    };
    for bad in [
        flipped(0),
        flipped(9),
        flipped(good.len() - 1),
        good[..good.len() - 1].to_vec(),
        Vec::new(),
    ] {
        std::fs::write(&path, &bad).expect("write the rules");
        let output = failed_start(&server, &FLAGS);
        assert_helps(
            &output,
            &path,
            "restore the file, or move it away, which makes deleted samples reappear",
        );
    }
    std::fs::write(&path, &good).expect("write the rules");
    server.restart(&FLAGS);
    assert_eq!(
        (count(&server, OLD), count(&server, NEW)),
        (Ok(SERIES - 1), Ok(SERIES - 1))
    );
}

#[test]
fn a_file_of_a_newer_version_prevents_a_start_and_changes_nothing() {
    let (mut server, _) = two_blocks();
    server.restart(&FLAGS);
    write(&server, NEW + 1000);
    server.kill();
    for (path, good) in files(&server.data_dir()) {
        let (magic, crc_offset) = (&good[..4], if path.extension().is_some() { 12 } else { 20 });
        assert!(magic == b"VWAL" || magic == b"VBLK", "{}", path.display());
        let mut newer = good.clone();
        newer[4] += 1;
        let crc = crc32c::crc32c(&newer[..crc_offset]).to_le_bytes();
        newer[crc_offset..crc_offset + 4].copy_from_slice(&crc);
        std::fs::write(&path, newer).expect("write a file");
        let output = failed_start(&server, &FLAGS);
        assert!(
            output.contains(&path.display().to_string())
                && output.contains("open it with the program that wrote it"),
            "{output}"
        );
        std::fs::write(&path, good).expect("write a file");
    }
    server.restart(&FLAGS);
    assert_eq!(count(&server, NEW + 1000), Ok(SERIES));
}

#[test]
fn temporary_files_of_a_crash_are_removed_and_foreign_files_stay() {
    let (mut server, [old, _]) = two_blocks();
    let dir = server.data_dir();
    let checkpoint = files(&dir.join("wal"))
        .into_keys()
        .find(|path| path.to_string_lossy().contains("checkpoint-"));
    let checkpoint = checkpoint.expect("a flush leaves a checkpoint");
    let in_blocks = |name: &str| dir.join("blocks").join(name);
    let ours = [in_blocks("00000090.block.tmp"), in_blocks("00000090.0.tmp")];
    let foreign = [
        in_blocks("notes.tmp"),
        in_blocks("old.block"),
        dir.join("wal/notes"),
        dir.join("README"),
    ];
    for path in ours.iter().chain(&foreign).chain([
        &checkpoint.with_extension("tmp"),
        &dir.join("tombstones.tmp"),
    ]) {
        std::fs::copy(&old, path).expect("copy a file");
    }
    server.restart(&FLAGS);
    assert_eq!(
        (count(&server, OLD), count(&server, NEW)),
        (Ok(SERIES), Ok(SERIES))
    );
    assert_eq!(server.metric("varve_tsdb_blocks_damaged"), 0.0);
    server
        .http()
        .form("/api/v1/admin/tsdb/compact", &[])
        .expect_status(204);
    assert!(ours.iter().all(|path| !path.exists()));
    assert!(foreign.iter().all(|path| path.exists()));
}

/// A directory with the name of a block counts as one damaged block.
#[test]
fn a_directory_with_the_name_of_a_block_is_reported() {
    let (mut server, _) = two_blocks();
    let path = server.data_dir().join("blocks/00000999.block");
    std::fs::create_dir(&path).expect("create a directory");
    server.restart(&FLAGS);
    wait_until("the directory to be reported", || {
        server.log().contains(&path.display().to_string())
    });
    assert_eq!(server.metric("varve_tsdb_blocks_damaged"), 1.0);
    assert_eq!(
        (count(&server, OLD), count(&server, NEW)),
        (Ok(SERIES), Ok(SERIES))
    );
}
