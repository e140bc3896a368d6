//! `varve rules explain` and `backtest`, and groups in dry run.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{Fixture, query, write};
use crate::harness::{WriteRequest, now_ms, series, wait_until};

pub(super) fn varve(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(args)
        .output()
        .expect("run varve")
}

/// Runs a command that must succeed, and returns what it prints.
fn printed(args: &[&str]) -> String {
    let output = varve(args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("it prints UTF-8")
}

#[test]
fn an_explanation_names_the_step_that_leaves_no_series() {
    let rules = "groups: [{name: g, rules: [
        {alert: Low, expr: sum by (a) (m) > 10, for: 5m},
        {alert: High, expr: sum by (a) (m) > 1, for: 1h},
        {alert: Absent, expr: 'rate(nothing[5m]) > 0'}]},
        {name: past, query_offset: 1h, rules: [{alert: Past, expr: m > 1}]}]";
    let fixture = Fixture::start(rules);
    write(
        fixture.http(),
        &[("__name__", "m"), ("a", "1"), ("b", "1")],
        3.0,
    );
    wait_until("the pending alert", || {
        fixture.rule("High")["state"] == "pending"
    });
    let explain = |alert: &str| {
        let data = fixture
            .http()
            .query("/api/v1/rules/explain", &[("alert", alert)])
            .data();
        data["rules"][0].clone()
    };
    let low = explain("Low");
    assert_eq!(
        low["reason"],
        "none of 1 series passes the comparison in sum by (a) (m) > 10"
    );
    let steps: Vec<_> = low["steps"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|step| (&step["expr"], &step["series"]))
        .collect();
    let expect = [("sum by (a) (m) > 10", 0), ("sum by (a) (m)", 1), ("m", 1)];
    assert_eq!(
        steps,
        expect
            .map(|(expr, n)| (json!(expr), json!(n)))
            .each_ref()
            .map(|(expr, n)| (expr, n))
    );
    assert_eq!(
        low["steps"][1]["examples"],
        json!([{"labels": {"a": "1"}, "value": "3"}])
    );
    let high = explain("High");
    assert_eq!(
        (&high["state"], high["alerts"].as_array().map(Vec::len)),
        (&json!("pending"), Some(1))
    );
    assert!(
        high["reason"]
            .as_str()
            .expect("a text")
            .starts_with("1 alert is pending: it fires in 59m"),
        "{high}"
    );
    assert_eq!(explain("Absent")["reason"], "no series match nothing[5m]");
    assert_eq!(
        explain("Past")["reason"],
        "the series of m have no sample in its window",
        "the group reads samples of an hour ago"
    );
    fixture
        .http()
        .query("/api/v1/rules/explain", &[("alert", "x")])
        .expect_status(404);

    let url = format!("--url={}", fixture.http().url(""));
    let text = printed(&["rules", "explain", "Low", &url]);
    assert!(
        text.contains("       0  sum by (a) (m) > 10\n       1    sum by (a) (m)\n"),
        "{text}"
    );
    let json: Value =
        serde_json::from_str(&printed(&["rules", "explain", "Low", &url, "-o", "json"]))
            .expect("JSON");
    assert_eq!(json["rules"][0]["reason"], low["reason"]);
}

/// Writes a sample of `m` every 10 s of the last 20 minutes: 5 from 10 to 5 minutes ago, otherwise 1. Returns the time
/// of the first 5 in milliseconds.
pub(super) fn write_history(fixture: &Fixture) -> i64 {
    let now = now_ms() / 10_000 * 10_000;
    let value = |ago_s: i64| {
        if (300..600).contains(&ago_s) {
            5.0
        } else {
            1.0
        }
    };
    let samples: Vec<_> = (0..120)
        .rev()
        .map(|i| (now - i * 10_000, value(i * 10)))
        .collect();
    fixture
        .http()
        .write(&WriteRequest::new([series(
            &[("__name__", "m"), ("a", "1")],
            &samples,
        )]))
        .expect_status(204);
    now - 590_000
}

#[test]
fn a_backtest_finds_when_alerts_would_have_fired_and_writes_nothing() {
    let fixture = Fixture::start("groups: []");
    let from_ms = write_history(&fixture);
    let rules = "groups: [{name: g, interval: 10s, rules: [
        {alert: A, expr: m > 2, for: 1m, labels: {l: '{{ $value }}'}, annotations: {x: y}},
        {alert: B, expr: m > 9}, {alert: C, expr: r > 0}, {record: r, expr: m},
        {alert: A, expr: m > 3, labels: {severity: page}}]}]";
    let file = fixture.config.dir().join("new.yml");
    std::fs::write(&file, rules).expect("write the file");
    let (url, start) = (
        format!("--url={}", fixture.http().url("")),
        ((from_ms - 300_000) / 1000).to_string(),
    );
    let file = file.display().to_string();
    let args = ["rules", "backtest", &file, &url, "--start", &start];
    let found: Value =
        serde_json::from_str(&printed(&[&args[..], &["-o", "json"]].concat())).expect("JSON");
    assert_eq!(
        found["warnings"],
        json!(["the store has no samples of r, which the file records: backfill it first"])
    );
    let [a, b, _c, page] = found["rules"].as_array().expect("a list").as_slice() else {
        panic!("4 rules: {found}")
    };
    assert_eq!(
        page["firings"][0]["labels"],
        json!({"alertname": "A", "a": "1", "severity": "page"}),
        "{page}"
    );
    assert_eq!(b["firings"], json!([]));
    let [firing] = a["firings"].as_array().expect("a list").as_slice() else {
        panic!("one firing: {a}")
    };
    assert_eq!(
        firing["labels"],
        json!({"alertname": "A", "a": "1", "l": "5"})
    );
    let at = |field: &str| firing[field].as_i64().expect("a time");
    // The times of the group are shifted within its interval of 10 s.
    assert!(
        (0..10_000).contains(&(at("activeAtMs") - from_ms)),
        "{firing}"
    );
    assert_eq!(at("firedAtMs") / 1000 - at("activeAtMs") / 1000, 60);
    assert!(
        (0..10_000).contains(&(at("resolvedAtMs") - from_ms - 300_000)),
        "{firing}"
    );
    assert!(a["evaluations"].as_u64().expect("a number") > 80 && a["failures"] == 0);
    assert!(printed(&args).contains("A in group g: fires 1 times"));
    assert!(
        query(
            fixture.http(),
            "last_over_time({__name__=~\"ALERTS.*|r\"}[1h])"
        )
        .is_empty()
    );
    let error = |rules: &str, times: &[(&str, &str)]| {
        let form = [&[("rules", rules)], times].concat();
        fixture
            .http()
            .form("/api/v1/rules/backtest", &form)
            .expect_status(400)
            .error()
            .1
    };
    assert!(
        error("groups: 3", &[("start", "0"), ("end", "1")])
            .starts_with("invalid parameter \"rules\": ")
    );
    assert!(error(rules, &[("end", "1")]).starts_with("invalid parameter \"start\": "));
    assert!(error(rules, &[("start", "2"), ("end", "1")]).contains("must not be before start"));
}

#[test]
fn a_group_in_dry_run_is_evaluated_and_writes_nothing() {
    let rules =
        "groups: [{name: g, state: dry_run, rules: [{record: r, expr: vector(1)}, {alert: A, expr: vector(1)}]},
        {name: h, rules: [{record: s, expr: vector(1)}]}]";
    let fixture = Fixture::start(rules);
    wait_until("the alert", || {
        fixture.rule("A")["state"] == "firing" && fixture.rule("r")["health"] == "ok"
    });
    wait_until("the other group", || !query(fixture.http(), "s").is_empty());
    assert!(query(fixture.http(), "{__name__=~\"ALERTS.*|r\"}").is_empty());
}
