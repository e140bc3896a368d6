//! `varve test rules`, compared with promtool.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use varve_oracle::{missing, missing_since};

use super::{check_alike, run, text, varve};

/// Returns the YAML files of a folder of the shared rules, or `None` if the test is skipped.
fn files(path: &str) -> Option<Vec<String>> {
    let folder = varve_oracle::shared("rules")?.join(path);
    let entries = std::fs::read_dir(folder).expect("read a directory");
    let paths = entries.map(|entry| entry.expect("read a directory").path());
    let yaml = paths.filter(|path| {
        path.extension()
            .is_some_and(|suffix| suffix == "yml" || suffix == "yaml")
    });
    let mut names: Vec<_> = yaml
        .map(|path| path.to_str().expect("the path is text").to_owned())
        .collect();
    names.sort();
    Some(names)
}

/// 158 alert cases and 40 PromQL cases.
#[test]
fn the_unit_tests_of_kubernetes_mixin_pass() {
    let Some(files) = files("kubernetes-mixin/tests") else {
        return;
    };
    let count = |what: &str| -> usize {
        let texts = files
            .iter()
            .map(|file| std::fs::read_to_string(file).expect("read a file"));
        texts.map(|text| text.matches(what).count()).sum()
    };
    assert_eq!((files.len(), count("eval_time:")), (8, 198));
    for file in &files {
        let output = varve(&["test", "rules", file]);
        assert!(output.status.success(), "{file}: {}", text(&output.stderr));
    }
}

/// Files whose messages are those of Go's YAML and regular expressions, or of promtool's own
/// parser.
const OTHER_MESSAGES: [&str; 5] = [
    "bad-input-series.yml",
    "bad-rules-syntax-test.yml",
    "rules_run_extrafields.yml",
    "rules.yml",
    "rules-bad.yml",
];

/// Native histograms, offsets, limits, the order of groups, start times and so on.
#[test]
fn unusual_tests_have_the_output_of_promtool() {
    if missing_since("promtool", (3, 16)) {
        return;
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rules");
    let entries = std::fs::read_dir(dir).expect("read a directory");
    let names = entries.map(|entry| {
        entry
            .expect("read a directory")
            .path()
            .display()
            .to_string()
    });
    let tests: Vec<_> = names.filter(|name| name.ends_with(".test.yml")).collect();
    assert!(tests.len() >= 9, "{tests:?}");
    for test in &tests {
        let output = check_alike(&["test", "rules", test], "");
        assert!(text(&output.stderr).contains("got:"), "{test}: {output:?}");
    }
}

#[test]
fn fixtures_have_the_verdicts_of_promtool() {
    if missing(&["promtool"]) {
        return;
    }
    let Some(files) = files("promtool/cmd/promtool/testdata") else {
        return;
    };
    let mut n_valid = 0;
    let mut n_invalid = 0;
    for file in files {
        let contents = std::fs::read_to_string(&file).expect("read a file");
        if !contents.contains("tests:") {
            continue;
        }
        let [ours, theirs] = [env!("CARGO_BIN_EXE_varve"), "promtool"]
            .map(|tool| run(tool, &["test", "rules", &file], ""));
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{file}: {}",
            text(&ours.stderr)
        );
        if !OTHER_MESSAGES.iter().any(|name| file.ends_with(name)) {
            assert_eq!(text(&ours.stderr), text(&theirs.stderr), "{file}");
        }
        if ours.status.success() {
            n_valid += 1
        } else {
            n_invalid += 1
        }
    }
    assert!(n_valid >= 6 && n_invalid >= 6, "{n_valid} and {n_invalid}");
}

/// Parts of test files, and whether promtool 3.16 accepts them.
#[test]
fn test_files_have_the_verdicts_of_promtool() {
    let series = |series: &str, values: &str| {
        let test = json!({"eval_time": "3m", "expr": "vector(0) > 1"});
        json!({"tests": [{"interval": "1m", "input_series": [{"series": series, "values": values}],
                          "promql_expr_test": [test]}]})
        .to_string()
    };
    let sample = |fields: &str| {
        format!(
            "tests: [{{promql_expr_test: [{{expr: vector(31), exp_samples: [{{{fields}}}]}}]}}]"
        )
    };
    let alert = |labels: &str| {
        let expected = format!("exp_alerts: [{{exp_labels: {{{labels}}}}}]");
        format!("rule_files: [r.yml]\ntests: [{{alert_rule_test: [{{alertname: A, {expected}}}]}}]")
    };
    let group = |fields: &str| format!("tests: [{{{fields}}}]");
    let dir = TempDir::new().expect("make a temporary directory");
    let path = |name: &str| {
        dir.path()
            .join(name)
            .to_str()
            .expect("the path is text")
            .to_owned()
    };
    let rules = "groups: [{name: g, limit: 010, rules: [{alert: A, expr: vector(1), labels: {a: b, c: d, ~: e}}]}]";
    std::fs::write(path("r.yml"), rules).expect("write a file");
    for (file, is_valid) in [
        (
            series("m{a=\"b\"}", "1 2x3 -1+2x3 _x3 stale NaN 1_000 1e3"),
            true,
        ),
        (series("m", "1m"), false),
        (series("m", "0x1F"), false),
        (series("m[5m]", "1"), false),
        (series("m {a=\"b\"}", "1"), false),
        (series("sum", "1"), true),
        (series("on", "1"), false),
        (series("{}", "1"), false),
        (series("m{a=\"b\", a=\"c\"}", "1"), false),
        (series("m", "{{schema:8 count:1 buckets:[1 2]}}x3"), true),
        (series("m", "{{schema:9}}"), false),
        (series("m", "{{count:-1}}"), false),
        (series("m", "{{count:1}}-{{count:1}}x2"), false),
        (
            series("m", "{{schema:-53 custom_values:[2 1] buckets:[1]}}"),
            false,
        ),
        // An empty line ends the series.
        (series("m", "1\n\nn x"), true),
        (series("m", "1\nn x"), false),
        (sample("labels: '{}', value: 0x1F"), true),
        (sample("labels: '{}', value: 037"), true),
        (sample("labels: '{}', value: 3_1"), true),
        (sample("labels: '{}', value: '31'"), false),
        (sample("labels: '{}', value: 31, value: 31"), false),
        (sample("<<: {labels: '{}', value: 5}, value: 31"), true),
        (sample("value: 31, <<: {labels: '{}', value: 5}"), false),
        (sample("labels: '{}', value: true"), false),
        (alert("a: b, c: d"), true),
        (alert("a: b, <<: {c: d}"), true),
        (alert("a: b, c: d, <<: {c: d}"), false),
        (alert("a: b, c: d, c: d"), false),
        (group("start_timestamp: ''"), false),
        (
            group("start_timestamp: ~, external_labels: ~, alert_rule_test: ~, input_series: [~]"),
            true,
        ),
        (group("<<: {unknown: 1}"), false),
        (String::new(), true),
        ("tests: []\nfuzzy_compare: yes".to_owned(), true),
        ("tests: []\ntests: []".to_owned(), false),
        ("tests: ~\n---\ntests: x".to_owned(), true),
    ] {
        std::fs::write(path("t.yml"), &file).expect("write a file");
        let output = varve(&["test", "rules", &path("t.yml")]);
        assert_eq!(
            output.status.success(),
            is_valid,
            "{file}: {}",
            text(&output.stderr)
        );
    }
}

/// Each template of `cases.txt` is an annotation. No test expects it, so the failures contain all
/// texts.
#[test]
fn templates_expand_as_in_promtool() {
    if missing_since("promtool", (3, 16)) {
        return;
    }
    let cases = include_str!("../../query/rules/template/src/cases.txt");
    let templates = cases
        .lines()
        .filter(|line| !line.starts_with('#') && line.ends_with('"'));
    let templates: Vec<_> = templates
        .filter_map(|case| case.rsplit_once(" => \""))
        .map(|(text, _)| text)
        .collect();
    // The order of a vector is not defined.
    let is_ordered =
        |text: &&str| !text.contains("first (query \"q\")") && !text.contains("with query \"q\"");
    let templates: Vec<_> = templates.into_iter().filter(is_ordered).collect();
    assert!(templates.len() > 100, "{}", templates.len());
    let dir = TempDir::new().expect("make a temporary directory");
    let alert = |i: usize| format!("A{i}");
    let rule = |(i, text): (usize, &&str)| json!({"alert": alert(i), "expr": "m", "annotations": {"x": text}});
    let rules: Vec<_> = templates.iter().enumerate().map(rule).collect();
    let tests: Vec<_> = (0..rules.len())
        .map(|i| json!({"eval_time": "1m", "alertname": alert(i), "exp_alerts": []}))
        .collect();
    let test = json!({
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "external_labels": {"region": "eu", "zone": "z1"},
            "external_url": "https://prom.example.com/path/x",
            "input_series": [
                {"series": "m{instance=\"node-1.example.com:9100\", job=\"a b\"}", "values": "1234567.891x5"},
                {"series": "q{l=\"a\"}", "values": "1.5x5"},
                {"series": "q{l=\"b\"}", "values": "2x5"},
            ],
            "alert_rule_test": tests,
        }],
    });
    std::fs::write(
        dir.path().join("rules.yml"),
        json!({"groups": [{"name": "g", "rules": rules}]}).to_string(),
    )
    .expect("write a file");
    let path = dir.path().join("test.yml");
    std::fs::write(&path, test.to_string()).expect("write a file");
    let path = path.to_str().expect("the path is text");
    let [ours, theirs] = [env!("CARGO_BIN_EXE_varve"), "promtool"].map(|tool| {
        let output = run(tool, &["test", "rules", path], "");
        text(&output.stderr)
            .split("    alertname: ")
            .map(str::trim_end)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn test_groups_are_selected_and_reported() {
    let dir = TempDir::new().expect("make a temporary directory");
    let path = |name: &str| {
        dir.path()
            .join(name)
            .to_str()
            .expect("the path is text")
            .to_owned()
    };
    let group = |name: &str, value: i64| json!({"name": name, "promql_expr_test": [{"expr": "1 + 1", "exp_samples": [{"labels": "{}", "value": value}]}]});
    std::fs::write(
        path("t.yml"),
        json!({"tests": [group("good", 2), group("bad", 3)]}).to_string(),
    )
    .expect("write");
    let output = varve(&["test", "rules", "--junit", &path("t.xml"), &path("t.yml")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("exp: {} 3E+00\n        got: {} 2E+00"),
        "{output:?}"
    );
    let xml = std::fs::read_to_string(path("t.xml")).expect("read a file");
    assert!(
        xml.contains("tests=\"2\" failures=\"1\" errors=\"0\"")
            && xml.contains("<testcase name=\"bad\">"),
        "{xml}"
    );
    assert_eq!(
        varve(&["test", "rules", "--run", "^go", &path("t.yml")])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        varve(&[
            "test",
            "rules",
            "--run",
            "go",
            "--run",
            "ba",
            &path("t.yml")
        ])
        .status
        .code(),
        Some(1)
    );
    let output = varve(&["test", "rules", "--debug", "--run", "good", &path("t.yml")]);
    assert!(text(&output.stderr).contains("test good"), "{output:?}");
    std::fs::write(path("bad.yml"), "tests:\n- nonsense: 1\n").expect("write");
    let output = varve(&["test", "rules", &path("bad.yml")]);
    assert!(
        output.status.code() == Some(1) && text(&output.stderr).contains("line 2 column 3"),
        "{output:?}"
    );
}
