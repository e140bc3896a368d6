//! `varve advise` over kube-prometheus: the share of unused series that it finds, and that dropping
//! them changes no query result, as `varve advise verify` says, too.

mod grafana;
mod verify;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::kube_prometheus::{
    self, Expression, KUBERNETES, OTHERS, RecordingRule, is_there, recording_rules, shared,
};
use crate::harness::{Server, WriteRequest, series};

/// The time of the first sample, and the interval.
const T0_MS: i64 = 1_700_000_000_000;
const STEP_MS: i64 = 60_000;
const N_SAMPLES: i64 = 6;

fn advise(args: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["advise", "drops"])
        .args(args)
        .output()
        .expect("run varve")
}

/// Returns the flags for kube-prometheus and some scrapes.
fn flags(scrapes: &[(&str, &str)]) -> Vec<String> {
    let mut flags = vec![
        "--rules".to_owned(),
        shared("kube-prometheus/rules").display().to_string(),
    ];
    flags.extend([
        "--dashboards".to_owned(),
        shared("kube-prometheus/dashboards").display().to_string(),
    ]);
    for (job, file) in scrapes {
        let path = shared("exposition").join(file);
        flags.extend(["--scrape".to_owned(), format!("{job}={}", path.display())]);
    }
    flags
}

fn with(mut flags: Vec<String>, more: &[&str]) -> Vec<String> {
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    flags
}

#[test]
fn four_fifths_of_kubernetes_series_are_unused() {
    if !is_there() {
        return;
    }
    let answer = advise(&with(
        flags(&KUBERNETES),
        &["--format", "json", "--no-keep"],
    ));
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    let report: Value = serde_json::from_slice(&answer.stdout).expect("the report is JSON");
    assert_eq!(report["problems"], json!([]));
    let of = |key: &str| report["totals"][key].as_u64().expect("a count");
    let percent = 100.0 * of("unusedMetricSeries") as f64 / of("series") as f64;
    // From ../shared/exposition/README.md.
    assert_eq!(
        (of("series"), format!("{percent:.1}")),
        (36_486, "80.3".to_owned())
    );

    let share_of = |job: &str, file: &str| {
        let answer = advise(&with(
            flags(&[(job, file)]),
            &["--format", "json", "--no-keep"],
        ));
        let report: Value = serde_json::from_slice(&answer.stdout).expect("the report is JSON");
        let totals = &report["totals"];
        let of = |key: &str| totals[key].as_f64().expect("a count");
        format!("{:.1}", 100.0 * of("unusedMetricSeries") / of("series"))
    };
    let shares = KUBERNETES.map(|(job, file)| share_of(job, file));
    assert_eq!(
        shares,
        ["83.2", "72.4", "91.7", "60.1", "65.5", "87.1", "99.7"]
    );
}

#[test]
fn exit_codes_are_for_ci() {
    if !is_there() {
        return;
    }
    let code = |more: &[&str]| advise(&with(flags(&KUBERNETES[1..2]), more)).status.code();
    assert_eq!(code(&["--fail-above", "90"]), Some(0));
    assert_eq!(code(&["--fail-above", "50"]), Some(3));
    assert_eq!(code(&["--strict"]), Some(0));
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.yaml");
    std::fs::write(
        &broken,
        "groups: [{name: g, rules: [{alert: A, expr: 'sum('}]}]",
    )
    .unwrap();
    assert_eq!(
        code(&["--strict", "--rules", broken.to_str().unwrap()]),
        Some(4)
    );
    assert_eq!(code(&["--rules", "no such file"]), Some(1));
    assert_eq!(code(&["--no-such-flag"]), Some(2));
}

/// Writes scrapes with growing values.
fn load(server: &Server, scrapes: &[(&str, &str)]) {
    let all = kube_prometheus::scraped(scrapes, (0..N_SAMPLES).map(|i| T0_MS + i * STEP_MS));
    for part in all.chunks(5_000) {
        server
            .http()
            .write(&WriteRequest::new(part.to_vec()))
            .expect_status(204);
    }
}

/// Evaluates recording rules and writes their results.
fn record(server: &Server, rules: &[RecordingRule]) {
    for _ in 0..2 {
        for rule in rules {
            let found = ask(server, &rule.expr);
            let all: Vec<_> = found["result"]
                .as_array()
                .unwrap()
                .iter()
                .map(|found| rule.record(found))
                .collect();
            // Previous results are duplicates.
            server.http().write(&WriteRequest::new(all));
        }
    }
}

fn ask(server: &Server, query: &str) -> Value {
    let time = format!("{}", (T0_MS + (N_SAMPLES - 1) * STEP_MS) / 1_000);
    server
        .http()
        .form("/api/v1/query", &[("query", query), ("time", &time)])
        .data()
}

/// Checks that no query result changes; returns the number of non-empty results.
fn check_same_answers(
    more: &[&str],
    is_asked: impl Fn(&Expression) -> bool,
    write_labels: bool,
) -> usize {
    let scrapes: Vec<_> = KUBERNETES.into_iter().chain(OTHERS).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    // The written file is a valid configuration.
    let mut flags = with(
        flags(&scrapes),
        &["--enforce", "--write", path.to_str().unwrap()],
    );
    for flag in more {
        flags.extend([
            (*flag).to_owned(),
            shared("dashboards").display().to_string(),
        ]);
    }
    if write_labels {
        flags.push("--write-labels".to_owned());
    }
    let answer = advise(&flags);
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );

    let expressions: Vec<_> = kube_prometheus::expressions()
        .into_iter()
        .filter(is_asked)
        .collect();
    let servers = [
        Server::start(&[]),
        Server::start(&[&format!("--config.file={}", path.display())]),
    ];
    let n_series = servers.each_ref().map(|server| {
        load(server, &scrapes);
        server.metric("prometheus_tsdb_head_series")
    });
    assert!(
        n_series[1] * 2.0 < n_series[0],
        "{n_series:?} series are left"
    );
    let rules = recording_rules();
    for server in servers.iter() {
        record(server, &rules);
    }
    let (mut n_answers, mut different) = (0, String::new());
    for expression in &expressions {
        let [whole, dropped] = [0, 1].map(|idx| ask(&servers[idx], &expression.text));
        let is_empty = whole["result"].as_array().is_some_and(Vec::is_empty);
        n_answers += usize::from(!is_empty);
        let is_same = if write_labels {
            agree(&whole, &dropped)
        } else {
            whole == dropped
        };
        if !is_same {
            writeln!(different, "{}\n  {whole}\n  {dropped}", expression.text).unwrap();
        }
    }
    assert_eq!(different, "");
    check_verified(&servers[0], &path, more, write_labels);
    println!(
        "{n_answers} of {} answers are not empty, {n_series:?} series",
        expressions.len()
    );
    n_answers
}

/// Checks that `varve advise verify` comes to the same verdict.
fn check_verified(server: &Server, relabel_rules: &Path, more: &[&str], write_labels: bool) {
    let mut sources = flags(&[]);
    for flag in more {
        sources.extend([
            (*flag).to_owned(),
            shared("dashboards").display().to_string(),
        ]);
    }
    sources.extend(["--output".to_owned(), "json".to_owned()]);
    let output = verify::verify(server, relabel_rules, &sources);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["mayChange"], output.status.code()),
        (&json!([]), Some(0)),
        "{report:#}"
    );
    let n_verified = report["unaffected"].as_u64().unwrap() + report["same"].as_u64().unwrap();
    let n_same = report["same"].as_u64().unwrap();
    assert!(n_verified >= 300, "{report:#}");
    assert_eq!(n_same > 0, write_labels, "{report:#}");
}

/// Returns `true` if results agree except for the order of samples and the last digits of sums,
/// which depend on the labels of the series.
fn agree(a: &Value, b: &Value) -> bool {
    let samples = |answer: &Value| match &answer["result"] {
        Value::Array(samples) if answer["resultType"] == "vector" => {
            let mut samples: Vec<_> = samples
                .iter()
                .map(|s| (s["metric"].to_string(), s["value"][1].clone()))
                .collect();
            samples.sort_by(|a, b| a.0.cmp(&b.0));
            samples
        }
        other => vec![(String::new(), other.clone())],
    };
    let (a, b) = (samples(a), samples(b));
    a.len() == b.len()
        && a.iter()
            .zip(&b)
            .all(|(a, b)| a.0 == b.0 && is_near(&a.1, &b.1))
}

fn is_near(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<f64>().ok());
    let near = |a: f64, b: f64| {
        let difference = (a - b).abs();
        difference.is_finite() && difference <= 1e-9 * a.abs().max(b.abs())
    };
    a == b || number(a).zip(number(b)).is_some_and(|(a, b)| near(a, b))
}

#[test]
fn drops_change_no_result_of_kube_prometheus() {
    if is_there() {
        let n_answers =
            check_same_answers(&[], |expression| expression.is_of_kube_prometheus, false);
        assert!(n_answers >= 300, "{n_answers} answers are not empty");
    }
}

#[test]
fn drops_change_no_result_of_other_dashboards() {
    if is_there() {
        let n_answers = check_same_answers(&["--rules", "--dashboards"], |_| true, false);
        assert!(n_answers >= 300, "{n_answers} answers are not empty");
    }
}

#[test]
fn removed_labels_change_no_value() {
    if is_there() {
        // Template variables use only one label of their series.
        let is_asked = |expression: &Expression| !expression.is_of_variable;
        let n_answers = check_same_answers(&["--rules", "--dashboards"], is_asked, true);
        assert!(n_answers >= 200, "{n_answers} answers are not empty");
    }
}

#[test]
fn a_running_server_provides_series_and_usage() {
    let server = Server::start(&[]);
    let now_ms = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    let of =
        |labels: &[(&str, &str)]| series(labels, &[(now_ms - 30_000, 1.0), (now_ms - 1_000, 2.0)]);
    let mut all = vec![of(&[("__name__", "asked"), ("job", "j"), ("x", "1")])];
    all.extend(["1", "2"].map(|x| of(&[("__name__", "unused"), ("job", "j"), ("x", x)])));
    all.extend(
        ["1", "2.0", "+Inf"].map(|le| of(&[("__name__", "h_bucket"), ("job", "j"), ("le", le)])),
    );
    all.push(of(&[
        ("__name__", "labelled"),
        ("job", "j"),
        ("x", "1"),
        ("y", "2"),
    ]));
    server
        .http()
        .write(&WriteRequest::new(all))
        .expect_status(204);
    server
        .http()
        .query("/api/v1/query", &[("query", "asked")])
        .expect_status(200);

    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    let exprs = ["h_bucket{le=\"1\"}", "sum by (x) (labelled)"]
        .map(|expr| json!({"alert": "A", "expr": expr}));
    std::fs::write(
        &rules,
        json!({"groups": [{"name": "g", "rules": exprs}]}).to_string(),
    )
    .unwrap();
    let url = server.http().url("");
    let args = [
        "--url",
        &url,
        "--rules",
        rules.to_str().unwrap(),
        "--format",
        "json",
        "--retention",
        "10s",
    ];
    let answer = advise(&args.map(str::to_owned));
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    let report: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let found: Vec<_> = report["unused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let of = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
            format!(
                "{} {} {} {}",
                of("kind"),
                of("metric"),
                of("label"),
                finding["series"]
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            "metric unused  2",
            "buckets h_bucket  1",
            "label labelled y 0"
        ]
    );
    assert_eq!(report["unused"][1]["buckets"], json!(["2.0"]));
    // A sample per minute, the default of global.scrape_interval, for ten seconds, one byte each.
    assert_eq!(
        report["unused"][1]["bytes"]
            .as_f64()
            .map(|bytes| (bytes * 1e6).round() / 1e6),
        Some(0.166_667)
    );
    // The analysis itself does not count as usage.
    let usage = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["advise", "usage", "--unused", "--url", &url])
        .output();
    let usage = String::from_utf8(usage.expect("run varve").stdout).unwrap();
    let names: Vec<_> = usage.lines().skip(1).map(str::trim).collect();
    assert_eq!(names, ["h_bucket", "labelled", "unused"]);
}

/// With all rules and dashboards loaded, drops of ECC errors and of rejects were proposed.
#[test]
fn metrics_of_failures_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let scrape = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu=\"0\"} 0\n\
        apiserver_flowcontrol_rejected_requests_total{reason=\"queue-full\"} 0\n\
        my_alarm_total 0\nused 1\nunused 1\n";
    std::fs::write(path("scrape"), scrape).unwrap();
    let rules = json!({"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "used > 1"}]}]});
    std::fs::write(path("rules.yaml"), rules.to_string()).unwrap();
    let written = path("drop.yaml").display().to_string();
    let report = |more: &[&str]| -> (Value, String) {
        let of_files = [
            "--rules".to_owned(),
            path("rules.yaml").display().to_string(),
            "--scrape".to_owned(),
            format!("j={}", path("scrape").display()),
            "--format=json".to_owned(),
            format!("--write={written}"),
        ];
        let answer = advise(&with(of_files.to_vec(), more));
        let error = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(answer.status.success(), "{error}");
        (
            serde_json::from_slice(&answer.stdout).unwrap(),
            std::fs::read_to_string(&written).unwrap(),
        )
    };
    let kept = |report: &Value| -> Vec<String> {
        let all = report["kept"].as_array().unwrap().iter();
        all.map(|kept| kept["metric"].as_str().unwrap().to_owned())
            .collect()
    };
    let ecc = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL";
    let rejects = "apiserver_flowcontrol_rejected_requests_total";

    let (by_default, rules) = report(&[]);
    assert_eq!(kept(&by_default), [ecc, rejects]);
    assert_eq!(by_default["totals"]["unusedMetrics"], 2);
    assert!(
        !rules.contains("DCGM") && !rules.contains("apiserver"),
        "{rules}"
    );
    assert!(rules.contains("my_alarm_total"), "{rules}");

    let (extended, rules) = report(&["--keep", "my_.+"]);
    assert_eq!(kept(&extended), [ecc, rejects, "my_alarm_total"]);
    assert_eq!(extended["kept"][2]["keptBy"], "my_.+");
    assert!(!rules.contains("my_alarm_total"), "{rules}");

    let (without, rules) = report(&["--no-keep"]);
    assert_eq!(kept(&without), [""; 0]);
    assert_eq!(without["totals"]["unusedMetrics"], 4);
    assert!(rules.contains(ecc), "{rules}");
}

/// Runs `varve advise usage` and returns what it printed.
fn advise_usage(args: &[&str]) -> String {
    let answer = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["advise", "usage"])
        .args(args)
        .output()
        .expect("run varve");
    let error = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert!(answer.status.success(), "{error}");
    String::from_utf8(answer.stdout).expect("it prints UTF-8")
}

/// A script with `varve query` did not protect its metrics, and saw no warning.
#[test]
fn queries_of_varve_query_are_uses_and_their_warnings_are_printed() {
    let server = Server::start(&[]);
    let url = server.http().url("");
    let metrics = ["read_by_script", "read_by_advice"].map(|name| {
        let samples = [(T0_MS, 1.0), (T0_MS + STEP_MS, 2.0)];
        series(&[("__name__", name), ("job", "j")], &samples)
    });
    server
        .http()
        .write(&WriteRequest::new(metrics))
        .expect_status(204);
    let time = ((T0_MS + STEP_MS) / 1000).to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["query", "instant", "--time", &time, &url])
        .arg("rate(read_by_script[2m])")
        .output()
        .expect("run varve");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.starts_with("query info: ") && errors.contains("might not be a counter"),
        "{errors}"
    );
    let relabel = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(relabel.path(), "- {action: labeldrop, regex: x}").unwrap();
    let rules = tempfile::NamedTempFile::with_suffix(".yml").unwrap();
    let text = "groups: [{name: g, rules: [{record: 'r:x', expr: read_by_advice}]}]";
    std::fs::write(rules.path(), text).unwrap();
    let sources = ["--rules".to_owned(), rules.path().display().to_string()];
    assert!(
        verify::verify(&server, relabel.path(), &sources)
            .status
            .success()
    );
    let record = server.http().get("/api/v1/status/usage").data().to_string();
    assert!(
        record.contains("read_by_script") && record.contains("varve-query"),
        "{record}"
    );
    assert!(!record.contains("read_by_advice"), "{record}");
}

/// The example of the query page turned "everything is unused" into "everything is used".
#[test]
fn a_query_that_explores_does_not_end_the_advice() {
    const EXPLORING: &str = "count by (job) ({__name__!=\"\"})";
    let server = Server::start(&["--web.enable-admin-api"]);
    let now_ms = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    let of = |name: &str| {
        series(
            &[("__name__", name), ("job", "j")],
            &[(now_ms - 1_000, 1.0)],
        )
    };
    let written = WriteRequest::new(["asked", "unused"].map(of).to_vec());
    server.http().write(&written).expect_status(204);
    for query in [EXPLORING, "asked"] {
        server
            .http()
            .query("/api/v1/query", &[("query", query)])
            .expect_status(200);
    }

    let url = server.http().url("");
    let rules = tempfile::tempdir().unwrap();
    let command = |more: &[&str]| {
        let of_server = ["--url", &url, "--format", "json"].map(str::to_owned);
        let answer = advise(&with(of_server.to_vec(), more));
        serde_json::from_slice(&answer.stdout).expect("the report is JSON")
    };
    let api = |count: &str| {
        server
            .http()
            .query("/api/v1/status/advice", &[("count_exploration", count)])
            .data()
    };
    let unused = |report: &Value| report["totals"]["unusedMetrics"].as_u64();
    for report in [api("false"), command(&[])] {
        assert_eq!(unused(&report), Some(1), "{report}");
        assert_eq!(report["unused"][0]["metric"], "unused");
        let exploration = report["exploration"][0].as_str().unwrap_or_default();
        assert!(
            exploration.ends_with("selector {__name__!=\"\"}"),
            "{report}"
        );
        assert_eq!(report["nameless"], json!([]));
    }
    for report in [api("true"), command(&["--count-exploration"])] {
        assert_eq!(unused(&report), Some(0), "{report}");
        assert_eq!(report["exploration"], json!([]));
        assert_eq!(report["nameless"].as_array().map(Vec::len), Some(1));
    }
    // A rule without a metric name is no exploration.
    let path = rules.path().join("rules.yaml");
    let group = json!({"name": "g", "rules": [{"alert": "A", "expr": EXPLORING}]});
    std::fs::write(&path, json!({"groups": [group]}).to_string()).unwrap();
    let with_rule = command(&["--rules", path.to_str().unwrap()]);
    assert_eq!(unused(&with_rule), Some(0), "{with_rule}");

    let record = |count: &str| {
        let parameters = [("count_exploration", count)];
        server
            .http()
            .query("/api/v1/status/usage", &parameters)
            .data()
    };
    let explored = json!("{__name__!=\"\"}");
    assert_eq!(record("false")["exploration"][0]["selector"], explored);
    assert_eq!(record("false")["selectors"], json!([]));
    assert_eq!(record("true")["selectors"][0]["selector"], explored);
    let printed = advise_usage(&["--url", &url]);
    assert!(
        printed.contains("exploration, which is no use"),
        "{printed}"
    );

    let printed = advise_usage(&["--url", &url, "--forget"]);
    assert_eq!(printed, "forgotten metrics and selectors: 2\n");
    let after = record("false");
    assert_eq!([&after["metrics"], &after["exploration"]], [&json!([]); 2]);
}

#[test]
fn dashboards_of_a_grafana_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (scrape, token) = (folder.path().join("scrape"), folder.path().join("token"));
    std::fs::write(
        &scrape,
        "in_dashboard 1\nin_library 1\nin_alert 1\nunused 1\n",
    )
    .unwrap();
    std::fs::write(&token, "glsa_secret\n").unwrap();
    let url = grafana::start();
    let scrape = format!("j={}", scrape.display());
    let args = ["--grafana", &url, "--scrape", &scrape, "--format", "json"].map(str::to_owned);
    assert_eq!(
        advise(&args).status.code(),
        Some(1),
        "Grafana requires a token"
    );
    let answer = advise(&with(
        args.to_vec(),
        &["--grafana-token-file", token.to_str().unwrap()],
    ));
    assert!(
        answer.status.success(),
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    let report: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let names: Vec<_> = report["unused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| &finding["metric"])
        .collect();
    assert_eq!(
        (names, &report["problems"]),
        (vec![&json!("unused")], &json!([]))
    );
}

#[test]
fn grafana_over_https_needs_a_trusted_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let path_of = |name: &str| {
        folder
            .path()
            .join(name)
            .to_str()
            .expect("a plain path")
            .to_owned()
    };
    let (url, cert) = grafana::start_over_tls();
    std::fs::write(path_of("scrape"), "in_dashboard 1\nunused 1\n").unwrap();
    std::fs::write(path_of("token"), "glsa_secret\n").unwrap();
    std::fs::write(path_of("cert.pem"), cert).unwrap();
    let (scrape, token) = (format!("j={}", path_of("scrape")), path_of("token"));
    let args = [
        "--grafana",
        &url,
        "--grafana-token-file",
        &token,
        "--scrape",
        &scrape,
        "--format",
        "json",
    ];
    let ask = |more: &[&str]| advise(&with(args.map(str::to_owned).to_vec(), more));
    let stranger = ask(&[]);
    assert_eq!(stranger.status.code(), Some(1));
    let error = String::from_utf8_lossy(&stranger.stderr);
    assert!(
        error.contains("TLS handshake") && error.contains("certificate"),
        "{error}"
    );
    for trust in [
        &["--ca-file", &path_of("cert.pem")][..],
        &["--insecure-skip-verify"],
    ] {
        let answer = ask(trust);
        assert!(
            answer.status.success(),
            "{trust:?}: {}",
            String::from_utf8_lossy(&answer.stderr)
        );
        let report: Value = serde_json::from_slice(&answer.stdout).unwrap();
        assert_eq!(report["unused"].as_array().unwrap().len(), 1, "{report}");
    }
    assert_eq!(
        ask(&["--ca-file", &path_of("token")]).status.code(),
        Some(1),
        "the file has no certificate"
    );
}
