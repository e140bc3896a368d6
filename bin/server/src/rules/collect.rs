//! Metrics of groups and rules, collected on each scrape.

use std::collections::BTreeMap;

use prometheus::proto::MetricFamily;
use varve_rules::arrival::SenderStatus;
use varve_rules::rule::{Rule, RuleStatus};
use varve_rules::{Group, GroupStatus};
use varve_system::metrics::{counts, families, family};

use super::state::Rules;

/// Maximum number of rules with metrics of their own: the most expensive ones. The others are
/// summed up.
const RULES_SHOWN_MAX: usize = 1_000;
/// The label of the rules that are summed up.
const OTHER: &str = "(other)";

/// Collects the metrics of all groups, their rules, and the senders that rules wait for.
pub fn collect(rules: &Rules) -> Vec<MetricFamily> {
    let set = rules.set();
    let groups: Vec<(String, &Group)> = set.groups().map(|group| (group.key(), &**group)).collect();
    let mut all = group_metrics(&groups);
    all.extend(rule_metrics(&groups));

    let (alerts_max, n_alerts) = rules.alerts();
    all.extend(counts([
        ("varve_rule_alerts", n_alerts as u64),
        ("varve_rule_alerts_max", alerts_max as u64),
        (
            "varve_rule_alert_memory_bytes",
            rules.alert_memory_used() as u64,
        ),
        ("varve_rule_memory_bytes", rules.memory_used() as u64),
    ]));
    all.extend(families([(
        "varve_rule_write_pause_seconds_total",
        rules.write_pause().as_secs_f64(),
    )]));
    all.extend(sender_metrics(&rules.lags.status()));
    all
}

fn sender_metrics(senders: &[SenderStatus]) -> [MetricFamily; 2] {
    let lags = senders
        .iter()
        .map(|sender| ([&*sender.name], sender.lag.as_secs_f64()));
    let newest = senders
        .iter()
        .map(|sender| ([&*sender.name], sender.newest.ns() as f64 / 1e9));
    [
        family("varve_sender_arrival_lag_seconds", lags),
        family("varve_sender_newest_timestamp_seconds", newest),
    ]
}

/// The value of a metric of a group.
type GroupValue = fn(&Group, &GroupStatus) -> f64;

const GROUP_METRICS: [(&str, GroupValue); 12] = [
    (
        "prometheus_rule_group_iterations_missed_total",
        |_, status| status.n_missed as f64,
    ),
    ("prometheus_rule_group_iterations_total", |_, status| {
        status.n_iterations as f64
    }),
    ("prometheus_rule_evaluations_total", |_, status| {
        status.n_evaluations as f64
    }),
    ("prometheus_rule_evaluation_failures_total", |_, status| {
        status.n_failures as f64
    }),
    ("prometheus_rule_group_interval_seconds", |group, _| {
        group.schedule().interval().as_secs_f64()
    }),
    (
        "prometheus_rule_group_last_evaluation_timestamp_seconds",
        |_, status| {
            status
                .last_started
                .map_or(0.0, |time| time.ns() as f64 / 1e9)
        },
    ),
    (
        "prometheus_rule_group_last_duration_seconds",
        |_, status| status.last_duration.as_secs_f64(),
    ),
    (
        "prometheus_rule_group_last_rule_duration_sum_seconds",
        |_, status| status.last_rules_duration.as_secs_f64(),
    ),
    (
        "prometheus_rule_group_last_restore_duration_seconds",
        |_, status| status.last_restore.as_secs_f64(),
    ),
    ("prometheus_rule_group_rules", |group, _| {
        group.rules.len() as f64
    }),
    ("varve_rule_group_last_evaluation_scans", |_, status| {
        status.last_n_scans as f64
    }),
    (
        "prometheus_rule_group_last_evaluation_samples",
        |_, status| status.last_n_results as f64,
    ),
];

fn group_metrics(groups: &[(String, &Group)]) -> Vec<MetricFamily> {
    let statuses: Vec<GroupStatus> = groups.iter().map(|(_, group)| group.status()).collect();
    let mut all = Vec::new();
    for (name, value) in GROUP_METRICS {
        let values = groups
            .iter()
            .zip(&statuses)
            .map(|((key, group), status)| ([key.as_str()], value(group, status)));
        all.push(family(name, values));
    }
    all
}

/// Sums of rules with the same name in a group.
#[derive(Debug, Default, Clone, Copy)]
struct RuleTotals {
    seconds: f64,
    samples: f64,
    bytes: f64,
    never_matched: f64,
}

impl RuleTotals {
    fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.never_matched += other.never_matched;
    }

    fn new(rule: &Rule) -> Self {
        let RuleStatus {
            costs,
            has_matched,
            evaluations,
            ..
        } = rule.status();
        let never_matched = f64::from(u8::from(!has_matched && !evaluations.is_empty()));
        Self {
            seconds: costs.seconds,
            samples: costs.n_samples as f64,
            bytes: costs.bytes as f64,
            never_matched,
        }
    }
}

fn rule_metrics(groups: &[(String, &Group)]) -> Vec<MetricFamily> {
    let mut by_name: BTreeMap<(&str, &str), RuleTotals> = BTreeMap::new();
    for (key, group) in groups {
        for rule in &group.rules {
            by_name
                .entry((key, &rule.definition.name))
                .or_default()
                .add(RuleTotals::new(rule));
        }
    }
    let mut shown: Vec<((&str, &str), RuleTotals)> = by_name.into_iter().collect();
    shown.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    if shown.len() > RULES_SHOWN_MAX {
        let mut sum = RuleTotals::default();
        for (_, other) in shown.drain(RULES_SHOWN_MAX..) {
            sum.add(other);
        }
        shown.push(((OTHER, OTHER), sum));
    }
    let by_rule = |name: &str, value: fn(&RuleTotals) -> f64| {
        family(
            name,
            shown
                .iter()
                .map(|((group, rule), totals)| ([*group, *rule], value(totals))),
        )
    };
    vec![
        by_rule("varve_rule_evaluation_seconds_total", |rule| rule.seconds),
        by_rule("varve_rule_samples_total", |rule| rule.samples),
        by_rule("varve_rule_query_bytes_total", |rule| rule.bytes),
        by_rule("varve_rule_never_matched", |rule| rule.never_matched),
    ]
}
