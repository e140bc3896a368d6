//! A data directory of a real Prometheus with a zstd-compressed WAL, a checkpoint, out-of-order
//! samples, native histograms, exemplars, metadata and tombstones, killed with SIGKILL.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::{assert_same_answers, dump, recovered, tsdb};
use crate::harness::{
    Http, Prometheus, Server, WriteRequest, copy_dir, exemplar, missing, now_ms, releases, series,
    wait_until,
};

const FLAGS: [&str; 6] = [
    "--enable-feature=native-histograms,exemplar-storage,metadata-wal-records",
    "--storage.tsdb.wal-compression-type=zstd",
    "--storage.tsdb.min-block-duration=6m",
    "--storage.tsdb.max-block-duration=18m",
    "--storage.tsdb.retention.time=100y",
    "--web.enable-admin-api",
];
const STORAGE: &str = "storage: {tsdb: {out_of_order_time_window: 30m}}";
/// Number of times that Prometheus is started and killed. Each start begins a segment; a checkpoint
/// needs four.
const LIVES: i64 = 4;
/// Minutes of samples per start.
const MINUTES: i64 = 15;
const QUERIES: [&str; 7] = [
    "made",
    "late",
    "sum by (i) (rate(made[3m]))",
    "count_over_time(late[5m])",
    "prometheus_http_request_duration_seconds",
    "histogram_quantile(0.9, prometheus_http_request_duration_seconds)",
    "count by (job) ({job='self'})",
];

fn write(http: &Http, request: &WriteRequest) {
    let answer = http.write(request);
    assert!(answer.status < 300, "{answer:?}");
}

/// Returns twenty series with one sample each.
fn minute(at: i64) -> WriteRequest {
    let one = |i: i64| {
        series(
            &[("__name__", "made"), ("i", &i.to_string())],
            &[(at, (at / 1000 % 977 + i) as f64)],
        )
    };
    WriteRequest::new((0..20).map(one))
}

fn has_checkpoint(dir: &Path) -> bool {
    let names = std::fs::read_dir(dir.join("wal"))
        .expect("list a log")
        .map(|entry| entry.unwrap().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .any(|it| it.starts_with("checkpoint.") && !it.ends_with("tmp"))
}

/// Creates the directory; returns it with the timestamp of its first sample and one after its last,
/// in seconds.
fn make() -> (TempDir, PathBuf, (String, String)) {
    let dir = TempDir::new().expect("make a temporary directory");
    let made = dir.path().join("made");
    let config = format!("{{{STORAGE}}}");
    // The last minute is in the past when it is written.
    let start = now_ms() - (LIVES * MINUTES + 1) * 60_000;
    for life in 0..LIVES {
        let mut prometheus = Prometheus::start_on(&config, &FLAGS, |data| {
            if life > 0 {
                copy_dir(&made, data);
                std::fs::remove_dir_all(&made).expect("remove a folder");
            }
        });
        for at in 0..MINUTES {
            write(
                prometheus.http(),
                &minute(start + (life * MINUTES + at) * 60_000),
            );
        }
        if life == LIVES - 1 {
            let data_dir = prometheus.data_dir();
            wait_until("a checkpoint", || has_checkpoint(&data_dir));
            fill(&prometheus);
        }
        prometheus.kill();
        copy_dir(&prometheus.data_dir(), &made);
    }
    // A range that ends a minute later has steps after the last sample at any resolution.
    (
        dir,
        made,
        (
            (start / 1000).to_string(),
            (now_ms() / 1000 + 60).to_string(),
        ),
    )
}

/// Writes everything other than in-order floats.
fn fill(prometheus: &Prometheus) {
    let http = prometheus.http();
    let now = now_ms();
    for minutes in [4, 9, 2, 11] {
        let at = now - minutes * 60_000;
        let late = |i: i64| {
            series(
                &[("__name__", "late"), ("i", &i.to_string())],
                &[(at - i * 1000, minutes as f64)],
            )
        };
        write(http, &WriteRequest::new((0..5).map(late)));
    }
    let mut with_exemplar = series(&[("__name__", "made"), ("i", "1")], &[(now - 500, 1.0)]);
    with_exemplar.exemplars = vec![exemplar(&[("trace_id", "abc")], 2.5, now - 500)];
    write(http, &WriteRequest::new([with_exemplar]));
    let target = http.address();
    let targets = format!("static_configs: [{{targets: ['{target}']}}]");
    // Since 3.8 a setting of the job instead of a feature flag.
    let native = if releases()[0].version >= (3, 8) {
        ", scrape_native_histograms: true"
    } else {
        ""
    };
    prometheus.reload(&format!(
        "{{{STORAGE}, scrape_configs: [{{job_name: self, scrape_interval: 1s, scrape_timeout: 1s, {targets}{native}}}]}}"
    ));
    let found = |query: &str| {
        let data = http.query("/api/v1/query", &[("query", query)]).data();
        data["result"]
            .as_array()
            .is_some_and(|result| !result.is_empty())
    };
    wait_until("scraped histograms", || {
        found("histogram_count(prometheus_http_request_duration_seconds) > 0")
    });
    wait_until("three scrapes", || {
        found("count_over_time(up{job='self'}[1m]) >= 3")
    });
    let answer = http.post(
        "/api/v1/admin/tsdb/delete_series?match[]=made%7Bi%3D%223%22%7D",
        &[],
        b"",
    );
    assert_eq!(answer.status, 204, "{answer:?}");
    // A scrape may have a timestamp slightly in the future, and the tombstone covers the newest
    // one.
    write(
        http,
        &WriteRequest::new([series(
            &[("__name__", "made"), ("i", "3")],
            &[(now_ms() + 500, 33.0)],
        )]),
    );
}

fn wal(verb: &str, dir: &Path, flags: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    let output = command
        .args(["wal", verb])
        .arg(dir)
        .arg("--format=json")
        .args(flags)
        .output()
        .expect("run varve");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("varve prints text");
    let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    values
        .map(|value| value.expect("varve prints JSON"))
        .collect()
}

#[test]
fn everything_that_prometheus_writes_is_recovered_and_imported() {
    if missing(&["prometheus", "promtool"]) {
        return;
    }
    let (dir, made, (start, end)) = make();
    for verb in ["inspect", "verify"] {
        let found = &wal(verb, &made, &[])[0];
        assert!(found["checkpoint"].is_u64(), "{found}");
        let segments = found["segments"].as_array().expect("segments are a list");
        let n_of = |kind: &str| {
            segments
                .iter()
                .filter_map(|it| it["records"][kind].as_u64())
                .sum::<u64>()
        };
        for kind in [
            "series",
            "samples",
            "histogram_samples",
            "exemplars",
            "metadata",
            "tombstones",
        ] {
            assert!(n_of(kind) > 0, "{kind}: {found}");
        }
        assert!(
            segments
                .iter()
                .any(|it| it["compressions"]["zstd"].as_u64().is_some_and(|n| n > 0)),
            "{found}"
        );
        assert!(
            segments.iter().any(|it| it["path"]
                .as_str()
                .is_some_and(|path| path.contains("/wbl/"))),
            "{found}"
        );
    }
    for (flags, n_min) in [
        (["--type=tombstones", "--match={__name__=~'.+'}"], 1),
        (["--type=exemplars", "--match=made{i='1'}"], 1),
        (["--type=metadata", "--match={job='self'}"], 10),
        (["--type=samples", "--match=late"], 20),
    ] {
        let records = wal("dump", &made, &flags);
        let items = records
            .as_array()
            .expect("collected above")
            .iter()
            .filter_map(|it| it["items"].as_array());
        let n: usize = items.map(Vec::len).sum();
        assert!(n >= n_min, "{flags:?}: {n}");
    }
    assert!(
        wal("replay", &made, &[])[0]["samples"]
            .as_u64()
            .is_some_and(|n| n > 0)
    );

    let expected = dump(&made);
    assert!(expected.lines().count() > 1000, "{expected}");
    let target = recovered(dir.path(), &made, &[]);
    assert!(
        dump(&target) == expected,
        "the dumps of the directory and of the recovered blocks differ"
    );

    let (data, exported) = (dir.path().join("data"), dir.path().join("exported"));
    let said = tsdb(&["import".as_ref(), made.as_os_str(), data.as_os_str()]);
    assert!(said.contains(" and metadata of "), "{said}");
    tsdb(&[
        "export".as_ref(),
        data.as_os_str(),
        "--to-blocks".as_ref(),
        exported.as_os_str(),
    ]);
    std::fs::create_dir(exported.join("wal")).expect("make a folder");
    assert!(
        dump(&exported) == expected,
        "the dumps of the directory and of the exported blocks differ"
    );

    let theirs = Prometheus::start_on(&format!("{{{STORAGE}}}"), &FLAGS, |data| {
        copy_dir(&made, data)
    });
    let ours = Server::start_on(&["--storage.tsdb.retention.time=100y"], |own| {
        copy_dir(&data, own)
    });
    assert_same_answers(theirs.http(), ours.http(), &QUERIES, (&start, &end));
    let params = [("query", "made"), ("start", &*start), ("end", &*end)];
    let exemplars = |http: &Http| http.query("/api/v1/query_exemplars", &params).data();
    assert!(exemplars(ours.http())[0]["exemplars"][0]["labels"]["trace_id"] == "abc");
    assert_eq!(exemplars(ours.http()), exemplars(theirs.http()));
    let metadata = ours
        .http()
        .query(
            "/api/v1/metadata",
            &[("metric", "prometheus_http_requests_total")],
        )
        .data();
    assert_eq!(
        metadata["prometheus_http_requests_total"][0]["type"], "counter",
        "{metadata}"
    );
}
