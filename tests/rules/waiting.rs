//! Evaluations that wait for late data.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::configure;
use crate::harness::{Http, Server, WriteRequest, now_ms, series, wait_until};

/// How late samples arrive.
const LAG_MS: i64 = 1_500;
/// Interval of samples.
const STEP_MS: i64 = 100;

/// Writes a sample every [`STEP_MS`] that is [`LAG_MS`] old. Its value is its timestamp in seconds.
fn send_late(http: &Http, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let time_ms = (now_ms() - LAG_MS) / STEP_MS * STEP_MS;
        let sample = (time_ms, time_ms as f64 / 1000.0);
        http.write(&WriteRequest::new([series(
            &[("__name__", "m")],
            &[sample],
        )]));
        thread::sleep(Duration::from_millis(STEP_MS as u64));
    }
}

/// Returns how old the newest sample was that each evaluation has seen, in seconds.
fn ages(wait: &str) -> Vec<f64> {
    let config = configure(
        wait,
        "groups: [{name: g, interval: 2s, rules: [{record: r, expr: m}]}]",
    );
    let server = Server::start(&[&config.flag()]);
    let ends = AtomicBool::new(false);
    let samples = || {
        let data = server
            .http()
            .query("/api/v1/query", &[("query", "r[10m]")])
            .data();
        data["result"][0]["values"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    thread::scope(|scope| {
        scope.spawn(|| send_late(server.http(), &ends));
        wait_until("evaluations", || samples().len() >= 6);
        ends.store(true, Ordering::Relaxed);
    });
    let age = |sample: &serde_json::Value| {
        sample[0].as_f64().expect("a time")
            - sample[1]
                .as_str()
                .expect("a text")
                .parse::<f64>()
                .expect("a number")
    };
    // The first evaluations do not know the sender yet.
    samples()[2..].iter().map(age).collect()
}

#[test]
fn an_evaluation_waits_until_late_samples_have_arrived() {
    let waited = ages("data");
    assert!(waited.iter().all(|&age| age < 0.5), "{waited:?}");
    let at_once = ages("none");
    assert!(at_once.iter().all(|&age| age > 1.0), "{at_once:?}");
}
