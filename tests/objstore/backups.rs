//! `varve tsdb backup`, `varve tsdb restore`, and `varve tsdb import` from a directory in the place
//! of a bucket.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{
    Bucket, HOUR, N_BLOCKS, T0, check_answers, fail, fill, flush, succeed, text, tsdb, uploaded,
};
use crate::harness::{Http, Server, WriteRequest, series, wait_until};

fn count(http: &Http, query: &str) -> usize {
    let at = ((T0 + 14 * HOUR) / 1000).to_string();
    http.query("/api/v1/query", &[("query", query), ("time", &at)])
        .data()["result"]
        .as_array()
        .unwrap()
        .len()
}

/// Returns the number of files in a directory, without those whose upload was interrupted.
fn n_files(dir: &Path) -> usize {
    let is_finished = |entry: &std::fs::DirEntry| {
        !entry
            .file_name()
            .to_string_lossy()
            .ends_with(".varve-unfinished")
    };
    std::fs::read_dir(dir).map_or(0, |entries| {
        entries.filter_map(Result::ok).filter(is_finished).count()
    })
}

/// Flips a bit of a file, and keeps its time.
fn flip(path: &Path) {
    let modified = path.metadata().unwrap().modified().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    bytes[99] ^= 1;
    std::fs::write(path, bytes).unwrap();
    std::fs::File::options()
        .append(true)
        .open(path)
        .unwrap()
        .set_modified(modified)
        .unwrap();
}

#[test]
fn backups_are_incremental_and_restored_to_a_point_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().join("backups");
    let server = Server::start(&["--web.enable-admin-api"]);
    fill(&server);
    let snapshots = server.data_dir().join("snapshots");
    let n_snapshots = n_files(&snapshots);
    let url = format!("--url={}", server.http().url(""));
    let first = succeed(&["backup", text(&backups), &url, "--verify"]);
    let n_first = n_files(&backups.join("files"));
    let request = WriteRequest::new([series(&[("__name__", "later")], &[(T0 + 14 * HOUR, 1.0)])]);
    server.http().write(&request).expect_status(204);
    succeed(&["backup", text(&backups), &url]);
    assert_eq!(
        n_files(&snapshots),
        n_snapshots,
        "a backup removes its snapshot"
    );
    let n_second = n_files(&backups.join("files"));
    assert!(
        n_first > 5 && n_second - n_first < n_first / 2 + 3,
        "{n_first} files, then {n_second}"
    );

    let listed = succeed(&["restore", text(&backups), "--list"]);
    let names: Vec<_> = listed
        .lines()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert!(
        names.len() == 2 && first.contains(names[0]),
        "{listed} {first}"
    );
    let restored = |flags: &[&str]| {
        Server::start_on(&[], |data_dir| {
            succeed(&[&["restore", text(&backups), text(data_dir)], flags].concat());
        })
    };
    let (newest, oldest) = (restored(&[]), restored(&["--backup", names[0]]));
    check_answers(server.http(), newest.http(), &[]);
    check_answers(server.http(), oldest.http(), &[]);
    assert_eq!(
        (count(newest.http(), "later"), count(oldest.http(), "later")),
        (1, 0)
    );
    let n = names[0];
    let at = format!(
        "{}-{}-{}T{}:{}:{}.{}Z",
        &n[..4],
        &n[4..6],
        &n[6..8],
        &n[9..11],
        &n[11..13],
        &n[13..15],
        &n[15..18]
    );
    assert_eq!(count(restored(&["--at", &at]).http(), "later"), 0);
    let too_early = fail(&[
        "restore",
        text(&backups),
        text(&dir.path().join("new")),
        "--at",
        "2020-01-01T00:00:00Z",
    ]);
    assert!(
        too_early.contains("has no backup at or before 2020-01-01T00:00:00Z"),
        "{too_early}"
    );
    assert!(fail(&["restore", text(&backups), text(&server.data_dir())]).contains("is not empty"));
    let nothing = dir.path().join("nothing");
    assert!(fail(&["restore", text(&nothing), "--list"]).contains("has no backup"));
    for typo in ["s3:/bucket/prefix", "gs://bucket"] {
        assert!(fail(&["backup", typo, &url]).contains("expected s3://BUCKET/PREFIX"));
    }

    succeed(&["backup", text(&backups), &url, "--keep=1"]);
    assert_eq!(n_files(&backups.join("manifests")), 1);
    let printed = succeed(&["restore", text(&backups), "--verify"]);
    assert!(printed.contains("is complete"), "{printed}");
    let largest = std::fs::read_dir(backups.join("files"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let largest = largest
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap();
    flip(&largest);
    let damaged = fail(&["restore", text(&backups), "--verify"]);
    assert!(
        damaged.contains("is damaged: its SHA-256 is") && damaged.contains("backup --verify`"),
        "{damaged}"
    );
    assert!(
        fail(&["restore", text(&backups), text(&dir.path().join("new"))]).contains("is damaged")
    );
    assert!(
        !dir.path().join("new").exists(),
        "no half of a backup is in place"
    );

    let healed = succeed(&["backup", text(&backups), &url, "--verify"]);
    assert!(healed.contains("replaced 1 damaged file"), "{healed}");
    for name in succeed(&["restore", text(&backups), "--list"]).lines() {
        succeed(&[
            "restore",
            text(&backups),
            "--verify",
            "--backup",
            name.split(' ').next().unwrap(),
        ]);
    }
    assert_eq!(n_files(&snapshots), n_snapshots);

    // The server has no intact file either. Its time of modification says that it has not changed.
    let block = std::fs::read_dir(server.data_dir().join("blocks"))
        .unwrap()
        .next()
        .expect("a block")
        .unwrap()
        .path();
    let (good, modified) = (
        std::fs::read(&block).unwrap(),
        block.metadata().unwrap().modified().unwrap(),
    );
    let mut stored = std::fs::read_dir(backups.join("files"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let stored = stored
        .find(|path| std::fs::read(path).unwrap() == good)
        .expect("the block is stored");
    flip(&block);
    std::fs::File::options()
        .write(true)
        .open(&block)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    flip(&stored);
    let n_manifests = n_files(&backups.join("manifests"));
    let rejected = fail(&["backup", text(&backups), &url, "--verify"]);
    assert!(
        rejected.contains("of the server are damaged: run `varve wal verify`"),
        "{rejected}"
    );
    assert_eq!(
        n_files(&backups.join("manifests")),
        n_manifests,
        "a backup that is not verified is not listed"
    );
}

#[test]
fn a_backup_that_is_killed_does_not_exist_and_the_next_one_removes_its_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().join("backups");
    let server = Server::start(&["--web.enable-admin-api"]);
    fill(&server);
    let n_snapshots = n_files(&server.data_dir().join("snapshots"));
    let url = format!("--url={}", server.http().url(""));
    for life_ms in [10, 20, 30, 40, 60, 80] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        let mut child = command
            .args(["tsdb", "backup", text(&backups), &url])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(life_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        // Every backup that is listed is complete.
        if n_files(&backups.join("manifests")) > 0 {
            succeed(&["restore", text(&backups), "--verify"]);
        }
    }
    succeed(&["backup", text(&backups), &url, "--verify"]);
    // A kill between the creation of a snapshot and its mark leaves it.
    let left = n_files(&server.data_dir().join("snapshots")) - n_snapshots;
    assert!(left <= 6, "{left} snapshots are left");
    assert_eq!(
        std::fs::read_dir(server.data_dir().join("snapshots"))
            .unwrap()
            .filter(|entry| entry
                .as_ref()
                .unwrap()
                .path()
                .join("backup-in-progress")
                .exists())
            .count(),
        0
    );
}

/// The removal of old backups would remove files that another backup has just stored.
#[test]
fn no_other_backup_runs_while_a_backup_removes_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().join("backups");
    let server = Server::start(&["--web.enable-admin-api"]);
    fill(&server);
    let url = format!("--url={}", server.http().url(""));
    succeed(&["backup", text(&backups), &url]);
    // Reading this manifest, for the files that it needs, does not end.
    let old = backups.join("manifests/20200101T000000000Z.json");
    assert!(Command::new("mkfifo").arg(&old).status().unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    let mut running = command
        .args(["tsdb", "backup", text(&backups), &url, "--keep=9"])
        .spawn()
        .unwrap();
    wait_until("the manifest of the running backup", || {
        n_files(&backups.join("manifests")) == 3
    });
    let error = fail(&["backup", text(&backups), &url]);
    assert!(error.contains("a backup is running"), "{error}");
    running.kill().unwrap();
    running.wait().unwrap();
    succeed(&["backup", text(&backups), &url]);
}

#[test]
fn a_backup_needs_a_server_with_its_data_directory_here() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&["--web.enable-admin-api"]);
    let url = format!("--url={}", server.http().url(""));
    let error = fail(&["backup", text(dir.path()), &url, "--path", text(dir.path())]);
    assert!(
        error.contains("run the backup on the machine of the server, and set --path"),
        "{error}"
    );
    assert_eq!(
        n_files(&server.data_dir().join("snapshots")),
        0,
        "no snapshot is left behind"
    );
    assert!(
        fail(&["restore", text(dir.path()), text(&dir.path().join("new"))])
            .contains("has no backup")
    );
    let output = tsdb(&["restore", text(dir.path())]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_bucket_is_imported() {
    let bucket = Bucket::directory();
    let (server, _config) = uploaded(&bucket, "a", &[]);
    flush(server.http());
    let mut names = bucket.blocks().into_keys();
    let (marked, partial) = (names.next().unwrap(), names.next().unwrap());
    let copy = Bucket::directory();
    crate::harness::copy_dir(&bucket.path, &copy.path);
    std::fs::write(copy.path.join(&marked).join("deletion-mark.json"), "{}").unwrap();
    std::fs::remove_file(copy.path.join(&partial).join("meta.json")).unwrap();
    let import = |bucket: &Bucket, expect: &str, flags: &[&str]| {
        Server::start_on(&[], |data_dir| {
            let printed =
                succeed(&[&["import", &bucket.config_file(), text(data_dir)], flags].concat());
            assert!(printed.contains(expect), "{printed}");
        })
    };
    let imported = import(
        &bucket,
        &format!("imported {N_BLOCKS} blocks"),
        &["--block-label=replica=a"],
    );
    check_answers(server.http(), imported.http(), &[]);
    drop(import(&copy, "skipped 2 of 5 blocks", &[]));
    // No block has these labels, which used to be a success.
    let data = copy.path.with_extension("data");
    let config = bucket.config_file();
    let error = fail(&["import", &config, text(&data), "--block-label=replica=b"]);
    assert!(error.contains("nothing was imported"), "{error}");
}
