//! /api/v1/rules: filters and pages.

use serde_json::{Value, json};

use super::Fixture;
use crate::harness::wait_until;

const RULES: &str = "groups:
- name: a
  rules:
  - {record: r, expr: vector(1), labels: {team: x}}
  - {alert: A, expr: vector(1), labels: {team: y}, for: 1h}
- name: b
  state: dry_run
  limit: 5
  interval: 1w
  rules:
  - {alert: B, expr: vector(1), keep_firing_for: 5m, annotations: {x: <y>}}
- name: c
  rules:
  - {record: s, expr: vector(1)}
";

/// Returns the groups with their rules, as `a:r,A b:B`, and the token of the next page.
fn list(fixture: &Fixture, params: &[(&str, &str)]) -> (String, Option<String>) {
    let data = fixture.http().query("/api/v1/rules", params).data();
    let group = |group: &Value| {
        let rules = group["rules"].as_array().expect("a list").iter();
        let names: Vec<_> = rules
            .map(|rule| rule["name"].as_str().expect("a text"))
            .collect();
        format!(
            "{}:{}",
            group["name"].as_str().expect("a text"),
            names.join(",")
        )
    };
    let groups: Vec<_> = data["groups"]
        .as_array()
        .expect("a list")
        .iter()
        .map(group)
        .collect();
    (
        groups.join(" "),
        data["groupNextToken"].as_str().map(str::to_owned),
    )
}

#[test]
fn rules_are_filtered_and_paged() {
    let fixture = Fixture::start(RULES);
    let check = |params: &[(&str, &str)], expect: &str| {
        assert_eq!(list(&fixture, params).0, expect, "{params:?}")
    };
    check(&[], "a:r,A b:B c:s");
    check(&[("type", "alert")], "a:A b:B");
    check(&[("type", "record")], "a:r c:s");
    check(&[("rule_name[]", "r"), ("rule_name[]", "B")], "a:r b:B");
    check(&[("rule_group[]", "c")], "c:s");
    check(&[("file[]", "other")], "");
    check(&[("match[]", "{team=\"y\"}")], "a:A");
    check(
        &[("match[]", "{team=\"y\"}"), ("match[]", "{team=\"x\"}")],
        "a:r,A",
    );
    let (first, token) = list(&fixture, &[("group_limit", "2")]);
    assert_eq!(first, "a:r,A b:B");
    let token = token.expect("there is another page");
    assert_eq!(
        list(
            &fixture,
            &[("group_limit", "2"), ("group_next_token", &token)]
        ),
        ("c:s".to_owned(), None)
    );
    let invalid = fixture.http().query(
        "/api/v1/rules",
        &[("group_limit", "2"), ("group_next_token", "x")],
    );
    let (kind, reason) = invalid.expect_status(400).error();
    let expect = "invalid parameter \"group_next_token\": invalid group_next_token 'x'. were rule groups changed?";
    assert_eq!((kind.as_str(), reason.as_str()), ("bad_data", expect));
}

// The first evaluation of a group is due at an offset into its interval that depends on the path of
// the rule file. The group in dry run has an interval of a week, so that it is not evaluated while
// the test runs.
#[test]
fn rules_have_the_fields_of_prometheus() {
    let fixture = Fixture::start(RULES);
    wait_until("an alert", || fixture.rule("A")["state"] == "pending");
    let data = fixture
        .http()
        .query("/api/v1/rules", &[("rule_group[]", "a")])
        .data();
    let group = &data["groups"][0];
    assert_eq!(
        (&group["interval"], &group["limit"]),
        (&json!(1), &json!(0))
    );
    let keys = |value: &Value| {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        keys(group),
        "evaluationTime file interval lastEvaluation limit name rules"
    );
    assert_eq!(
        keys(&group["rules"][0]),
        "evaluationTime health labels lastEvaluation name query type"
    );
    assert_eq!(
        keys(&group["rules"][1]),
        "alerts annotations duration evaluationTime health keepFiringFor labels lastEvaluation name query state type"
    );
    assert_eq!(group["rules"][1]["duration"], 3600);
    assert_eq!(
        keys(&group["rules"][1]["alerts"][0]),
        "activeAt annotations labels state value"
    );

    let excluded = fixture
        .http()
        .query(
            "/api/v1/rules",
            &[("exclude_alerts", "true"), ("type", "alert")],
        )
        .data();
    assert_eq!(excluded["groups"][0]["rules"][0]["alerts"], Value::Null);
    let dry = fixture
        .http()
        .query("/api/v1/rules", &[("rule_group[]", "b")]);
    assert!(dry.text().contains("\\u003cy\\u003e"), "{}", dry.text());
    let dry = &dry.data()["groups"][0];
    assert_eq!(
        (&dry["state"], &dry["interval"], &dry["limit"]),
        (&json!("dry_run"), &json!(604_800), &json!(5))
    );
    assert_eq!(
        (&dry["lastEvaluation"], &dry["rules"][0]["health"]),
        (&json!("0001-01-01T00:00:00Z"), &json!("unknown"))
    );
    assert_eq!(dry["rules"][0]["state"], "unknown");
}
