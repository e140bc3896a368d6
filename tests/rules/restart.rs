//! Rules across restarts.

use std::time::Duration;

use serde_json::Value;

use super::{Fixture, alerts, query};
use crate::harness::{Http, wait_for, wait_until};

const RULES: &str = "groups: [{name: g, rules: [
    {record: t, expr: vector(time())},
    {alert: Pending, expr: vector(1), for: 1h},
    {alert: Firing, expr: vector(1), for: 2s}]}]";

/// Returns the timestamps of the recorded series in milliseconds.
fn ticks(http: &Http) -> Vec<i64> {
    let data = http.query("/api/v1/query", &[("query", "t[10m]")]).data();
    let values = data["result"][0]["values"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    values
        .iter()
        .map(|sample| (sample[0].as_f64().expect("a time") * 1000.0).round() as i64)
        .collect()
}

fn alert(http: &Http, name: &str) -> Option<Value> {
    alerts(http)
        .into_iter()
        .find(|alert| alert["labels"]["alertname"] == name)
}

#[test]
fn after_a_crash_the_gap_is_filled_and_alerts_continue() {
    let mut fixture = Fixture::start(RULES);
    wait_until("both alerts", || {
        ["Pending", "Firing"].iter().all(|name| {
            query(fixture.http(), &format!("ALERTS{{alertname=\"{name}\"}}")).len() == 1
        }) && alert(fixture.http(), "Firing").is_some_and(|alert| alert["state"] == "firing")
    });
    let before = ticks(fixture.http());
    let active_at = ["Pending", "Firing"]
        .map(|name| alert(fixture.http(), name).expect("it is active")["activeAt"].clone());
    std::thread::sleep(Duration::from_secs(2));
    fixture.server.kill();
    std::thread::sleep(Duration::from_secs(4));
    fixture.server.restart(&[&fixture.config.flag()]);
    let caught_up = || {
        fixture
            .server
            .metric("varve_rule_group_iterations_caught_up_total")
    };
    wait_until("the missed evaluations", || caught_up() >= 4.0);
    let pending = wait_for("the pending alert", || alert(fixture.http(), "Pending"));
    let seconds = |at: &Value| at.as_str().expect("a time")[..19].to_owned();
    assert_eq!(
        (seconds(&pending["activeAt"]), pending["state"].as_str()),
        (seconds(&active_at[0]), Some("pending"))
    );
    let firing = alert(fixture.http(), "Firing").expect("it is active");
    assert_eq!(
        (seconds(&firing["activeAt"]), firing["state"].as_str()),
        (seconds(&active_at[1]), Some("firing"))
    );
    let after = wait_for("a live evaluation", || {
        Some(ticks(fixture.http())).filter(|ticks| ticks.len() > before.len() + 8)
    });
    let gaps: Vec<_> = after
        .windows(2)
        .filter(|pair| pair[1] - pair[0] != 1000)
        .collect();
    assert!(gaps.is_empty(), "{gaps:?}");
}

#[test]
fn without_catch_up_alerts_are_restored_after_the_second_evaluation() {
    let mut fixture = Fixture::start(RULES);
    wait_until("the alert", || {
        query(fixture.http(), "ALERTS{alertname=\"Pending\"}").len() == 1
    });
    let active_at = alert(fixture.http(), "Pending").expect("it is active")["activeAt"].clone();
    std::thread::sleep(Duration::from_secs(1));
    assert!(fixture.server.terminate().success());
    std::thread::sleep(Duration::from_secs(3));
    let flags = [
        &*fixture.config.flag(),
        "--rules.catch-up=0s",
        "--rules.alert.for-grace-period=0s",
    ];
    fixture.server.restart(&flags);
    // The outage does not count as pending: the alert has moved by its length.
    let restored = wait_for("the alert", || {
        let found = query(
            fixture.http(),
            "ALERTS_FOR_STATE{alertname=\"Pending\"} > time() - 3600",
        );
        let first: Vec<f64> = found.into_iter().map(|(_, value)| value).collect();
        let old: f64 = jiff_seconds(&active_at);
        first
            .into_iter()
            .find(|&value| value > old)
            .map(|value| value - old)
    });
    assert!((3.0..30.0).contains(&restored), "{restored}");
    let ticks = ticks(fixture.http());
    assert!(
        ticks.windows(2).any(|pair| pair[1] - pair[0] > 2500),
        "the gap stays: {ticks:?}"
    );
}

/// Returns the whole seconds since the epoch of a time in RFC 3339.
fn jiff_seconds(at: &Value) -> f64 {
    let parsed: jiff::Timestamp = at
        .as_str()
        .expect("a time")
        .parse()
        .expect("it is RFC 3339");
    parsed.as_second() as f64
}
