//! State of groups after a restart: restored, caught up or continued.

use super::*;
use crate::alert::AlertState;

/// A restart after alerts were written by `before` evaluations, one a minute. The process is down
/// for `down` minutes.
fn restart(rule: &str, before: i64, down: i64) -> (Arc<Group>, Fake, i64) {
    let fake = Fake::default();
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    restart_with(fake, rule, before, down)
}

fn restart_with(fake: Fake, rule: &str, before: i64, down: i64) -> (Arc<Group>, Fake, i64) {
    let old = group(rule);
    (0..before).for_each(|minute| evaluate(&old, &fake, minute * MINUTE));
    fake.take_sent();
    let text = format!("groups: [{{name: g, rules: [{rule}]}}]");
    let alerts_max = Arc::new(AlertsMax::new(10));
    let change =
        RuleSet::default().change_to(parse(&text), Duration::from_secs(60), true, &alerts_max);
    let (set, _) = change.apply(Time::from_seconds(T0), &settings());
    (
        Arc::clone(set.groups().next().unwrap()),
        fake,
        before + down,
    )
}

#[test]
fn alerts_are_restored_after_the_second_evaluation_as_in_prometheus() {
    // Rule, evaluations before the outage, minutes of outage, and since which minute the alert is
    // active.
    for (rule, before, down, expect) in [
        // It was firing.
        ("{alert: A, expr: e, for: 20m}", 25, 10, 0),
        // Less than the grace period was left: it fires after the grace period.
        (
            "{alert: A, expr: e, for: 20m}",
            15,
            10,
            15 + 10 + 1 + 10 - 20,
        ),
        // The outage does not count.
        ("{alert: A, expr: e, for: 20m}", 5, 10, 10 + 2),
        // A short `for` starts again.
        ("{alert: A, expr: e, for: 5m}", 3, 10, 13),
        // The outage was too long.
        ("{alert: A, expr: e, for: 20m}", 5, 70, 75),
    ] {
        let (group, fake, start) = restart(rule, before, down);
        fake.written
            .lock()
            .retain(|(labels, _)| labels.metric_name() != "ALERTS");
        evaluate(&group, &fake, start * MINUTE);
        assert!(
            !fake.take_written_after(start * MINUTE),
            "nothing is written before the restoration"
        );
        evaluate(&group, &fake, (start + 1) * MINUTE);
        let active_at = group.rules[0].status().alerts[0].active_at;
        assert_eq!(
            (active_at.seconds() - T0) / MINUTE,
            expect,
            "{rule} {before} {down}"
        );
        evaluate(&group, &fake, (start + 2) * MINUTE);
        assert!(fake.take_written_after((start + 2) * MINUTE));
    }
}

/// The second rule took the time of the first, whose alert has the same labels.
#[test]
fn an_alert_of_two_rules_keeps_the_time_of_the_first_only() {
    let rules = "{alert: A, expr: e, for: 20m}, {alert: A, expr: f, for: 20m}";
    let active_at = |group: &Group, idx: usize| {
        let alerts = group.rules[idx].status().alerts;
        (
            alerts[0].state,
            (alerts[0].active_at.seconds() - T0) / MINUTE,
        )
    };
    let (group, fake, start) = restart(rules, 25, 10);
    fake.set("f", Ok(vec![("m a=1", 5.0)]));
    evaluate(&group, &fake, start * MINUTE);
    evaluate(&group, &fake, (start + 1) * MINUTE);
    assert_eq!(active_at(&group, 0).1, 0);
    assert_eq!(active_at(&group, 1), (AlertState::Pending, start));

    let (group, fake, start) = restart(rules, 25, 0);
    group
        .continue_from(at(start - 1), at(start - 1), &fake, &settings())
        .unwrap();
    fake.set("f", Ok(vec![("m a=1", 5.0)]));
    evaluate(&group, &fake, start * MINUTE);
    assert_eq!(active_at(&group, 0), (AlertState::Firing, 0));
    assert_eq!(active_at(&group, 1), (AlertState::Pending, start));
    evaluate(&group, &fake, (start + 20) * MINUTE);
    assert_eq!(active_at(&group, 1), (AlertState::Firing, start));
}

/// The second rule fired with the time of the first: it sent a notification and wrote ALERTS before
/// its alert began again.
#[test]
fn an_alert_of_two_rules_is_not_sent_with_the_time_of_the_first() {
    let rules = "{alert: A, expr: e, for: 1h}, {alert: A, expr: f, for: 5m}";
    let (group, fake, start) = restart(rules, 10, 0);
    group
        .continue_from(at(start - 1), at(start - 1), &fake, &settings())
        .unwrap();
    fake.set("f", Ok(vec![("m a=1", 5.0)]));
    for minute in 0..5 {
        evaluate(&group, &fake, (start + minute) * MINUTE);
        assert!(fake.take_sent().is_empty(), "{minute}");
    }
    let is_firing = |(labels, _): &(Labels, Sample)| labels.get("alertstate") == Some("firing");
    assert!(!fake.written.lock().iter().any(is_firing));
    evaluate(&group, &fake, (start + 5) * MINUTE);
    assert_eq!(fake.take_sent().len(), 1);
}

impl Fake {
    fn take_written_after(&self, seconds: i64) -> bool {
        self.written
            .lock()
            .iter()
            .any(|(_, sample)| sample.timestamp_ms >= (T0 + seconds) * 1000)
    }
}

#[test]
fn a_caught_up_group_continues_its_alerts() {
    for (before, expect) in [(3, "1:pending"), (7, "1:firing")] {
        let (group, fake, _) = restart("{alert: A, expr: e, for: 5m}", before, 0);
        let last = Time::from_seconds(T0 + (before - 1) * MINUTE);
        group.continue_from(last, last, &fake, &settings()).unwrap();
        assert_eq!(states(&group), expect);
        let tick = Time::from_seconds(T0 + before * MINUTE);
        group.evaluate(tick, Mode::CatchUp, &fake, &settings());
        assert_eq!(
            group.rules[0].status().alerts[0].active_at,
            Time::from_seconds(T0)
        );
        fake.set("e", Ok(vec![]));
        fake.take_written();
        group.evaluate(
            tick + Duration::from_secs(60),
            Mode::CatchUp,
            &fake,
            &settings(),
        );
        assert_eq!(fake.take_written().len(), 2, "its series end");
    }
}

#[test]
fn a_group_that_catches_up_sends_its_firing_alerts_again() {
    let (group, fake, start) = restart(
        "{alert: A, expr: e, for: 5m, annotations: {x: '{{ $value }}'}}",
        7,
        2,
    );
    group
        .continue_from(at(6), at(6), &fake, &settings())
        .unwrap();
    group.resend(at(start), &fake, &settings());
    assert_eq!(
        fake.sent.lock()[0].annotations["x"],
        "5",
        "those of its last evaluation"
    );
    assert_eq!(fake.take_sent(), ["1: 300..780"]);
    group.resend(at(start) + Duration::from_secs(59), &fake, &settings());
    assert!(
        fake.take_sent().is_empty(),
        "the resend delay has not passed"
    );
    group.resend(at(start + 2), &fake, &settings());
    assert_eq!(fake.take_sent(), ["1: 300..900"]);
    fake.set("e", Ok(vec![]));
    group.evaluate(at(7), Mode::CatchUp, &fake, &settings());
    group.resend(at(start + 5), &fake, &settings());
    assert!(
        fake.take_sent().is_empty(),
        "only the newest evaluation resolves it"
    );
    evaluate(&group, &fake, (start + 6) * MINUTE);
    assert_eq!(fake.take_sent(), ["1: 300..420"]);
}

/// It was sent as resolved only after the resend delay, and never if it had ended more than 15
/// minutes before.
#[test]
fn an_alert_that_a_catch_up_resolves_is_sent_by_the_next_evaluation() {
    for down in [3, 30] {
        let (group, fake, start) = restart("{alert: A, expr: e}", 3, down);
        group
            .continue_from(at(2), at(2), &fake, &settings())
            .unwrap();
        group.resend(at(start), &fake, &settings());
        assert_eq!(fake.take_sent().len(), 1);
        fake.set("e", Ok(vec![]));
        (3..start)
            .for_each(|minute| drop(group.evaluate(at(minute), Mode::CatchUp, &fake, &settings())));
        assert!(fake.take_sent().is_empty());
        evaluate(&group, &fake, start * MINUTE);
        assert_eq!(fake.take_sent(), ["1: 0..180"], "{down}");
        assert_eq!(states(&group), "1:inactive");
        evaluate(&group, &fake, (start + 20) * MINUTE);
        assert_eq!(states(&group), "");
    }
}

#[test]
fn alerts_continue_over_failed_evaluations_before_the_outage() {
    // Outcome of the expression at the last evaluations before the outage, and the alerts
    // afterwards.
    for (last, expect) in [
        (vec![Err("boom")], "1:firing"),
        (vec![Err("boom"); 5], "1:firing"),
        (vec![Err("boom"); 6], ""),
        (vec![Ok(vec![]), Err("boom")], ""),
    ] {
        let (new, fake, start) = restart("{alert: A, expr: e, for: 2m}", 5, 0);
        let old = group("{alert: A, expr: e, for: 2m}");
        fake.take_written();
        (0..5).for_each(|minute| evaluate(&old, &fake, minute * MINUTE));
        let n_last = last.len() as i64;
        for (minute, outcome) in (start..).zip(last) {
            fake.set("e", outcome);
            evaluate(&old, &fake, minute * MINUTE);
        }
        new.continue_from(
            Time::from_seconds(T0 + (start + n_last - 1) * MINUTE),
            Time::from_seconds(T0 + (start + n_last - 1) * MINUTE),
            &fake,
            &settings(),
        )
        .unwrap();
        assert_eq!(states(&new), expect);
    }
}

#[test]
fn an_alert_that_several_rules_may_have_written_is_not_resolved_by_the_others() {
    let rules = "{alert: A, expr: e, labels: {s: x}}, {alert: A, expr: f, labels: {s: x, t: z}}, \
                 {alert: A, expr: h, labels: {s: x}}";
    let (group, fake, start) = restart(rules, 2, 0);
    group
        .continue_from(
            Time::from_seconds(T0 + MINUTE),
            Time::from_seconds(T0 + MINUTE),
            &fake,
            &settings(),
        )
        .unwrap();
    fake.take_written();
    evaluate(&group, &fake, start * MINUTE);
    assert_eq!(states(&group), "1:firing");
    assert!(group.rules[1].status().alerts.is_empty() && group.rules[2].status().alerts.is_empty());
    assert_eq!(
        fake.take_sent(),
        ["1: 120..360"],
        "no rule sends it as resolved"
    );
    assert_eq!(
        fake.take_written(),
        [
            "ALERTS{a=1,alertname=A,alertstate=firing,s=x} 1@120",
            "ALERTS_FOR_STATE{a=1,alertname=A,s=x} 1000000@120"
        ]
    );
}

#[test]
fn a_series_that_several_rules_may_have_written_ends_if_none_continues_it() {
    let rules = "{alert: A, expr: e}, {alert: A, expr: e, labels: {s: x}}";
    let (group, fake, start) = restart(rules, 2, 0);
    group
        .continue_from(
            Time::from_seconds(T0 + MINUTE),
            Time::from_seconds(T0 + MINUTE),
            &fake,
            &settings(),
        )
        .unwrap();
    fake.take_written();
    fake.set("e", Ok(vec![]));
    evaluate(&group, &fake, start * MINUTE);
    let written = fake.take_written();
    assert_eq!(
        (
            written.len(),
            written
                .iter()
                .filter(|line| line.ends_with("stale@120"))
                .count()
        ),
        (4, 4),
        "{written:?}"
    );
    assert_eq!(
        fake.take_sent(),
        ["1: 0..120"],
        "the alert without s=x is of one rule"
    );
}

/// A shutdown right after a restart ended the series, so the next restart lost the alert.
#[test]
fn a_shutdown_ends_no_series_that_a_skipped_rule_may_continue() {
    let rules = "{alert: A, expr: e}, {alert: A, expr: e, labels: {s: x}}";
    let (group, fake, start) = restart(rules, 2, 0);
    group
        .continue_from(at(1), at(1), &fake, &settings())
        .unwrap();
    fake.take_written();
    *fake.is_stopping.lock() = true;
    evaluate(&group, &fake, start * MINUTE);
    assert!(fake.take_written().is_empty());
}

/// A reload had moved its alerts to a successor, so that those that it loaded afterwards counted
/// forever.
#[test]
fn a_stopped_group_loads_no_alerts() {
    let (group, fake, _) = restart("{alert: A, expr: e}", 3, 0);
    group.stop();
    group
        .continue_from(at(2), at(2), &fake, &settings())
        .unwrap();
    assert_eq!(states(&group), "");
}

#[test]
fn an_alert_continues_if_a_template_of_its_labels_expands_to_nothing() {
    let (group, fake, start) = restart(
        "{alert: A, expr: e, for: 5m, labels: {l: '{{ $labels.gone }}'}}",
        7,
        0,
    );
    group
        .continue_from(
            Time::from_seconds(T0 + (start - 1) * MINUTE),
            Time::from_seconds(T0 + (start - 1) * MINUTE),
            &fake,
            &settings(),
        )
        .unwrap();
    evaluate(&group, &fake, start * MINUTE);
    assert_eq!(states(&group), "1:firing");
    assert_eq!(
        group.rules[0].status().alerts[0].active_at,
        Time::from_seconds(T0)
    );
}

#[test]
fn the_last_evaluation_is_found_in_the_store() {
    let fake = Fake::default();
    let group = group_with(
        "query_offset: 7s,",
        "{record: r, expr: e}, {alert: A, expr: e}",
    );
    let tick = group.schedule().at_or_before(Time::from_seconds(T0));
    let found = |longest| {
        group
            .last_stored(
                tick + Duration::from_secs(100),
                Duration::from_secs(longest),
                &fake,
                &settings(),
            )
            .unwrap()
    };
    assert_eq!(found(3600), None);
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    group.evaluate(tick, Mode::Live, &fake, &settings());
    assert_eq!((found(3600), found(99)), (Some(tick), None));
    // A sample of somebody else, not at an evaluation time.
    let foreign = Sample {
        timestamp_ms: (tick + Duration::from_secs(50)).ms(),
        value: 1.0,
    };
    fake.written.lock().push((labels("r a=1"), foreign));
    assert_eq!(found(3600), Some(tick));
}

/// A restart of a rule that matches `m` with `keep_firing_for: 5m` after `before` evaluations. The
/// first four match.
fn restart_kept(before: i64) -> (Arc<Group>, Fake) {
    let fake = Fake::default();
    for minute in 0..4 {
        let sample = Sample {
            timestamp_ms: (T0 + minute * MINUTE) * 1000,
            value: 5.0,
        };
        fake.written.lock().push((labels("m a=1"), sample));
    }
    let rule = "{alert: A, expr: m, keep_firing_for: 5m, annotations: {x: '{{ $value }}'}}";
    let (group, fake, _) = restart_with(fake, rule, before, 0);
    (group, fake)
}

fn at(minute: i64) -> Time {
    Time::from_seconds(T0 + minute * MINUTE)
}

/// After a restart, `keep_firing_for` was counted from the start again.
#[test]
fn an_alert_keeps_firing_until_its_deadline_before_the_restart() {
    for newest in 3..9 {
        for last in [newest - 1, newest] {
            let (group, fake) = restart_kept(newest + 1);
            group
                .continue_from(at(last), at(newest), &fake, &settings())
                .unwrap();
            let alert = group.rules[0].status().alerts.remove(0);
            assert_eq!(
                alert.keep_firing_since,
                (newest > 3).then(|| at(4)),
                "{last} {newest}"
            );
            assert_eq!(
                (alert.value, alert.annotations["x"].as_str()),
                (5.0, "5"),
                "those of its last match"
            );
            for minute in last + 1..9 {
                group.evaluate(at(minute), Mode::CatchUp, &fake, &settings());
                assert_eq!(states(&group), "1:firing", "{last} {newest} {minute}");
            }
            group.evaluate(at(9), Mode::CatchUp, &fake, &settings());
            assert_eq!(states(&group), "1:inactive", "{last} {newest}");
        }
    }
}

/// The alert was sent as firing, because the evaluation before the last one was the state to
/// continue from.
#[test]
fn an_alert_resolved_before_a_restart_does_not_fire_again() {
    let (group, fake) = restart_kept(10);
    group
        .continue_from(at(8), at(9), &fake, &settings())
        .unwrap();
    assert_eq!(states(&group), "1:inactive");
    group.resend(at(12), &fake, &settings());
    for minute in 9..12 {
        group.evaluate(at(minute), Mode::CatchUp, &fake, &settings());
        assert_eq!(states(&group), "1:inactive");
    }
    assert!(fake.take_sent().is_empty());
    evaluate(&group, &fake, 12 * MINUTE);
    assert_eq!(fake.take_sent(), ["1: 0..540"], "as resolved");
}

#[test]
fn an_alert_past_its_deadline_is_not_sent_as_firing() {
    let (group, fake) = restart_kept(6);
    group
        .continue_from(at(4), at(5), &fake, &settings())
        .unwrap();
    group.resend(at(8), &fake, &settings());
    assert_eq!(fake.take_sent(), ["1: 0..720"]);
    group.resend(at(10), &fake, &settings());
    assert!(fake.take_sent().is_empty());
}
