//! `varve advise verify`: which results relabel rules change, and which they do not.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{N_SAMPLES, STEP_MS, T0_MS};
use crate::harness::{Server, WriteRequest, series};

/// Runs the command on all samples that [`super::load`] writes.
pub(super) fn verify(server: &Server, relabel_rules: &Path, flags: &[String]) -> Output {
    let time = (T0_MS + (N_SAMPLES - 1) * STEP_MS).to_string();
    Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["advise", "verify", &server.http().url(""), "--time", &time])
        .arg("--relabel-rules")
        .arg(relabel_rules)
        .args(flags)
        .output()
        .expect("run varve")
}

/// A server with counters and gauges of two jobs.
fn filled() -> Server {
    let server = Server::start(&[]);
    let mut all = Vec::new();
    for (name, job, pod, verb) in [
        ("requests_total", "a", "a-0", "get"),
        ("requests_total", "a", "a-0", "put"),
        ("requests_total", "a", "a-1", "get"),
        ("requests_total", "b", "b-0", "get"),
        ("unused", "a", "a-0", ""),
    ] {
        let labels = [
            ("__name__", name),
            ("job", job),
            ("pod", pod),
            ("verb", verb),
        ];
        let samples: Vec<_> = (0..N_SAMPLES)
            .map(|i| {
                (
                    T0_MS + i * STEP_MS,
                    (i * i64::from(pod.as_bytes()[2])) as f64,
                )
            })
            .collect();
        all.push(series(&labels, &samples));
    }
    server
        .http()
        .write(&WriteRequest::new(all))
        .expect_status(204);
    server
}

/// Verifies one expression. Returns the exit code, and the report.
fn check(server: &Server, expr: &str, relabel_rules: &str, flags: &[&str]) -> (i32, Value) {
    let dir = tempfile::tempdir().unwrap();
    let [rules, relabel] = ["rules.yml", "relabel.yml"].map(|name| dir.path().join(name));
    let group =
        json!({"groups": [{"name": "g", "rules": [{"record": "r:x", "expr": expr}]}]}).to_string();
    std::fs::write(&rules, group).unwrap();
    std::fs::write(
        &relabel,
        format!("ingest: {{metric_relabel_configs: [{relabel_rules}]}}"),
    )
    .unwrap();
    let mut all = vec!["--rules".to_owned(), rules.display().to_string()];
    all.extend(["--output", "json"].map(str::to_owned));
    all.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let output = verify(server, &relabel, &all);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        panic!("{expr}: {}", String::from_utf8_lossy(&output.stderr));
    });
    (output.status.code().unwrap(), report)
}

const DROP_UNUSED: &str =
    "{name: d, state: dry_run, source_labels: [__name__], regex: unused, action: drop}";
const DROP_PUT: &str = "{name: p, source_labels: [verb], regex: put, action: drop}";
const WITHOUT_POD: &str = "{regex: pod, action: labeldrop}";
const WITHOUT_VERB: &str = "{source_labels: [job], regex: b, target_label: verb, replacement: ''}";

#[test]
fn only_expressions_that_read_dropped_or_changed_series_have_another_result() {
    let server = filled();
    for (expr, rules, verdict, reason) in [
        (
            "sum(rate(requests_total[3m]))",
            DROP_UNUSED,
            "unaffected",
            "",
        ),
        (
            "count({job=\"a\"})",
            DROP_UNUSED,
            "changed",
            "the rule \"d\" drops 1 of the 4 series {__name__=\"unused\", job=\"a\", pod=\"a-0\"} that it reads with {job=\"a\"}",
        ),
        (
            "sum by (job) (requests_total)",
            DROP_PUT,
            "changed",
            "the rule \"p\" drops 1 of the 4 series",
        ),
        (
            "sum by (job) (requests_total{verb=\"get\"})",
            DROP_PUT,
            "unaffected",
            "",
        ),
        // The labels are not in the result, and no two series become equal.
        (
            "sum by (job, pod) (requests_total)",
            WITHOUT_VERB,
            "same",
            "",
        ),
        (
            "sum by (verb) (requests_total)",
            WITHOUT_VERB,
            "changed",
            "{verb=\"get\"} is 725, with the rules 485",
        ),
        (
            "requests_total{verb=\"get\"} > 0",
            WITHOUT_VERB,
            "changed",
            "with the rules nothing",
        ),
        // Two pods of a job have the same verb.
        (
            "sum by (job) (rate(requests_total[3m]))",
            WITHOUT_POD,
            "changed",
            "equal",
        ),
        (
            "sum(requests_total @ 100)",
            DROP_PUT,
            "notVerified",
            "at a fixed time (@)",
        ),
    ] {
        let (code, report) = check(&server, expr, rules, &[]);
        assert_eq!(report["expressions"], 1, "{report}");
        let listed = &report[verdict];
        if reason.is_empty() {
            assert_eq!((listed, code), (&json!(1), 0), "{expr}, {rules}: {report}");
        } else {
            assert_eq!(code, if verdict == "changed" { 3 } else { 0 }, "{report}");
            let found = listed[0]["reason"].as_str().unwrap_or_default();
            assert!(found.contains(reason), "{expr}, {rules}: {report}");
            let places = format!("{}", listed[0]["places"]);
            assert!(places.contains("group g, recording rule r:x"), "{places}");
        }
    }
}

#[test]
fn what_cannot_be_verified_is_no_success_with_strict() {
    let server = filled();
    let (code, report) = check(&server, "a @ 5", DROP_UNUSED, &["--strict"]);
    assert_eq!(code, 4, "{report}");
    let (code, report) = check(&server, "sum(", DROP_UNUSED, &["--strict"]);
    assert_eq!((code, &report["problems"][0]["text"]), (4, &json!("sum(")));
    let (code, _) = check(&server, "sum(", DROP_UNUSED, &[]);
    assert_eq!(code, 0);
}
