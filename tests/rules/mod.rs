//! Recording and alerting rules of a running server.

mod api;
mod backfill;
mod explain;
mod late;
mod like_prometheus;
mod load;
mod notifications;
mod outages;
mod restart;
mod waiting;

use serde_json::{Value, json};

use crate::harness::{
    ConfigFile, Http, Server, WriteRequest, now_ms, series, try_serve, wait_for, wait_until,
};

/// A server with a rule file, which is evaluated every second and does not wait for data.
struct Fixture {
    server: Server,
    config: ConfigFile,
}

impl Fixture {
    fn start(rules: &str) -> Self {
        Self::start_with(rules, &[])
    }

    fn start_with(rules: &str, flags: &[&str]) -> Self {
        let config = configure("none", rules);
        let file = config.flag();
        let server = Server::start(&[&[&*file, "--web.enable-lifecycle"], flags].concat());
        Self { server, config }
    }

    fn http(&self) -> &Http {
        self.server.http()
    }

    /// Replaces the rule file and reloads.
    fn reload(&self, rules: &str) -> u16 {
        std::fs::write(self.config.dir().join("rules.yml"), rules).expect("write the rule file");
        self.http().post("/-/reload", &[], &[]).status
    }

    /// Returns the rule with this name.
    fn rule(&self, name: &str) -> Value {
        let data = self
            .http()
            .query(
                "/api/v1/rules",
                &[("rule_name[]", name), ("evaluations", "true")],
            )
            .data();
        data["groups"][0]["rules"][0].clone()
    }

    /// Waits until a rule has this health.
    fn wait_for_health(&self, name: &str, health: &str) -> Value {
        wait_for("an evaluation", || {
            Some(self.rule(name)).filter(|rule| rule["health"] == health)
        })
    }
}

/// Writes a configuration with a rule file.
fn configure(wait: &str, rules: &str) -> ConfigFile {
    let config = ConfigFile::new(
        &json!({
            "global": {"evaluation_interval": "1s"},
            "rule_files": ["rules*.yml"],
            "rules": {"wait": wait},
        })
        .to_string(),
    );
    std::fs::write(config.dir().join("rules.yml"), rules).expect("write the rule file");
    config
}

/// Writes one sample now.
fn write(http: &Http, labels: &[(&str, &str)], value: f64) {
    http.write(&WriteRequest::new([series(labels, &[(now_ms(), value)])]))
        .expect_status(204);
}

/// Returns the labels and values of an instant query.
fn query(http: &Http, query: &str) -> Vec<(Value, f64)> {
    let data = http.query("/api/v1/query", &[("query", query)]).data();
    let parse = |sample: &Value| {
        let value = sample["value"][1]
            .as_str()
            .expect("a value is a text")
            .parse()
            .expect("it is a number");
        (sample["metric"].clone(), value)
    };
    data["result"]
        .as_array()
        .expect("a vector")
        .iter()
        .map(parse)
        .collect()
}

fn alerts(http: &Http) -> Vec<Value> {
    http.get("/api/v1/alerts").data()["alerts"]
        .as_array()
        .expect("a list")
        .clone()
}

#[test]
fn rules_write_their_results_and_alerts() {
    let rules = "groups: [{name: g, rules: [
        {record: 'r:sum', expr: sum by (a) (m), labels: {x: y}},
        {record: 'r:twice', expr: 2 * r:sum},
        {alert: A, expr: r:sum > 1, labels: {severity: page}, annotations: {text: '{{ $labels.a }} has {{ $value | humanize }}'}}]}]";
    let fixture = Fixture::start(rules);
    write(
        fixture.http(),
        &[("__name__", "m"), ("a", "1"), ("b", "1")],
        3.0,
    );
    let found = wait_for("the result", || {
        Some(query(fixture.http(), "r:twice")).filter(|found| !found.is_empty())
    });
    assert_eq!(
        found,
        [(json!({"__name__": "r:twice", "a": "1", "x": "y"}), 6.0)]
    );
    let found = wait_for("the alert", || {
        Some(query(fixture.http(), "ALERTS")).filter(|found| !found.is_empty())
    });
    let labels = json!({"__name__": "ALERTS", "a": "1", "x": "y", "alertname": "A", "alertstate": "firing", "severity": "page"});
    assert_eq!(found, [(labels, 1.0)]);
    let alert = alerts(fixture.http()).remove(0);
    assert_eq!(
        alert["labels"],
        json!({"a": "1", "x": "y", "alertname": "A", "severity": "page"})
    );
    assert_eq!(
        (&alert["state"], &alert["value"]),
        (&json!("firing"), &json!("3e+00"))
    );
    assert_eq!(alert["annotations"], json!({"text": "1 has 3"}));
    let rule_group = format!(
        "{{rule_group=\"{};g\"}}",
        fixture.config.dir().join("rules.yml").display()
    );
    assert_eq!(
        fixture
            .server
            .metric(&format!("prometheus_rule_group_rules{rule_group}")),
        3.0
    );
    assert!(
        fixture
            .server
            .metric(&format!("prometheus_rule_evaluations_total{rule_group}"))
            >= 3.0
    );
    fixture.server.metric(&format!(
        "prometheus_rule_evaluation_failures_total{rule_group}"
    ));
    assert!(
        fixture
            .server
            .metric("prometheus_rule_evaluation_duration_seconds_count")
            >= 3.0
    );
    assert_eq!(fixture.server.metric("varve_rule_alerts"), 1.0);
}

#[test]
fn a_failed_evaluation_resolves_no_alert() {
    let fixture = Fixture::start("groups: [{name: g, rules: [{alert: A, expr: m * on () n}]}]");
    write(fixture.http(), &[("__name__", "m"), ("a", "1")], 3.0);
    write(fixture.http(), &[("__name__", "n"), ("i", "1")], 1.0);
    wait_until("the alert", || alerts(fixture.http()).len() == 1);
    write(fixture.http(), &[("__name__", "n"), ("i", "2")], 1.0);
    let rule = fixture.wait_for_health("A", "err");
    assert!(
        rule["lastError"]
            .as_str()
            .is_some_and(|error| error.contains("many")),
        "{rule}"
    );
    let n_failed = |rule: &Value| {
        rule["evaluations"].as_array().map_or(0, |all| {
            all.iter().filter(|one| one["error"].is_string()).count()
        })
    };
    wait_until("more failures", || n_failed(&fixture.rule("A")) >= 3);
    let rule = fixture.rule("A");
    assert_eq!(
        (&rule["state"], &rule["health"]),
        (&json!("firing"), &json!("err")),
        "{rule}"
    );
    assert_eq!(alerts(fixture.http())[0]["state"], "firing");
}

#[test]
fn a_limit_fails_the_rule_and_writes_nothing() {
    let fixture = Fixture::start(
        "groups: [{name: g, limit: 1, rules: [{record: r, expr: m}, {alert: A, expr: m}]}]",
    );
    for a in ["1", "2"] {
        write(fixture.http(), &[("__name__", "m"), ("a", a)], 3.0);
    }
    let rule = wait_for("the failure", || {
        Some(fixture.rule("r")).filter(|rule| rule["lastError"].is_string())
    });
    assert_eq!(rule["lastError"], "exceeded limit of 1 with 2 series");
    let log = wait_for("the log", || {
        let log = fixture.server.log();
        let line = log
            .lines()
            .find(|line| line.contains("Evaluating rule failed"));
        line.map(str::to_owned)
    });
    assert!(
        log.contains("group=g") && log.contains("exceeded limit of 1"),
        "{log}"
    );
    let rule = wait_for("the failure", || {
        Some(fixture.rule("A")).filter(|rule| rule["lastError"].is_string())
    });
    assert_eq!(rule["lastError"], "exceeded limit of 1 with 2 alerts");
    assert!(query(fixture.http(), "{__name__=~\"r|ALERTS\", a=\"2\"}").is_empty());
}

#[test]
fn alerts_of_all_rules_are_bounded() {
    let fixture = Fixture::start_with(
        "groups: [{name: g, rules: [{alert: A, expr: m}]}]",
        &["--rules.alerts-max=1"],
    );
    for a in ["1", "2"] {
        write(fixture.http(), &[("__name__", "m"), ("a", a)], 3.0);
    }
    let rule = wait_for("the failure", || {
        Some(fixture.rule("A")).filter(|rule| rule["lastError"].is_string())
    });
    assert_eq!(
        rule["lastError"],
        "2 alerts of all rules exceed the limit of 1 (--rules.alerts-max)"
    );
}

/// Alerts used up the memory of all rules, and recording rules failed.
#[test]
fn many_alerts_leave_memory_to_recording_rules() {
    let n_series = 20;
    let alert = |i: usize| {
        let summary = "x".repeat(1_000);
        json!({"alert": format!("A{i}"), "expr": "m{i=~\"1?.\"}", "annotations": {"summary": summary}})
    };
    let alerts: Vec<Value> = (0..200).map(alert).collect();
    let groups = json!({"groups": [
        {"name": "alerts", "rules": alerts},
        {"name": "recording", "rules": [{"record": "r", "expr": "count(n)"}]},
    ]});
    let fixture = Fixture::start_with(&groups.to_string(), &["--rules.max-memory-total=3MiB"]);
    let send = |name: &str, n_series: usize| {
        let mut sent = Vec::new();
        for i in 0..n_series {
            let i = i.to_string();
            sent.push(series(&[("__name__", name), ("i", &i)], &[(now_ms(), 1.0)]));
        }
        let request = WriteRequest::new(sent);
        fixture.http().write(&request).expect_status(204);
    };
    send("n", 2_000);
    fixture.wait_for_health("r", "ok");
    send("m", n_series);
    let failed = fixture.wait_for_health("A199", "err");
    let error = failed["lastError"].as_str().unwrap_or_default().to_owned();
    assert!(
        error.contains("half of --rules.max-memory-total"),
        "{error}"
    );
    let kept = fixture.server.metric("varve_rule_alert_memory_bytes");
    assert!(kept > 1e6 && kept <= 1.5 * 1024.0 * 1024.0, "{kept}");
    // Evaluations after the alerts have taken their memory.
    for _evaluation in 0..3 {
        send("n", 2_000);
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        let rule = fixture.rule("r");
        assert_eq!(rule["health"], "ok", "{rule}");
    }
}

#[test]
fn the_team_of_rules_has_a_budget_that_alerts_do_not_need() {
    let config = ConfigFile::new(
        &json!({
            "global": {"evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "rules": {"wait": "none"},
            "ingest": {"teams": {"(rules)": {"maximum": {"active_series": 1}}}},
        })
        .to_string(),
    );
    let rules = "groups: [{name: g, rules: [{record: r, expr: m}, {alert: A, expr: m}]}]";
    std::fs::write(config.dir().join("rules.yml"), rules).expect("write the rule file");
    let server = Server::start(&[&config.flag()]);
    for a in ["1", "2"] {
        write(server.http(), &[("__name__", "m"), ("a", a)], 3.0);
    }
    wait_until("both alerts", || query(server.http(), "ALERTS").len() == 2);
    let fixture = Fixture { server, config };
    let rule = fixture.wait_for_health("r", "err");
    assert!(
        rule["lastError"]
            .as_str()
            .is_some_and(|error| error.contains("the budget of team")),
        "{rule}"
    );
    assert!(query(fixture.http(), "r").len() <= 1);
}

#[test]
fn a_reload_that_fails_keeps_the_rules_and_one_that_succeeds_carries_state_over() {
    let fixture =
        Fixture::start("groups: [{name: g, rules: [{alert: A, expr: m}, {record: r, expr: m}]}]");
    write(fixture.http(), &[("__name__", "m")], 3.0);
    wait_until("the alert", || alerts(fixture.http()).len() == 1);
    let before = alerts(fixture.http()).remove(0);

    assert_eq!(
        fixture.reload("groups: [{name: g, rules: [{alert: A, expr: 'm >'}]}]"),
        500
    );
    wait_until("the reason in the log", || {
        fixture.server.log().contains("rules.yml")
    });
    assert_eq!(fixture.rule("A")["query"], "m");

    assert_eq!(
        fixture.reload("groups: [{name: g, rules: [{alert: A, expr: m > 0}]}]"),
        200
    );
    assert_eq!(fixture.rule("A")["query"], "m > 0");
    assert_eq!(alerts(fixture.http())[0]["activeAt"], before["activeAt"]);
    wait_until("the end of the removed rule's series", || {
        query(fixture.http(), "r").is_empty()
    });

    assert_eq!(fixture.reload("groups: []"), 200);
    assert!(alerts(fixture.http()).is_empty());
    wait_until("the end of the removed group's series", || {
        query(fixture.http(), "ALERTS").is_empty()
    });
}

#[test]
fn queries_of_rules_are_in_the_query_log() {
    let rules = "groups: [{name: g, rules: [{record: r, expr: vector(1)}]}]";
    let config = configure("none", rules);
    config.write(
        "{global: {evaluation_interval: 1s, query_log_file: queries.log}, rule_files: [rules.yml]}",
    );
    let _server = Server::start(&[&config.flag()]);
    let path = config.dir().join("queries.log");
    let line = wait_for("a query", || {
        std::fs::read_to_string(&path)
            .ok()?
            .lines()
            .next()
            .map(str::to_owned)
    });
    let line: Value = serde_json::from_str(&line).expect("it is JSON");
    let file = config.dir().join("rules.yml").display().to_string();
    assert_eq!(line["ruleGroup"], json!({"file": file, "name": "g"}));
    assert_eq!(
        (&line["params"]["query"], &line["params"]["step"]),
        (&json!("vector(1)"), &json!(0))
    );
    assert!(
        line["stats"]["timings"].is_object() && line.get("httpRequest").is_none(),
        "{line}"
    );
}

#[test]
fn a_changed_rule_file_is_reloaded_automatically() {
    let flags = [
        "--config.auto-reload",
        "--config.auto-reload-interval=100ms",
    ];
    let fixture = Fixture::start_with(
        "groups: [{name: g, rules: [{record: r, expr: vector(1)}]}]",
        &flags,
    );
    assert_eq!(fixture.rule("r")["query"], "vector(1)");
    let rules = "groups: [{name: g, rules: [{record: r, expr: vector(2)}]}]";
    std::fs::write(fixture.config.dir().join("rules.yml"), rules).expect("write the rule file");
    wait_until("the reload", || fixture.rule("r")["query"] == "vector(2)");
}

#[test]
fn pauses_of_rules_for_writes_are_counted() {
    // With so many threads, rules pause for each write.
    let rules = "groups: [{name: g, rules: [{record: r, expr: sum(2 * m)}]}]";
    let fixture = Fixture::start_with(rules, &["--rules.concurrency=256"]);
    let pause_s = || {
        fixture
            .server
            .metric("varve_rule_write_pause_seconds_total")
    };
    assert_eq!(pause_s(), 0.0);
    wait_until("a pause", || {
        let of = |i: usize| {
            series(
                &[("__name__", "m"), ("i", &i.to_string())],
                &[(now_ms(), 1.0)],
            )
        };
        fixture
            .http()
            .write(&WriteRequest::new((0..5_000).map(of)))
            .expect_status(204);
        pause_s() > 0.0
    });
}

#[test]
fn a_server_does_not_start_with_an_invalid_rule_file() {
    let config = configure(
        "none",
        "groups: [{name: g, rules: [{alert: A, expr: m, fro: 1m}]}]",
    );
    let dir = tempfile::tempdir().expect("make a directory");
    let (status, output) = try_serve(&dir.path().join("data"), &[&config.flag()]);
    assert!(
        !status.success() && output.contains("fro") && output.contains("rules.yml"),
        "{output}"
    );
}
