//! Object storage: what Varve uploads, as Thanos and promtool read it; import from a bucket;
//! backups.

mod azure;
mod backup_under_load;
mod backups;
mod s3;
mod thanos;
mod uploads;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{
    BucketSpan, ConfigFile, Histogram, Http, Random, Server, WriteRequest, series, wait_until,
};

/// The beginning of a window of two hours.
const T0: i64 = 1_699_999_200_000;
const HOUR: i64 = 3_600_000;
const STEP: i64 = 60_000;
/// Windows that have ended more than three hours before the last sample.
const N_BLOCKS: usize = 5;
const UPLOAD_EVERY: &str = "--objstore.upload-interval=200ms";
/// Queries whose results a bucket must reproduce.
const QUERIES: [&str; 6] = [
    "requests_total",
    "sum by (job) (rate(requests_total[5m]))",
    "quantile(0.9, requests_total)",
    "count({__name__=~\".+\"})",
    "sum(latency)",
    "histogram_quantile(0.9, rate(latency[10m]))",
];

/// A directory in the place of a bucket, and its configuration.
struct Bucket {
    dir: TempDir,
    path: PathBuf,
    config: String,
}

impl Bucket {
    fn directory() -> Self {
        let dir = TempDir::new().unwrap();
        let config = format!(
            "type: FILESYSTEM\nconfig: {{directory: {}}}\n",
            dir.path().join("bucket").display()
        );
        Self::with_config(dir, config)
    }

    fn with_config(dir: TempDir, config: String) -> Self {
        std::fs::write(dir.path().join("bucket.yml"), &config).unwrap();
        Self {
            path: dir.path().join("bucket"),
            dir,
            config,
        }
    }

    fn config_file(&self) -> String {
        self.dir.path().join("bucket.yml").display().to_string()
    }

    fn flag(&self) -> String {
        format!("--objstore.config-file={}", self.config_file())
    }

    /// Returns the descriptions of all visible blocks, by name.
    fn blocks(&self) -> BTreeMap<String, Value> {
        let mut blocks = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path).into_iter().flatten() {
            let dir = entry.unwrap().path();
            if let Ok(json) = std::fs::read(dir.join("meta.json")) {
                let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
                blocks.insert(name, serde_json::from_slice(&json).unwrap());
            }
        }
        blocks
    }

    /// Asserts that all visible blocks have all of their files.
    fn check_complete(&self) {
        for (name, meta) in self.blocks() {
            for file in meta["thanos"]["files"].as_array().unwrap() {
                let path = self
                    .path
                    .join(&name)
                    .join(file["rel_path"].as_str().unwrap());
                let size = path
                    .metadata()
                    .unwrap_or_else(|e| panic!("{path:?}: {e}"))
                    .len();
                assert!(
                    file["size_bytes"]
                        .as_u64()
                        .is_none_or(|expect| expect == size),
                    "{path:?} has {size} bytes"
                );
            }
        }
    }
}

/// Returns a configuration with the labels of a replica.
fn replica(name: &str) -> ConfigFile {
    ConfigFile::new(&format!(
        "global: {{external_labels: {{cluster: x, replica: {name}}}}}\n"
    ))
}

/// Writes 21 series of 13 hours and 10 minutes, and flushes them to blocks.
fn fill(server: &Server) {
    for start in (T0..T0 + 13 * HOUR + HOUR / 6).step_by(usize::try_from(HOUR / 6).unwrap()) {
        let times: Vec<i64> = (start..start + HOUR / 6)
            .step_by(usize::try_from(STEP).unwrap())
            .collect();
        let of = |i: i64| {
            let samples: Vec<_> = times
                .iter()
                .map(|&at| (at, ((at - T0) / 1000 * (i + 1)) as f64))
                .collect();
            let labels = [
                ("__name__", "requests_total"),
                ("i", &*i.to_string()),
                ("job", ["a", "b"][(i % 2) as usize]),
            ];
            series(&labels, &samples)
        };
        let mut request = WriteRequest::new((0..20).map(of));
        let mut latency = series(&[("__name__", "latency")], &[]);
        latency.histograms = times.iter().map(|&at| histogram(at)).collect();
        request.timeseries.push(latency);
        let answer = server.http().write(&request);
        assert!(answer.status < 300, "{answer:?}");
    }
    flush(server.http());
}

/// Moves the samples in memory to blocks, by a snapshot.
fn flush(http: &Http) {
    http.post("/api/v1/admin/tsdb/snapshot", &[], b"")
        .expect_status(200);
}

fn histogram(timestamp_ms: i64) -> Histogram {
    let count = u64::try_from((timestamp_ms - T0) / 1000).unwrap();
    Histogram {
        timestamp_ms,
        sum: 3.0 * count as f64,
        count_int: Some(2 * count),
        positive_spans: vec![BucketSpan {
            offset: 1,
            length: 2,
        }],
        positive_deltas: vec![i64::try_from(count).unwrap(), 0],
        ..Histogram::default()
    }
}

/// Waits until the bucket has all finished blocks.
fn wait_for_uploads(server: &Server) {
    wait_until("uploads", || {
        server.metric("varve_uploads_until_timestamp_seconds") == (T0 + 10 * HOUR) as f64 / 1000.0
            && server.metric("varve_uploads_pending_blocks") == 0.0
    });
}

/// Starts a server that has written everything to a bucket.
fn uploaded(bucket: &Bucket, name: &str, flags: &[&str]) -> (Server, ConfigFile) {
    let config = replica(name);
    let (flag, config_flag) = (bucket.flag(), config.flag());
    let flags = [
        &["--web.enable-admin-api", UPLOAD_EVERY, &flag, &config_flag],
        flags,
    ]
    .concat();
    let server = Server::start(&flags);
    fill(&server);
    wait_for_uploads(&server);
    (server, config)
}

/// Returns the series of a range query over the blocks, by their labels without the external ones.
fn answer(http: &Http, query: &str, params: &[(&str, &str)]) -> BTreeMap<String, Value> {
    let (start, end) = (
        (T0 / 1000).to_string(),
        ((T0 + 10 * HOUR - STEP) / 1000).to_string(),
    );
    let all = [
        &[
            ("query", query),
            ("start", &*start),
            ("end", &*end),
            ("step", "300"),
        ],
        params,
    ]
    .concat();
    let answer = http
        .query("/api/v1/query_range", &all)
        .expect_status(200)
        .json();
    assert!(
        answer["warnings"].as_array().is_none_or(Vec::is_empty),
        "{query}: {}",
        answer["warnings"]
    );
    let result = answer["data"]["result"].as_array().unwrap().clone();
    let one = |mut series: Value| {
        let mut metric: BTreeMap<String, String> =
            serde_json::from_value(series["metric"].take()).unwrap();
        metric.retain(|name, _| name != "cluster" && name != "replica");
        (format!("{metric:?}"), series)
    };
    result.into_iter().map(one).collect()
}

/// Asserts that two servers return the same for all [`QUERIES`].
fn check_answers(ours: &Http, theirs: &Http, params: &[(&str, &str)]) {
    for query in QUERIES {
        let (ours, theirs) = (answer(ours, query, &[]), answer(theirs, query, params));
        assert!(!ours.is_empty(), "{query}");
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>(),
            "{query}"
        );
        for (labels, series) in &ours {
            assert_eq!(series, &theirs[labels], "{query}: {labels}");
        }
    }
}

/// Writes requests of random values after the samples of [`fill`]. Ten requests compress to more
/// than 5 MiB, and have 1000 series.
fn fill_with_noise(server: &Server, n_requests: usize) {
    let mut random = Random::new(1);
    for request in 0..n_requests {
        let of = |i: i64| {
            let samples: Vec<_> = (0..800)
                .map(|at| (T0 + 14 * HOUR + at, random.next() as f64))
                .collect();
            series(
                &[("__name__", "noise"), ("i", &format!("{request}-{i}"))],
                &samples,
            )
        };
        let answer = server.http().write(&WriteRequest::new((0..100).map(of)));
        assert!(answer.status < 300, "{answer:?}");
    }
}

/// Runs `varve tsdb` and returns its output.
fn tsdb(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_varve"))
        .arg("tsdb")
        .args(args)
        .output()
        .unwrap()
}

/// As [`tsdb`], for a command that succeeds. Returns what it prints.
fn succeed(args: &[&str]) -> String {
    let output = tsdb(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// As [`tsdb`], for a command that fails. Returns its error.
fn fail(args: &[&str]) -> String {
    let output = tsdb(args);
    assert!(!output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
