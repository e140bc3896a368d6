//! Varve's own log without some of its files: every tool names the loss, counts the rest, and fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Server, WriteRequest, copy_dir, series, try_serve, wait_until};

const T: i64 = 1_700_000_000_000;
const INTERVAL_MS: i64 = 15_000;
/// Two shards, so that there are two logs.
const FLAGS: [&str; 2] = ["--storage.tsdb.shards=2", "--self-scrape-interval=0s"];
const N_SERIES: u64 = 20;
const N_REQUESTS: i64 = 5;
/// Runs of the server, each of which was killed: each log has the segments 0, 2 and 4.
const N_RUNS: i64 = 3;

/// A data directory of a server that was killed three times.
fn killed() -> Server {
    let mut server = Server::start(&FLAGS);
    for run in 0..N_RUNS {
        if run > 0 {
            server.restart(&FLAGS);
        }
        for request in 0..N_REQUESTS {
            let time = T + (run * N_REQUESTS + request) * INTERVAL_MS;
            let all = (0..N_SERIES).map(|number| {
                let label = number.to_string();
                series(&[("__name__", "up"), ("i", &label)], &[(time, 1.0)])
            });
            server
                .http()
                .write(&WriteRequest::new(all))
                .expect_status(204);
        }
        server.kill();
    }
    server
}

fn log_dir(data: &Path, log: u64) -> PathBuf {
    data.join(format!("wal/000000-002/{log:03}"))
}

fn varve(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(args)
        .output()
        .expect("run varve")
}

/// A damaged directory, and what the tools say.
struct Case {
    name: &'static str,
    damage: fn(&Path),
    code: i32,
    gone: Gone,
    n_duplicate_segments: u64,
    /// What the errors name.
    named: &'static str,
}

/// The samples that are gone: none, those of a log, or those of one of its segments.
enum Gone {
    Nothing,
    Log(u64),
    Segment(u64),
}

const CASES: [Case; 7] = [
    Case {
        name: "killed three times",
        damage: |_| {},
        code: 0,
        gone: Gone::Nothing,
        n_duplicate_segments: 0,
        named: "",
    },
    Case {
        name: "a log is missing",
        damage: |data| fs::remove_dir_all(log_dir(data, 1)).expect("remove a log"),
        code: 1,
        gone: Gone::Log(1),
        n_duplicate_segments: 0,
        named: "/001: missing: one of the 2 logs of the epoch is missing",
    },
    Case {
        name: "a middle segment is missing",
        damage: |data| fs::remove_file(log_dir(data, 0).join("samples-00000002")).expect("remove"),
        code: 1,
        gone: Gone::Segment(0),
        n_duplicate_segments: 0,
        named: "segments between samples-00000000 and samples-00000004 are missing",
    },
    Case {
        name: "the first segment is missing",
        damage: |data| fs::remove_file(log_dir(data, 0).join("samples-00000000")).expect("remove"),
        code: 1,
        gone: Gone::Segment(0),
        n_duplicate_segments: 0,
        named: "segments before samples-00000002 are missing",
    },
    Case {
        name: "a middle segment is empty",
        damage: |data| fs::write(log_dir(data, 0).join("samples-00000002"), "").expect("empty"),
        code: 1,
        gone: Gone::Segment(0),
        n_duplicate_segments: 0,
        named: "samples-00000002: missing: the segment has no header",
    },
    Case {
        name: "the last segment is empty",
        damage: |data| fs::write(log_dir(data, 0).join("samples-00000004"), "").expect("empty"),
        code: 1,
        gone: Gone::Segment(0),
        n_duplicate_segments: 0,
        named: "samples-00000004: missing: the segment has no header",
    },
    Case {
        name: "a segment is there twice",
        damage: |data| {
            let dir = log_dir(data, 0);
            let copied = fs::copy(dir.join("samples-00000002"), dir.join("samples-00000006"));
            copied.expect("copy a segment");
        },
        code: 0,
        gone: Gone::Nothing,
        n_duplicate_segments: 1,
        named: "",
    },
];

/// All were "sound" with exit code 0, or only to some of the tools, and repeated samples counted as
/// readable.
#[test]
fn every_tool_names_missing_files_and_counts_the_rest() {
    let server = killed();
    let per_segment = [0, 1].map(|log| n_samples(&server.data_dir(), log, "samples-00000002"));
    let n_all = N_SERIES * (N_REQUESTS * N_RUNS) as u64;
    assert_eq!(
        per_segment[0] + per_segment[1],
        N_SERIES * N_REQUESTS as u64
    );
    for case in CASES {
        let dir = TempDir::new().expect("make a directory");
        let data = dir.path().join("data");
        copy_dir(&server.data_dir(), &data);
        (case.damage)(&data);
        let n_gone = match case.gone {
            Gone::Nothing => 0,
            Gone::Log(log) => per_segment[log as usize] * N_RUNS as u64,
            Gone::Segment(log) => per_segment[log as usize],
        };
        let n_duplicates = per_segment[0] * case.n_duplicate_segments;
        check(&case, &data, n_all - n_gone, n_duplicates);
    }
}

/// Returns the number of samples of a segment.
fn n_samples(data: &Path, log: u64, name: &str) -> u64 {
    let data = data.display().to_string();
    let output = varve(&["wal", "inspect", &data, "--output=json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    let suffix = format!("{log:03}/{name}");
    let files = report["files"].as_array().expect("a list");
    let file = files.iter().find(|file| {
        file["path"]
            .as_str()
            .is_some_and(|path| path.ends_with(&suffix))
    });
    file.and_then(|file| file["samples"].as_u64())
        .expect("the segment is listed")
}

fn check(case: &Case, data: &Path, n_kept: u64, n_duplicates: u64) {
    let name = case.name;
    let dir = data.display().to_string();
    let output = varve(&["wal", "verify", &dir, "--output=json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    let totals = &report["totals"];
    assert_eq!(output.status.code(), Some(case.code), "{name}: {report}");
    assert_eq!(totals["kept"], n_kept, "{name}: {totals}");
    assert_eq!(totals["duplicates"], n_duplicates, "{name}: {totals}");
    assert_eq!(totals["unaccounted"], 0, "{name}: {totals}");
    let losses = if case.code == 0 {
        json!([])
    } else {
        json!([{"cause": "in damaged or missing parts of files", "samples": null}])
    };
    assert_eq!(totals["losses"], losses, "{name}");
    let verified = varve(&["wal", "verify", &dir]);
    let text = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(text.contains(case.named), "{name}: {text}");
    assert!(!text.contains("about 0 samples"), "{name}: {text}");

    let dump = varve(&["tsdb", "dump", &dir]);
    let errors = String::from_utf8_lossy(&dump.stderr).into_owned();
    let n_printed = dump.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(n_printed as u64, n_kept, "{name}: {errors}");
    let out = data.with_file_name("out").display().to_string();
    let export = varve(&["tsdb", "export", &dir, "--to-blocks", &out]);
    let replay = varve(&["wal", "replay", &dir]);
    for (tool, output) in [("dump", &dump), ("export", &export), ("replay", &replay)] {
        assert_eq!(
            output.status.code(),
            Some(case.code),
            "{name}: {tool}: {output:?}"
        );
    }
    for (tool, output) in [("dump", dump), ("export", export)] {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(case.named), "{name}: {tool}: {errors}");
        assert!(
            !errors.contains("about 0 samples"),
            "{name}: {tool}: {errors}"
        );
        let is_unknown = errors.contains("an unknown number of samples");
        assert_eq!(is_unknown, case.code == 1, "{name}: {tool}: {errors}");
    }
}

/// A server said nothing, and replaced a missing log by an empty one.
#[test]
fn a_server_counts_missing_files_once_and_can_refuse_to_start() {
    let mut server = killed();
    let data = server.data_dir();
    fs::remove_dir_all(log_dir(&data, 1)).expect("remove a log");
    fs::remove_file(log_dir(&data, 0).join("samples-00000002")).expect("remove a segment");
    let refuse = [&FLAGS[..], &["--storage.wal.on-corruption=refuse"]].concat();
    let (status, output) = try_serve(&data, &refuse);
    assert!(!status.success());
    assert!(
        output.contains("one of the 2 logs of the epoch is missing"),
        "{output}"
    );
    assert!(!log_dir(&data, 1).exists());

    server.restart(&FLAGS);
    wait_until("the end of the replay", || {
        server.metric("varve_tsdb_replayed_missing_files") == 2.0
    });
    let incomplete = "Results may be incomplete: the last start found damage in the write-ahead log (gaps of missing files: 2";
    wait_until("the notification", || {
        let all = server.http().get("/api/v1/notifications").data();
        all.to_string().contains(incomplete)
    });
    let log = server.log();
    assert!(
        log.contains("Files of the WAL are missing or empty"),
        "{log}"
    );
    assert!(
        log.contains("between samples-00000000 and samples-00000004"),
        "{log}"
    );
}
