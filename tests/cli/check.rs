//! `varve check`.

use tempfile::TempDir;

use super::{check_alike, run, text, varve};
use crate::harness::missing;

const VALID: &str = "\
groups:
- name: g
  interval: 30s
  rules:
  - record: job:up:sum
    expr: sum by (job) (up)
  - alert: Down
    expr: up == 0
    for: 5m
    labels: {severity: page}
    annotations: {summary: '{{ $labels.instance }} is down'}
";
const DUPLICATES: &str = "\
groups:
- name: g
  rules:
  - {record: a, expr: up, labels: {x: '1'}}
  - {record: a, expr: up * 2, labels: {x: '1'}}
";
/// Invalid files with the same error in both tools.
const BAD: &[&str] = &[
    "groups:\n- name: g\n  rules:\n  - record: a\n    expr: sum(\n",
    "groups:\n- name: g\n  rules:\n  - record: a\n    alert: b\n    expr: up\n",
    "groups:\n- name: g\n  rules:\n  - record: a\n    expr: up\n    for: 5m\n",
];
/// Invalid files whose location promtool does not print.
const BAD_GROUPS: &[(&str, &str)] = &[
    (
        "groups:\n- name: g\n- name: g\n",
        "3:3: groupname: \"g\" is repeated in the same file",
    ),
    ("groups:\n- name: ''\n", "2:3: Groupname must not be empty"),
    (
        "groups:\n- name: g\n  rules:\n  - expr: up\n",
        "4:5: group \"g\", rule 1, \"\": one of 'record' or 'alert' must be set",
    ),
    (
        "groups:\n- name: g\n  rules:\n  - record: a\n",
        "4:5: group \"g\", rule 1, \"a\": field 'expr' must be set in rule",
    ),
    (
        "groups:\n- name: g\n  rules:\n  - {alert: A, expr: up, labels: {a: '{{ $x }}'}}\n",
        "4:38: group \"g\", rule 1, \"A\": label \"a\": template: __alert_A:1: undefined variable \"$x\"",
    ),
];

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().expect("make a temporary directory"))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("write a file");
        path.to_str().expect("a path of a test is text").to_owned()
    }
}

#[test]
fn rule_files_are_checked_as_promtool_checks_them() {
    if missing(&["promtool"]) {
        return;
    }
    let files = Files::new();
    let (sound, duplicates) = (
        files.write("sound.yml", VALID),
        files.write("duplicates.yml", DUPLICATES),
    );
    check_alike(&["check", "rules", &sound], "");
    check_alike(&["check", "rules", &duplicates], "");
    check_alike(&["check", "rules", "--lint=none", &duplicates], "");
    let output = check_alike(&["check", "rules", "--lint-fatal", &sound, &duplicates], "");
    assert_eq!(output.status.code(), Some(3));
    check_alike(&["check", "rules"], VALID);
    for (text, i) in BAD.iter().zip(0..) {
        let bad = files.write(&format!("bad{i}.yml"), text);
        let output = check_alike(&["check", "rules", &bad], "");
        assert_eq!(output.status.code(), Some(1), "{text}");
    }
    for (text_of_file, expect) in BAD_GROUPS {
        let bad = files.write("bad_group.yml", text_of_file);
        let [ours, theirs] = [env!("CARGO_BIN_EXE_varve"), "promtool"]
            .map(|tool| run(tool, &["check", "rules", &bad], ""));
        assert_eq!(ours.status.code(), theirs.status.code(), "{text_of_file}");
        assert!(text(&ours.stderr).contains(expect), "{ours:?}");
    }
}

#[test]
fn rules_are_valid_where_promtool_finds_them_valid() {
    if missing(&["promtool"]) {
        return;
    }
    let files = Files::new();
    let of =
        |expr: &str| format!("groups:\n- name: g\n  rules:\n  - record: a\n    expr: {expr}\n");
    let check = |flags: &[&str], text: &str, status: i32| {
        let file = files.write("rules.yml", text);
        for tool in [env!("CARGO_BIN_EXE_varve"), "promtool"] {
            let output = run(tool, &[&["check", "rules"], flags, &[&file]].concat(), "");
            assert_eq!(
                output.status.code(),
                Some(status),
                "{tool} {text:?}: {output:?}"
            );
        }
    };
    check(&[], &format!("\u{feff}{}", of("up")), 0);
    check(
        &[],
        "groups:\n- {name: g, limit: 5.5, rules: [null, {record: a, expr: up}]}\n-\n",
        0,
    );
    check(&[], "groups:\n- {name: g, limit: x}\n", 1);
    check(&[], "groups:\n- {name: g, limit: 1e30}\n", 1);
    // A server has these features only with the same flag.
    let experimental = of("mad_over_time(m[5m])");
    check(&[], &experimental, 1);
    check(
        &["--enable-feature=promql-experimental-functions"],
        &experimental,
        0,
    );
    check(&[], &of("a + fill(0) b"), 1);
}

#[test]
fn invalid_rules_are_errors_whatever_the_lints() {
    let files = Files::new();
    let unknown = files.write(
        "unknown.yml",
        "groups:\n- {name: g, rules: [], nonsense: 1}\n",
    );
    assert_eq!(varve(&["check", "rules", &unknown]).status.code(), Some(1));
    assert_eq!(
        varve(&["check", "rules", "--ignore-unknown-fields", &unknown])
            .status
            .code(),
        Some(0)
    );
    let both = [
        &files.write("bad.yml", BAD[0]),
        &files.write("duplicates.yml", DUPLICATES),
    ];
    assert_eq!(
        varve(&["check", "rules", "--lint-fatal", both[0], both[1]])
            .status
            .code(),
        Some(1)
    );
    assert_eq!(
        varve(&["check", "rules", "nowhere.yml"]).status.code(),
        Some(1)
    );
}

#[test]
fn metrics_are_linted_as_by_promtool() {
    if missing(&["promtool"]) {
        return;
    }
    let sound = "# HELP a_total text\n# TYPE a_total counter\na_total{b=\"c\"} 1\n";
    let unclean = "# TYPE a counter\na 1\n# HELP bC text\n# TYPE bC gauge\nbC{le=\"1\"} 1\nc_ms 1\nd:e 1\n\
                  # HELP f_gauge_total text\n# TYPE f_gauge_total gauge\nf_gauge_total 1\n# HELP h text\n# TYPE h histogram\n\
                  h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\ng_milliseconds 1\ng_milliseconds 2\n\
                  # TYPE i summary\ni{quantile=\"0.5\"} 1\ni_sum 1\ni_count 1\n";
    assert_eq!(
        check_alike(&["check", "metrics"], sound).status.code(),
        Some(0)
    );
    assert_eq!(
        check_alike(&["check", "metrics"], unclean).status.code(),
        Some(3)
    );
    let broken = run(env!("CARGO_BIN_EXE_varve"), &["check", "metrics"], "a b\n");
    assert_eq!(
        broken.status.code(),
        run("promtool", &["check", "metrics"], "a b\n")
            .status
            .code()
    );
    assert!(
        text(&broken.stderr).starts_with("varve: error while linting: line 1: "),
        "{broken:?}"
    );
    // The table is the same except for white space.
    let cells = |output: &std::process::Output| -> Vec<Vec<String>> {
        let lines = text(&output.stdout);
        lines
            .lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect()
    };
    let args = ["check", "metrics", "--extended"];
    let body = "# HELP a_total text\n# TYPE a_total counter\na_total{b=\"c\"} 1\na_total{b=\"d\"} 1\n\
                # HELP h text\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n";
    let (ours, theirs) = (
        run(env!("CARGO_BIN_EXE_varve"), &args, body),
        run("promtool", &args, body),
    );
    assert_eq!(cells(&ours), cells(&theirs));
    assert_eq!(ours.status.code(), theirs.status.code());
}

#[test]
fn configurations_are_checked_with_their_rule_files() {
    let files = Files::new();
    files.write("rules.yml", VALID);
    files.write("duplicates.yml", DUPLICATES);
    let bad_rules = files.write("bad_rules.yml", BAD[0]);
    let naming = |name: &str, rule_file: &str| {
        files.write(
            name,
            &format!("global: {{evaluation_interval: 30s}}\nrule_files: ['{rule_file}']\n"),
        )
    };
    let valid = naming("valid.yml", "rules.yml");
    let duplicate = naming("duplicate.yml", "duplicates.yml");
    let invalid = naming("invalid.yml", &bad_rules);
    let calls: [(&[&str], i32); 6] = [
        (&[&valid], 0),
        (&["--lint=all", &duplicate], 0),
        (&["--lint=all", "--lint-fatal", &duplicate], 3),
        (&["--lint=none", "--lint-fatal", &duplicate], 0),
        (&[&invalid], 1),
        (&["--syntax-only", &invalid], 0),
    ];
    for (call, expect) in calls {
        let args = [&["check", "config"][..], call].concat();
        let ours = varve(&args);
        assert_eq!(ours.status.code(), Some(expect), "{ours:?}");
        if !missing(&["promtool"]) {
            assert_eq!(
                run("promtool", &args, "").status.code(),
                Some(expect),
                "{args:?}"
            );
        }
    }

    let own = files.write(
        "varve.yml",
        "rule_files: [rules.yml]\nstorage: {tsdb: {ahead_max: 5m}}\n",
    );
    let output = varve(&["check", "config", &own]);
    assert!(output.status.success(), "{output:?}");
    let printed = text(&output.stdout);
    assert!(printed.contains("is valid varve config file"), "{printed}");
    assert!(printed.contains("2 rules found"), "{printed}");
}

#[test]
fn a_configuration_of_prometheus_is_refused_and_promtool_named() {
    let files = Files::new();
    let own = files.write("varve.yml", "storage: {tsdb: {ahead_max: 5m}}\n");
    let scraping = files.write(
        "prometheus.yml",
        "global: {scrape_interval: 15s}\n\
         scrape_configs: [{job_name: a, static_configs: [{targets: ['b:1']}]}]\n",
    );
    for args in [&[&scraping][..], &[&own, &scraping]] {
        let args = args.iter().map(|file| file.as_str());
        let args: Vec<&str> = ["check", "config"].into_iter().chain(args).collect();
        let output = varve(&args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(
            text(&output.stderr),
            "  FAILED: this is a configuration file of Prometheus, since it has scrape_configs; \
             check it with `promtool check config`\n"
        );
    }
}

#[test]
fn the_tracing_section_is_checked_as_promtool_checks_it() {
    const ENDPOINT: &str = "endpoint: 'a:4317'";
    let files = Files::new();
    for (section, expect) in [
        (format!("{{{ENDPOINT}}}"), 0),
        (
            format!(
                "{{{ENDPOINT}, client_type: http, compression: gzip, timeout: 5s, insecure: true}}"
            ),
            0,
        ),
        (
            format!(
                "{{{ENDPOINT}, sampling_fraction: 2, headers: {{x-team: a}}, tls_config: {{server_name: b}}}}"
            ),
            0,
        ),
        ("{sampling_fraction: 0.1}".to_owned(), 1),
        (format!("{{{ENDPOINT}, client_type: udp}}"), 1),
        (format!("{{{ENDPOINT}, compression: snappy}}"), 1),
        (format!("{{{ENDPOINT}, headers: {{authorization: a}}}}"), 1),
        (format!("{{{ENDPOINT}, headers: {{Content-Type: a}}}}"), 1),
        (format!("{{{ENDPOINT}, nonsense: 1}}"), 1),
        (format!("{{{ENDPOINT}, sampling_fraction: half}}"), 1),
    ] {
        let file = files.write("tracing.yml", &format!("tracing: {section}\n"));
        let args = ["check", "config", &file];
        assert_eq!(varve(&args).status.code(), Some(expect), "{section}");
        if !missing(&["promtool"]) {
            assert_eq!(
                run("promtool", &args, "").status.code(),
                Some(expect),
                "promtool: {section}"
            );
        }
    }
}

#[test]
fn web_configurations_are_checked() {
    let files = Files::new();
    let (sound, bad) = (
        files.write("sound.yml", ""),
        files.write("bad.yml", "nonsense: 1\n"),
    );
    let output = varve(&["check", "web-config", &sound]);
    assert_eq!(text(&output.stderr), format!("{sound} SUCCESS\n"));
    let output = varve(&["check", "web-config", &sound, &bad]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains(&format!("{bad} FAILED: ")),
        "{output:?}"
    );
}
