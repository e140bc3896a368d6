//! Reloads: what groups and rules keep.

use super::*;

#[test]
fn a_reload_touches_only_changed_groups_and_carries_state_over() {
    let fake = Fake::default();
    let alerts_max = Arc::new(AlertsMax::new(10));
    let kept = "{name: kept, rules: [{record: k, expr: e}]}";
    let text = format!(
        "groups: [{kept}, {{name: g, rules: [{{alert: A, expr: e}}, {{record: r, expr: e}}]}}]"
    );
    let (set, _) = set_of(&RuleSet::default(), &text, &alerts_max);
    let groups: Vec<_> = set.groups().cloned().collect();
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    for group in groups.iter() {
        evaluate(group, &fake, 0);
    }
    fake.take_written();

    let text = format!("groups: [{kept}, {{name: g, rules: [{{alert: A, expr: e, for: 1m}}]}}]");
    let (set, removed) = set_of(&set, &text, &alerts_max);
    let changed: Vec<_> = set.groups().cloned().collect();
    assert!(removed.is_empty());
    assert!(Arc::ptr_eq(&changed[1], &groups[1]) && !Arc::ptr_eq(&changed[0], &groups[0]));
    assert!(groups[0].is_stopped() && !groups[1].is_stopped());
    assert_eq!(states(&changed[0]), "1:firing");
    evaluate(&changed[0], &fake, 2 * MINUTE);
    let written = fake.take_written();
    assert!(
        written.contains(&"r{a=1} stale@120".to_owned()),
        "{written:?}"
    );
    assert_eq!(states(&changed[0]), "1:firing");

    let (set, removed) = set_of(&set, "groups: []", &alerts_max);
    assert_eq!(set.groups().count(), 0);
    let due: Vec<_> = removed
        .iter()
        .map(|group| group.due.seconds() - T0)
        .collect();
    assert_eq!(due, [120, 120]);
    for group in removed.iter() {
        group.end_series(&fake).unwrap();
    }
    let written = fake.take_written();
    assert_eq!(written.len(), 3, "{written:?}");
    assert!(written.contains(&"k{a=1} stale@0".to_owned()));
}

#[test]
fn a_series_that_a_new_group_writes_does_not_end_with_the_removed_group() {
    let fake = Fake::default();
    let alerts_max = Arc::new(AlertsMax::new(10));
    let (set, _) = set_of(
        &RuleSet::default(),
        "groups: [{name: old, rules: [{record: r, expr: e}, {record: s, expr: e}]}]",
        &alerts_max,
    );
    fake.set("e", Ok(vec![("m a=1", 5.0), ("m a=2", 5.0)]));
    evaluate(set.groups().next().unwrap(), &fake, 0);
    let (set, removed) = set_of(
        &set,
        "groups: [{name: new, rules: [{record: r, expr: f}]}]",
        &alerts_max,
    );
    fake.set("f", Ok(vec![("m a=1", 5.0)]));
    evaluate(set.groups().next().unwrap(), &fake, MINUTE);
    fake.written
        .lock()
        .retain(|(_, sample)| sample.timestamp_ms > T0 * 1000);
    for group in removed.iter() {
        group.end_series(&fake).unwrap();
    }
    assert_eq!(
        fake.take_written(),
        [
            "r{a=1} 5@60",
            "r{a=2} stale@0",
            "s{a=1} stale@0",
            "s{a=2} stale@0"
        ]
    );
}

#[test]
fn a_changed_rule_keeps_only_what_still_holds() {
    let fake = Fake::default();
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    // The rule after the reload, whether it has matched a series, its alerts, and the markers of
    // its next evaluation.
    for (rule, has_matched, expect, n_markers) in [
        ("{alert: A, expr: e, for: 1m}", true, "1:firing", 0),
        ("{alert: A, expr: gone}", false, "1:firing", 2),
        ("{record: A, expr: gone}", false, "", 2),
    ] {
        let alerts_max = Arc::new(AlertsMax::new(10));
        let (set, _) = set_of(
            &RuleSet::default(),
            "groups: [{name: g, rules: [{alert: A, expr: e}]}]",
            &alerts_max,
        );
        evaluate(set.groups().next().unwrap(), &fake, 0);
        let (set, _) = set_of(
            &set,
            &format!("groups: [{{name: g, rules: [{rule}]}}]"),
            &alerts_max,
        );
        let group = set.groups().next().unwrap();
        assert_eq!(
            (group.rules[0].status().has_matched, states(group).as_str()),
            (has_matched, expect),
            "{rule}"
        );
        fake.take_written();
        evaluate(group, &fake, MINUTE);
        let n_stale = fake
            .take_written()
            .iter()
            .filter(|line| line.contains("stale"))
            .count();
        assert_eq!(n_stale, n_markers, "{rule}");
    }
}

#[test]
fn a_group_that_becomes_a_dry_run_forgets_resolved_alerts() {
    let (fake, alerts_max) = (Fake::default(), Arc::new(AlertsMax::new(10)));
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    let (set, _) = set_of(
        &RuleSet::default(),
        "groups: [{name: g, rules: [{alert: A, expr: e}]}]",
        &alerts_max,
    );
    evaluate(set.groups().next().unwrap(), &fake, 0);
    let dry = "groups: [{name: g, state: dry_run, rules: [{alert: A, expr: e}]}]";
    let (set, _) = set_of(&set, dry, &alerts_max);
    fake.set("e", Ok(vec![]));
    let group = set.groups().next().unwrap();
    evaluate(group, &fake, MINUTE);
    assert_eq!(states(group), "1:inactive");
    evaluate(group, &fake, 17 * MINUTE);
    assert_eq!(states(group), "");
}

#[test]
fn a_thousand_reloads_leave_nothing_behind() {
    let alerts_max = Arc::new(AlertsMax::new(10));
    let fake = Fake::default();
    fake.set("e", Ok(vec![("m a=1", 5.0)]));
    let mut set = RuleSet::default();
    for i in 0..1000 {
        let text = format!(
            "groups: [{{name: g, rules: [{{alert: A, expr: e, annotations: {{i: '{i}'}}}}]}}]"
        );
        set = set_of(&set, &text, &alerts_max).0;
        set.groups()
            .for_each(|group| evaluate(group, &fake, i * MINUTE));
    }
    assert_eq!((set.groups().count(), alerts_max.used()), (1, 1));
    assert_eq!(states(set.groups().next().unwrap()), "1:firing");
}
