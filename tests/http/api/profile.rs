//! /debug/pprof: CPU profiles.

use std::io::Read as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use flate2::read::GzDecoder;
use prost::Message as _;

use super::super::server_with_data;
use crate::harness::messages::pprof::{Profile, Sample};
use crate::harness::{Answer, Http, Server, missing, wait_for, wait_until};

const ADMIN: &str = "--web.enable-admin-api";

/// Takes a profile while queries run.
fn profile_of_queries(server: &Server) -> Answer {
    const QUERY: &str = "/api/v1/query?query=sum_over_time(vector(1)[1d:1s])&nocache=1";
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                server.http().get(QUERY).expect_status(200);
            }
        });
        let profile = server.http().try_get("/debug/pprof/profile?seconds=2");
        is_done.store(true, Ordering::Relaxed);
        profile.expect("a profile")
    })
}

#[test]
fn a_profile_names_the_functions_that_use_the_cpu() {
    let server = server_with_data(&[ADMIN]);
    let answer = profile_of_queries(&server).expect_status(200);
    let mut bytes = Vec::new();
    GzDecoder::new(&answer.body[..])
        .read_to_end(&mut bytes)
        .expect("gzip");
    let profile = Profile::decode(&bytes[..]).expect("a profile");
    assert!(
        (2_000_000_000..60_000_000_000).contains(&profile.duration_nanos),
        "{}",
        profile.duration_nanos
    );
    assert_eq!(
        (profile.period, &*profile.string_table[0]),
        (10_000_000, "")
    );
    let n_samples: i64 = profile.sample.iter().map(|sample| sample.value[0]).sum();
    let nanos: i64 = profile.sample.iter().map(|sample| sample.value[1]).sum();
    assert!(
        n_samples > 10 && nanos == n_samples * profile.period,
        "{n_samples} samples of {nanos} ns"
    );
    let functions_of = |sample: &Sample| {
        let lines = sample
            .location_id
            .iter()
            .flat_map(|id| &profile.location[*id as usize - 1].line);
        let names = lines.map(|line| profile.function[line.function_id as usize - 1].name as usize);
        names
            .map(|name| profile.string_table[name].as_str())
            .collect::<Vec<_>>()
    };
    let is_query = |sample: &&Sample| {
        functions_of(sample)
            .iter()
            .any(|name| name.contains("varve_query::engine"))
    };
    let of_queries: i64 = profile
        .sample
        .iter()
        .filter(is_query)
        .map(|sample| sample.value[0])
        .sum();
    let stacks = || {
        profile
            .sample
            .iter()
            .map(functions_of)
            .take(5)
            .collect::<Vec<_>>()
    };
    assert!(
        of_queries * 4 > n_samples,
        "{of_queries} of {n_samples} samples are below the engine: {:#?}",
        stacks()
    );
    read_with_pprof(&answer.body);
}

/// Checks that Go's tool reads a profile.
fn read_with_pprof(profile: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("profile");
    std::fs::write(&file, profile).expect("write the profile");
    let output = Command::new("go")
        .args(["tool", "pprof", "-top", "-cum"])
        .arg(&file)
        .output();
    let Ok(output) = output else {
        varve_oracle::skip("go is not on PATH");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("Type: cpu"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.lines()
            .any(|line| line.contains("varve_http::serving::run::")),
        "{text}"
    );
}

#[test]
fn profiles_are_taken_one_at_a_time() {
    let server = Server::start(&[ADMIN]);
    let take = |http: &Http| http.get("/debug/pprof/profile?seconds=1");
    let (first, second) = thread::scope(|scope| {
        let others = [
            scope.spawn(|| take(server.http())),
            scope.spawn(|| take(server.http())),
        ];
        let [first, second] = others.map(|other| other.join().expect("a response"));
        if first.status == 200 {
            (first, second)
        } else {
            (second, first)
        }
    });
    assert_eq!((first.status, second.status), (200, 503), "{second:?}");
    assert!(second.text().contains("one at a time"), "{second:?}");
    take(server.http()).expect_status(200);
}

#[test]
fn a_profile_ends_with_its_client_and_with_the_server() {
    let mut server = Server::start(&[ADMIN]);
    const REQUEST: &[u8] =
        b"GET /debug/pprof/profile?seconds=100 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let is_taken =
        |server: &Server| server.http().get("/debug/pprof/profile?seconds=1").status == 503;
    // A probe may be faster than the request. Then the request is rejected.
    let start = |server: &Server| {
        wait_for("the profile to start", || {
            let mut client = server.http().connect();
            client.send(REQUEST);
            is_taken(server).then_some(client)
        })
    };
    drop(start(&server));
    wait_until("the profile to end", || !is_taken(&server));
    let mut client = start(&server);
    assert!(server.terminate().success());
    assert!(
        client.read_to_end().starts_with("HTTP/1.1 200 "),
        "the profile so far"
    );
}

#[test]
fn profiles_are_for_administrators() {
    let server = Server::start(&[]);
    let refused = server
        .http()
        .get("/debug/pprof/profile?seconds=1")
        .expect_status(500);
    assert!(
        refused.text().contains("admin APIs disabled"),
        "{refused:?}"
    );
    let server = Server::start(&[ADMIN]);
    let invalid = server
        .http()
        .get("/debug/pprof/profile?seconds=121")
        .expect_status(400);
    assert!(
        invalid.text().contains("is not from 1 to 120"),
        "{invalid:?}"
    );
}

/// `/debug/pprof/block` was 404, and heap profiles were 501: `promtool debug` wrote no archive.
#[test]
fn promtool_collects_all_profiles() {
    if missing(&["promtool"]) {
        return;
    }
    let server = Server::start(&[ADMIN]);
    let dir = tempfile::tempdir().expect("a directory");
    let collected = Command::new("promtool")
        .args(["debug", "all", &server.http().url("")])
        .current_dir(&dir)
        .output()
        .expect("run promtool");
    assert!(collected.status.success(), "{collected:?}");
    let unpacked = Command::new("tar")
        .args(["xzf", "debug.tar.gz"])
        .current_dir(&dir)
        .status();
    assert!(unpacked.expect("run tar").success());
    let read = |file: &str| std::fs::read(dir.path().join(file)).expect("it is in the archive");
    for kind in ["block", "goroutine", "heap", "mutex", "threadcreate"] {
        let profile = Profile::decode(&*read(&format!("{kind}.pb"))).expect("a profile");
        assert!(profile.sample.is_empty(), "{kind}");
    }
    Profile::decode(&*read("cpu.pb")).expect("a profile");
    let metrics = read("metrics.txt");
    assert!(String::from_utf8_lossy(&metrics).contains("varve_build_info"));
}
