//! `Rules/Rules`: rule groups with their alerts.

use varve_rules::file::{RuleKind, Texts};
use varve_rules::rule::Rule;
use varve_rules::{Alert, AlertState, Group, Time};
use varve_template::scientific;

use super::call::{Caller, Method};
use super::external::ExternalLabels;
use super::frame::Frames;
use crate::api::rules::Filter;
use crate::error::Result;
use crate::serving::run::Work;
use varve_wire::thanos::rules::{
    AlertMessage, AlertingRule, RecordingRule, RuleGroup, RuleKindMessage, RuleMessage,
    RulesRequest, RulesResponse,
};
use varve_wire::thanos::{LabelSet, Timestamp};

/// Errors of a store abort an evaluation: a rule reads its own store.
const ABORT: i32 = 1;

impl Method for RulesRequest {
    const PATH: &'static str = "/thanos.Rules/Rules";

    /// Does not filter by the labels of rules. As behind a sidecar, the querier does that: with
    /// external labels, and without labels that have templates.
    fn respond(self, caller: &Caller, work: &mut Work, out: &mut Frames) -> Result<()> {
        let lists = [&self.rule_names, &self.groups, &self.files];
        let lists = lists.map(|texts| texts.iter().map(String::as_str).collect());
        let kind = usize::try_from(self.kind)
            .ok()
            .and_then(|kind| ["", "alert", "record"].get(kind));
        let filter = Filter::new(lists, kind.copied().unwrap_or_default());
        let set = caller.app.rules.set();
        for group in set.groups().filter(|group| filter.selects_group(group)) {
            let rules = group.rules.iter().filter(|rule| filter.selects(rule));
            let rules: Vec<_> = rules
                .map(|rule| rule_message(rule, &caller.external))
                .collect();
            if !rules.is_empty() {
                out.send(
                    work,
                    &RulesResponse {
                        group: Some(group_message(group, rules)),
                    },
                )?;
            }
        }
        Ok(())
    }
}

fn group_message(group: &Group, rules: Vec<RuleMessage>) -> RuleGroup {
    let status = group.status();
    RuleGroup {
        name: group.name().to_owned(),
        file: group.file.to_string(),
        rules,
        interval: group.schedule().interval().as_secs_f64(),
        evaluation_seconds: status.last_duration.as_secs_f64(),
        last_evaluation: Some(timestamp(status.last_started)),
        partial_response_strategy: ABORT,
        limit: group.definition.limit as i64,
    }
}

fn rule_message(rule: &Rule, external: &ExternalLabels) -> RuleMessage {
    let definition = &rule.definition;
    let status = rule.status();
    let last = status.last();
    let name = definition.name.clone();
    let query = rule.expr.to_string();
    let labels = Some(with_external(&definition.labels, external));
    let health = status.health.name().to_owned();
    let last_error = last.and_then(|last| last.error.clone()).unwrap_or_default();
    let evaluation_seconds = last
        .map(|last| last.duration.as_secs_f64())
        .unwrap_or_default();
    let last_evaluation = Some(timestamp(last.map(|last| last.started)));
    let rule = match &definition.kind {
        RuleKind::Recording => RuleKindMessage::Recording(RecordingRule {
            name,
            query,
            labels,
            health,
            last_error,
            evaluation_seconds,
            last_evaluation,
        }),
        RuleKind::Alerting(alerting) => RuleKindMessage::Alerting(AlertingRule {
            state: match status.alert_state() {
                "firing" => 3,
                "pending" => 2,
                "inactive" => 1,
                _ => 0,
            },
            name,
            query,
            duration_seconds: alerting.for_ms as f64 / 1000.0,
            labels,
            annotations: Some(texts(&alerting.annotations)),
            alerts: status
                .alerts
                .iter()
                .filter(|alert| alert.is_active())
                .map(alert_message)
                .collect(),
            health,
            last_error,
            evaluation_seconds,
            last_evaluation,
            keep_firing_for_seconds: alerting.keep_firing_for_ms as f64 / 1000.0,
        }),
    };
    RuleMessage { rule: Some(rule) }
}

/// Returns an alert. As in Thanos, it has no external labels: a querier does not remove the replica
/// label from it.
fn alert_message(alert: &Alert) -> AlertMessage {
    AlertMessage {
        labels: Some(LabelSet::from(&alert.labels)),
        annotations: Some(texts(&alert.annotations)),
        state: match alert.state {
            AlertState::Inactive => 1,
            AlertState::Pending => 2,
            AlertState::Firing => 3,
        },
        active_at: Some(timestamp(Some(alert.active_at))),
        value: scientific(alert.value),
    }
}

fn texts(texts: &Texts) -> LabelSet {
    LabelSet::of(
        texts
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    )
}

/// Adds the external labels, by which queriers tell the rules of replicas apart.
fn with_external(labels: &Texts, external: &ExternalLabels) -> LabelSet {
    let mut all = labels.clone();
    all.extend(external.clone());
    texts(&all)
}

/// Converts a time. No time is the year 1, as in Go.
fn timestamp(time: Option<Time>) -> Timestamp {
    const YEAR_1: Timestamp = Timestamp {
        seconds: -62_135_596_800,
        nanos: 0,
    };
    const NS: i64 = 1_000_000_000;
    time.map_or(YEAR_1, |time| Timestamp {
        seconds: time.ns().div_euclid(NS),
        nanos: time.ns().rem_euclid(NS) as i32,
    })
}
