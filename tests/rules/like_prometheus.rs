//! The rules of kube-prometheus in Varve and in a real Prometheus that got the same samples.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::kube_prometheus::{self, KUBERNETES, scraped, shared};
use crate::harness::{
    Alertmanager, ConfigFile, Http, Prometheus, Server, TimeSeries, WriteRequest, missing, now_ms,
};

/// The parameters of a comparison.
#[derive(Clone, Copy)]
struct Comparison {
    /// Interval of samples and evaluations.
    step_s: i64,
    /// How far in the past both evaluate, so that both have all samples even on a slow machine.
    offset_s: i64,
    /// Minutes of samples before the first evaluation, one every 30 s.
    history_min: i64,
    /// How long both evaluate.
    duration: Duration,
    /// A part of the targets fails and recovers, and both send alerts to an Alertmanager of their
    /// own.
    has_incident: bool,
}

const SHORT: Comparison = Comparison {
    step_s: 10,
    offset_s: 40,
    history_min: 12,
    duration: Duration::from_secs(120),
    has_incident: false,
};
const LONG: Comparison = Comparison {
    step_s: 30,
    offset_s: 25,
    history_min: 50,
    duration: Duration::from_secs(45 * 60),
    has_incident: true,
};
/// Number of selectors of kube-prometheus' rules that are distinct by name and matchers within
/// their group. Without shared scans there are 488.
const SCANS_MAX: usize = 302;
/// Samples per remote-write request.
const BATCH: usize = 20_000;

/// All samples of rules: by series and time in milliseconds.
type Recorded = BTreeMap<String, BTreeMap<i64, f64>>;

/// The samples of both servers. Values grow with each time.
struct Input {
    series: Vec<TimeSeries>,
    values: Vec<f64>,
    started_ms: i64,
    comparison: Comparison,
}

impl Input {
    fn new(comparison: Comparison, started_ms: i64) -> Self {
        let series = scraped(&KUBERNETES, std::iter::once(0));
        let values = series
            .iter()
            .map(|series| f64::from_bits(series.samples[0].value))
            .collect();
        Self {
            series,
            values,
            started_ms,
            comparison,
        }
    }

    /// Returns the value of a series, or `None` if it has no sample. During an incident, a tenth of
    /// all states are inverted, and some series vanish.
    fn value(&self, idx: usize, time_ms: i64) -> Option<f64> {
        let (value, elapsed_s) = (self.values[idx], (time_ms - self.started_ms) / 1000);
        let lasts_s = i64::try_from(self.comparison.duration.as_secs()).expect("it fits");
        let is_incident =
            self.comparison.has_incident && (lasts_s / 9..lasts_s * 2 / 3).contains(&elapsed_s);
        if is_incident && idx.is_multiple_of(97) {
            return None;
        }
        // 0 and 1 are states, not amounts.
        if value == 0.0 || value == 1.0 {
            return Some(if is_incident && idx % 10 == 3 {
                1.0 - value
            } else {
                value
            });
        }
        let growth = value.abs() * 0.01 * (1.0 + (idx % 7) as f64);
        Some(value + growth * (elapsed_s + self.comparison.history_min * 60) as f64 / 30.0)
    }

    /// Writes the samples of these times to both servers.
    fn write(&self, servers: &[&Http], times_ms: &[i64]) {
        let with_samples = |(idx, series): (usize, &TimeSeries)| {
            let at = |&time_ms: &i64| self.value(idx, time_ms).map(|value| (time_ms, value));
            let samples: Vec<_> = times_ms.iter().filter_map(at).collect();
            (!samples.is_empty()).then(|| TimeSeries {
                samples: crate::harness::series(&[], &samples).samples,
                ..series.clone()
            })
        };
        let all: Vec<_> = self
            .series
            .iter()
            .enumerate()
            .filter_map(with_samples)
            .collect();
        for part in all.chunks((BATCH / times_ms.len()).max(1)) {
            let request = WriteRequest::new(part.to_vec());
            for http in servers.iter() {
                drop(http.write(&request).expect_status(204));
            }
        }
    }

    /// Writes the samples of each step until the comparison ends, and polls the alerts. Returns the
    /// time from which samples were late, and the alerts.
    fn write_until_end(
        &self,
        servers: &[&Http],
        alertmanagers: Option<&[Alertmanager; 2]>,
    ) -> (i64, Notifications) {
        let Comparison {
            step_s,
            offset_s,
            duration,
            ..
        } = self.comparison;
        let (started, mut polled) = (Instant::now(), Instant::now());
        let (mut last, mut late_from, mut notifications) =
            (self.started_ms, i64::MAX, Notifications::default());
        while started.elapsed() < duration {
            if aligned_ms(step_s) > last {
                last += step_s * 1000;
                self.write(servers, &[last]);
                // A slow machine writes samples after their evaluation: these are not compared.
                if now_ms() - last > (offset_s - step_s.min(5)) * 1000 {
                    late_from = late_from.min(last);
                }
            }
            if let Some(alertmanagers) = alertmanagers
                && polled.elapsed() > Duration::from_secs(10)
            {
                polled = Instant::now();
                notifications.poll(alertmanagers, step_s);
            }
            thread::sleep(Duration::from_millis(50));
        }
        (late_from, notifications)
    }
}

/// Returns the present time, rounded down to a multiple of the step.
fn aligned_ms(step_s: i64) -> i64 {
    now_ms() / (step_s * 1000) * step_s * 1000
}

fn recorded(http: &Http, comparison: Comparison) -> Recorded {
    let past_s = comparison.duration.as_secs() as i64 + comparison.offset_s;
    let query = format!("{{__name__=~\".+:.+|ALERTS|ALERTS_FOR_STATE\"}}[{past_s}s]");
    let data = http.query("/api/v1/query", &[("query", &query)]).data();
    let samples = |series: &Value| {
        let values = series["values"].as_array().cloned().unwrap_or_default();
        let sample = |sample: &Value| {
            let time_ms = (sample[0].as_f64().expect("a time") * 1000.0).round() as i64;
            (
                time_ms,
                sample[1]
                    .as_str()
                    .expect("a text")
                    .parse()
                    .expect("a number"),
            )
        };
        (
            series["metric"].to_string(),
            values.iter().map(sample).collect(),
        )
    };
    data["result"]
        .as_array()
        .expect("a matrix")
        .iter()
        .map(samples)
        .collect()
}

/// Returns the samples between the first and the last time that can be compared, and these times.
/// The first evaluations of both servers and those after the last common one are left out.
fn in_common(both: [Recorded; 2], step_s: i64, late_from: i64) -> ([Recorded; 2], (i64, i64)) {
    let times = both.each_ref().map(|of| {
        of.values()
            .flat_map(|samples| samples.keys().copied())
            .collect::<Vec<_>>()
    });
    let first = times
        .iter()
        .map(|of| of.iter().min().expect("both write"))
        .max()
        .expect("there are two");
    let last = times
        .iter()
        .map(|of| of.iter().max().expect("both write"))
        .min()
        .expect("there are two");
    let (first, end) = (
        first + step_s * 4_000,
        (last - step_s * 2_000).min(late_from - 1),
    );
    assert!(
        end > first + step_s * 4_000,
        "too little to compare: samples are late from {late_from}"
    );
    let common = both.map(|of| {
        let keep = |(series, samples): (String, BTreeMap<i64, f64>)| {
            (
                series,
                samples
                    .range(first..=end)
                    .map(|(time, value)| (*time, *value))
                    .collect::<BTreeMap<_, _>>(),
            )
        };
        of.into_iter()
            .map(keep)
            .filter(|(_, samples)| !samples.is_empty())
            .collect()
    });
    (common, (first, end))
}

/// Returns the samples that differ, and twice the number of those that differ in their bits.
fn differences(ours: &Recorded, theirs: &Recorded, step_s: i64) -> (Vec<String>, usize) {
    let (mut differences, mut n_unequal) = (Vec::new(), 0);
    for series in ours.keys().chain(theirs.keys()) {
        let empty = BTreeMap::new();
        let (a, b) = (
            ours.get(series).unwrap_or(&empty),
            theirs.get(series).unwrap_or(&empty),
        );
        for time in a.keys().chain(b.keys()) {
            let (a, b) = (a.get(time), b.get(time));
            n_unequal += usize::from(a != b);
            if !matches!((a, b), (Some(&a), Some(&b)) if is_same(series, a, b, step_s)) {
                differences.push(format!("{series} at {time}: {a:?}, in Prometheus {b:?}"));
            }
        }
    }
    differences.dedup();
    (differences, n_unequal)
}

/// Returns `true` if two values differ at most by the order in which Prometheus adds up series,
/// which is that of their creation, or if they are starts of the same alert.
fn is_same(series: &str, a: f64, b: f64, step_s: i64) -> bool {
    let is_start = series.contains("ALERTS_FOR_STATE");
    let is_close = a == b || (a - b).abs() <= 1e-13 * a.abs();
    is_close || (a.is_nan() && b.is_nan()) || is_start && (a - b).abs() <= step_s as f64
}

/// Alerts at an Alertmanager by labels, with their start and annotations.
type Notified = BTreeMap<String, (jiff::Timestamp, String)>;

fn notified(alertmanager: &Alertmanager) -> Notified {
    let alert = |alert: Value| {
        let start = alert["startsAt"]
            .as_str()
            .expect("a time")
            .parse()
            .expect("it is RFC 3339");
        (
            alert["labels"].to_string(),
            (start, alert["annotations"].to_string()),
        )
    };
    alertmanager.alerts().into_iter().map(alert).collect()
}

/// The alerts that two Alertmanagers have had.
#[derive(Default)]
struct Notifications {
    /// All label sets and starts.
    seen: [BTreeMap<(String, i64), usize>; 2],
    n_polls: usize,
    n_equal_polls: usize,
}

impl Notifications {
    fn poll(&mut self, alertmanagers: &[Alertmanager; 2], step_s: i64) {
        let found = alertmanagers.each_ref().map(notified);
        self.n_polls += 1;
        self.n_equal_polls += usize::from(found[0] == found[1]);
        for (seen, found) in self.seen.iter_mut().zip(&found) {
            for (labels, (start, _)) in found {
                *seen
                    .entry((labels.clone(), start.as_second() / step_s))
                    .or_default() += 1;
            }
        }
    }

    /// Returns the alerts that only one of them has had. A start may differ by the step before it.
    fn differences(&self) -> Vec<String> {
        let [ours, theirs] = &self.seen;
        let lacks = |seen: &BTreeMap<(String, i64), usize>, (labels, start): &(String, i64)| {
            !(-1..=1).any(|by| seen.contains_key(&(labels.clone(), start + by)))
        };
        let missing = theirs
            .keys()
            .filter(|alert| lacks(ours, alert))
            .map(|alert| format!("missing: {alert:?}"));
        let added = ours
            .keys()
            .filter(|alert| lacks(theirs, alert))
            .map(|alert| format!("added: {alert:?}"));
        missing.chain(added).collect()
    }
}

/// Returns the number of selections from the store in one evaluation of each group.
fn scans_per_round(varve: &Server) -> usize {
    let metrics = varve.http().get("/metrics").text();
    let of_groups = metrics
        .lines()
        .filter(|line| line.starts_with("varve_rule_group_last_evaluation_scans{"));
    of_groups
        .map(|line| {
            line.rsplit(' ')
                .next()
                .expect("a value")
                .parse::<usize>()
                .expect("a number")
        })
        .sum()
}

/// Copies the rules. With `all_at_once`, all groups have the default interval.
pub(super) fn copy_rules(to: &Path, all_at_once: bool) -> usize {
    let files = std::fs::read_dir(shared("kube-prometheus/rules"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut n_rules = 0;
    for file in files.filter(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    }) {
        let mut text = std::fs::read_to_string(&file).unwrap();
        if all_at_once {
            text = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("interval:"))
                .map(|line| format!("{line}\n"))
                .collect();
        }
        n_rules += text
            .lines()
            .filter(|line| line.trim_start().starts_with("expr:"))
            .count();
        std::fs::write(to.join(file.file_name().unwrap()), text).unwrap();
    }
    n_rules
}

#[test]
fn the_rules_of_kube_prometheus_have_the_results_of_prometheus() {
    compare(SHORT);
}

#[test]
#[ignore = "takes 45 minutes"]
fn the_rules_of_kube_prometheus_have_the_results_of_prometheus_for_45_minutes() {
    compare(LONG);
}

fn compare(comparison: Comparison) {
    let Comparison {
        step_s,
        offset_s,
        history_min,
        has_incident,
        ..
    } = comparison;
    let programs = ["prometheus", "prometheus-alertmanager"];
    if missing(&programs[..1 + usize::from(has_incident)]) || !kube_prometheus::is_there() {
        return;
    }
    let alertmanagers = has_incident.then(|| [Alertmanager::start(), Alertmanager::start()]);
    let dir = tempfile::tempdir().unwrap();
    let rule_files = dir.path().join("*.yaml").display().to_string();
    let config = |idx: usize| {
        let targets: Vec<_> = alertmanagers
            .iter()
            .map(|both| both[idx].address().to_string())
            .collect();
        json!({
            "global": {"evaluation_interval": format!("{step_s}s"), "rule_query_offset": format!("{offset_s}s")},
            "rule_files": [rule_files],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": targets}]}]},
        })
        .to_string()
    };
    let url = "--web.external-url=http://example.org/";
    let file = ConfigFile::new(&config(0));
    let varve = Server::start(&[
        &file.flag(),
        "--web.enable-lifecycle",
        "--rules.catch-up=0s",
        url,
        "--web.route-prefix=/",
    ]);
    let prometheus = Prometheus::start(&config(1), &[url, "--web.route-prefix=/"]);
    let servers = [varve.http(), prometheus.http()];

    let now = aligned_ms(step_s);
    let input = Input::new(comparison, now);
    let history: Vec<_> = (0..history_min * 2)
        .map(|i| now - (history_min * 2 - i) * 30_000)
        .collect();
    input.write(&servers, &history);
    let n_rules = copy_rules(dir.path(), !has_incident);
    for http in servers.iter() {
        drop(http.post("/-/reload", &[], &[]).expect_status(200));
    }
    let (late_from, notifications) = input.write_until_end(&servers, alertmanagers.as_ref());

    let n_scans = scans_per_round(&varve);
    eprintln!("{n_scans} selections per round");
    assert!((200..=SCANS_MAX).contains(&n_scans), "{n_scans} selections");
    let ([ours, theirs], (first, end)) = in_common(
        servers.map(|http| recorded(http, comparison)),
        step_s,
        late_from,
    );
    let n_samples: usize = theirs.values().map(BTreeMap::len).sum();
    eprintln!(
        "{n_rules} rules, {} series, {n_samples} samples, from {first} to {end}",
        theirs.len()
    );
    assert!(theirs.len() > 300, "too little to compare");
    let (differences, n_unequal) = differences(&ours, &theirs, step_s);
    let n_alerts = theirs
        .keys()
        .filter(|series| series.contains("\"ALERTS\""))
        .count();
    eprintln!(
        "{} values differ in bits, {n_alerts} series of ALERTS",
        n_unequal / 2
    );
    let shown = differences
        .iter()
        .take(40)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        differences.is_empty(),
        "{} differences:\n{shown}",
        differences.len()
    );
    if has_incident {
        let [ours, theirs] = notifications.seen.each_ref().map(BTreeMap::len);
        let Notifications {
            n_polls,
            n_equal_polls,
            ..
        } = notifications;
        eprintln!(
            "{ours} alerts at Alertmanager, {theirs} of Prometheus; {n_equal_polls} of {n_polls} polls equal"
        );
        assert_eq!(notifications.differences(), Vec::<String>::new());
        assert!(theirs > 10, "too little to compare");
    }
}
