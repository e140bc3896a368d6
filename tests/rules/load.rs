//! CPU time of a round of kube-prometheus' rules over many series: in Varve, in a real Prometheus,
//! and in vmalert with VictoriaMetrics, each in its own turn.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::like_prometheus::copy_rules;
use crate::harness::kube_prometheus::{self, KUBERNETES, scraped};
use crate::harness::{
    ConfigFile, Http, Process, Prometheus, Server, TimeSeries, WriteRequest, missing, now_ms,
    series,
};

/// Interval of evaluations, and number of evaluations whose CPU time is measured.
const INTERVAL_S: u64 = 10;
const N_ROUNDS: u64 = 6;
/// Number of samples of a series, one every 30 s. The newest ones are in the future, so that no
/// series becomes stale during the measurement.
const N_SAMPLES: i64 = 24;
const AHEAD_MS: i64 = 4 * 60_000;
const SERIES_PER_REQUEST: usize = 1_000;

/// Writes the series of `n_clusters` clusters. Returns the number of series.
fn load(http: &Http, n_clusters: usize) -> usize {
    let end_ms = now_ms() / 30_000 * 30_000 + AHEAD_MS;
    let times: Vec<_> = (0..N_SAMPLES)
        .map(|i| end_ms - (N_SAMPLES - 1 - i) * 30_000)
        .collect();
    let base = scraped(&KUBERNETES, times.iter().copied());
    for cluster in 0..n_clusters {
        let name = series(&[("cluster", &format!("c{cluster}"))], &[])
            .labels
            .remove(0);
        for part in base.chunks(SERIES_PER_REQUEST) {
            let in_cluster = |of: &TimeSeries| {
                let mut of = of.clone();
                of.labels.push(name.clone());
                of.labels.sort_by(|a, b| a.name.cmp(&b.name));
                of
            };
            let request = WriteRequest::new(part.iter().map(in_cluster));
            http.write(&request).expect_status(204);
        }
    }
    base.len() * n_clusters
}

/// Measures the CPU seconds of a round: `start` starts the evaluations.
fn measure(processes: &[&Process], start: impl FnOnce()) -> f64 {
    let cpu = || {
        processes
            .iter()
            .map(|process| process.cpu_seconds())
            .sum::<f64>()
    };
    let window = Duration::from_secs(INTERVAL_S * N_ROUNDS);
    thread::sleep(Duration::from_secs(15));
    let idle_from = cpu();
    thread::sleep(window / 3);
    let idle = (cpu() - idle_from) * 3.0;
    start();
    thread::sleep(Duration::from_secs(2 * INTERVAL_S));
    let from = cpu();
    thread::sleep(window);
    (cpu() - from - idle) / N_ROUNDS as f64
}

fn config(rules: &Path) -> String {
    let global = json!({"evaluation_interval": format!("{INTERVAL_S}s")});
    json!({"global": global, "rule_files": [rules.join("*.yaml")]}).to_string()
}

fn of_varve(program: PathBuf, n_clusters: usize) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let file =
        ConfigFile::new(&config(dir.path()).replacen('{', "{\"rules\": {\"wait\": \"none\"}, ", 1));
    let server = Server::start_program(&program, &[&file.flag(), "--web.enable-lifecycle"]);
    let n_series = load(server.http(), n_clusters);
    let seconds = measure(&[server.process()], || {
        copy_rules(dir.path(), true);
        server.http().post("/-/reload", &[], &[]).expect_status(200);
    });
    let metrics = server.http().get("/metrics").text();
    let sum = |name: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines
            .map(|line| {
                line.rsplit(' ')
                    .next()
                    .expect("a value")
                    .parse::<f64>()
                    .expect("a number")
            })
            .sum::<f64>()
    };
    let [missed, scans] = [
        "prometheus_rule_group_iterations_missed_total{",
        "varve_rule_group_last_evaluation_scans{",
    ]
    .map(sum);
    eprintln!(
        "{}: {n_series} series, {seconds:.2} s of CPU per round, {scans} selections, {missed} missed",
        program.display()
    );
    seconds
}

fn of_prometheus(n_clusters: usize) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::start(&config(dir.path()), &[]);
    load(prometheus.http(), n_clusters);
    let seconds = measure(&[prometheus.process()], || {
        copy_rules(dir.path(), true);
        prometheus
            .http()
            .post("/-/reload", &[], &[])
            .expect_status(200);
    });
    eprintln!("Prometheus: {seconds:.2} s of CPU per round");
    seconds
}

fn of_vmalert(n_clusters: usize) -> f64 {
    let dir = tempfile::tempdir().unwrap();
    copy_rules(dir.path(), true);
    let address = "127.0.0.1:48428";
    let mut command = Command::new("victoria-metrics");
    command.args([
        format!("-storageDataPath={}", dir.path().join("data").display()),
        format!("-httpListenAddr={address}"),
    ]);
    let victoria = Process::start("victoria-metrics", &mut command);
    let http = Http::new(address.parse().unwrap());
    crate::harness::wait_until("victoria-metrics", || http.try_get("/health").is_ok());
    load(&http, n_clusters);
    let mut command = Command::new("vmalert");
    let url = http.url("");
    command.args([
        format!("-datasource.url={url}"),
        format!("-remoteWrite.url={url}"),
        format!("-rule={}", dir.path().join("*.yaml").display()),
        format!("-evaluationInterval={INTERVAL_S}s"),
        "-rule.evalDelay=0s".to_owned(),
        "-httpListenAddr=127.0.0.1:48429".to_owned(),
        "-notifier.blackhole".to_owned(),
    ]);
    let idle = std::cell::OnceCell::new();
    let mut seconds = measure(&[&victoria], || {
        drop(idle.set(Process::start("vmalert", &mut command)))
    });
    let vmalert = idle.get().expect("it is started");
    // The process exists since the start of the evaluations.
    seconds += vmalert.cpu_seconds() / (N_ROUNDS + 2) as f64;
    eprintln!("vmalert with VictoriaMetrics: {seconds:.2} s of CPU per round");
    seconds
}

#[test]
#[ignore = "needs VARVE_PROGRAMS: comma-separated programs, best release builds"]
fn the_cpu_time_of_a_round_is_that_of_the_programs() {
    let Ok(programs) = std::env::var("VARVE_PROGRAMS") else {
        return;
    };
    let n_clusters =
        std::env::var("VARVE_CLUSTERS").map_or(6, |text| text.parse().expect("a number"));
    for program in programs.split(',') {
        of_varve(program.into(), n_clusters);
    }
    if kube_prometheus::is_there() && !missing(&["prometheus", "vmalert", "victoria-metrics"]) {
        of_prometheus(n_clusters);
        of_vmalert(n_clusters);
    }
}
