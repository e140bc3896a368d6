//! Backups while samples arrive and `kill -9` ends the server or the backup: a backup that is
//! listed has all samples that were acknowledged before it began. `varve-bench verify` checks the
//! fleet, bit for bit.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use clap::Parser as _;

use super::{T0, succeed, text};
use crate::harness::{Random, Server, WriteRequest, series};

/// An hour of 3,000 series.
const FLEET: [&str; 2] = ["--active-series=3000", "--duration=1h"];
const ROUNDS: u64 = 6;

fn bench(command: &str, url: &str, flags: &[&str]) {
    let start = format!("--start={}", T0 / 1000);
    let args = [&["varve-bench", command, url, &start], &FLEET[..], flags].concat();
    varve_bench::run(&varve_bench::Cli::parse_from(args))
        .unwrap_or_else(|error| panic!("{command}: {error:#}"));
}

/// Writes samples 1, 2, 3, … of a series until `is_done`, and sets `n_acknowledged`.
fn write(server: &Server, n_acknowledged: &AtomicU64, is_done: &AtomicBool) {
    while !is_done.load(Ordering::Relaxed) {
        let next = n_acknowledged.load(Ordering::Relaxed) + 1;
        let sample = (T0 + 3_700_000 + i64::try_from(next).unwrap(), next as f64);
        let request = WriteRequest::new([series(&[("__name__", "ledger")], &[sample])]);
        // The server may be killed in between.
        if server
            .http()
            .try_write_body(&request.to_body())
            .is_ok_and(|answer| answer.status == 204)
        {
            n_acknowledged.store(next, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_listed_backup_has_everything_that_was_acknowledged_before_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let (backups, mut random) = (dir.path().join("backups"), Random::new(7));
    let mut server = Server::start(&["--web.enable-admin-api", "--storage.head.flush-interval=1s"]);
    bench("write", &server.http().url("/api/v1/write"), &[]);
    let n_acknowledged = AtomicU64::new(0);
    // Names of backups, each with the number of acknowledged samples before it began.
    let mut claims: Vec<(String, u64)> = Vec::new();
    let list = || {
        let listed = succeed(&["restore", text(&backups), "--list"]);
        listed
            .lines()
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    for round in 0..ROUNDS {
        let is_done = AtomicBool::new(false);
        // The first backup ends. Then the server and the backup are killed in turn.
        let life = Duration::from_millis(if round == 0 {
            60_000
        } else {
            random.below(120)
        });
        let url = format!("--url={}", server.http().url(""));
        let pid = server.process().id().to_string();
        let before = n_acknowledged.load(Ordering::Relaxed);
        scope(|scope| {
            scope.spawn(|| write(&server, &n_acknowledged, &is_done));
            sleep(Duration::from_millis(50));
            let before = n_acknowledged.load(Ordering::Relaxed).max(before);
            let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
            let mut child = command
                .args(["tsdb", "backup", text(&backups), &url])
                .spawn()
                .unwrap();
            if round == 0 {
                assert!(child.wait().unwrap().success());
            } else {
                sleep(life);
                let target = if round % 2 == 0 {
                    child.id().to_string()
                } else {
                    pid.clone()
                };
                assert!(
                    Command::new("kill")
                        .args(["-9", &target])
                        .status()
                        .unwrap()
                        .success()
                );
                child.wait().unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
            let is_new = |name: &String| claims.iter().all(|(known, _)| known != name);
            let new: Vec<_> = list().into_iter().filter(is_new).collect();
            claims.extend(new.into_iter().map(|name| (name, before)));
        });
        if round % 2 == 1 {
            server.kill();
            server.restart(&["--web.enable-admin-api", "--storage.head.flush-interval=1s"]);
        }
    }
    assert!(
        n_acknowledged.load(Ordering::Relaxed) > 20 && !claims.is_empty(),
        "{n_acknowledged:?} {claims:?}"
    );
    let of_last = n_acknowledged.load(Ordering::Relaxed);
    succeed(&[
        "backup",
        text(&backups),
        &format!("--url={}", server.http().url("")),
    ]);
    claims.push((
        list()
            .into_iter()
            .find(|name| claims.iter().all(|(known, _)| known != name))
            .unwrap(),
        of_last,
    ));
    for (name, n_claimed) in &claims {
        succeed(&["restore", text(&backups), "--verify", "--backup", name]);
        let restored = Server::start_on(&[], |data_dir| {
            succeed(&["restore", text(&backups), text(data_dir), "--backup", name]);
        });
        bench("verify", &restored.http().url(""), &["--every=20"]);
        let time = ((T0 + 3_700_000) / 1000 + 3600).to_string();
        let params = [("query", "ledger[1h]"), ("time", &*time)];
        let result = restored.http().query("/api/v1/query", &params).data()["result"].take();
        let values = result[0]["values"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let stored: Vec<_> = values
            .iter()
            .map(|value| value[1].as_str().unwrap().parse::<u64>().unwrap())
            .collect();
        assert!(
            stored.len() as u64 >= *n_claimed,
            "{name} has {} of {n_claimed} samples",
            stored.len()
        );
        assert!(
            stored.iter().copied().eq(1..=stored.len() as u64),
            "a gap in {name}"
        );
    }
}
