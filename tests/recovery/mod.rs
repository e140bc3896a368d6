//! Recovery, import and export of the data directory of a real Prometheus give the same dumps and
//! query results.
//!
//! The directory is recorded in ../shared/prometheus-data. Without it, or without the programs,
//! these tests are skipped.

mod damaged;
mod generated;
mod losses;
mod missing_files;
mod varve;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Http, Prometheus, Server, copy_dir, missing, promtool, wait_until};

/// Timestamps of the oldest and the newest sample of the recorded directory, in seconds.
const START: &str = "1795251960";
const END: &str = "1795254640";
const END_S: u64 = 1_795_254_640;
/// Keeps the recorded blocks, which are old.
const FLAGS: [&str; 1] = ["--storage.tsdb.retention.time=100y"];
/// Out-of-order samples are replayed only if they are allowed.
const CONFIG: &str = "{storage: {tsdb: {out_of_order_time_window: 30m}}}";
/// Queries that both servers must answer equally, over the whole time range.
const QUERIES: [&str; 14] = [
    "count by (job) ({__name__=~'.+'})",
    "sum by (job) (count_over_time(node_cpu_seconds_total[1m]))",
    "ooo_metric",
    "sum by (i) (rate(ooo_metric[2m]))",
    "nh_int",
    "nh_float",
    "nh_gauge",
    "nh_custom",
    "nh_schema",
    "histogram_quantile(0.9, rate(prometheus_http_request_duration_seconds[1m]))",
    "demo_odd",
    "{'demo.dotted.metric'}",
    "sum by (mode) (rate(node_cpu_seconds_total[1m]))",
    "resets(demo_odd[5m]) or changes(up[5m])",
];

/// Returns a copy of the recorded directory, unless it or a program is missing.
pub(crate) fn recorded(programs: &[&str]) -> Option<(TempDir, PathBuf)> {
    if missing(programs) {
        return None;
    }
    let source = varve_oracle::shared("prometheus-data/mixed")?;
    let dir = TempDir::new().expect("make a temporary directory");
    let copy = dir.path().join("original");
    copy_dir(&source, &copy);
    Some((dir, copy))
}

fn recover(source: &Path, out: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
    command
        .args(["wal", "recover"])
        .arg(source)
        .arg("--to-blocks")
        .arg(out)
        .args(flags);
    command.output().expect("run varve")
}

/// Recovers a directory, and combines its blocks with the recovered ones, as an operator would.
fn recovered(dir: &Path, original: &Path, flags: &[&str]) -> PathBuf {
    let (out, target) = (dir.join("out"), dir.join("recovered"));
    let output = recover(original, &out, flags);
    assert!(output.status.success(), "{output:?}");
    for source in [original, &out] {
        for entry in std::fs::read_dir(source).expect("list a folder") {
            let path = entry.expect("list a folder").path();
            if path.join("meta.json").is_file() {
                copy_dir(
                    &path,
                    &target.join(path.file_name().expect("a block has a name")),
                );
            }
        }
    }
    std::fs::create_dir(target.join("wal")).expect("make a folder");
    target
}

/// Recovers a directory and returns the number of samples, including those of its own blocks.
fn recovered_samples(dir: &Path, out: &Path) -> u64 {
    let output = recover(dir, out, &["--format=json"]);
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{output:?}"
    );
    let in_block = |path: std::path::PathBuf| {
        let meta = std::fs::read(path.join("meta.json")).ok()?;
        serde_json::from_slice::<Value>(&meta).ok()?["stats"]["numSamples"].as_u64()
    };
    let of = |dir: &Path| {
        let entries = std::fs::read_dir(dir).expect("list a folder");
        entries
            .filter_map(|entry| in_block(entry.expect("list a folder").path()))
            .sum::<u64>()
    };
    of(dir) + of(out)
}

/// Runs `varve tsdb` and returns its output.
fn tsdb(args: &[&OsStr]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .arg("tsdb")
        .args(args)
        .output()
        .expect("run varve");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("varve prints text")
}

fn dump(dir: &Path) -> String {
    let output = promtool(&[
        "tsdb",
        "dump",
        dir.to_str().expect("a path of a test is text"),
    ]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("promtool prints text")
}

#[test]
fn recovered_blocks_have_the_dump_of_the_directory() {
    let Some((dir, original)) = recorded(&["promtool"]) else {
        return;
    };
    let expected = dump(&original);
    assert!(expected.lines().count() > 900_000);
    for flags in [
        &["--concurrency=1"][..],
        &["--concurrency=3", "--memory=1MiB"],
    ] {
        let target = recovered(dir.path(), &original, flags);
        assert!(dump(&target) == expected, "dumps differ with {flags:?}");
        let path = target.to_str().expect("a path of a test is text");
        let list = String::from_utf8(promtool(&["tsdb", "list", path]).stdout)
            .expect("promtool prints text");
        assert_eq!(list.lines().count(), 5, "{list}");
        assert!(promtool(&["tsdb", "analyze", path]).status.success());
        // A second run gives the same block under the same name.
        let names = |dir: &Path| {
            std::fs::read_dir(dir)
                .expect("list a folder")
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        };
        let before = names(&dir.path().join("out"));
        assert!(
            recover(&original, &dir.path().join("out"), flags)
                .status
                .success()
        );
        assert_eq!(names(&dir.path().join("out")), before);
        assert_eq!(before.len(), 1);
        std::fs::remove_dir_all(target).expect("remove a folder");
    }
}

#[test]
fn prometheus_answers_equally_from_recovered_blocks() {
    let Some((dir, original)) = recorded(&["prometheus"]) else {
        return;
    };
    let target = recovered(dir.path(), &original, &[]);
    let theirs = Prometheus::start_on(CONFIG, &FLAGS, |data| copy_dir(&original, data));
    let ours = Prometheus::start_on(CONFIG, &FLAGS, |data| copy_dir(&target, data));
    assert_same_answers(theirs.http(), ours.http(), &QUERIES, (START, END));
    scrapes_on(&ours);
}

/// Asserts that two servers answer range queries equally, with non-empty results.
fn assert_same_answers(theirs: &Http, ours: &Http, queries: &[&str], (start, end): (&str, &str)) {
    for query in queries {
        let ask = |http: &Http| {
            let params = [
                ("query", *query),
                ("start", start),
                ("end", end),
                ("step", "7"),
            ];
            let mut data = http.query("/api/v1/query_range", &params).data();
            let result = data["result"]
                .as_array_mut()
                .expect("a range query gives a list");
            result.sort_by_key(|series| series["metric"].to_string());
            data
        };
        let (expected, found) = (ask(theirs), ask(ours));
        assert!(
            !expected["result"]
                .as_array()
                .expect("checked above")
                .is_empty(),
            "{query} finds nothing"
        );
        assert!(found == expected, "{query}:\n{found}\n{expected}");
    }
}

#[test]
fn varve_answers_like_prometheus_after_an_import() {
    let Some((dir, original)) = recorded(&["prometheus"]) else {
        return;
    };
    let flags = [FLAGS[0], "--enable-feature=exemplar-storage"];
    let theirs = Prometheus::start_on(CONFIG, &flags, |data| copy_dir(&original, data));
    let ours = Server::start_on(&["--storage.tsdb.retention.time=100y"], |data| {
        let said = tsdb(&["import".as_ref(), original.as_os_str(), data.as_os_str()]);
        assert!(said.contains("exemplars and metadata of"), "{said}");
    });
    assert_same_answers(theirs.http(), ours.http(), &QUERIES, (START, END));
    let metadata = ours
        .http()
        .query("/api/v1/metadata", &[("metric", "node_cpu_seconds_total")])
        .data();
    assert_eq!(
        metadata["node_cpu_seconds_total"][0]["type"], "counter",
        "{metadata}"
    );
    let params = [
        ("query", "{__name__=~'.+'}"),
        ("start", START),
        ("end", END),
    ];
    let exemplars = |http: &Http| -> BTreeSet<String> {
        let data = http.query("/api/v1/query_exemplars", &params).data();
        let of_series = |series: &Value| {
            let exemplars = series["exemplars"]
                .as_array()
                .expect("exemplars are a list")
                .clone();
            exemplars
                .iter()
                .map(|it| format!("{} {it}", series["seriesLabels"]))
                .collect::<Vec<_>>()
        };
        data.as_array()
            .expect("series are a list")
            .iter()
            .flat_map(of_series)
            .collect()
    };
    // Prometheus drops in-order samples older than its WAL when it starts.
    let (expected, found) = (exemplars(theirs.http()), exemplars(ours.http()));
    assert!(
        !expected.is_empty() && expected.is_subset(&found),
        "{found:?}\n{expected:?}"
    );
    drop(dir);
}

/// A Prometheus with recovered blocks continues to scrape: a query across the seam finds all
/// recovered samples, and all scraped ones, in one series.
fn scrapes_on(prometheus: &Prometheus) {
    if now_s() <= END_S {
        varve_oracle::unsupported("the clock is behind the recorded data");
        return;
    }
    let http = prometheus.http();
    let series = http
        .query("/api/v1/query", &[("query", "up"), ("time", END)])
        .data()["result"][0]["metric"]
        .clone();
    let label = |name: &str| {
        series[name]
            .as_str()
            .expect("what is scraped has a job and an instance")
            .to_owned()
    };
    let (job, instance) = (label("job"), label("instance"));
    let recovered = times_of(http, &job, &instance);
    assert!(!recovered.is_empty());
    let target = http.address();
    prometheus.reload(&format!(
        "{{global: {{scrape_interval: 1s, scrape_timeout: 1s}}, scrape_configs: [{{job_name: '{job}', \
         static_configs: [{{targets: ['{target}'], labels: {{instance: '{instance}'}}}}]}}]}}"
    ));
    let n_scrapes = std::env::var("VARVE_SEAM_SECONDS")
        .map_or(15, |text| text.parse().expect("a number of seconds"));
    for n_new in 1..=n_scrapes {
        wait_until("the next scrape", || {
            times_of(http, &job, &instance).len() >= recovered.len() + n_new
        });
    }
    let n_begun = n_begun(http);
    let times = times_of(http, &job, &instance);
    let (before, since) = times.split_at(recovered.len());
    assert!(
        before == recovered && before.last() < since.first(),
        "{times:?}"
    );
    // Every scrape stores a sample; that of the last one may still be in progress.
    assert!(
        since.len() + 1 >= n_begun,
        "{} samples of {n_begun} scrapes: {since:?}",
        since.len()
    );
}

/// Returns the timestamps of all samples of `up` of a target, including the recorded ones.
fn times_of(http: &Http, job: &str, instance: &str) -> Vec<String> {
    let range_s = now_s() - END_S + 24 * 60 * 60;
    let query = format!("up{{job='{job}',instance='{instance}'}}[{range_s}s]");
    let found = http.query("/api/v1/query", &[("query", &query)]).data();
    assert_eq!(
        found["result"].as_array().map(Vec::len),
        Some(1),
        "one series: {found}"
    );
    let values = found["result"][0]["values"]
        .as_array()
        .expect("a range has samples");
    values.iter().map(|sample| sample[0].to_string()).collect()
}

/// Returns the number of scrapes that Prometheus has started, from its scrape interval metric.
fn n_begun(http: &Http) -> usize {
    let text = http.get("/metrics").text();
    let counts = text
        .lines()
        .filter(|line| line.starts_with("prometheus_target_interval_length_seconds_count"));
    let count = |line: &str| {
        line.rsplit(' ')
            .next()
            .and_then(|count| count.parse::<usize>().ok())
    };
    counts.filter_map(count).sum::<usize>() + 1
}

fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is set")
        .as_secs()
}

#[test]
fn an_import_followed_by_an_export_keeps_the_dump() {
    let Some((dir, original)) = recorded(&["promtool"]) else {
        return;
    };
    let (data, exported) = (dir.path().join("data"), dir.path().join("exported"));
    let said = tsdb(&["import".as_ref(), original.as_os_str(), data.as_os_str()]);
    assert!(
        said.starts_with("built ") && said.contains("\nimported "),
        "{said}"
    );
    let flags = [
        "--external-label=cluster=a".as_ref(),
        "--to-blocks".as_ref(),
        exported.as_os_str(),
    ];
    let said = tsdb(&[&["export".as_ref(), data.as_os_str()][..], &flags].concat());
    // A header and one block.
    assert_eq!(said.lines().count(), 2, "{said}");
    std::fs::create_dir(exported.join("wal")).expect("make a folder");
    assert!(dump(&exported) == dump(&original), "the dumps differ");
}

#[test]
fn the_recorded_directory_is_inspected_verified_and_dumped() {
    let Some((_dir, original)) = recorded(&[]) else {
        return;
    };
    let varve = |verb: &str, flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        command
            .args(["wal", verb])
            .arg(&original)
            .args(flags)
            .output()
            .expect("run varve")
    };
    for verb in ["inspect", "verify"] {
        let output = varve(verb, &["--format=json"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
        assert_eq!(found["segments"].as_array().map(Vec::len), Some(5));
        assert_eq!(found["damageCount"], 0);
    }
    let output = varve("dump", &["--format=json", "--type=series"]);
    let lines = String::from_utf8(output.stdout).expect("varve prints text");
    let n_series: usize = lines
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("a line is JSON")["items"]
                .as_array()
                .map_or(0, Vec::len)
        })
        .sum();
    // Some series are defined more than once.
    assert!(n_series >= 1908, "{n_series}");
    std::fs::remove_dir_all(original.join("chunks_head")).expect("remove a folder");
    std::fs::write(original.join("wal/00000002"), b"nonsense").expect("write a segment");
    assert_eq!(varve("verify", &[]).status.code(), Some(1));
}

#[test]
fn damage_is_reported_and_sets_the_exit_code() {
    let Some((dir, original)) = recorded(&[]) else {
        return;
    };
    let out = dir.path().join("out");
    let missing = recover(&dir.path().join("nowhere"), &out, &[]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    let inside = recover(&original, &original.join("out"), &[]);
    assert_eq!(inside.status.code(), Some(2), "{inside:?}");

    let segment = original.join("wal/00000001");
    let mut bytes = std::fs::read(&segment).expect("read a segment");
    bytes[40_000] ^= 0xff;
    std::fs::write(&segment, bytes).expect("write a segment");
    let damaged = recover(&original, &out, &["--format=json"]);
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
    let report: Value = serde_json::from_slice(&damaged.stdout).expect("the report is JSON");
    let damage = &report["damage"][0];
    assert!(
        damage["path"]
            .as_str()
            .is_some_and(|path| path.ends_with("wal/00000001")),
        "{damage}"
    );
    assert!(
        damage["offset"]
            .as_u64()
            .is_some_and(|offset| (32_768..=40_000).contains(&offset)),
        "{damage}"
    );
    assert_eq!(report["blocks"].as_array().map(Vec::len), Some(1));
    let text = recover(&original, &out, &[]);
    assert!(
        String::from_utf8_lossy(&text.stdout).contains("wal/00000001: byte "),
        "{text:?}"
    );
}
