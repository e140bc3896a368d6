//! `kill -9` while flushes, merges and retention run: acknowledged samples within the retention
//! stay, older ones are removed.

use std::thread::{scope, sleep};
use std::time::Duration;

use crate::harness::{Http, Random, Server, WriteRequest, series, wait_until};

const T0: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 3_600_000;
const N_SERIES: i64 = 20;
/// Data time between two requests: the seconds of a test are days of the store.
const STEP_MS: i64 = 10 * 60_000;
const RETENTION_MS: i64 = 12 * HOUR_MS;
const FLAGS: [&str; 4] = [
    "--storage.head.flush-interval=10ms",
    "--storage.tsdb.retention.time=12h",
    "--storage.compaction.write-rate=0",
    "--web.enable-admin-api",
];
const ROUNDS: usize = 8;
/// Minimum number of acknowledged requests per round.
const REQUESTS_MIN: i64 = 40;

fn request(step: i64) -> WriteRequest {
    let sample = |i: i64| [(T0 + step * STEP_MS, (step * 1000 + i) as f64)];
    WriteRequest::new(
        (0..N_SERIES).map(|i| series(&[("__name__", "aging"), ("i", &i.to_string())], &sample(i))),
    )
}

/// Writes one step after the other until a request gets no response; returns the first step that
/// was not acknowledged.
fn write_until_lost(http: &Http, mut step: i64) -> i64 {
    while let Ok(answer) = http.try_write_body(&request(step).to_body()) {
        assert_eq!(answer.status, 204, "{answer:?}");
        step += 1;
    }
    step
}

/// Returns the stored steps of each series, ascending.
fn stored(http: &Http, last: i64) -> Vec<Vec<i64>> {
    let time = ((T0 + last * STEP_MS) / 1000).to_string();
    let answer = http
        .query("/api/v1/query", &[("query", "aging[30d]"), ("time", &time)])
        .data();
    let all: Vec<Vec<i64>> = answer["result"]
        .as_array()
        .expect("a matrix")
        .iter()
        .map(steps)
        .collect();
    assert_eq!(all.len() as i64, N_SERIES);
    all
}

fn steps(of_series: &serde_json::Value) -> Vec<i64> {
    let i: i64 = of_series["metric"]["i"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a number");
    let step = |sample: &serde_json::Value| {
        let time_ms = (sample[0].as_f64().expect("a time") * 1000.0) as i64;
        let step = (time_ms - T0) / STEP_MS;
        assert_eq!(
            sample[1],
            (step * 1000 + i).to_string(),
            "series {i} at step {step}"
        );
        step
    };
    of_series["values"]
        .as_array()
        .expect("samples")
        .iter()
        .map(step)
        .collect()
}

#[test]
fn retention_between_kills_removes_only_old_samples() {
    let mut random = Random::new(7);
    let mut server = Server::start(&FLAGS);
    let mut next = 0;
    for round in 0..ROUNDS {
        let until = next + REQUESTS_MIN;
        while next < until {
            server.http().write(&request(next)).expect_status(204);
            next += 1;
        }
        let http = server.http().clone();
        next = scope(|scope| {
            let writer = scope.spawn(|| write_until_lost(&http, next));
            sleep(Duration::from_millis(random.below(150)));
            server.kill();
            writer.join().expect("the writer does not panic")
        });
        server.restart(&FLAGS);
        let found = stored(server.http(), next);
        // The last request may be stored completely or partly although it was not acknowledged, so
        // its time counts. Samples as old as the retention may be removed for some series only.
        let young = next - RETENTION_MS / STEP_MS + 1;
        let lost =
            |steps: &Vec<i64>| (young.max(0)..next).find(|step| steps.binary_search(step).is_err());
        let lost = found.iter().find_map(lost);
        assert_eq!(
            lost, None,
            "round {round}: of {next} acknowledged steps within the retention, the first lost one"
        );
        // An unacknowledged request is retried, as by a sender.
        assert!(
            found.iter().flatten().all(|step| *step <= next),
            "round {round}: {found:?} of {next}"
        );
    }
    server.http().write(&request(next)).expect_status(204);
    // After a start, retention counts back from the newest sample that startup found in blocks and
    // checkpoints.
    server
        .http()
        .post("/api/v1/admin/tsdb/compact", &[], b"")
        .expect_status(204);
    server.kill();
    server.restart(&FLAGS);
    // A block is removed when all of it is too old. A block may span a day.
    let oldest = next - (RETENTION_MS + 24 * HOUR_MS) / STEP_MS;
    assert!(oldest > 0, "only {next} steps were written");
    wait_until("the oldest samples to go", || {
        // Time passes so fast that more blocks may be too old at once than retention removes by
        // itself.
        server
            .http()
            .post("/api/v1/admin/tsdb/confirm_retention", &[], b"")
            .expect_status(204);
        stored(server.http(), next)
            .iter()
            .all(|steps| steps[0] >= oldest)
    });
}
