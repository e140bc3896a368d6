//! Alerts at a real Alertmanager while evaluations fail, and over a crash.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::write;
use crate::harness::{Alertmanager, ConfigFile, Server, missing, wait_until};

/// Flags whose notifications are valid for 8 s.
const RESEND: &str = "--rules.alert.resend-delay=2s";

/// Writes a configuration with a rule file that sends to an Alertmanager.
fn configure(alertmanager: &Alertmanager, rules: &str) -> ConfigFile {
    let targets = [alertmanager.address().to_string()];
    let config = ConfigFile::new(
        &json!({
            "global": {"evaluation_interval": "1s"},
            "rules": {"wait": "none"},
            "rule_files": ["rules.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": targets}]}]},
        })
        .to_string(),
    );
    std::fs::write(config.dir().join("rules.yml"), rules).expect("write the rule file");
    config
}

/// Calls `step` until `duration` has passed. Asserts that Alertmanager always has one alert, with
/// this annotation.
fn check_fires(
    alertmanager: &Alertmanager,
    duration: Duration,
    annotation: &Value,
    mut step: impl FnMut(),
) {
    let started = Instant::now();
    while started.elapsed() < duration {
        step();
        let alerts = alertmanager.alerts();
        let [alert] = alerts.as_slice() else {
            panic!("after {:?}: {alerts:?}", started.elapsed())
        };
        assert_eq!(
            (&alert["annotations"]["x"], &alert["status"]["state"]),
            (annotation, &json!("active"))
        );
        thread::sleep(Duration::from_millis(200));
    }
}

fn check_failing(duration: Duration, flags: &[&str]) {
    if missing(&["prometheus-alertmanager"]) {
        return;
    }
    let alertmanager = Alertmanager::start();
    let rules = "groups: [{name: g, rules: [{alert: A, expr: m > 0 and on() (l * on() r), annotations: {x: '{{ $value }}'}}]}]";
    let config = configure(&alertmanager, rules);
    let server = Server::start(&[&[&*config.flag()], flags].concat());
    let feed = |is_broken: bool| {
        for (name, label) in [("m", "1"), ("l", "1"), ("r", "1")] {
            write(server.http(), &[("__name__", name), ("a", label)], 7.0);
        }
        // Two series on both sides cannot be matched.
        if is_broken {
            write(server.http(), &[("__name__", "l"), ("a", "2")], 7.0);
            write(server.http(), &[("__name__", "r"), ("a", "2")], 7.0);
        }
    };
    feed(false);
    wait_until("the alert", || alertmanager.alerts().len() == 1);
    feed(true);
    let group = format!(
        "{{rule_group=\"{};g\"}}",
        config.dir().join("rules.yml").display()
    );
    let n_failures = || server.metric(&format!("prometheus_rule_evaluation_failures_total{group}"));
    wait_until("a failure", || n_failures() > 0.0);
    let before = n_failures();
    check_fires(&alertmanager, duration, &json!("7"), || feed(true));
    assert!(
        n_failures() > before + duration.as_secs_f64() * 0.5,
        "all evaluations fail"
    );
}

#[test]
fn a_failing_evaluation_resolves_no_alert_at_alertmanager() {
    check_failing(Duration::from_secs(20), &[RESEND]);
}

#[test]
#[ignore = "takes 10 minutes"]
fn an_evaluation_that_fails_for_10_minutes_resolves_no_alert_at_alertmanager() {
    check_failing(Duration::from_secs(600), &[]);
}

#[test]
fn a_crash_resolves_no_alert_at_alertmanager() {
    if missing(&["prometheus-alertmanager"]) {
        return;
    }
    let alertmanager = Alertmanager::start();
    let rules = "groups: [{name: g, rules: [{alert: A, expr: vector(7), annotations: {x: '{{ $value }}'}}]}]";
    let config = configure(&alertmanager, rules);
    let mut server = Server::start(&[&config.flag(), RESEND]);
    wait_until("the alert", || alertmanager.alerts().len() == 1);
    // An alert is sent before it is stored, and a busy disk may take seconds to store it.
    let stored = |server: &Server| {
        server
            .http()
            .query("/api/v1/query", &[("query", "ALERTS")])
            .data()
    };
    wait_until("the alert in the store", || {
        stored(&server)["result"][0]["value"][1] == "1"
    });
    server.kill();
    thread::sleep(Duration::from_secs(3));
    server.restart(&[&config.flag(), RESEND]);
    // The group waits 15 s for senders to come back, which is longer than Alertmanager keeps the
    // alert.
    check_fires(&alertmanager, Duration::from_secs(25), &json!("7"), || {});
    assert!(server.metric("varve_rule_group_iterations_caught_up_total") >= 3.0);
}
