//! `Rules/Rules`: rule groups with their alerts.

use varve_context::Charge;
use varve_rules::file::{RuleKind, Texts};
use varve_rules::rule::{Rule, RuleStatus};
use varve_rules::{Alert, AlertState, Group, Time};
use varve_template::scientific;

use super::call::{Caller, Method};
use super::external::ExternalLabels;
use super::frame::Frames;
use super::message_size::{size_of_labels, size_of_texts};
use crate::api::rules::Filter;
use crate::error::Result;
use crate::serving::run::Work;
use varve_wire::thanos::rules::{
    AlertMessage, AlertingRule, RecordingRule, RuleGroup, RuleKindMessage, RuleMessage,
    RulesRequest, RulesResponse,
};
use varve_wire::thanos::{LabelSet, Timestamp};

/// Memory of an alert in bytes, without its labels and annotations: its copy in the status of the
/// rule, and its message in a list that may be half empty.
const ALERT_MEMORY: usize = 1 << 10;

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
            // A group is one message.
            let mut charge = work.ctx.charge();
            let mut rules = Vec::new();
            for rule in group.rules.iter().filter(|rule| filter.selects(rule)) {
                work.ctx.check()?;
                rules.push(rule_message(rule, &caller.external, &mut charge)?);
            }
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

/// Returns the message of a rule with its active alerts, and charges it before it is built.
fn rule_message(
    rule: &Rule,
    external: &ExternalLabels,
    charge: &mut Charge,
) -> Result<RuleMessage> {
    let definition = &rule.definition;
    charge.grow(rule.status_size())?;
    let status = rule.status();
    charge.grow(size_of_message(rule, &status, external))?;
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
    Ok(RuleMessage { rule: Some(rule) })
}

/// Returns the maximum memory of the message of a rule.
fn size_of_message(rule: &Rule, status: &RuleStatus, external: &ExternalLabels) -> usize {
    let definition = &rule.definition;
    let of_alerts: usize = status
        .alerts
        .iter()
        .map(|alert| {
            ALERT_MEMORY + size_of_labels(&alert.labels) + size_of_texts(&alert.annotations)
        })
        .sum();
    let of_error = status
        .last()
        .and_then(|last| last.error.as_ref())
        .map_or(0, String::len);
    let of_annotations = match &definition.kind {
        RuleKind::Recording => 0,
        RuleKind::Alerting(alerting) => size_of_texts(&alerting.annotations),
    };
    // The last error is copied. The labels are, before the external ones are added.
    of_alerts
        + 2 * of_error
        + of_annotations
        + 2 * (size_of_texts(&definition.labels) + size_of_texts(external))
        + definition.name.len()
        + rule.expr.len()
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
