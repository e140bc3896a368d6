//! Compares alerts with the truth: precision, recall and time to detect.
//!
//! An alert is right if a fault is active when it fires, or ended at most [`GRACE_MS`] before, and
//! the alert names its job or one of its nodes, and no other node, GPU or port. Several alerts of
//! one fault count once. An alert that is not right is false; alerts of the same name and labels
//! that fire again within an hour count as one false alert. An alert of a node or job that belongs
//! to a decoy is false.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use serde::Deserialize;

use super::faults::{Fault, Kind};

/// Alerts look back over minutes, so they may fire shortly after a fault.
const GRACE_MS: i64 = 5 * 60_000;
/// A false alert that fires again within this time is one false alert.
const REPEAT_MS: i64 = 60 * 60_000;
/// Maximum number of false alerts that are listed.
const LISTED_MAX: usize = 40;

/// The output of `varve rules backtest --output json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Backtest {
    rules: Vec<Rule>,
    #[serde(default)]
    is_truncated: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    name: String,
    #[serde(default)]
    failures: u64,
    #[serde(default)]
    last_error: String,
    firings: Vec<Firing>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Firing {
    labels: BTreeMap<String, String>,
    fired_at_ms: i64,
}

/// The result.
#[derive(Debug, Default)]
pub(super) struct Report {
    by_kind: BTreeMap<Kind, Found>,
    /// Number of right and false alerts by name.
    by_alert: BTreeMap<String, Alerts>,
    false_alerts: Vec<String>,
    missed: Vec<String>,
    errors: Vec<String>,
    is_truncated: bool,
}

#[derive(Debug, Default)]
struct Found {
    n_faults: usize,
    /// Milliseconds from the beginning of a fault to its first alert.
    delays_ms: Vec<i64>,
}

#[derive(Debug, Default)]
struct Alerts {
    n_right: usize,
    n_false: usize,
}

impl Firing {
    fn label(&self, name: &str) -> Option<&String> {
        self.labels.get(name).filter(|value| !value.is_empty())
    }
}

/// Compares the alerts of a backtest with the truth.
pub(super) fn score(truth: &[Fault], backtest: &Backtest) -> Report {
    let mut report = Report {
        is_truncated: backtest.is_truncated,
        ..Report::default()
    };
    let mut first_alerts: Vec<Option<i64>> = vec![None; truth.len()];
    for rule in &backtest.rules {
        if rule.failures > 0 {
            report
                .errors
                .push(format!("{}: {}", rule.name, rule.last_error));
        }
        let mut last_false: BTreeMap<&BTreeMap<String, String>, i64> = BTreeMap::new();
        let mut firings: Vec<&Firing> = rule.firings.iter().collect();
        firings.sort_by_key(|firing| firing.fired_at_ms);
        for firing in firings {
            let found = truth
                .iter()
                .position(|fault| !fault.is_decoy && explains(fault, firing));
            let alerts = report.by_alert.entry(rule.name.clone()).or_default();
            if let Some(fault_idx) = found {
                alerts.n_right += 1;
                let first = &mut first_alerts[fault_idx];
                *first = Some(first.map_or(firing.fired_at_ms, |at| at.min(firing.fired_at_ms)));
                continue;
            }
            let is_repeated = last_false
                .insert(&firing.labels, firing.fired_at_ms)
                .is_some_and(|at| firing.fired_at_ms - at < REPEAT_MS);
            if !is_repeated {
                alerts.n_false += 1;
                report.false_alerts.push(describe(rule, firing, truth));
            }
        }
    }
    for (fault, first) in truth.iter().zip(first_alerts) {
        if fault.is_decoy {
            continue;
        }
        let found = report.by_kind.entry(fault.kind).or_default();
        found.n_faults += 1;
        match first {
            Some(at) => found.delays_ms.push(at - fault.start_ms),
            None => report.missed.push(format!(
                "{} {} {:?} {:?} severity {} from {}",
                fault.kind.name(),
                fault.job_id,
                fault.nodes,
                fault.device,
                fault.severity,
                fault.start_ms / 1000
            )),
        }
    }
    report
}

/// Returns `true` if an alert that fires at this time names the fault.
fn explains(fault: &Fault, firing: &Firing) -> bool {
    let is_in_time = (fault.start_ms..=fault.end_ms + GRACE_MS).contains(&firing.fired_at_ms);
    let job = firing.label("job_id");
    let node = firing.label("node");
    // The port of an InfiniBand device has the number of its GPU.
    let device = firing.label("gpu").cloned().or_else(|| {
        firing
            .label("device")
            .map(|device| device.replace("mlx5_", ""))
    });
    let is_job = job.is_none_or(|job| *job == fault.job_id);
    let is_node = match node {
        Some(node) => fault.nodes.contains(node),
        None => fault.nodes.is_empty(),
    };
    // A job that hangs because of one GPU is found by its job.
    let is_consequence = fault.kind == Kind::OffBus && node.is_none();
    let is_device = match (&device, &fault.device) {
        (Some(named), Some(device)) => named == device,
        (Some(_), None) | (None, None) => true,
        (None, Some(_)) => true,
    };
    is_in_time
        && (job.is_some() || node.is_some())
        && is_job
        && (is_node || is_consequence)
        && is_device
}

fn describe(rule: &Rule, firing: &Firing, truth: &[Fault]) -> String {
    let labels = firing.labels.iter();
    let labels: Vec<String> = labels
        .filter(|(name, _)| *name != "severity" && *name != "alertname")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let job = firing.labels.get("job_id");
    let node = firing.labels.get("node");
    let near: Vec<String> = truth
        .iter()
        .filter(|fault| {
            (fault.start_ms..=fault.end_ms + GRACE_MS).contains(&firing.fired_at_ms)
                && (fault.job_id.is_empty()
                    || job == Some(&fault.job_id)
                    || node.is_some_and(|node| fault.nodes.contains(node)))
        })
        .map(|fault| format!("{} {:?} {:?}", fault.kind.name(), fault.nodes, fault.device))
        .collect();
    format!(
        "{} {} at {}; near: {}",
        rule.name,
        labels.join(" "),
        firing.fired_at_ms / 1000,
        near.join(", ")
    )
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| kind | faults | found | recall | median time to detect |"
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- |")?;
        let mut n_faults = 0;
        let mut all_delays = Vec::new();
        for (kind, found) in &self.by_kind {
            n_faults += found.n_faults;
            all_delays.extend(&found.delays_ms);
            write_row(f, &kind.name(), found.n_faults, &found.delays_ms)?;
        }
        write_row(f, "all", n_faults, &all_delays)?;

        let n_false = self.false_alerts.len();
        let n_found = all_delays.len();
        let precision = n_found as f64 / (n_found + n_false).max(1) as f64;
        writeln!(f, "\nfalse alerts {n_false}\nprecision {precision:.3}\n")?;
        writeln!(f, "| alert | right | false |\n| --- | --- | --- |")?;
        for (name, alerts) in &self.by_alert {
            writeln!(f, "| {name} | {} | {} |", alerts.n_right, alerts.n_false)?;
        }
        writeln!(f)?;
        for line in self.missed.iter().take(LISTED_MAX) {
            writeln!(f, "missed: {line}")?;
        }
        for line in self.false_alerts.iter().take(LISTED_MAX) {
            writeln!(f, "false: {line}")?;
        }
        for line in &self.errors {
            writeln!(f, "error: {line}")?;
        }
        if self.is_truncated {
            writeln!(f, "error: the backtest has more alerts than it returned")?;
        }
        Ok(())
    }
}

fn write_row(f: &mut Formatter<'_>, name: &str, n_faults: usize, delays_ms: &[i64]) -> fmt::Result {
    let mut sorted = delays_ms.to_vec();
    sorted.sort_unstable();
    let recall = sorted.len() as f64 / n_faults.max(1) as f64;
    let delay = sorted
        .get(sorted.len() / 2)
        .map_or("-".to_owned(), |ms| format!("{} s", ms / 1000));
    let n_found = sorted.len();
    writeln!(
        f,
        "| {name} | {n_faults} | {n_found} | {recall:.2} | {delay} |"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backtest(firings: &str) -> Backtest {
        let text = format!(r#"{{"rules":[{{"name":"A","firings":[{firings}]}}]}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn truth() -> Vec<Fault> {
        let lines = concat!(
            r#"{"kind":"slow_clock","is_decoy":false,"job_id":"t/j","nodes":["n1"],"device":"3","start_ms":60000,"end_ms":600000,"severity":0.5}"#,
            "\n",
            r#"{"kind":"hung","is_decoy":false,"job_id":"t/k","nodes":[],"start_ms":60000,"end_ms":600000,"severity":0.5}"#,
            "\n",
            r#"{"kind":"warm_room","is_decoy":true,"job_id":"t/w","nodes":[],"start_ms":60000,"end_ms":600000,"severity":0.5}"#,
        );
        super::super::faults::read(lines.as_bytes()).unwrap()
    }

    #[test]
    fn an_alert_must_name_the_job_the_node_and_the_gpu() {
        let right = r#"{"labels":{"job_id":"t/j","node":"n1","gpu":"3"},"firedAtMs":180000}"#;
        let report = score(&truth(), &backtest(right));
        assert_eq!(report.by_kind[&Kind::SlowClock].delays_ms, [120_000]);
        assert_eq!((report.false_alerts.len(), report.missed.len()), (0, 1));
        for labels in [
            r#"{"job_id":"t/j","node":"n1","gpu":"4"}"#,
            r#"{"job_id":"t/j","node":"n2","gpu":"3"}"#,
            r#"{"job_id":"t/x","node":"n1","gpu":"3"}"#,
            r#"{"job_id":"t/w"}"#,
            r#"{"job_id":"t/j"}"#,
            "{}",
        ] {
            let firing = format!(r#"{{"labels":{labels},"firedAtMs":180000}}"#);
            let report = score(&truth(), &backtest(&firing));
            assert_eq!(report.false_alerts.len(), 1, "{labels}");
            assert_eq!(report.missed.len(), 2, "{labels}");
        }
    }

    #[test]
    fn one_fault_counts_once_and_late_or_early_alerts_are_false() {
        let firings = [120_000, 240_000, 59_000, 1_000_000]
            .map(|ms| format!(r#"{{"labels":{{"job_id":"t/k"}},"firedAtMs":{ms}}}"#))
            .join(",");
        let report = score(&truth(), &backtest(&firings));
        assert_eq!(report.by_kind[&Kind::Hung].delays_ms, [60_000]);
        // The second false alert repeats the first one within an hour.
        assert_eq!(report.false_alerts.len(), 1);
        assert!(report.to_string().contains("precision 0.500"), "{report}");
    }
}
