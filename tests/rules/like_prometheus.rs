//! The rules of kube-prometheus in Varve and in a real Prometheus that got the same samples.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::kube_prometheus::{self, KUBERNETES, scraped, shared};
use crate::harness::{ConfigFile, Http, Prometheus, Server, WriteRequest, missing, now_ms};

/// Interval of samples and evaluations.
const STEP_S: i64 = 5;
/// How far in the past both evaluate, so that both have all samples even on a slow machine.
const OFFSET_S: i64 = 20;
/// Minutes of samples before the first evaluation.
const HISTORY_MIN: i64 = 12;
/// How long both evaluate.
const DURATION: Duration = Duration::from_secs(75);
/// Samples per remote-write request.
const BATCH: usize = 20_000;

/// All samples of rules: by series and time in milliseconds.
type Recorded = BTreeMap<String, BTreeMap<i64, f64>>;

/// Writes the samples of these times to both servers.
fn write(servers: &[&Http], times_ms: impl Iterator<Item = i64> + Clone) {
    let n_times = times_ms.clone().count();
    let all = scraped(&KUBERNETES, times_ms);
    for part in all.chunks((BATCH / n_times).max(1)) {
        let request = WriteRequest::new(part.to_vec());
        servers.iter().for_each(|http| drop(http.write(&request).expect_status(204)));
    }
}

fn recorded(http: &Http) -> Recorded {
    let past_s = DURATION.as_secs() as i64 + OFFSET_S;
    let query = format!("{{__name__=~\".+:.+|ALERTS|ALERTS_FOR_STATE\"}}[{past_s}s]");
    let data = http.query("/api/v1/query", &[("query", &query)]).data();
    let samples = |series: &Value| {
        let values = series["values"].as_array().cloned().unwrap_or_default();
        let sample = |sample: &Value| {
            let time_ms = (sample[0].as_f64().expect("a time") * 1000.0).round() as i64;
            (time_ms, sample[1].as_str().expect("a text").parse().expect("a number"))
        };
        (series["metric"].to_string(), values.iter().map(sample).collect())
    };
    data["result"].as_array().expect("a matrix").iter().map(samples).collect()
}

/// Returns `true` if two values differ at most by the order in which Prometheus adds up series, which is that of their
/// creation, or if they are starts of the same alert.
fn is_same(series: &str, a: f64, b: f64) -> bool {
    let is_start = series.contains("ALERTS_FOR_STATE");
    let is_close = a == b || (a - b).abs() <= 1e-13 * a.abs();
    is_close || (a.is_nan() && b.is_nan()) || is_start && (a - b).abs() <= STEP_S as f64
}

fn copy_rules(to: &Path) -> usize {
    let files = std::fs::read_dir(shared("kube-prometheus/rules")).unwrap().map(|entry| entry.unwrap().path());
    let mut n_rules = 0;
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
        let text = std::fs::read_to_string(&file).unwrap();
        n_rules += text.lines().filter(|line| line.trim_start().starts_with("expr:")).count();
        std::fs::write(to.join(file.file_name().unwrap()), text).unwrap();
    }
    n_rules
}

#[test]
fn the_rules_of_kube_prometheus_have_the_results_of_prometheus() {
    if missing(&["prometheus"]) || !kube_prometheus::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let rule_files = dir.path().join("*.yaml").display().to_string();
    let global = json!({"evaluation_interval": format!("{STEP_S}s"), "rule_query_offset": format!("{OFFSET_S}s")});
    let config = ConfigFile::new(&json!({"global": global, "rule_files": [rule_files]}).to_string());
    let varve = Server::start(&[&config.flag(), "--web.enable-lifecycle", "--rules.catch-up=0s"]);
    let text = json!({"global": global, "rule_files": [rule_files]}).to_string();
    let prometheus = Prometheus::start(&text, &[]);
    let servers = [varve.http(), prometheus.http()];

    let aligned = || now_ms() / (STEP_S * 1000) * STEP_S * 1000;
    let now = aligned();
    write(&servers, (0..HISTORY_MIN * 2).map(|i| now - (HISTORY_MIN * 2 - i) * 30_000));
    let n_rules = copy_rules(dir.path());
    servers.iter().for_each(|http| drop(http.post("/-/reload", &[], &[]).expect_status(200)));
    let started = Instant::now();
    let (mut last, mut late_from) = (now, i64::MAX);
    while started.elapsed() < DURATION {
        if aligned() > last {
            last += STEP_S * 1000;
            write(&servers, std::iter::once(last));
            // A slow machine writes samples after their evaluation: these are not compared.
            if now_ms() - last > (OFFSET_S - STEP_S) * 1000 {
                late_from = late_from.min(last);
            }
        }
        thread::sleep(Duration::from_millis(50));
    }

    let [ours, theirs] = servers.map(recorded);
    let times = |of: &Recorded| of.values().flat_map(|samples| samples.keys().copied()).collect::<Vec<_>>();
    // The first evaluations of both and those after the last common one are left out.
    let first = times(&ours).into_iter().min().max(times(&theirs).into_iter().min()).expect("both write") + 20_000;
    let end = times(&ours).into_iter().max().min(times(&theirs).into_iter().max()).expect("both write") - 10_000;
    let end = end.min(late_from - 1);
    let in_common = |of: Recorded| -> Recorded {
        let keep = |(series, samples): (String, BTreeMap<i64, f64>)| {
            (series, samples.range(first..=end).map(|(time, value)| (*time, *value)).collect::<BTreeMap<_, _>>())
        };
        of.into_iter().map(keep).filter(|(_, samples)| !samples.is_empty()).collect()
    };
    let (ours, theirs) = (in_common(ours), in_common(theirs));
    let n_samples: usize = theirs.values().map(BTreeMap::len).sum();
    eprintln!("{n_rules} rules, {} series, {n_samples} samples, from {first} to {end}", theirs.len());
    assert!(theirs.len() > 300 && end > first + 20_000, "too little to compare");
    let mut differences = Vec::new();
    for series in ours.keys().chain(theirs.keys()) {
        let empty = BTreeMap::new();
        let (a, b) = (ours.get(series).unwrap_or(&empty), theirs.get(series).unwrap_or(&empty));
        for time in a.keys().chain(b.keys()) {
            let (a, b) = (a.get(time), b.get(time));
            if !matches!((a, b), (Some(&a), Some(&b)) if is_same(series, a, b)) {
                differences.push(format!("{series} at {time}: {a:?}, in Prometheus {b:?}"));
            }
        }
    }
    differences.dedup();
    let shown = differences.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{shown}", differences.len());
}
