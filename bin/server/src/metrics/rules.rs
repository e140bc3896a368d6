//! Metrics of rules: durations that evaluations report, and values collected from groups on each
//! scrape.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::proto::MetricFamily;
use prometheus::{Histogram, IntCounter};
use varve_rules::arrival::SenderStatus;
use varve_rules::rule::{Rule, RuleStatus};
use varve_rules::{Group, GroupStatus, Iteration, Mode};

use crate::rules::Rules;
use varve_system::metrics::{Registrar, SummaryVec, counts, families, family};

/// Bucket bounds of durations, as in Prometheus.
const SECONDS: [f64; 4] = [0.01, 0.1, 1.0, 10.0];
const DELAY_SECONDS: [f64; 6] = [0.1, 1.0, 2.0, 5.0, 10.0, 30.0];
/// Maximum number of rules with metrics of their own: the most expensive ones. The others are
/// summed up.
const RULES_SHOWN_MAX: usize = 1_000;
/// The label of the rules that are summed up.
const OTHER: &str = "(other)";

/// Durations and counts that the evaluation loop reports.
#[derive(Debug)]
pub(crate) struct RuleMetrics {
    rule_summary: SummaryVec,
    rule_seconds: Histogram,
    group_summary: SummaryVec,
    group_seconds: Histogram,
    start_delay_seconds: Histogram,
    incomplete: IntCounter,
    caught_up: IntCounter,
    expansions: IntCounter,
    expansions_failed: IntCounter,
}

impl RuleMetrics {
    /// Creates the metrics, at zero.
    ///
    /// # Errors
    /// If another metric has the same name.
    pub(super) fn new(registrar: &Registrar<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            rule_summary: registrar.summary_of(
                "prometheus_rule_evaluation_duration_seconds",
                &[0.5, 0.9, 0.99],
            )?,
            rule_seconds: registrar.histogram(
                "prometheus_rule_evaluation_duration_histogram_seconds",
                &SECONDS,
            )?,
            group_summary: registrar.summary_of(
                "prometheus_rule_group_duration_seconds",
                &[0.01, 0.05, 0.5, 0.9, 0.99],
            )?,
            group_seconds: registrar
                .histogram("prometheus_rule_group_duration_histogram_seconds", &SECONDS)?,
            start_delay_seconds: registrar
                .histogram("varve_rule_group_start_delay_seconds", &DELAY_SECONDS)?,
            incomplete: registrar.counter("varve_rule_group_iterations_incomplete_total")?,
            caught_up: registrar.counter("varve_rule_group_iterations_caught_up_total")?,
            expansions: registrar.counter("prometheus_template_text_expansions_total")?,
            expansions_failed: registrar
                .counter("prometheus_template_text_expansion_failures_total")?,
        })
    }

    /// Counts an evaluation that starts `delay` after its time.
    pub(crate) fn note_start(&self, mode: Mode, is_incomplete: bool, delay: Duration) {
        match mode {
            Mode::Live => self.start_delay_seconds.observe(delay.as_secs_f64()),
            Mode::CatchUp => self.caught_up.inc(),
        }
        self.incomplete.inc_by(u64::from(is_incomplete));
    }

    /// Counts the expansion of a template.
    pub(crate) fn note_expansion(&self, is_failed: bool) {
        self.expansions.inc();
        self.expansions_failed.inc_by(u64::from(is_failed));
    }

    /// Notes the durations of an evaluation.
    pub(crate) fn note_end(&self, iteration: &Iteration) {
        let group_s = iteration.duration.as_secs_f64();
        self.group_summary.observe("", group_s);
        self.group_seconds.observe(group_s);
        for rule_s in iteration.rules.iter().map(Duration::as_secs_f64) {
            self.rule_summary.observe("", rule_s);
            self.rule_seconds.observe(rule_s);
        }
    }

    /// Collects the metrics that are not registered.
    pub(super) fn gather(rules: &Rules) -> Vec<MetricFamily> {
        let set = rules.set();
        let mut all = of_groups(
            &set.groups()
                .map(|group| (group.key(), &**group))
                .collect::<Vec<_>>(),
        );
        let (alerts_max, n_alerts) = rules.alerts();
        all.extend(counts([
            ("varve_rule_alerts", n_alerts as u64),
            ("varve_rule_alerts_max", alerts_max as u64),
            ("varve_rule_memory_bytes", rules.memory_used() as u64),
        ]));
        all.extend(families([(
            "varve_rule_write_pause_seconds_total",
            rules.write_pause().as_secs_f64(),
        )]));
        let senders = rules.lags.status();
        let of_senders = |name, value: fn(&SenderStatus) -> f64| {
            family(
                name,
                senders
                    .iter()
                    .map(|sender| ([&*sender.name], value(sender))),
            )
        };
        all.push(of_senders("varve_sender_arrival_lag_seconds", |sender| {
            sender.lag.as_secs_f64()
        }));
        all.push(of_senders(
            "varve_sender_newest_timestamp_seconds",
            |sender| sender.newest.ns() as f64 / 1e9,
        ));
        all
    }
}

fn of_groups(groups: &[(String, &Group)]) -> Vec<MetricFamily> {
    let statuses: Vec<(&str, &Group, GroupStatus)> = groups
        .iter()
        .map(|(key, group)| (key.as_str(), *group, group.status()))
        .collect();
    let by_group = |name: &str, value: fn(&Group, &GroupStatus) -> f64| {
        family(
            name,
            statuses
                .iter()
                .map(|(key, group, status)| ([*key], value(group, status))),
        )
    };
    let mut all = vec![
        by_group(
            "prometheus_rule_group_iterations_missed_total",
            |_, status| status.n_missed as f64,
        ),
        by_group("prometheus_rule_group_iterations_total", |_, status| {
            status.n_iterations as f64
        }),
        by_group("prometheus_rule_evaluations_total", |_, status| {
            status.n_evaluations as f64
        }),
        by_group("prometheus_rule_evaluation_failures_total", |_, status| {
            status.n_failures as f64
        }),
        by_group("prometheus_rule_group_interval_seconds", |group, _| {
            group.schedule().interval().as_secs_f64()
        }),
        by_group(
            "prometheus_rule_group_last_evaluation_timestamp_seconds",
            |_, status| {
                status
                    .last_evaluation
                    .map_or(0.0, |time| time.ns() as f64 / 1e9)
            },
        ),
        by_group(
            "prometheus_rule_group_last_duration_seconds",
            |_, status| status.last_duration.as_secs_f64(),
        ),
        by_group(
            "prometheus_rule_group_last_rule_duration_sum_seconds",
            |_, status| status.last_rules_duration.as_secs_f64(),
        ),
        by_group(
            "prometheus_rule_group_last_restore_duration_seconds",
            |_, status| status.last_restore.as_secs_f64(),
        ),
        by_group("prometheus_rule_group_rules", |group, _| {
            group.rules.len() as f64
        }),
        by_group("varve_rule_group_last_evaluation_scans", |_, status| {
            status.last_n_scans as f64
        }),
        by_group(
            "prometheus_rule_group_last_evaluation_samples",
            |_, status| status.last_n_samples as f64,
        ),
    ];
    all.extend(of_rules(groups));
    all
}

/// Sums of rules with the same name in a group.
#[derive(Debug, Default, Clone, Copy)]
struct OfRule {
    seconds: f64,
    samples: f64,
    bytes: f64,
    never_matched: f64,
}

impl OfRule {
    fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.never_matched += other.never_matched;
    }

    fn of(rule: &Rule) -> Self {
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

fn of_rules(groups: &[(String, &Group)]) -> Vec<MetricFamily> {
    let mut by_name: BTreeMap<(&str, &str), OfRule> = BTreeMap::new();
    for (key, group) in groups {
        for rule in &group.rules {
            by_name
                .entry((key, &rule.definition.name))
                .or_default()
                .add(OfRule::of(rule));
        }
    }
    let mut shown: Vec<((&str, &str), OfRule)> = by_name.into_iter().collect();
    shown.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    if let Some((_, others)) = shown
        .split_at_checked(RULES_SHOWN_MAX)
        .filter(|(_, others)| !others.is_empty())
    {
        let mut sum = OfRule::default();
        others.iter().for_each(|(_, other)| sum.add(*other));
        shown.truncate(RULES_SHOWN_MAX);
        shown.push(((OTHER, OTHER), sum));
    }
    let by_rule = |name: &str, value: fn(&OfRule) -> f64| {
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
