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
    let last_ms = T0_MS + (N_SAMPLES - 1) * STEP_MS;
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    all.push(series(
        &[("__name__", "guard")],
        &[(last_ms - STEP_MS, 1.0), (last_ms, stale)],
    ));
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
const CLEAR_POD_OF_UNUSED: &str =
    "{source_labels: [__name__], regex: unused, target_label: pod, replacement: ''}";
const RENAME: &str =
    "{source_labels: [__name__], regex: unused, target_label: __name__, replacement: renamed}";
const CLEAR_VERB_OF_B: &str =
    "{source_labels: [job], regex: b, target_label: verb, replacement: ''}";

/// `varve advise drops` writes such a file if all series are used. It was an error.
#[test]
fn a_file_without_relabel_rules_changes_nothing() {
    let server = filled();
    let (code, report) = check(&server, "sum(requests_total)", "", &[]);
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["unaffected"], 1, "{report}");
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("has no relabel rules: nothing changes"),
        "{notes}"
    );
}

#[test]
fn only_expressions_that_select_dropped_or_changed_series_may_have_another_result() {
    let server = filled();
    let get_only = "sum by (job) (requests_total{verb=\"get\"})";
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
            "mayChange",
            "1 series, the first: the relabel rule \"d\" drops {__name__=\"unused\", job=\"a\", pod=\"a-0\"}",
        ),
        (
            "sum by (job) (requests_total)",
            DROP_PUT,
            "mayChange",
            "1 series, the first: the relabel rule \"p\" drops",
        ),
        (get_only, DROP_PUT, "unaffected", ""),
        // The labels are not in the result, and no two series become equal.
        (
            "sum by (job, pod) (requests_total)",
            CLEAR_VERB_OF_B,
            "same",
            "",
        ),
        (
            "sum by (verb) (requests_total)",
            CLEAR_VERB_OF_B,
            "mayChange",
            "{verb=\"get\"} is 725, with the rules 485",
        ),
        // A series leaves the selection, or enters it.
        (
            get_only,
            CLEAR_VERB_OF_B,
            "mayChange",
            "1 series, the first: the relabel rule \"#0\" makes",
        ),
        (
            "sum(requests_total{verb=\"\"})",
            CLEAR_VERB_OF_B,
            "mayChange",
            "makes",
        ),
        ("absent(renamed)", RENAME, "mayChange", "makes"),
        // Two pods of a job have the same verb.
        (
            "sum by (job) (rate(requests_total[3m]))",
            WITHOUT_POD,
            "mayChange",
            "equal",
        ),
        // A finite value is not near an infinite one.
        (
            "2 / (count(count by (verb) (requests_total)) - 2)",
            CLEAR_VERB_OF_B,
            "mayChange",
            "is inf, with the rules 2",
        ),
        // `guard` has ended: the labels of `unused` are in the result.
        (
            "unused unless on () guard",
            CLEAR_POD_OF_UNUSED,
            "mayChange",
            "with the rules nothing",
        ),
        (
            "sum(requests_total @ 100)",
            CLEAR_VERB_OF_B,
            "notVerified",
            "at a fixed time (@)",
        ),
        (
            "sum(info(requests_total))",
            CLEAR_VERB_OF_B,
            "notVerified",
            "it calls info",
        ),
        (
            "sum(requests_total offset -1h)",
            CLEAR_VERB_OF_B,
            "notVerified",
            "negative offset",
        ),
    ] {
        let (code, report) = check(&server, expr, rules, &[]);
        let listed = &report[verdict];
        if reason.is_empty() {
            assert_eq!((listed, code), (&json!(1), 0), "{expr}, {rules}: {report}");
        } else {
            assert_eq!(code, if verdict == "mayChange" { 3 } else { 0 }, "{report}");
            let found = listed[0]["reason"].as_str().unwrap_or_default();
            assert!(found.contains(reason), "{expr}, {rules}: {report}");
            let places = format!("{}", listed[0]["places"]);
            assert!(places.contains("group g, recording rule r:x"), "{places}");
        }
    }
}

/// A panel with a variable, a query of an annotation, and a rule that reads the record of another.
#[test]
fn what_reads_through_variables_annotations_and_records_is_not_called_the_same() {
    let server = filled();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let record = json!({"record": "r:x", "expr": "sum by (verb) (requests_total)"});
    let reader = json!({"alert": "Reads", "expr": "sum(r:x) > 1"});
    let annotation = json!({"alert": "Asks", "expr": "vector(1)",
        "annotations": {"summary": "{{ query `requests_total` | first | value }}"}});
    let rules = json!({"groups": [{"name": "g", "rules": [record, reader, annotation,
        {"record": "r:y", "expr": "vector(1)"}, {"alert": "Other", "expr": "r:y"}]}]});
    // Relabel rules do not apply to what rules record.
    server
        .http()
        .write(&WriteRequest::new([series(
            &[("__name__", "r:y"), ("job", "b"), ("verb", "get")],
            &[(T0_MS + (N_SAMPLES - 1) * STEP_MS, 1.0)],
        )]))
        .expect_status(204);
    let panel = |expr: &str| json!({"title": expr, "targets": [{"expr": expr, "refId": "A"}]});
    let dashboard = json!({"title": "d", "panels": [
        panel("sum by ($group) (requests_total)"),
        panel("sum(requests_total{verb=~\"$verb\"})"),
        panel("sum by (job) (requests_total{job=~\"$job\"})"),
    ]});
    let flags = [
        ["--rules".to_owned(), write("rules.yml", rules.to_string())],
        [
            "--dashboards".to_owned(),
            write("d.json", dashboard.to_string()),
        ],
        ["--output".to_owned(), "json".to_owned()],
    ]
    .concat();
    let relabel = write(
        "relabel.yml",
        format!("ingest: {{metric_relabel_configs: [{CLEAR_VERB_OF_B}]}}"),
    );
    let output = verify(&server, Path::new(&relabel), &flags);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = |list: &str| {
        let mut found: Vec<_> = report[list]
            .as_array()
            .unwrap()
            .iter()
            .map(|listed| {
                listed["reason"]
                    .as_str()
                    .unwrap()
                    .split(':')
                    .next()
                    .unwrap()
            })
            .collect();
        found.sort_unstable();
        found
    };
    assert_eq!(
        listed("mayChange"),
        [
            "it reads r",
            "{__name__=\"requests_total\", job=\"b\", pod=\"b-0\", verb=\"get\"} is 240, with the rules nothing",
            "{verb=\"get\"} is 725, with the rules 485"
        ],
        "{report:#}"
    );
    assert_eq!(
        listed("notVerified"),
        [
            "its variables may read a changed label",
            "its variables may read a changed label"
        ],
        "{report:#}"
    );
    // The panel that selects jobs.
    assert_eq!(
        (&report["same"], output.status.code()),
        (&json!(1), Some(3))
    );
}

#[test]
fn what_cannot_be_verified_is_no_success_with_strict() {
    let server = filled();
    let (code, report) = check(
        &server,
        "requests_total @ 5",
        CLEAR_VERB_OF_B,
        &["--strict"],
    );
    assert_eq!(code, 4, "{report}");
    let (code, report) = check(&server, "sum(", DROP_UNUSED, &["--strict"]);
    assert_eq!((code, &report["problems"][0]["text"]), (4, &json!("sum(")));
    let (code, _) = check(&server, "sum(", DROP_UNUSED, &[]);
    assert_eq!(code, 0);
}
