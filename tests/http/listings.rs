//! Names and values of labels, and series, of a range in the past: those that Prometheus lists.
//!
//! Both list the labels of all series of each block and head that overlaps the range.

use serde_json::Value;

use crate::harness::{Http, Release, Server, WriteRequest, now_ms, releases, series, wait_until};

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;

/// Writes 25 minutes from `start_ms`: a series all the time, one in the first five minutes, and one
/// in the last five.
fn write(http: &Http, start_ms: i64, suffix: &str) {
    for minute in 0..25 {
        let samples = [(start_ms + minute * MINUTE_MS, 1.0)];
        let named = |kind: &str| {
            let name = format!("{kind}_{suffix}");
            series(
                &[("__name__", &name), ("job", &name), (&name, "x")],
                &samples,
            )
        };
        let mut written = vec![named("always")];
        if minute < 5 {
            written.push(named("early"));
        }
        if minute >= 20 {
            written.push(named("late"));
        }
        http.write(&WriteRequest::new(written)).expect_status(204);
    }
}

/// Returns what a server lists of a range, sorted.
fn list(http: &Http, path: &str, selector: &str, range_ms: [i64; 2]) -> Vec<String> {
    let [start, end] = range_ms.map(|ms| format!("{}.{:03}", ms / 1000, ms % 1000));
    let mut parameters = vec![("start", &*start), ("end", &*end)];
    if !selector.is_empty() {
        parameters.push(("match[]", selector));
    }
    let found = http.query(path, &parameters).data();
    let found = found.as_array().into_iter().flatten();
    let mut listed: Vec<_> = found.map(Value::to_string).collect();
    listed.sort_unstable();
    listed
}

/// Checks the listings of ranges around the 25 minutes that begin at `start_ms`.
fn check_same(release: &Release, varve: &Http, prometheus: &Http, start_ms: i64) {
    const RANGES_MINUTES: [[i64; 2]; 10] = [
        [-100, -50],
        [-5, -1],
        [-5, 0],
        [0, 3],
        [6, 10],
        [10, 10],
        [18, 22],
        [20, 30],
        [-10, 40],
        [200, 210],
    ];
    const LISTINGS: [(&str, &str); 7] = [
        ("/api/v1/labels", ""),
        ("/api/v1/labels", "{job=~\"early_.*\"}"),
        ("/api/v1/label/job/values", ""),
        (
            "/api/v1/label/job/values",
            "{job=~\".+\",job!~\"early_.*\"}",
        ),
        ("/api/v1/label/__name__/values", ""),
        ("/api/v1/series", "{job!=\"\"}"),
        ("/api/v1/series", "{job=~\"late_.*\"}"),
    ];
    let mut wrong = Vec::new();
    for minutes in RANGES_MINUTES {
        let range_ms = minutes.map(|minute| start_ms + minute * MINUTE_MS);
        for (path, selector) in LISTINGS {
            let ours = list(varve, path, selector, range_ms);
            let theirs = list(prometheus, path, selector, range_ms);
            if ours != theirs {
                wrong.push(format!(
                    "{path} {selector} {minutes:?}\n  varve: {ours:?}\n  prometheus: {theirs:?}"
                ));
            }
        }
    }
    let version = release.version;
    assert!(wrong.is_empty(), "{version:?}: {}", wrong.join("\n"));
}

#[test]
fn listings_of_the_head_are_those_of_prometheus() {
    let start_ms = now_ms() - 25 * MINUTE_MS;
    for release in releases() {
        let prometheus = release.start("{}", &[]);
        let varve = Server::start(&[]);
        for http in [prometheus.http(), varve.http()] {
            write(http, start_ms, "recent");
        }
        check_same(release, varve.http(), prometheus.http(), start_ms);
    }
}

#[test]
fn listings_of_a_block_are_those_of_prometheus() {
    let now = now_ms();
    // In the middle of a window of two hours, on a day that is over: both have a block of it.
    let start_ms = now / DAY_MS * DAY_MS - 20 * 60 * MINUTE_MS + 30 * MINUTE_MS;
    for release in releases() {
        let prometheus = release.start("{}", &[]);
        write(prometheus.http(), start_ms, "past");
        write(prometheus.http(), now - 25 * MINUTE_MS, "recent");
        wait_until("Prometheus to have a block", || {
            let metrics = prometheus.http().get("/metrics").text();
            metrics.contains("\nprometheus_tsdb_blocks_loaded 1\n")
        });
        let varve = Server::start(&["--web.enable-admin-api"]);
        write(varve.http(), start_ms, "past");
        let compacted = varve.http().post("/api/v1/admin/tsdb/compact", &[], b"");
        compacted.expect_status(204);
        write(varve.http(), now - 25 * MINUTE_MS, "recent");
        check_same(release, varve.http(), prometheus.http(), start_ms);
    }
}
