//! A full disk: writes are rejected, queries continue, and the reserve allows a flush that frees
//! space.

use super::NEW;
use crate::harness::{Random, Server, WriteRequest, series, wait_until};

const SAMPLES: usize = 10_000;

/// Returns a request with incompressible samples.
fn request(round: i64, random: &mut Random) -> WriteRequest {
    let mut sample = |i: usize| {
        (
            NEW + round * 1_000_000 + i as i64 * 100,
            f64::from_bits(random.next() >> 2),
        )
    };
    let samples: Vec<_> = (0..SAMPLES).map(&mut sample).collect();
    WriteRequest::new([series(&[("__name__", "m")], &samples)])
}

fn notifications(server: &Server) -> String {
    server.http().get("/api/v1/notifications").text()
}

fn count(server: &Server) -> usize {
    let time = (NEW / 1000 + 100_000).to_string();
    let answer = server.http().query(
        "/api/v1/query",
        &[("query", "count_over_time(m[100001s])"), ("time", &time)],
    );
    let count = answer.data()["result"][0]["value"][1]
        .as_str()
        .expect("a count")
        .parse();
    count.expect("a count")
}

#[test]
fn a_full_disk_rejects_writes_serves_queries_and_recovers_by_itself() {
    // The reserve has 8 MiB.
    let Some(server) = Server::start_on_small_disk("10m", &[]) else {
        return;
    };
    wait_until("the reserve to be created", || {
        server.reserve_size() == 8 << 20
    });
    let (mut random, mut n_stored) = (Random::new(1), 0);
    let requests = (0..).map(|round| request(round, &mut random));
    let refused = requests
        .map(|request| (server.http().write(&request), request))
        .find(|(answer, _)| {
            n_stored += if answer.status == 204 { SAMPLES } else { 0 };
            answer.status != 204
        });
    let (refused, request) = refused.expect("the disk gets full");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(!refused.header("retry-after").is_empty(), "{refused:?}");
    assert!(
        n_stored > 0 && count(&server) >= n_stored,
        "{} of {n_stored}",
        count(&server)
    );
    let ready = server.http().get("/-/ready").expect_status(200).text();
    assert!(
        ready.contains("not for writes") && ready.contains("cannot write its log"),
        "{ready}"
    );
    server.http().get("/-/ready?for=write").expect_status(503);
    wait_until("a notification", || {
        notifications(&server)
            .contains("Writes are rejected, queries are answered: the store cannot write its log")
    });
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["status", &server.http().url("")])
        .output()
        .expect("run varve");
    let status = String::from_utf8_lossy(&status.stdout);
    assert!(
        status.contains("failed (senders repeat the requests)"),
        "{status}"
    );
    let mut rows = status.lines().skip(1);
    assert!(rows.all(|row| row.starts_with("  ")), "{status}");
    assert!(!server.log().contains("Writes are stored again"));

    // The sender retries.
    wait_until("the disk to have space", || {
        server.http().write(&request).status == 204
    });
    server.http().get("/-/ready?for=write").expect_status(200);
    wait_until("the end of the notification", || {
        !notifications(&server).contains("Writes are rejected")
    });
    assert_eq!(count(&server), n_stored + SAMPLES);
    assert_eq!(server.log().matches("Writes are stored again").count(), 1);
}

/// It was ready until the first write failed.
#[test]
fn a_disk_that_is_full_from_the_start_is_not_ready_for_writes() {
    // Too small for the reserve.
    let Some(server) = Server::start_on_small_disk("1m", &["--self-scrape-interval=1h"]) else {
        return;
    };
    // An attempt to allocate the reserve fills the disk for a moment.
    wait_until("the server to be ready for writes", || {
        server.http().get("/-/ready?for=write").status == 200
    });
    let filler = server.root(&server.data_dir().join("filler"));
    std::fs::write(filler, vec![0; 2 << 20]).expect_err("the disk is full");
    wait_until("the disk to be found full", || {
        server.http().get("/-/ready?for=write").status == 503
    });
    server.http().get("/-/ready").expect_status(200);
}
