//! `varve status last-words`: what a server was doing when it was killed.

use std::path::Path;
use std::process::Command;

use super::{SERIES_PER_REQUEST, endless_query, ingest};
use crate::harness::{Server, wait_until};

fn last_words(dir: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["status", "last-words"])
        .arg(dir)
        .output();
    let output = output.expect("run varve");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8(text).expect("a report is UTF-8"),
    )
}

#[test]
fn a_query_that_was_active_when_the_server_was_killed_is_reported() {
    let mut server = Server::start(&[]);
    ingest(&server, SERIES_PER_REQUEST);
    server
        .http()
        .query(
            "/api/v1/query",
            &[("query", "count(load)"), ("time", "1700000045")],
        )
        .expect_status(200);
    let query = endless_query(&server);
    wait_until("the active-request log to have its memory", || {
        let (_, text) = last_words(&server.data_dir());
        text.split_once("Active requests")
            .is_some_and(|(_, active)| !active.contains("memory 0 bytes, peak 0"))
    });
    assert!(last_words(&server.data_dir()).1.contains("is running"));
    server.kill();
    drop(query);
    let (ok, text) = last_words(&server.data_dir());
    assert!(ok, "{text}");
    let (active, ended) = text
        .split_once("Finished requests")
        .expect("a query has finished");
    assert!(active.contains("was killed or crashed"), "{text}");
    assert!(
        active.contains("working /api/v1/query_range")
            && active.contains("(sum(max_over_time(load[300s]))"),
        "{text}"
    );
    assert!(
        active.contains("agent \"endless\"") && !active.contains("count(load)"),
        "{text}"
    );
    assert!(
        ended.contains("completed /api/v1/query ") && ended.contains("count(load)"),
        "{text}"
    );

    // The next process logs this, and keeps the previous log.
    server.restart(&[]);
    wait_until("the log to say so", || {
        server
            .log()
            .contains("The previous process did not shut down cleanly")
    });
    let (_, both) = last_words(&server.data_dir());
    assert!(
        both.find("No active requests.") < both.find("(sum(max_over_time(load[300s]))"),
        "{both}"
    );
    assert!(server.terminate().success());
    assert!(last_words(&server.data_dir()).1.contains("shut down"));
}

#[test]
fn a_pipe_in_place_of_the_log_does_not_block_the_start() {
    let make_pipes = |dir: &Path| {
        std::fs::create_dir(dir).expect("make the data directory");
        for name in ["requests.active", "requests.previous.active"] {
            let made = Command::new("mkfifo").arg(dir.join(name)).status();
            assert!(made.expect("run mkfifo").success());
        }
    };
    let server = Server::start_on(&[], make_pipes);
    server
        .http()
        .query("/api/v1/query", &[("query", "1 # not small")])
        .expect_status(200);
    assert!(
        last_words(&server.data_dir())
            .1
            .contains("completed /api/v1/query")
    );
}

#[test]
fn a_damaged_log_loses_only_damaged_slots() {
    let mut server = Server::start(&[]);
    server
        .http()
        .query("/api/v1/query", &[("query", "1")])
        .expect_status(200);
    server.kill();
    let path = server.data_dir().join("requests.active");
    let mut bytes = std::fs::read(&path).expect("read the log");
    bytes[100] ^= 1;
    std::fs::write(&path, &bytes).expect("write the log");
    let (ok, text) = last_words(&server.data_dir());
    assert!(ok && text.contains("Damaged records: 1"), "{text}");
    bytes[0] ^= 1;
    std::fs::write(&path, &bytes).expect("write the log");
    let (ok, text) = last_words(&server.data_dir());
    assert!(!ok && text.contains("not an active-request log"), "{text}");
    // A damaged log does not prevent a start.
    server.restart(&[]);
    server
        .http()
        .query("/api/v1/query", &[("query", "1")])
        .expect_status(200);
}
