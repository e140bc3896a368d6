use std::time::Duration;

use varve_context::{Interrupt, Limit, MemoryBudget};

use super::*;
use crate::admission::Team;
use crate::relabel::AttributedSamples;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    Labels::from_unsorted(&mut pairs.to_vec()).unwrap()
}

fn config(action: &str, source: &[&str], change: impl FnOnce(&mut RelabelConfig)) -> RelabelConfig {
    let mut config = RelabelConfig {
        action: Some(action.to_owned()),
        source_labels: source.iter().map(|name| (*name).to_owned()).collect(),
        ..RelabelConfig::default()
    };
    change(&mut config);
    config
}

fn drop_of(name: &str, state: RelabelRuleState) -> RelabelConfig {
    config("drop", &["__name__"], |config| {
        config.regex = Some(name.to_owned());
        config.state = state;
    })
}

#[test]
fn a_rule_in_dry_run_counts_and_changes_nothing() {
    let rules = Relabeling::new(vec![
        drop_of("up", RelabelRuleState::DryRun),
        config("replace", &[], |config| {
            (config.target_label, config.replacement) = ("job".into(), Some("other".into()));
            config.state = RelabelRuleState::DryRun;
        }),
        drop_of("down", RelabelRuleState::Enforce),
    ])
    .unwrap();
    let mut matched = Vec::new();
    let up = labels(&[("__name__", "up"), ("job", "x")]);
    assert_eq!(
        (rules.apply(up.clone(), &[], &mut matched), &matched[..]),
        (Ok(Some(up)), &[0, 1][..])
    );
    assert_eq!(
        (
            rules.apply(labels(&[("__name__", "down")]), &[], &mut matched),
            &matched[..]
        ),
        (Ok(None), &[1, 2][..])
    );
    let other = labels(&[("__name__", "x"), ("job", "other")]);
    assert_eq!(
        (rules.apply(other.clone(), &[], &mut matched), &matched[..]),
        (Ok(Some(other)), &[][..])
    );
}

#[test]
fn samples_are_counted_for_each_rule_that_matched() {
    let rules = Relabeling::new(vec![
        drop_of("a", RelabelRuleState::DryRun),
        drop_of("a|b", RelabelRuleState::DryRun),
    ])
    .unwrap();
    let active = ActiveRelabeling::new(rules, 0);
    let [both, second, none] =
        [&[0, 1][..], &[1], &[]].map(|rules| active.attributions.of(Team::NONE, rules));
    let mut samples = AttributedSamples::default();
    for _request in 0..2 {
        samples.add(both, 5);
        samples.add(second, 2);
        samples.add(none, 100);
        samples.add(both, 1);
        active.attributions.count(&mut samples, &mut Vec::new());
    }
    let stats: Vec<_> = active
        .stats()
        .into_iter()
        .map(|rule| (rule.name, rule.series, rule.samples))
        .collect();
    assert_eq!(stats, [("#0".to_owned(), 1, 12), ("#1".to_owned(), 2, 16)]);
}

#[test]
fn invalid_rules_are_refused_in_the_words_of_prometheus() {
    let check = |config: RelabelConfig, expect: &str| {
        let refused = Relabeling::new(vec![config]).unwrap_err().to_string();
        assert!(refused.contains(expect), "{refused}, expected {expect}");
    };
    let plain = |action: &str| config(action, &[], |_| ());
    check(plain("x"), "unknown relabel action \"x\"");
    check(plain(""), "unknown relabel action \"\"");
    check(
        plain("hashmod"),
        "relabel configuration for hashmod requires non-zero modulus",
    );
    for action in [
        "replace",
        "Lowercase",
        "uppercase",
        "keepequal",
        "dropequal",
    ] {
        let expect = format!(
            "for {} action requires 'target_label' value",
            action.to_lowercase()
        );
        check(plain(action), &expect);
    }
    let with = |action: &str, change: fn(&mut RelabelConfig)| {
        config(action, &["a"], |config| {
            config.target_label = "b".to_owned();
            change(config);
        })
    };
    check(
        with("lowercase", |rule| rule.replacement = Some("x".into())),
        "'replacement' can not be set for lowercase action",
    );
    check(
        with("dropequal", |rule| rule.regex = Some("(.*)".into())),
        "and `target_label`, and no other fields",
    );
    check(
        with("keepequal", |rule| rule.separator = Some(",".into())),
        "keepequal action requires only 'source_labels'",
    );
    check(
        with("labeldrop", |_| ()),
        "labeldrop action requires only 'regex', and no other fields",
    );
    check(
        with("labelmap", |rule| rule.replacement = Some(String::new())),
        "\"\" is invalid 'replacement' for labelmap action",
    );
    check(
        with("drop", |rule| rule.regex = Some("a(".into())),
        "error parsing regexp: missing closing ): `a(`",
    );
    check(
        with("replace", |rule| rule.disable_on_use = true),
        "rule 0: 'disable_on_use' is only for rules that drop series",
    );
    check(
        with("drop", |rule| rule.source_labels = vec![String::new()]),
        "\"\" is not a valid label name",
    );
    let named = || with("drop", |rule| rule.name = Some("n".into()));
    let refused = Relabeling::new(vec![named(), named()])
        .unwrap_err()
        .to_string();
    assert_eq!(refused, "rule 1: another rule has the name \"n\"");
    let many = (0..=RELABEL_RULES_MAX)
        .map(|_| with("drop", |_| ()))
        .collect();
    assert!(Relabeling::new(many).is_err());
}

/// The memory was charged after it was allocated, so that a reader with such rules ended the
/// process.
#[test]
fn a_preview_charges_strings_before_it_creates_them() {
    let value = "x".repeat(1 << 20);
    let series = labels(&[("__name__", "up"), ("a", &value), (&value, "b")]);
    let references = || Some("$1".repeat(1 << 20));
    let replace = |change: fn(&mut RelabelConfig)| config("replace", &["a"], change);
    let of_template = RelabelConfig {
        replacement: references(),
        ..replace(|config| config.target_label = "b".into())
    };
    let of_target = RelabelConfig {
        target_label: "$1".repeat(1 << 20),
        ..replace(|_| ())
    };
    let joined = config("hashmod", &["a"; 1 << 20], |config| {
        (config.target_label, config.modulus) = ("b".into(), 2)
    });
    let mapped = RelabelConfig {
        replacement: references(),
        ..config("labelmap", &[], |_| ())
    };
    for config in [of_template, of_target, joined, mapped] {
        let rules = Relabeling::new(vec![config]).unwrap();
        let ctx = limited(1 << 40);
        let previewed = rules.preview(&ctx, &series, &mut ctx.charge());
        assert!(
            previewed.is_err(),
            "{:?}",
            previewed.map(|preview| preview.steps.len())
        );
    }
    let ctx = limited(1_000);
    let rules = Relabeling::new(vec![config("uppercase", &["__name__"], |config| {
        config.target_label = "a".into()
    })]);
    let up = labels(&[("__name__", "up")]);
    let preview = rules.unwrap().preview(&ctx, &up, &mut ctx.charge());
    assert_eq!(
        preview.unwrap().result.unwrap().unwrap().get("a"),
        Some("UP")
    );
}

fn limited(size_max: usize) -> QueryContext {
    let memory = MemoryBudget::new(Limit::Other("memory"), size_max);
    QueryContext::new(Duration::from_secs(60), memory)
}

/// The patterns of a reader's rules were compiled and matched without limits: a few hundred of them
/// ended the process.
#[test]
fn the_patterns_of_a_preview_are_charged_and_end_at_its_deadline() {
    let series = labels(&[("__name__", "up"), ("a", &"x".repeat(1 << 20))]);
    let pattern = || Some("(\\pL{1,30}){1,9}y".to_owned());
    let of_action = RelabelConfig {
        regex: pattern(),
        ..config("drop", &["a"], |_| ())
    };
    let of_template = RelabelConfig {
        regex: pattern(),
        replacement: Some("$1".to_owned()),
        ..config("replace", &["a"], |config| config.target_label = "b".into())
    };
    let of_name = RelabelConfig {
        regex: pattern(),
        ..config("labeldrop", &[], |_| ())
    };
    let renamed = RelabelConfig {
        regex: pattern(),
        replacement: Some("$1".to_owned()),
        ..config("labelmap", &[], |_| ())
    };
    for config in [of_action, of_template, of_name, renamed] {
        let rules = Relabeling::new(vec![config]).unwrap();
        // The strings have this much memory, the patterns do not.
        let strings = QueryContext::unbounded();
        let ctx = limited(100_000);
        let refused = rules.preview(&ctx, &series, &mut strings.charge());
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("exceeds the limit of 100000"), "{error}");

        let ended = QueryContext::unbounded();
        ended.interrupt(Interrupt::Canceled);
        let refused = rules.preview(&ended, &series, &mut strings.charge());
        assert_eq!(
            refused.unwrap_err().to_string(),
            Interrupt::Canceled.to_string()
        );
    }
}
