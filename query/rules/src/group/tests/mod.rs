mod reload;
mod restart;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use varve_context::{Limit, MemoryBudget, QueryContext, scheduler};
use varve_model::labels::METRIC_NAME;
use varve_model::staleness::is_stale_nan;
use varve_model::{Labels, Matcher, Rejection, RejectionReason, Sample, TimeRange};
use varve_query::{Point, VectorSample};

use super::*;
use crate::alert::{Notification, RestoreOptions};
use crate::alerts_max::AlertsMax;
use crate::file;
use crate::rule::{EVALUATIONS_KEPT, Health};
use crate::rule_set::RuleSet;
use crate::storage::{
    Answer, ERROR_SIZE_MAX, Failure, Output, OutputBudget, Query, RuleRef, Storage,
};
use crate::threads::Threads;
use crate::time::Time;

const MINUTE: i64 = 60;
/// The time of the first evaluation in most tests.
const T0: i64 = 1_000_000;

/// The result of an expression.
type Outcome = Result<Vec<(&'static str, f64)>, &'static str>;

/// A store in memory. The value of an expression is what a test sets. Otherwise the expression is a
/// metric name, and its value is what rules have written at that time.
#[derive(Default)]
struct Fake {
    now: Mutex<Time>,
    outcomes: Mutex<BTreeMap<String, Outcome>>,
    written: Mutex<Vec<(Labels, Sample)>>,
    sent: Mutex<Vec<Notification>>,
    /// Metrics whose samples are rejected.
    rejected: Mutex<Vec<&'static str>>,
    /// Whether samples are rejected as duplicates.
    are_duplicates: Mutex<bool>,
    is_stopping: Mutex<bool>,
    /// The failures that were logged, and whether the server takes them.
    logged: Mutex<Vec<String>>,
    refuses_log: Mutex<bool>,
    /// How often rules let other work run.
    n_yields: Arc<AtomicUsize>,
    /// The memory of templates, alerts and errors. Unlimited if it is `None`.
    memory: Option<MemoryBudget>,
}

/// Parses `name{a="b"}` without quotes: `name a=b`.
fn labels(text: &str) -> Labels {
    let pair = |part: &'static str| part.split_once('=').unwrap_or((METRIC_NAME, part));
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    Labels::from_pairs(text.split_whitespace().map(pair)).unwrap()
}

impl Fake {
    fn set(&self, expr: &str, outcome: Outcome) {
        self.outcomes.lock().insert(expr.to_owned(), outcome);
    }

    /// Takes what was written, as `name{…} value@seconds`.
    fn take_written(&self) -> Vec<String> {
        let print = |(labels, sample): &(Labels, Sample)| {
            let value = if is_stale_nan(sample.value) {
                "stale".to_owned()
            } else {
                sample.value.to_string()
            };
            let own: Vec<String> = labels
                .iter()
                .filter(|(n, _)| *n != METRIC_NAME)
                .map(|(n, v)| format!("{n}={v}"))
                .collect();
            format!(
                "{}{{{}}} {value}@{}",
                labels.metric_name(),
                own.join(","),
                sample.timestamp_ms / 1000 - T0
            )
        };
        std::mem::take(&mut *self.written.lock())
            .iter()
            .map(print)
            .collect()
    }

    /// Takes what was sent, as `value of the label a: start..end`.
    fn take_sent(&self) -> Vec<String> {
        let seconds = |time: Time| time.seconds() - T0;
        let print = |alert: &Notification| {
            let start = alert
                .starts_at
                .map_or("none".to_owned(), |start| seconds(start).to_string());
            format!(
                "{}: {start}..{}",
                alert.labels.get("a").unwrap_or_default(),
                seconds(alert.ends_at)
            )
        };
        std::mem::take(&mut *self.sent.lock())
            .iter()
            .map(print)
            .collect()
    }
}

impl Storage for Fake {
    fn start_background(&self) -> Option<scheduler::Background> {
        let n_yields = Arc::clone(&self.n_yields);
        let count = move || {
            n_yields.fetch_add(1, Ordering::Relaxed);
        };
        Some(scheduler::start_background(Arc::new(count)))
    }

    fn evaluation_context(&self, _interval: Duration) -> QueryContext {
        match &self.memory {
            Some(memory) => QueryContext::new(Duration::MAX, memory.clone()),
            None => QueryContext::unbounded(),
        }
    }

    fn query(
        &self,
        _: &RuleRef<'_>,
        &Query {
            expr, timestamp_ms, ..
        }: &Query<'_>,
    ) -> Result<Answer, Failure> {
        let sample = |labels, value| VectorSample {
            labels,
            point: Point {
                timestamp_ms,
                value,
            },
            histogram: None,
        };
        let outcome = self.outcomes.lock().get(expr).cloned();
        let samples: Vec<VectorSample> = match outcome {
            Some(Ok(series)) => series
                .iter()
                .map(|(text, value)| sample(labels(text), *value))
                .collect(),
            Some(Err("panic")) => panic!("as the test wants"),
            Some(Err("slow")) => {
                // Longer than the time between two yields.
                thread::sleep(Duration::from_millis(1));
                vec![sample(labels("m a=1"), 1.0)]
            }
            Some(Err(message)) => return Err(Failure::new(message)),
            None => {
                let written = self.written.lock();
                let of_metric = written.iter().filter(|(labels, sample)| {
                    labels.metric_name() == expr && sample.timestamp_ms == timestamp_ms
                });
                of_metric
                    .map(|(labels, written)| sample(labels.clone(), written.value))
                    .collect()
            }
        };
        Ok(Answer {
            n_series: samples.len() as u64,
            n_samples: 3,
            peak_bytes: 100,
            samples,
        })
    }

    fn append(&self, _: OutputBudget, samples: &[Output]) -> Result<Vec<Rejection>, Failure> {
        let denied = self.rejected.lock();
        let is_denied = |output: &Output| denied.contains(&output.labels.metric_name());
        let stored = samples.iter().filter(|output| !is_denied(output));
        self.written
            .lock()
            .extend(stored.map(|output| (output.labels.clone(), output.sample)));
        let rejects = (0..).zip(samples).filter(|(_, output)| is_denied(output));
        let is_duplicate = *self.are_duplicates.lock();
        let reason = if is_duplicate {
            RejectionReason::Duplicate
        } else {
            RejectionReason::TooOld
        };
        Ok(rejects
            .map(|(index, _)| Rejection { index, reason })
            .collect())
    }

    fn newest(
        &self,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<(Labels, Sample)>, Failure> {
        let mut newest = BTreeMap::new();
        for (labels, sample) in self.written.lock().iter() {
            let passes =
                |matcher: &Matcher| matcher.matches(labels.get(matcher.name()).unwrap_or_default());
            if range.contains(sample.timestamp_ms) && matchers.iter().all(passes) {
                newest.insert(labels.clone(), *sample);
            }
        }
        Ok(newest.into_iter().collect())
    }

    fn log_failure(&self, from: &RuleRef<'_>, error: &str) -> bool {
        if *self.refuses_log.lock() {
            return false;
        }
        let line = format!("{} {}: {error}", from.group, from.rule);
        self.logged.lock().push(line);
        true
    }

    fn now(&self) -> Time {
        *self.now.lock()
    }

    fn is_stopping(&self) -> bool {
        *self.is_stopping.lock()
    }

    fn notify(&self, alerts: Vec<Notification>) {
        self.sent.lock().extend(alerts);
    }
}

fn settings() -> GroupSettings {
    GroupSettings {
        query_offset: Duration::ZERO,
        resend_delay: Duration::from_secs(60),
        restore: RestoreOptions {
            outage_tolerance: Duration::from_secs(3600),
            grace_period: Duration::from_secs(600),
        },
        external_labels: file::Texts::new(),
        external_url: "http://varve".into(),
        threads: NonZero::new(2).map(Threads::new),
    }
}

fn parse(text: &str) -> Vec<(Arc<str>, file::RuleFile)> {
    let parsed = file::parse(text, &file::Options::default()).unwrap();
    parsed
        .files
        .into_iter()
        .map(|file| (Arc::from("f"), file))
        .collect()
}

/// Returns the groups of a file; the default interval is a minute.
fn set_of(old: &RuleSet, text: &str, alerts_max: &Arc<AlertsMax>) -> (RuleSet, Vec<RemovedGroup>) {
    let change = old.change_to(parse(text), Duration::from_secs(60), false, alerts_max);
    change.apply(Time::from_seconds(T0), &settings())
}

fn group(rules: &str) -> Arc<Group> {
    group_with("", rules)
}

fn group_with(fields: &str, rules: &str) -> Arc<Group> {
    let text = format!("groups: [{{name: g, {fields} rules: [{rules}]}}]");
    let (set, _) = set_of(&RuleSet::default(), &text, &Arc::new(AlertsMax::new(100)));
    Arc::clone(set.groups().next().unwrap())
}

/// Evaluates a group `seconds` after T0.
fn evaluate(group: &Group, fake: &Fake, seconds: i64) {
    let tick = Time::from_seconds(T0 + seconds);
    *fake.now.lock() = tick;
    group.evaluate(tick, Mode::Live, fake, &settings());
}

/// Returns the alerts of the first rule: the value of the label a, and the state.
fn states(group: &Group) -> String {
    let alerts = group.rules[0].status().alerts;
    let print = |alert: &crate::Alert| {
        format!(
            "{}:{}",
            alert.labels.get("a").unwrap_or_default(),
            alert.state.name()
        )
    };
    alerts.iter().map(print).collect::<Vec<_>>().join(" ")
}

fn error(group: &Group, idx: usize) -> Option<String> {
    group.rules[idx]
        .status()
        .last()
        .and_then(|last| last.error.clone())
}

/// Alerts of a rule that a client sent were not charged, and killed the server.
#[test]
fn alerts_are_charged_while_the_rule_keeps_them() {
    let memory = MemoryBudget::new(Limit::Other("memory"), 1 << 20);
    let fake = Fake {
        memory: Some(memory.clone()),
        ..Fake::default()
    };
    let text = "x".repeat(30_000);
    let group = group(&format!(
        "{{alert: A, expr: e, annotations: {{x: {text}}}}}"
    ));
    fake.set("e", Ok(vec![("m a=1", 1.0), ("m a=2", 1.0)]));
    evaluate(&group, &fake, 0);
    let used = memory.used();
    assert!((60_000..70_000).contains(&used), "{used}");
    evaluate(&group, &fake, MINUTE);
    assert_eq!((memory.used(), error(&group, 0)), (used, None));

    let many = (0..40).map(|i| (&*format!("m a={i}").leak(), 1.0));
    fake.set("e", Ok(many.collect()));
    evaluate(&group, &fake, 2 * MINUTE);
    let found = error(&group, 0).unwrap();
    assert!(found.contains("exceeds the limit of 1048576"), "{found}");
    assert_eq!(states(&group), "1:firing 2:firing");
    assert_eq!(memory.used(), used + found.len());

    // A resolved alert is kept for a while.
    fake.set("e", Ok(vec![("m a=1", 1.0)]));
    evaluate(&group, &fake, 3 * MINUTE);
    evaluate(&group, &fake, 30 * MINUTE);
    assert!(memory.used() < used / 2 + 1000, "{}", memory.used());
    drop(group);
    assert_eq!(memory.used(), 0);
}

/// A rule kept the errors of 20 evaluations, each as long as the labels that it quotes.
#[test]
fn errors_are_cut_and_charged() {
    let memory = MemoryBudget::new(Limit::Other("memory"), 50_000);
    let fake = Fake {
        memory: Some(memory.clone()),
        ..Fake::default()
    };
    let group = group("{alert: A, expr: e}");
    fake.set("e", Err("long ".repeat(40_000).leak()));
    for i in 0..3 {
        evaluate(&group, &fake, i * MINUTE);
        assert_eq!(error(&group, 0).unwrap().len(), ERROR_SIZE_MAX);
    }
    assert_eq!(memory.used(), 3 * ERROR_SIZE_MAX);
    evaluate(&group, &fake, 3 * MINUTE);
    let found = error(&group, 0).unwrap();
    assert!(found.contains("exceeds the limit of 50000"), "{found}");
}

#[test]
fn a_recording_rule_writes_its_result_and_ends_series_that_vanish() {
    let fake = Fake::default();
    let group = group("{record: r, expr: e, labels: {x: y, gone: ''}}");
    fake.set("e", Ok(vec![("m a=1 gone=z", 5.0), ("m a=2", 6.0)]));
    evaluate(&group, &fake, 0);
    assert_eq!(fake.take_written(), ["r{a=1,x=y} 5@0", "r{a=2,x=y} 6@0"]);
    fake.set("e", Ok(vec![("m a=2", 7.0)]));
    evaluate(&group, &fake, MINUTE);
    assert_eq!(
        fake.take_written(),
        ["r{a=2,x=y} 7@60", "r{a=1,x=y} stale@60"]
    );
    evaluate(&group, &fake, 2 * MINUTE);
    assert_eq!(fake.take_written(), ["r{a=2,x=y} 7@120"]);
    fake.set("e", Ok(vec![("a a=1", 1.0), ("b a=1", 1.0)]));
    evaluate(&group, &fake, 3 * MINUTE);
    assert_eq!(
        error(&group, 0).unwrap(),
        "vector contains metrics with the same labelset after applying rule labels"
    );
    assert!(
        fake.take_written().is_empty(),
        "a failed evaluation ends no series"
    );
}

#[test]
fn a_long_evaluation_lets_other_work_run_before_its_result_is_written() {
    let fake = Fake::default();
    fake.set("e", Err("slow"));
    for (rule, n_yields) in [("{record: r, expr: e}", 1), ("{alert: A, expr: e}", 2)] {
        let group = group(rule);
        evaluate(&group, &fake, 0);
        assert_eq!(
            (error(&group, 0), fake.n_yields.load(Ordering::Relaxed)),
            (None, n_yields)
        );
    }
    scheduler::pause();
    assert_eq!(
        fake.n_yields.load(Ordering::Relaxed),
        2,
        "this thread is no longer in the background"
    );
}

#[test]
fn a_rule_reads_what_an_earlier_one_has_written() {
    let fake = Fake::default();
    let group = group("{record: a, expr: e}, {record: b, expr: a}, {record: c, expr: b}");
    fake.set("e", Ok(vec![("m", 5.0)]));
    evaluate(&group, &fake, 0);
    assert_eq!(fake.take_written(), ["a{} 5@0", "b{} 5@0", "c{} 5@0"]);
}

#[test]
fn the_query_offset_moves_samples_but_not_alert_times() {
    let fake = Fake::default();
    let group = group_with("query_offset: 30s,", "{alert: A, expr: e}");
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    evaluate(&group, &fake, 0);
    assert_eq!(
        fake.take_written(),
        [
            "ALERTS{a=1,alertname=A,alertstate=firing} 1@-30",
            "ALERTS_FOR_STATE{a=1,alertname=A} 1000000@-30"
        ]
    );
    assert_eq!(fake.take_sent(), ["1: 0..240"]);
}

#[test]
fn an_alert_is_pending_then_firing_then_resolved() {
    let fake = Fake::default();
    let group = group("{alert: A, expr: e, for: 2m, labels: {s: x}}");
    let firing = || Ok(vec![("m a=1", 5.0)]);
    // Minute, whether the expression matches, alerts afterwards, what is sent.
    let steps: [(i64, bool, &str, &[&str]); 9] = [
        (0, true, "1:pending", &[]),
        (1, false, "", &[]),
        (2, true, "1:pending", &[]),
        (3, true, "1:pending", &[]),
        (4, true, "1:firing", &["1: 240..480"]),
        (5, true, "1:firing", &[]),
        (6, true, "1:firing", &["1: 240..600"]),
        (7, false, "1:inactive", &["1: 240..420"]),
        (23, false, "", &[]),
    ];
    for (minute, matches, expect, sent) in steps {
        fake.set("e", if matches { firing() } else { Ok(vec![]) });
        evaluate(&group, &fake, minute * MINUTE);
        assert_eq!(
            (states(&group).as_str(), fake.take_sent()),
            (expect, sent.iter().map(ToString::to_string).collect()),
            "minute {minute}"
        );
    }
    let written = fake.take_written();
    let of = |minute: i64| {
        let suffix = format!("@{}", minute * MINUTE);
        written
            .iter()
            .filter(|line| line.ends_with(&suffix))
            .map(|line| line.replace(",alertname=A", ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(1),
        [
            "ALERTS{a=1,alertstate=pending,s=x} stale@60",
            "ALERTS_FOR_STATE{a=1,s=x} stale@60"
        ]
    );
    assert_eq!(
        of(4),
        [
            "ALERTS{a=1,alertstate=firing,s=x} 1@240",
            "ALERTS_FOR_STATE{a=1,s=x} 1000120@240",
            "ALERTS{a=1,alertstate=pending,s=x} stale@240",
        ]
    );
}

#[test]
fn keep_firing_for_delays_the_end() {
    let fake = Fake::default();
    let group = group("{alert: A, expr: e, keep_firing_for: 3m}");
    for (minute, matches, expect) in [
        (0, true, "1:firing"),
        (1, false, "1:firing"),
        (2, true, "1:firing"),
        (3, false, "1:firing"),
        (5, false, "1:firing"),
        (6, false, "1:inactive"),
    ] {
        fake.set(
            "e",
            if matches {
                Ok(vec![("m a=1", 5.0)])
            } else {
                Ok(vec![])
            },
        );
        evaluate(&group, &fake, minute * MINUTE);
        assert_eq!(states(&group), expect, "minute {minute}");
    }
}

#[test]
fn a_failed_evaluation_resolves_nothing_and_firing_alerts_are_sent_again() {
    for failure in ["boom", "panic"] {
        let fake = Fake::default();
        let group = group("{alert: A, expr: e}, {record: r, expr: f}");
        fake.set("f", Ok(vec![("m", 1.0)]));
        fake.set("e", Ok(vec![("m a=1", 5.0)]));
        evaluate(&group, &fake, 0);
        assert_eq!(fake.take_sent(), ["1: 0..240"]);
        fake.set("e", Err(failure));
        for minute in 1..=10 {
            evaluate(&group, &fake, minute * MINUTE);
        }
        assert_eq!(states(&group), "1:firing");
        let ends: Vec<String> = (1..=5)
            .map(|i| format!("1: 0..{}", i * 2 * MINUTE + 240))
            .collect();
        assert_eq!(fake.take_sent(), ends);
        let status = group.rules[0].status();
        assert_eq!(status.health, Health::Bad);
        assert!(error(&group, 0).unwrap().contains(if failure == "panic" {
            "panicked"
        } else {
            "boom"
        }));
        assert_eq!(
            (group.status().n_evaluations, group.status().n_failures),
            (22, 10)
        );
        let n_recorded = fake
            .take_written()
            .iter()
            .filter(|line| line.starts_with("r{"))
            .count();
        assert_eq!(n_recorded, 11, "the other rule is evaluated");
    }
}

#[test]
fn limits_fail_the_evaluation_and_change_no_alert() {
    let fake = Fake::default();
    let group = group_with("limit: 1,", "{alert: A, expr: e}, {record: r, expr: e}");
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    evaluate(&group, &fake, 0);
    fake.set("e", Ok(vec![("m a=1", 5.0), ("m a=2", 5.0)]));
    evaluate(&group, &fake, MINUTE);
    assert_eq!(states(&group), "1:firing");
    assert_eq!(
        error(&group, 0).unwrap(),
        "exceeded limit of 1 with 2 alerts"
    );
    assert_eq!(
        error(&group, 1).unwrap(),
        "exceeded limit of 1 with 2 series"
    );
    fake.set("e", Ok(vec![("x a=1", 5.0), ("y a=1", 5.0)]));
    evaluate(&group, &fake, 2 * MINUTE);
    assert_eq!(
        error(&group, 0).unwrap(),
        "vector contains metrics with the same labelset after applying alert labels"
    );
}

#[test]
fn all_rules_together_have_a_maximum_of_alerts() {
    let fake = Fake::default();
    let alerts_max = Arc::new(AlertsMax::new(3));
    let text = "groups: [{name: g, rules: [{alert: A, expr: e}, {alert: B, expr: e}]}]";
    let (set, _) = set_of(&RuleSet::default(), text, &alerts_max);
    let group = Arc::clone(set.groups().next().unwrap());
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    evaluate(&group, &fake, 0);
    assert_eq!(alerts_max.used(), 2);
    fake.set("e", Ok(vec![("m a=1", 5.0), ("m a=2", 5.0)]));
    evaluate(&group, &fake, MINUTE);
    let errors: Vec<String> = (0..2).filter_map(|idx| error(&group, idx)).collect();
    assert_eq!(
        errors,
        ["4 alerts of all rules exceed the limit of 3 (alerts of all rules)"]
    );
    assert_eq!(alerts_max.used(), 3);
    let (reloaded, _) = set_of(
        &set,
        &text.replace("name: g,", "name: g, interval: 2m,"),
        &alerts_max,
    );
    assert_eq!(
        alerts_max.used(),
        3,
        "alerts that another rule takes over count once"
    );
    drop((set, group));
    assert_eq!(alerts_max.used(), 3);
    drop(reloaded);
    assert_eq!(alerts_max.used(), 0);
}

#[test]
fn too_many_alerts_fail_before_their_templates_are_expanded() {
    let fake = Fake::default();
    let text =
        "groups: [{name: g, rules: [{alert: A, expr: e, labels: {l: '{{ query \"q\" | len }}'}}]}]";
    let (set, _) = set_of(&RuleSet::default(), text, &Arc::new(AlertsMax::new(1)));
    let group = set.groups().next().unwrap();
    fake.set("e", Ok(vec![("m a=1", 5.0), ("m a=2", 5.0)]));
    // An expansion would end the evaluation with another error.
    fake.set("q", Err("panic"));
    evaluate(group, &fake, 0);
    assert_eq!(
        error(group, 0).unwrap(),
        "2 alerts of all rules exceed the limit of 1 (alerts of all rules)"
    );
}

#[test]
fn rejected_samples_are_an_error_but_rejected_markers_are_not() {
    let fake = Fake::default();
    let group = group("{record: r, expr: e}");
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    evaluate(&group, &fake, 0);
    fake.rejected.lock().push("r");
    evaluate(&group, &fake, MINUTE);
    assert_eq!(
        error(&group, 0).unwrap(),
        "series {__name__=\"r\", a=\"1\"}: too old sample"
    );
    assert_eq!(
        group.status().n_failures,
        0,
        "as in Prometheus, the evaluation itself has succeeded"
    );
    fake.set("e", Ok(vec![]));
    evaluate(&group, &fake, 2 * MINUTE);
    assert_eq!(error(&group, 0), None);
}

/// Only the API and a metric showed a failed evaluation.
#[test]
fn the_first_failure_of_a_rule_is_logged_and_one_every_ten_minutes() {
    let fake = Fake::default();
    let group = group("{record: r, expr: e}, {record: s, expr: s0}");
    let logged_at = |minute: i64| {
        *fake.now.lock() = Time::from_seconds(T0 + minute * MINUTE);
        evaluate(&group, &fake, minute * MINUTE);
        std::mem::take(&mut *fake.logged.lock())
    };
    fake.set("e", Ok(vec![]));
    assert!(logged_at(0).is_empty());
    fake.set("e", Err("boom"));
    *fake.refuses_log.lock() = true;
    assert!(logged_at(1).is_empty());
    *fake.refuses_log.lock() = false;
    assert_eq!(logged_at(2), ["g r: boom"]);
    for minute in 3..12 {
        assert!(logged_at(minute).is_empty(), "{minute}");
    }
    assert_eq!(logged_at(12), ["g r: boom"]);
}

#[test]
fn a_series_ends_even_if_a_sample_of_it_was_rejected() {
    // Whether the series had a sample before the rejected one.
    for (is_known, expect) in [(true, vec!["r{a=1} stale@120"]), (false, vec![])] {
        let fake = Fake::default();
        let group = group("{record: r, expr: e}");
        let matched = || Ok(vec![("m a=1", 5.0)]);
        fake.set("e", if is_known { matched() } else { Ok(vec![]) });
        evaluate(&group, &fake, 0);
        fake.set("e", matched());
        fake.rejected.lock().push("r");
        evaluate(&group, &fake, MINUTE);
        fake.rejected.lock().clear();
        fake.take_written();
        fake.set("e", Ok(vec![]));
        evaluate(&group, &fake, 2 * MINUTE);
        assert_eq!(fake.take_written(), expect);
    }
}

#[test]
fn only_duplicates_are_no_failure_of_a_repeated_evaluation() {
    for (mode, is_duplicate, expect) in [
        (Mode::CatchUp, true, None),
        (
            Mode::CatchUp,
            false,
            Some("series {__name__=\"r\", a=\"1\"}: too old sample"),
        ),
        (
            Mode::Live,
            true,
            Some("series {__name__=\"r\", a=\"1\"}: duplicate sample for timestamp"),
        ),
    ] {
        let fake = Fake::default();
        *fake.are_duplicates.lock() = is_duplicate;
        fake.rejected.lock().push("r");
        let group = group("{record: r, expr: e}");
        fake.set("e", Ok(vec![("m a=1", 5.0)]));
        group.evaluate(Time::from_seconds(T0), mode, &fake, &settings());
        assert_eq!(
            error(&group, 0).as_deref(),
            expect,
            "{mode:?} {is_duplicate}"
        );
    }
}

#[test]
fn labels_and_annotations_are_expanded_and_an_error_fails_no_rule() {
    let fake = Fake::default();
    let rule = "{alert: A, expr: e, labels: {l: 'a is {{ $labels.a }}'}, annotations: {x: '{{ $value }} {{ $labels.gone }}|{{ $externalURL }}', \
                q: '{{ query \"q\" | first | value }}', bad: '{{ query \"boom\" }}'}}";
    let group = group(rule);
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    fake.set("q", Ok(vec![("m", 9.0)]));
    fake.set("boom", Err("no"));
    evaluate(&group, &fake, 0);
    let alert = group.rules[0].status().alerts.remove(0);
    assert_eq!(alert.labels.get("l"), Some("a is 1"));
    assert_eq!(
        (
            alert.annotations["x"].as_str(),
            alert.annotations["q"].as_str()
        ),
        ("5 |http://varve", "9")
    );
    assert!(
        alert.annotations["bad"].starts_with("<error expanding template: "),
        "{}",
        alert.annotations["bad"]
    );
    assert_eq!(error(&group, 0), None);
}

#[test]
fn a_dry_run_writes_and_sends_nothing_and_a_catch_up_sends_nothing() {
    let fake = Fake::default();
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    let dry = group_with("state: dry_run,", "{alert: A, expr: e}");
    evaluate(&dry, &fake, 0);
    assert_eq!(
        (states(&dry).as_str(), fake.take_written().len()),
        ("1:firing", 0)
    );
    assert!(fake.take_sent().is_empty());
    let group = group("{alert: A, expr: e}");
    group.evaluate(Time::from_seconds(T0), Mode::CatchUp, &fake, &settings());
    assert!(fake.take_sent().is_empty());
    evaluate(&group, &fake, MINUTE);
    assert_eq!(fake.take_sent(), ["1: 0..300"]);
}

#[test]
fn the_newest_evaluations_and_the_costs_are_kept() {
    let fake = Fake::default();
    let group = group("{record: r, expr: e}, {record: s, expr: never}");
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    for minute in 0..25 {
        evaluate(&group, &fake, minute * MINUTE);
    }
    let status = group.rules[0].status();
    assert_eq!(status.evaluations.len(), EVALUATIONS_KEPT);
    assert_eq!(
        status.evaluations[0].tick,
        Time::from_seconds(T0 + 5 * MINUTE)
    );
    assert_eq!((status.costs.n_samples, status.costs.bytes), (75, 2500));
    assert!(status.has_matched && !group.rules[1].status().has_matched);
}
