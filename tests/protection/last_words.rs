//! What a server was doing when it died.

use std::path::Path;
use std::process::Command;

use super::{SERIES_PER_REQUEST, endless_query, ingest};
use crate::harness::{Server, wait_until};

fn last_words(dir: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_varve")).args(["status", "last-words"]).arg(dir).output();
    let output = output.expect("run varve");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("a report is UTF-8"))
}

#[test]
fn a_query_that_ran_when_the_server_was_killed_is_named() {
    let mut server = Server::start(&[]);
    ingest(&server, SERIES_PER_REQUEST);
    server.http().query("/api/v1/query", &[("query", "count(load)"), ("time", "1700000045")]).expect_status(200);
    let dying = endless_query(&server);
    wait_until("the ring to have its memory", || {
        let (_, text) = last_words(&server.data_dir());
        text.split_once("Active requests").is_some_and(|(_, at_work)| !at_work.contains("memory 0 bytes, peak 0"))
    });
    server.kill();
    drop(dying);
    let (ok, text) = last_words(&server.data_dir());
    assert!(ok, "{text}");
    let (at_work, ended) = text.split_once("Finished requests").expect("a query has ended before");
    assert!(at_work.contains("was killed, crashed, or still runs"), "{text}");
    assert!(
        at_work.contains("working /api/v1/query_range") && at_work.contains("(sum(max_over_time(load[300s]))"),
        "{text}"
    );
    assert!(at_work.contains("agent \"endless\"") && !at_work.contains("count(load)"), "{text}");
    assert!(ended.contains("answered /api/v1/query ") && ended.contains("count(load)"), "{text}");

    // The next process says so at once, and keeps what the last one left.
    server.restart(&[]);
    wait_until("the log to say so", || server.log().contains("The process before did not end in order"));
    let (_, both) = last_words(&server.data_dir());
    assert!(both.find("No request was at work.") < both.find("(sum(max_over_time(load[300s]))"), "{both}");
    assert!(server.terminate().success());
    assert!(last_words(&server.data_dir()).1.contains("ended in order"));
}

#[test]
fn a_ring_that_is_damaged_is_read_as_far_as_it_goes() {
    let mut server = Server::start(&[]);
    server.http().query("/api/v1/query", &[("query", "1")]).expect_status(200);
    server.kill();
    let path = server.data_dir().join("requests.ring");
    let mut bytes = std::fs::read(&path).expect("read the ring");
    bytes[100] ^= 1;
    std::fs::write(&path, &bytes).expect("write the ring");
    let (ok, text) = last_words(&server.data_dir());
    assert!(ok && text.contains("1 slots of the ring cannot be read"), "{text}");
    bytes[0] ^= 1;
    std::fs::write(&path, &bytes).expect("write the ring");
    let (ok, text) = last_words(&server.data_dir());
    assert!(!ok && text.contains("it is no request ring"), "{text}");
    // It keeps no server from starting.
    server.restart(&[]);
    server.http().query("/api/v1/query", &[("query", "1")]).expect_status(200);
}
