//! Compares alerts with the truth: precision, recall and time to detect.
//!
//! An alert is judged when it begins to fire.
//! - A **hit** names the job of a fault that is active, or ended at most [`GRACE_MS`] before. If the
//!   fault is of a node, GPU or port, the alert also names one of its nodes, and no other GPU or
//!   port. If the fault is of the whole job, it names no node. If the fault is of a node that runs no
//!   job, it names no job. A team that waits is hit by its name alone, and a node that fails again and
//!   again also by an alert of the node that names no job, up to [`LEMON_GRACE_MS`] later.
//! - A **consequence** names only the job that a GPU has halted: it is true, but does not say where.
//!   It is neither a hit nor false.
//! - Every other alert is **false**, also on a decoy, and each time it begins to fire again.
//!
//! A fault is found if it has a hit. It counts once, however many alerts hit it. Recall is the share
//! of the faults that are found. Precision is the number of found faults, divided by the sum of it
//! and the number of false alerts.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use super::alerts::{Alerts, Firing, Rule};
use super::faults::Fault;
use super::kind::Kind;

/// Alerts look back over minutes, so they may fire shortly after a fault.
const GRACE_MS: i64 = 5 * 60_000;
/// Nodes that fail again and again are counted once an hour.
const LEMON_GRACE_MS: i64 = 2 * 3_600_000;
/// Maximum number of false alerts that are listed.
const LISTED_MAX: usize = 40;

/// The result.
#[derive(Debug, Default)]
pub(super) struct Report {
    by_kind: BTreeMap<Kind, Found>,
    by_alert: BTreeMap<String, Counts>,
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

/// Alerts of a name.
#[derive(Debug, Default)]
struct Counts {
    n_hits: usize,
    n_consequences: usize,
    n_false: usize,
}

/// Compares alerts with the truth.
pub(super) fn score(truth: &[Fault], alerts: &Alerts) -> Report {
    let mut report = Report {
        is_truncated: alerts.is_truncated,
        ..Report::default()
    };
    let mut first_alerts: Vec<Option<i64>> = vec![None; truth.len()];
    for rule in &alerts.rules {
        if rule.failures > 0 {
            report
                .errors
                .push(format!("{}: {}", rule.name, rule.last_error));
        }
        for firing in &rule.firings {
            let counts = report.by_alert.entry(rule.name.clone()).or_default();
            if let Some(fault_idx) = truth.iter().position(|fault| is_hit(fault, firing)) {
                counts.n_hits += 1;
                let first = &mut first_alerts[fault_idx];
                *first = Some(first.map_or(firing.fired_at_ms, |at| at.min(firing.fired_at_ms)));
            } else if truth.iter().any(|fault| is_consequence(fault, firing)) {
                counts.n_consequences += 1;
            } else {
                counts.n_false += 1;
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

/// Returns `true` if an alert names the place of a fault while it is active.
fn is_hit(fault: &Fault, firing: &Firing) -> bool {
    if fault.kind == Kind::TeamWaits {
        return is_of_team(fault, firing);
    }
    if is_of_lemon(fault, firing) {
        return true;
    }
    if !is_of_job(fault, firing) {
        return false;
    }
    match firing.label("node") {
        None => fault.nodes.is_empty(),
        Some(node) => fault.nodes.contains(node) && is_of_device(fault, firing),
    }
}

/// Returns `true` if an alert names only the job that a fault has halted.
fn is_consequence(fault: &Fault, firing: &Firing) -> bool {
    fault.kind.halts_the_job() && firing.label("node").is_none() && is_of_job(fault, firing)
}

fn is_of_job(fault: &Fault, firing: &Firing) -> bool {
    let named = firing.label("job_id").map_or("", String::as_str);
    is_active(fault, firing, GRACE_MS) && named == fault.job_id
}

/// Returns `true` if an alert names only the team that waits.
fn is_of_team(fault: &Fault, firing: &Firing) -> bool {
    let team = fault.job_id.split('/').next();
    let named = firing.label("team").map(String::as_str);
    let is_of_others = firing.label("job_id").or(firing.label("node")).is_some();
    is_active(fault, firing, GRACE_MS) && named == team && !is_of_others
}

/// Returns `true` if an alert names only the node that fails again and again.
fn is_of_lemon(fault: &Fault, firing: &Firing) -> bool {
    let node = firing.label("node");
    fault.kind == Kind::LemonNode
        && is_active(fault, firing, LEMON_GRACE_MS)
        && firing.label("job_id").is_none()
        && node.is_some_and(|node| fault.nodes.contains(node))
}

fn is_active(fault: &Fault, firing: &Firing, grace_ms: i64) -> bool {
    let active = fault.start_ms..=fault.end_ms + grace_ms;
    !fault.is_decoy && active.contains(&firing.fired_at_ms)
}

/// Returns `false` if an alert names another GPU or port than that of the fault. The port of an
/// InfiniBand device has the number of its GPU.
fn is_of_device(fault: &Fault, firing: &Firing) -> bool {
    let Some(device) = &fault.device else {
        return true;
    };
    let port = firing.label("device").map(|name| name.replace("mlx5_", ""));
    let named = firing.label("gpu").cloned().or(port);
    named.is_none_or(|named| named == *device)
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
        writeln!(f, "\nfalse alerts {n_false}")?;
        writeln!(
            f,
            "precision {precision:.3} ({n_found} faults found, {n_false} false alerts)\n"
        )?;
        writeln!(f, "| alert | hits | consequences | false |")?;
        writeln!(f, "| --- | --- | --- | --- |")?;
        for (name, counts) in &self.by_alert {
            writeln!(
                f,
                "| {name} | {} | {} | {} |",
                counts.n_hits, counts.n_consequences, counts.n_false
            )?;
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

    fn alerts(firings: &str) -> Alerts {
        let text = format!(r#"{{"rules":[{{"name":"A","firings":[{firings}]}}]}}"#);
        Alerts::from_backtest(text.as_bytes()).unwrap()
    }

    fn truth() -> Vec<Fault> {
        let lines = concat!(
            r#"{"kind":"slow_clock","is_decoy":false,"job_id":"t/j","nodes":["n1"],"device":"3","start_ms":60000,"end_ms":600000,"severity":0.5}"#,
            "\n",
            r#"{"kind":"hung","is_decoy":false,"job_id":"t/k","nodes":[],"start_ms":60000,"end_ms":600000,"severity":0.5}"#,
            "\n",
            r#"{"kind":"off_bus","is_decoy":false,"job_id":"t/o","nodes":["n9"],"device":"0","start_ms":60000,"end_ms":600000,"severity":0.5}"#,
            "\n",
            r#"{"kind":"warm_room","is_decoy":true,"job_id":"t/w","nodes":[],"start_ms":60000,"end_ms":600000,"severity":0.5}"#,
        );
        super::super::faults::read(lines.as_bytes()).unwrap()
    }

    #[test]
    fn an_alert_must_name_the_job_the_node_and_the_gpu() {
        let right = r#"{"labels":{"job_id":"t/j","node":"n1","gpu":"3"},"firedAtMs":180000}"#;
        let report = score(&truth(), &alerts(right));
        assert_eq!(report.by_kind[&Kind::SlowClock].delays_ms, [120_000]);
        assert_eq!((report.false_alerts.len(), report.missed.len()), (0, 2));
        for labels in [
            r#"{"job_id":"t/j","node":"n1","gpu":"4"}"#,
            r#"{"job_id":"t/j","node":"n2","gpu":"3"}"#,
            r#"{"job_id":"t/x","node":"n1","gpu":"3"}"#,
            r#"{"job_id":"t/w"}"#,
            r#"{"job_id":"t/j"}"#,
            r#"{"node":"n1","gpu":"3"}"#,
            r#"{"job_id":"t/k","node":"n5"}"#,
            "{}",
        ] {
            let firing = format!(r#"{{"labels":{labels},"firedAtMs":180000}}"#);
            let report = score(&truth(), &alerts(&firing));
            assert_eq!(report.false_alerts.len(), 1, "{labels}");
            assert_eq!(report.missed.len(), 3, "{labels}");
        }
    }

    #[test]
    fn an_alert_of_a_halted_job_is_neither_a_hit_nor_false() {
        let job = r#"{"labels":{"job_id":"t/o"},"firedAtMs":180000}"#;
        let report = score(&truth(), &alerts(job));
        assert_eq!(report.by_alert["A"].n_consequences, 1);
        assert_eq!((report.false_alerts.len(), report.missed.len()), (0, 3));
        let gpu = r#"{"labels":{"job_id":"t/o","node":"n9","gpu":"0"},"firedAtMs":180000}"#;
        let report = score(&truth(), &alerts(gpu));
        assert_eq!(report.by_alert["A"].n_hits, 1);
    }

    #[test]
    fn faults_without_a_job_are_hit_by_alerts_without_a_job() {
        let lines = concat!(
            r#"{"kind":"preflight_failed","is_decoy":false,"job_id":"","nodes":["n7"],"start_ms":60000,"end_ms":600000,"severity":1}"#,
            "\n",
            r#"{"kind":"preflight_passed","is_decoy":true,"job_id":"","nodes":["n8"],"start_ms":60000,"end_ms":600000,"severity":1}"#,
            "\n",
            r#"{"kind":"team_waits","is_decoy":false,"job_id":"robotics/j","nodes":[],"start_ms":60000,"end_ms":600000,"severity":1}"#,
            "\n",
            r#"{"kind":"lemon_node","is_decoy":false,"job_id":"t/j","nodes":["n9"],"start_ms":60000,"end_ms":600000,"severity":1}"#,
        );
        let truth = super::super::faults::read(lines.as_bytes()).unwrap();
        let n_false = |labels: &str, at: i64| {
            let firing = format!(r#"{{"labels":{labels},"firedAtMs":{at}}}"#);
            score(&truth, &alerts(&firing)).false_alerts.len()
        };
        for hit in [
            r#"{"node":"n7","key":"preflight"}"#,
            r#"{"team":"robotics","state":"allocated"}"#,
            r#"{"node":"n9","job_id":"t/j","device":"mlx5_1"}"#,
            r#"{"node":"n9"}"#,
        ] {
            assert_eq!(n_false(hit, 180_000), 0, "{hit}");
        }
        assert_eq!(n_false(r#"{"node":"n9"}"#, 4_000_000), 0);
        for other in [
            r#"{"node":"n7","job_id":"t/j"}"#,
            r#"{"node":"n8"}"#,
            r#"{"team":"vision"}"#,
            r#"{"team":"robotics","node":"n1"}"#,
            r#"{"team":"robotics","job_id":"robotics/j"}"#,
            r#"{"job_id":"robotics/j"}"#,
            r#"{"node":"n6"}"#,
        ] {
            assert_eq!(n_false(other, 180_000), 1, "{other}");
        }
        assert_eq!(n_false(r#"{"node":"n7"}"#, 4_000_000), 1);
    }

    #[test]
    fn one_fault_counts_once_and_late_or_early_alerts_are_false() {
        let firings = [120_000, 240_000, 59_000, 1_000_000]
            .map(|ms| format!(r#"{{"labels":{{"job_id":"t/k"}},"firedAtMs":{ms}}}"#))
            .join(",");
        let report = score(&truth(), &alerts(&firings));
        assert_eq!(report.by_kind[&Kind::Hung].delays_ms, [60_000]);
        assert_eq!(report.false_alerts.len(), 2);
        assert!(report.to_string().contains("precision 0.333"), "{report}");
    }
}
