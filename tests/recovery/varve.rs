//! `varve wal` on Varve's own data directory: next to a running server, after a kill, and damaged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::{Histogram, Server, WriteRequest, exemplar, series, wait_until};

const T: i64 = 1_700_000_000_000;

fn wal(verb: &str, dir: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command
        .args(["wal", verb])
        .arg(dir)
        .args(flags)
        .output()
        .expect("run varve")
}

/// Runs a tool, asserts its exit code, and returns its output.
fn json(verb: &str, dir: &Path, flags: &[&str], code: i32) -> Value {
    let output = wal(verb, dir, &[&["--format=json"], flags].concat());
    assert_eq!(output.status.code(), Some(code), "{verb}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

/// Returns all items of a dump.
fn dumped(dir: &Path, flags: &[&str]) -> Vec<Value> {
    let output = wal("dump", dir, &[&["--format=json"], flags].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("varve prints text");
    let items = |line: &str| {
        let record: Value = serde_json::from_str(line).expect("a line is JSON");
        record["items"]
            .as_array()
            .expect("a record has items")
            .clone()
    };
    text.lines().flat_map(items).collect()
}

/// Starts a server with ten series of three samples in three requests, an exemplar, and a
/// histogram.
fn filled(flags: &[&str]) -> Server {
    let server = Server::start(flags);
    for round in 0..3 {
        let at = T + round * 15_000;
        let of = |i: i64| {
            series(
                &[("__name__", "up"), ("i", &i.to_string())],
                &[(at, (round * 10 + i) as f64)],
            )
        };
        let mut request = WriteRequest::new((0..10).map(of));
        if round == 2 {
            request.timeseries[3].exemplars = vec![exemplar(&[("trace", "abc")], 7.5, at)];
            let mut histogram = series(&[("__name__", "latency")], &[]);
            histogram.histograms = vec![Histogram {
                sum: 0.0,
                timestamp_ms: at,
                ..Histogram::default()
            }];
            request.timeseries.push(histogram);
        }
        let answer = server.http().write(&request);
        assert!(answer.status < 300, "{answer:?}");
    }
    server
}

#[test]
fn a_wal_is_inspected_verified_dumped_and_replayed_next_to_a_server() {
    let server = filled(&[]);
    let dir = server.data_dir();
    for verb in ["inspect", "verify"] {
        let found = json(verb, &dir, &[], 0);
        let samples: u64 = found["files"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|file| file["samples"].as_u64())
            .sum();
        assert_eq!(
            (
                samples,
                found["series"].as_u64(),
                found["damageCount"].as_u64()
            ),
            (31, Some(11), Some(0)),
            "{found}"
        );
        assert!(
            found["partBytes"]["samples: values"]
                .as_u64()
                .is_some_and(|bytes| bytes > 0),
            "{found}"
        );
        assert!(wal(verb, &dir, &[]).status.success());
    }
    assert_eq!(dumped(&dir, &["--type=samples"]).len(), 30);
    let of_three = dumped(&dir, &["--match=up{i=\"3\"}"]);
    assert_eq!(
        of_three
            .iter()
            .filter(|item| item["value"].is_string())
            .count(),
        3,
        "{of_three:?}"
    );
    assert_eq!(
        of_three
            .iter()
            .filter(|item| item["labels"]["i"] == "3")
            .count(),
        1,
        "{of_three:?}"
    );
    assert_eq!(
        of_three
            .iter()
            .filter(|item| item["exemplar"]["labels"]["trace"] == "abc")
            .count(),
        1,
        "{of_three:?}"
    );
    let (start, end) = (
        format!("--start={}", T + 1),
        format!("--end={}", T + 15_000),
    );
    assert_eq!(dumped(&dir, &["--type=samples", &start, &end]).len(), 10);
    assert_eq!(dumped(&dir, &["--type=histograms"]).len(), 1);
    assert_eq!(
        wal("dump", &dir, &["--type=nonsense"]).status.code(),
        Some(2)
    );
    for concurrency in ["--concurrency=1", "--concurrency=2"] {
        let replayed = json("replay", &dir, &[concurrency], 0);
        assert_eq!(
            (replayed["samples"].as_u64(), replayed["series"].as_u64()),
            (Some(31), Some(11)),
            "{replayed}"
        );
    }
    // A repair needs the lock of the directory.
    assert_eq!(wal("repair", &dir, &["--write"]).status.code(), Some(2));
    assert_eq!(
        json("repair", &dir, &[], 0)["repaired"],
        Value::Array(Vec::new())
    );
}

/// Flips a bit in the first frame of a type whose first item is chosen. Returns its path, offset
/// and number of items.
fn damage_frame(
    dir: &Path,
    record: &str,
    is_chosen: impl Fn(&Value) -> bool,
) -> (String, u64, usize) {
    let output = wal("dump", dir, &["--format=json", &format!("--type={record}")]);
    let text = String::from_utf8(output.stdout).expect("varve prints text");
    let frames: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect();
    let frame = frames
        .iter()
        .find(|frame| is_chosen(&frame["items"][0]))
        .expect("the frame is in the log");
    let path = frame["path"].as_str().expect("a path is text");
    let offset = frame["offset"].as_u64().expect("an offset is a number");
    let mut bytes = std::fs::read(path).expect("read a segment");
    bytes[usize::try_from(offset).unwrap() + 14] ^= 1;
    std::fs::write(path, &bytes).expect("write a segment");
    (
        path.to_owned(),
        offset,
        frame["items"].as_array().map_or(0, Vec::len),
    )
}

/// Returns the files of a directory with their contents.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("list a directory") {
        let path = entry.expect("list a directory").path();
        if path.is_dir() {
            found.insert(path.clone(), Vec::new());
            found.extend(files(&path));
        } else {
            drop(found.insert(path.clone(), std::fs::read(&path).expect("read a file")))
        }
    }
    found
}

#[test]
fn offline_tools_report_damage_of_the_wal_and_only_compact_changes_the_directory() {
    let mut server = filled(&[
        "--storage.tsdb.shards=1",
        "--web.enable-admin-api",
        "--self-scrape-interval=0s",
    ]);
    server
        .http()
        .post("/api/v1/admin/tsdb/compact", &[], b"")
        .expect_status(204);
    for round in 3..8 {
        let of = |i: i64| {
            series(
                &[("__name__", "up"), ("i", &i.to_string())],
                &[(T + round * 15_000, 1.0)],
            )
        };
        server
            .http()
            .write(&WriteRequest::new((0..10).map(of)))
            .expect_status(204);
    }
    let (dir, out) = (
        server.data_dir(),
        tempfile::tempdir().expect("make a directory"),
    );
    let out = format!("--to-blocks={}", out.path().display());
    let tool = |args: &[&str], flags: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(args)
            .args(flags)
            .arg(&dir)
            .output();
        let output = output.expect("run varve");
        let texts = [output.stdout, output.stderr]
            .map(|text| String::from_utf8(text).expect("varve prints text"));
        (output.status.code(), texts)
    };
    let readers = [
        &["tsdb", "dump"][..],
        &["tsdb", "dump-openmetrics"],
        &["tsdb", "analyze"],
        &["tsdb", "export", &out],
        &["tsdb", "churn", "--path"],
    ];
    for args in [&["tsdb", "dump"][..], &["tsdb", "analyze"]] {
        let (code, [_, errors]) = tool(args, &[]);
        assert!(
            code == Some(1) && errors.contains("open data directory"),
            "{args:?} next to a server: {errors}"
        );
    }
    server.kill();
    let check = |code: i32, expect: &[&str]| {
        let before = files(&dir);
        for args in readers {
            let (found, [_, errors]) = tool(args, &[]);
            assert_eq!(found, Some(code), "{args:?}: {errors}");
            assert!(
                expect.iter().all(|part| errors.contains(part)),
                "{args:?}: {errors}"
            );
            assert!(code == 1 || errors.is_empty(), "{args:?}: {errors}");
            assert!(files(&dir) == before, "{args:?} changed the directory");
        }
    };
    check(0, &[]);
    let (path, offset, n_lost) =
        damage_frame(&dir, "samples", |item| item["timestamp_ms"] == T + 75_000);
    let total =
        format!("/wal: missing: in total, a replay loses about {n_lost} samples (20.00 %): ");
    let expect = [&*total, &*format!("{path}: byte {offset}: corrupt: ")];
    check(1, &expect);
    let (_, [printed, _]) = tool(&["tsdb", "dump"], &["--match=up"]);
    assert_eq!(
        printed.lines().count(),
        80 - n_lost,
        "what is readable is printed"
    );
    let (code, [_, errors]) = tool(&["tsdb", "compact"], &[]);
    assert!(
        code == Some(1) && expect.iter().all(|part| errors.contains(part)),
        "{errors}"
    );
    assert!(
        errors.contains("the damaged bytes of the WAL are in ") && dir.join("quarantine").is_dir(),
        "{errors}"
    );
    check(0, &[]);
}

#[test]
fn a_damaged_wal_is_repaired_and_served() {
    let mut server = filled(&["--storage.tsdb.shards=1"]);
    server.kill();
    let dir = server.data_dir();
    assert_eq!(json("verify", &dir, &[], 0)["damageCount"], 0);

    // The second of three requests.
    let (path, offset, n_lost) =
        damage_frame(&dir, "samples", |item| item["timestamp_ms"] == T + 15_000);
    let (path, bytes) = (&*path, std::fs::read(&path).expect("read a segment"));
    let damage = &json("verify", &dir, &[], 1)["damage"][0];
    assert_eq!(
        (damage["path"].as_str(), damage["offset"].as_u64()),
        (Some(path), Some(offset)),
        "{damage}"
    );
    let planned = json("repair", &dir, &[], 1);
    assert_eq!(
        (
            &planned["written"],
            planned["repaired"].as_array().map(Vec::len)
        ),
        (&Value::Bool(false), Some(1))
    );
    assert!(
        std::fs::read(path).expect("read a segment") == bytes,
        "nothing is written without being asked"
    );
    let repaired = json("repair", &dir, &["--write"], 1);
    let backup = repaired["repaired"][0]["backup"]
        .as_str()
        .expect("a path is text");
    assert!(std::fs::read(backup).expect("read the original") == bytes);
    assert_eq!(json("verify", &dir, &[], 0)["damageCount"], 0);
    assert_eq!(
        json("repair", &dir, &[], 0)["repaired"],
        Value::Array(Vec::new())
    );

    server.restart(&["--storage.tsdb.shards=1"]);
    let time = ((T + 30_000) / 1000).to_string();
    let answer = server.http().query(
        "/api/v1/query",
        &[("query", "sum(count_over_time(up[1m]))"), ("time", &time)],
    );
    let count: usize = answer.data()["result"][0]["value"][1]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(count, 30 - n_lost);
}

/// After a repair, no byte is damaged, but the definitions of 30 samples and an exemplar are still
/// lost.
#[test]
fn the_log_names_samples_of_unknown_series() {
    let mut server = filled(&["--storage.tsdb.shards=1"]);
    server.kill();
    damage_frame(&server.data_dir(), "series", |item| {
        item["labels"]["__name__"] == "up"
    });
    assert_eq!(
        wal("repair", &server.data_dir(), &["--write"])
            .status
            .code(),
        Some(1)
    );
    server.restart(&["--storage.tsdb.shards=1"]);
    // The replay may end after the server is ready.
    wait_until("skipped exemplars in the log", || {
        server.log().contains("Skipped exemplars of unknown series")
    });
    let log = server.log();
    assert!(log.contains("unknown_samples=30"), "{log}");
    assert!(log.contains("unknown_exemplars=1"), "{log}");
    assert!(!log.contains("The WAL is damaged"), "{log}");
}

/// A server continues without a block that it cannot open. A tool that prints what is left says so.
#[test]
fn tools_report_a_block_that_cannot_be_opened() {
    let mut server = filled(&["--web.enable-admin-api", "--self-scrape-interval=0s"]);
    server
        .http()
        .post("/api/v1/admin/tsdb/compact", &[], b"")
        .expect_status(204);
    assert!(server.terminate().success());
    let dir = server.data_dir();
    let block = std::fs::read_dir(dir.join("blocks"))
        .expect("list the blocks")
        .next()
        .expect("there is a block");
    let block = block.expect("list the blocks").path();
    let tool = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(args)
            .arg(&dir)
            .output()
            .expect("run varve");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).contains(&*block.to_string_lossy()),
        )
    };
    let out = tempfile::tempdir().expect("make a directory");
    let out = format!("--to-blocks={}", out.path().display());
    let tools = [
        &["tsdb", "list"][..],
        &["tsdb", "dump"],
        &["tsdb", "export", &out],
        &["wal", "verify"],
    ];
    for args in tools {
        assert_eq!(tool(args), (Some(0), false), "{args:?}");
    }
    let good = std::fs::read(&block).expect("read a block");
    std::fs::write(&block, &good[..good.len() - 1]).expect("write a block");
    for args in tools {
        assert_eq!(tool(args), (Some(1), true), "{args:?}");
    }
}

/// With a delete rule, a block with a damaged page of its index was left out without a word. Without
/// one, a dump ended at the page.
#[test]
fn tools_name_a_block_with_a_damaged_page_and_print_the_others() {
    let mut server = filled(&["--web.enable-admin-api", "--self-scrape-interval=0s"]);
    let compact = |server: &Server| {
        let answer = server.http().post("/api/v1/admin/tsdb/compact", &[], b"");
        answer.expect_status(204);
    };
    compact(&server);
    let newer = (0..10).map(|i: i64| {
        let label = i.to_string();
        series(
            &[("__name__", "newer"), ("i", &label)],
            &[(T + 86_400_000, 1.0)],
        )
    });
    server
        .http()
        .write(&WriteRequest::new(newer))
        .expect_status(204);
    compact(&server);
    let path = "/api/v1/admin/tsdb/delete_series?match[]=up%7Bi=%223%22%7D";
    server.http().post(path, &[], b"").expect_status(204);
    assert!(server.terminate().success());

    let dir = server.data_dir();
    let mut blocks = Vec::new();
    for entry in std::fs::read_dir(dir.join("blocks")).expect("list the blocks") {
        blocks.push(entry.expect("list the blocks").path());
    }
    blocks.sort();
    assert_eq!(blocks.len(), 2, "{blocks:?}");
    let block = &blocks[0];
    let out = tempfile::tempdir().expect("make a directory");
    let out = format!("--to-blocks={}", out.path().display());
    let tool = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(args)
            .arg(&dir)
            .output()
            .expect("run varve");
        let [printed, errors] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let path = block.to_string_lossy();
        assert_eq!(
            printed.contains(&*path) || errors.contains(&*path),
            output.status.code() == Some(1),
            "{args:?}: {errors}"
        );
        (output.status.code(), printed)
    };
    let export = &["tsdb", "export", &out][..];
    let (code, exported) = tool(export);
    assert_eq!((code, tool(&["tsdb", "list"]).0), (Some(0), Some(0)));
    let good = std::fs::read(block).expect("read a block");
    let mut n_not_in_list = 0;
    let n_places = 24;
    for place in 1..n_places {
        let mut bad = good.clone();
        bad[good.len() * place / n_places] ^= 1;
        std::fs::write(block, &bad).expect("write a block");
        let (code, dumped) = tool(&["tsdb", "dump"]);
        assert_eq!(
            (code, dumped.lines().count()),
            (Some(1), 10),
            "{place}: {dumped}"
        );
        assert!(!dumped.contains("up"), "{dumped}");
        let (code, text) = tool(export);
        assert_eq!(code, Some(1), "{place}: {text}");
        assert!(
            text != exported && text.lines().count() == 2,
            "{place}: {text}"
        );
        let (code, text) = tool(&["wal", "verify"]);
        assert!(
            code == Some(1) && text.ends_with("\ndamage was found\n"),
            "{text}"
        );
        assert!(text.contains("blocks: 1 sound, 1 damaged\n"), "{text}");
        let (code, text) = tool(&["tsdb", "list"]);
        n_not_in_list += usize::from(code == Some(0));
        assert_eq!(
            text.lines().count(),
            if code == Some(0) { 3 } else { 2 },
            "{text}"
        );
    }
    // Only a list does not read samples, but it reads the index.
    assert!(n_not_in_list < n_places - 1, "{n_not_in_list}");
}

/// A server rejects damaged tombstones and skips an empty segment. `verify` used to find the
/// directory sound.
#[test]
fn verify_reports_damaged_delete_rules_and_an_empty_segment() {
    let mut server = filled(&["--storage.tsdb.shards=1", "--self-scrape-interval=0s"]);
    server.kill();
    let dir = server.data_dir();
    assert_eq!(json("verify", &dir, &[], 0)["damageCount"], 0);
    let (rules, segment) = (
        dir.join("tombstones"),
        dir.join("wal/000000-001/000/samples-00000001"),
    );
    std::fs::write(&rules, b"VTMB").expect("write tombstones");
    std::fs::write(&segment, b"").expect("empty a segment");
    let found = json("verify", &dir, &[], 1);
    let paths: Vec<_> = found["damage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        [segment, rules].map(|path| path.to_str().unwrap().to_owned()),
        "{found}"
    );
    let text = String::from_utf8(wal("verify", &dir, &[]).stdout).expect("varve prints text");
    assert!(
        text.contains("missing: the segment has no header")
            && text.contains("blocks: 0 sound, 0 damaged"),
        "{text}"
    );
}

#[test]
fn a_directory_without_an_owner_is_rejected() {
    let dir = tempfile::TempDir::new().expect("make a temporary directory");
    for verb in ["inspect", "verify", "dump", "repair", "replay"] {
        let output = wal(verb, dir.path(), &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("neither of Prometheus nor of Varve"),
            "{output:?}"
        );
    }
}
