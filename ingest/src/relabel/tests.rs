use super::*;
use crate::admission::TeamNames;

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

fn drop_of(name: &str, state: RuleState) -> RelabelConfig {
    config("drop", &["__name__"], |config| {
        config.regex = Some(name.to_owned());
        config.state = state;
    })
}

#[test]
fn a_rule_in_shadow_counts_and_changes_nothing() {
    let rules = Rules::new(vec![
        drop_of("up", RuleState::Shadow),
        config("replace", &[], |config| {
            (config.target_label, config.replacement) = ("job".into(), Some("other".into()));
            config.state = RuleState::Shadow;
        }),
        drop_of("down", RuleState::Enforce),
    ])
    .unwrap();
    let mut acted = Vec::new();
    let up = labels(&[("__name__", "up"), ("job", "x")]);
    assert_eq!((rules.apply(up.clone(), &mut acted), &acted[..]), (Ruled::Kept(up), &[0, 1][..]));
    assert_eq!((rules.apply(labels(&[("__name__", "down")]), &mut acted), &acted[..]), (Ruled::Dropped, &[1, 2][..]));
    let other = labels(&[("__name__", "x"), ("job", "other")]);
    assert_eq!((rules.apply(other.clone(), &mut acted), &acted[..]), (Ruled::Kept(other), &[][..]));
}

#[test]
fn samples_are_counted_for_each_rule_that_had_a_hand_in_them() {
    let rules = Rules::new(vec![drop_of("a", RuleState::Shadow), drop_of("a|b", RuleState::Shadow)]).unwrap();
    let verdicts = Verdicts::new(&rules);
    let (both, second, none) =
        (verdicts.of(Team::NONE, &[0, 1]), verdicts.of(Team::NONE, &[1]), verdicts.of(Team::NONE, &[]));
    let mut tally = Tally::default();
    for _request in 0..2 {
        tally.add(both, 5);
        tally.add(second, 2);
        tally.add(none, 100);
        tally.add(both, 1);
        verdicts.count(&mut tally, &mut Vec::new());
    }
    let stats: Vec<_> = verdicts.stats(&rules).into_iter().map(|of| (of.name, of.series, of.samples)).collect();
    assert_eq!(stats, [("#0".to_owned(), 1, 12), ("#1".to_owned(), 2, 16)]);
}

#[test]
fn where_sets_of_rules_are_too_many_the_last_rule_counts() {
    let n_rules = 15;
    let rules = Rules::new((0..n_rules).map(|_| drop_of("a", RuleState::Shadow)).collect()).unwrap();
    let verdicts = Verdicts::new(&rules);
    let sets =
        (1_u32..1 << n_rules).map(|bits| (0..n_rules as u16).filter(|idx| bits >> idx & 1 == 1).collect::<Vec<_>>());
    let all: Vec<_> = sets.map(|acted| (verdicts.of(Team::NONE, &acted), acted)).collect();
    assert!(all.iter().all(|(verdict, _)| usize::from(verdict.0) < VERDICTS_MAX));
    let (last, acted) = &all[all.len() - 1];
    assert_eq!((*last, acted.len()), (verdicts.of(Team::NONE, &[14]), 15));
}

#[test]
fn what_prometheus_refuses_is_refused_in_its_words() {
    let check = |config: RelabelConfig, expect: &str| {
        let refused = Rules::new(vec![config]).unwrap_err().to_string();
        assert!(refused.contains(expect), "{refused}, expected {expect}");
    };
    let plain = |action: &str| config(action, &[], |_| ());
    check(plain("x"), "unknown relabel action \"x\"");
    check(plain(""), "relabel action cannot be empty");
    check(plain("hashmod"), "relabel configuration for hashmod requires non-zero modulus");
    for action in ["replace", "Lowercase", "uppercase", "keepequal", "dropequal"] {
        let expect = format!("for {} action requires 'target_label' value", action.to_lowercase());
        check(plain(action), &expect);
    }
    let with = |action: &str, change: fn(&mut RelabelConfig)| {
        config(action, &["a"], |config| {
            config.target_label = "b".to_owned();
            change(config);
        })
    };
    check(
        with("lowercase", |of| of.replacement = Some("x".into())),
        "'replacement' can not be set for lowercase action",
    );
    check(with("dropequal", |of| of.regex = Some("(.*)".into())), "and `target_label`, and no other fields");
    check(with("keepequal", |of| of.separator = Some(",".into())), "keepequal action requires only 'source_labels'");
    check(with("labeldrop", |_| ()), "labeldrop action requires only 'regex', and no other fields");
    check(
        with("labelmap", |of| of.replacement = Some(String::new())),
        "\"\" is invalid 'replacement' for labelmap action",
    );
    check(with("drop", |of| of.regex = Some("a(".into())), "error parsing regexp: missing closing ): `a(`");
    check(with("replace", |of| of.armed = true), "rule 0: 'armed' is for rules that drop series");
    check(with("drop", |of| of.source_labels = vec![String::new()]), "\"\" is not a valid label name");
    let named = || with("drop", |of| of.name = Some("n".into()));
    let refused = Rules::new(vec![named(), named()]).unwrap_err().to_string();
    assert_eq!(refused, "rule 1: another rule has the name \"n\"");
    let many = (0..=RULES_MAX).map(|_| with("drop", |_| ())).collect();
    assert!(Rules::new(many).is_err());
}

#[test]
fn samples_are_counted_for_teams_as_well_and_a_team_always_has_a_verdict() {
    let rules = Rules::new(vec![drop_of("a", RuleState::Shadow)]).unwrap();
    let (verdicts, mut names) = (Verdicts::new(&rules), TeamNames::default());
    let teams = ["x", "y"].map(|name| names.get(name, |_| false));
    let mut tally = Tally::default();
    for (team, acted, n) in [(teams[0], &[][..], 1), (teams[0], &[0], 2), (teams[1], &[], 4), (Team::NONE, &[0], 8)] {
        tally.add(verdicts.of(team, acted), n);
    }
    let mut by_team = Vec::new();
    verdicts.count(&mut tally, &mut by_team);
    assert_eq!(by_team, [(teams[0], 1), (teams[0], 2), (teams[1], 4)]);
    assert_eq!(verdicts.stats(&rules)[0].samples, 10);

    by_team.clear();
    for (team, n) in [(teams[1], 1), (Team::NONE, 2), (teams[1], 4)] {
        tally.add_any(verdicts.of(team, &[]), n);
    }
    verdicts.by_team(&mut tally, &mut by_team);
    assert_eq!(by_team, [(Team::NONE, 2), (teams[1], 5)]);

    (1..=VERDICTS_MAX as u16)
        .for_each(|rule| assert_eq!(verdicts.team_of(verdicts.of(teams[0], &[rule, rule + 1])), teams[0]));
    let late = names.get("late", |_| false);
    assert_eq!(verdicts.team_of(verdicts.of(late, &[0, 1])), late);
}
