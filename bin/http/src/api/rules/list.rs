//! The shapes of /api/v1/rules and /api/v1/alerts: groups, rules and alerts as Prometheus writes
//! them.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use varve_model::{Labels, Matcher};
use varve_rules::file::{RuleKind, Texts};
use varve_rules::rule::{EvaluationRecord, Rule, RuleStatus};
use varve_rules::{Alert, Group, Time};
use varve_template::scientific;

use crate::openapi::Untyped;
use varve_wire::schema::{JsonSchema, Schemas};

/// `data` of /api/v1/rules.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuleGroups<'a> {
    pub(super) groups: Vec<GroupJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group_next_token: Option<String>,
}

/// `data` of /api/v1/alerts: the alerts of some rules that pass the matchers of a tenant.
#[derive(Debug)]
pub(crate) struct Alerts<'a> {
    pub(super) statuses: &'a [RuleStatus],
    pub(super) tenant: &'a [Matcher],
}

impl Serialize for Alerts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct List<'a>(&'a Alerts<'a>);

        impl Serialize for List<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Alerts { statuses, tenant } = *self.0;
                let active = statuses.iter().flat_map(|status| active(status, tenant));
                serializer.collect_seq(active)
            }
        }

        serializer.collect_map([("alerts", List(self))])
    }
}

impl JsonSchema for RuleGroups<'_> {
    fn schema(schemas: &mut Schemas) -> serde_json::Value {
        schemas.object("RuleGroups", "Rules by group.", |schemas| {
            let groups = Vec::<Untyped>::schema(schemas);
            let token = String::schema(schemas);
            vec![
                ("groups".into(), groups, true, "Groups by file and name."),
                (
                    "groupNextToken".into(),
                    token,
                    false,
                    "The first group of the next page.",
                ),
            ]
        })
    }
}

impl JsonSchema for Alerts<'_> {
    fn schema(schemas: &mut Schemas) -> serde_json::Value {
        schemas.object("Alerts", "Pending and firing alerts.", |schemas| {
            vec![("alerts".into(), Vec::<Untyped>::schema(schemas), true, "")]
        })
    }
}

/// A group.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupJson<'a> {
    name: &'a str,
    file: &'a str,
    rules: Vec<RuleJson<'a>>,
    #[serde(serialize_with = "seconds")]
    interval: Duration,
    limit: usize,
    #[serde(serialize_with = "seconds")]
    evaluation_time: Duration,
    #[serde(serialize_with = "optional_time")]
    last_evaluation: Option<Time>,
    /// Not in Prometheus: only for groups whose alerts are not sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// A rule. Fields that are `None` belong to the other kind of rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    name: &'a str,
    query: &'a str,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_seconds"
    )]
    duration: Option<Duration>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_seconds"
    )]
    keep_firing_for: Option<Duration>,
    labels: &'a Texts,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a Texts>,
    #[serde(skip_serializing_if = "RuleAlerts::is_absent")]
    alerts: RuleAlerts<'a>,
    health: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
    #[serde(serialize_with = "seconds")]
    evaluation_time: Duration,
    #[serde(serialize_with = "optional_time")]
    last_evaluation: Option<Time>,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Not in Prometheus: with `evaluations=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    evaluations: Option<Vec<EvaluationJson<'a>>>,
    /// Not in Prometheus: with `evaluations=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_matched: Option<bool>,
}

/// The field `alerts` of a rule.
#[derive(Debug)]
enum RuleAlerts<'a> {
    /// A recording rule has no such field.
    Absent,
    /// null, with `exclude_alerts=true`.
    Excluded,
    /// The pending and firing alerts that pass the matchers of a tenant.
    Active(&'a RuleStatus, &'a [Matcher]),
}

impl RuleAlerts<'_> {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl Serialize for RuleAlerts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Absent | Self::Excluded => serializer.serialize_none(),
            Self::Active(status, tenant) => serializer.collect_seq(active(status, tenant)),
        }
    }
}

/// An alert.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AlertJson<'a> {
    #[serde(serialize_with = "pairs")]
    labels: &'a Labels,
    annotations: &'a Texts,
    state: &'static str,
    #[serde(serialize_with = "time")]
    active_at: Time,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_time"
    )]
    keep_firing_since: Option<Time>,
    value: String,
}

/// One evaluation of a rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EvaluationJson<'a> {
    #[serde(serialize_with = "time")]
    timestamp: Time,
    #[serde(serialize_with = "time")]
    started: Time,
    #[serde(serialize_with = "seconds")]
    duration: Duration,
    series: u64,
    samples: u64,
    peak_bytes: u64,
    results: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

/// Optional parts of the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) alerts: bool,
    pub(super) evaluations: bool,
}

impl<'a> GroupJson<'a> {
    /// Creates a group with some of its rules.
    pub(super) fn new(
        group: &'a Group,
        rules: &'a [(&Rule, RuleStatus)],
        shown: Shown,
        tenant: &'a [Matcher],
    ) -> Self {
        let status = group.status();
        let rules = rules.iter();
        Self {
            name: group.name(),
            file: &group.file,
            rules: rules
                .map(|(rule, status)| RuleJson::new(rule, status, shown, tenant))
                .collect(),
            interval: group.schedule().interval(),
            limit: group.definition.limit,
            evaluation_time: status.last_duration,
            last_evaluation: status.last_started,
            state: group.is_dry_run().then_some("dry_run"),
        }
    }
}

impl<'a> RuleJson<'a> {
    /// Creates a rule with the alerts that pass the matchers of `tenant`. A tenant sees no details
    /// of evaluations, which depend on series that it may not see.
    fn new(rule: &'a Rule, status: &'a RuleStatus, shown: Shown, tenant: &'a [Matcher]) -> Self {
        let last = status.last();
        let shows_evaluations = shown.evaluations && tenant.is_empty();
        // An error may name series that the tenant may not see.
        let last_error = match last {
            Some(last) if tenant.is_empty() => last.error.as_deref(),
            _ => None,
        };
        let mut json = Self {
            state: None,
            name: &rule.definition.name,
            query: &rule.expr,
            duration: None,
            keep_firing_for: None,
            labels: &rule.definition.labels,
            annotations: None,
            alerts: RuleAlerts::Absent,
            health: status.health.name(),
            last_error,
            evaluation_time: last.map(|last| last.duration).unwrap_or_default(),
            last_evaluation: last.map(|last| last.started),
            kind: "recording",
            evaluations: shows_evaluations
                .then(|| status.evaluations.iter().map(EvaluationJson::new).collect()),
            has_matched: shows_evaluations.then_some(status.has_matched),
        };
        if let RuleKind::Alerting(alerting) = &rule.definition.kind {
            json.kind = "alerting";
            json.state = Some(status.alert_state());
            json.duration = Some(Duration::from_millis(alerting.for_ms.max(0) as u64));
            json.keep_firing_for = Some(Duration::from_millis(
                alerting.keep_firing_for_ms.max(0) as u64
            ));
            json.annotations = Some(&alerting.annotations);
            json.alerts = if shown.alerts {
                RuleAlerts::Active(status, tenant)
            } else {
                RuleAlerts::Excluded
            };
        }
        json
    }
}

/// Returns the pending and firing alerts whose labels pass the matchers of `tenant`.
fn active<'a>(
    status: &'a RuleStatus,
    tenant: &'a [Matcher],
) -> impl Iterator<Item = AlertJson<'a>> {
    status
        .alerts
        .iter()
        .filter(move |alert| alert.is_active() && passes(alert, tenant))
        .map(AlertJson::new)
}

/// Returns `true` if the labels of an alert pass all matchers.
fn passes(alert: &Alert, matchers: &[Matcher]) -> bool {
    matchers
        .iter()
        .all(|matcher| matcher.matches(alert.labels.get(matcher.name()).unwrap_or("")))
}

impl<'a> AlertJson<'a> {
    fn new(alert: &'a Alert) -> Self {
        Self {
            labels: &alert.labels,
            annotations: &alert.annotations,
            state: alert.state.name(),
            active_at: alert.active_at,
            keep_firing_since: alert.keep_firing_since,
            value: scientific(alert.value),
        }
    }
}

impl<'a> EvaluationJson<'a> {
    fn new(record: &'a EvaluationRecord) -> Self {
        Self {
            timestamp: record.tick,
            started: record.started,
            duration: record.duration,
            series: record.n_series,
            samples: record.n_samples,
            peak_bytes: record.peak_bytes,
            results: record.n_results,
            error: record.error.as_deref(),
        }
    }
}

fn pairs<S: Serializer>(labels: &Labels, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(labels.iter())
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    match duration.subsec_nanos() {
        0 => serializer.serialize_u64(duration.as_secs()),
        _ => serializer.serialize_f64(duration.as_secs_f64()),
    }
}

fn optional_seconds<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    seconds(&duration.unwrap_or_default(), serializer)
}

fn time<S: Serializer>(time: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    optional_time(&Some(*time), serializer)
}

/// Prints a time as Go does; no time is the year 1.
fn optional_time<S: Serializer>(time: &Option<Time>, serializer: S) -> Result<S::Ok, S::Error> {
    let printed = time.and_then(|time| Timestamp::from_nanosecond(i128::from(time.ns())).ok());
    serializer.serialize_str(&printed.map_or_else(
        || "0001-01-01T00:00:00Z".to_owned(),
        |time| time.to_string(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_printed_as_in_go() {
        for (value, expect) in [
            (0.0, "0e+00"),
            (1.0, "1e+00"),
            (-55.5, "-5.55e+01"),
            (1.5e-7, "1.5e-07"),
            (1e100, "1e+100"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(scientific(value), expect);
        }
    }

    #[test]
    fn times_and_durations_are_printed_as_in_go() {
        #[derive(Serialize)]
        struct Printed {
            #[serde(serialize_with = "optional_time")]
            at: Option<Time>,
            #[serde(serialize_with = "seconds")]
            takes: Duration,
        }
        let check = |at, takes, expect: &str| {
            assert_eq!(
                serde_json::to_string(&Printed { at, takes }).unwrap(),
                expect
            );
        };
        check(
            None,
            Duration::from_secs(60),
            r#"{"at":"0001-01-01T00:00:00Z","takes":60}"#,
        );
        let at = Some(Time::from_ns(1_700_000_000_120_000_000));
        check(
            at,
            Duration::from_millis(1500),
            r#"{"at":"2023-11-14T22:13:20.12Z","takes":1.5}"#,
        );
    }
}
