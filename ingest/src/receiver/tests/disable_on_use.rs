//! Rules with `disable_on_use`, in a receiver.

use varve_model::MatchOp;

use super::*;
use crate::relabel::{DisabledByUse, DroppingRelabelRule, EnabledRelabelRule, RelabelRuleState};

fn drop_job(job: &str) -> RelabelConfig {
    RelabelConfig {
        disable_on_use: true,
        ..drop_where("job", job)
    }
}

fn set(fixture: &Fixture, rules: Vec<RelabelConfig>) {
    fixture
        .receiver
        .set_relabeling(Relabeling::new(rules).unwrap());
}

/// Queries the metric `up`, of one job or of all. Returns the names of the rules whose first use
/// this is.
fn query(fixture: &Fixture, job: Option<&str>) -> Vec<String> {
    let name = Matcher::equal("__name__", "up");
    let matchers: Vec<_> = [name]
        .into_iter()
        .chain(job.map(|job| Matcher::equal("job", job)))
        .collect();
    select(fixture, &matchers)
}

fn select(fixture: &Fixture, matchers: &[Matcher]) -> Vec<String> {
    let by = || DisabledByUse {
        at_ms: T,
        selector: "up".to_owned(),
        who: "test".to_owned(),
    };
    let used = fixture
        .receiver
        .note_use(&ReadContext::unbounded(), matchers, by)
        .unwrap();
    used.into_iter().map(|rule| rule.name).collect()
}

#[test]
fn a_query_for_what_a_rule_drops_disables_the_rule() {
    let fixture = Fixture::new(Limits::for_tests());
    set(&fixture, vec![drop_job("a"), drop_job("b")]);
    let write = |t: i64| {
        let written = fixture
            .write(&[up("a", &[(T + t, 1.0)]), up("b", &[(T + t, 1.0)])])
            .unwrap();
        (written.stored.total, written.dropped.total)
    };
    assert_eq!((write(0), write(1)), ((0, 2), (0, 2)));
    assert!(query(&fixture, Some("c")).is_empty());
    assert_eq!(query(&fixture, Some("a")), ["#0"]);
    assert!(query(&fixture, Some("a")).is_empty());
    assert_eq!((write(2), write(3)), ((1, 1), (1, 1)));
    let stats = fixture.receiver.relabel_rule_stats();
    assert_eq!(
        (
            stats[0].state,
            stats[0].samples,
            stats[0].disabled_by_use.is_some()
        ),
        (RelabelRuleState::DryRun, 4, true)
    );
    assert_eq!(
        (stats[1].state, stats[1].samples, stats[1].disable_on_use),
        (RelabelRuleState::Enforce, 4, true)
    );
    // An unchanged rule stays disabled when it is loaded again; a changed one is a new rule.
    set(&fixture, vec![drop_job("a"), drop_job("b")]);
    assert_eq!(write(4), (1, 1));
    set(&fixture, vec![drop_job("a|c"), drop_job("b")]);
    assert_eq!(write(5), (0, 2));
    assert_eq!(query(&fixture, None), ["#0", "#1"]);
    assert_eq!(write(6), (2, 0));
}

#[test]
fn only_a_query_that_names_the_metric_disables_a_rule_by_default() {
    use MatchOp::{Equal, NotEqual, Regexp};
    let matcher = |(op, name, value): (MatchOp, &str, &str)| Matcher::new(op, name, value).unwrap();
    let check = |nameless: bool, selector: &[(MatchOp, &str, &str)], disables: bool| {
        let fixture = Fixture::new(Limits::for_tests());
        set(
            &fixture,
            vec![RelabelConfig {
                disable_on_nameless_use: nameless,
                ..drop_job("a")
            }],
        );
        fixture.write(&[up("a", &[(T, 1.0)])]).unwrap();
        let matchers: Vec<_> = selector.iter().copied().map(matcher).collect();
        assert_eq!(
            select(&fixture, &matchers).len(),
            usize::from(disables),
            "{nameless} {selector:?}"
        );
    };
    for named in [
        &[(Equal, "__name__", "up")][..],
        &[(Regexp, "__name__", "up|down"), (Equal, "job", "a")],
    ] {
        check(false, named, true);
    }
    for nameless in [
        &[(Regexp, "__name__", ".+")][..],
        &[(Regexp, "__name__", "up.*")],
        &[(Regexp, "__name__", "up|")],
        &[(NotEqual, "__name__", "down")],
        &[(Equal, "job", "a")],
    ] {
        check(false, nameless, false);
        check(true, nameless, true);
    }
    let needs = RelabelConfig {
        disable_on_nameless_use: true,
        ..drop_where("job", "a")
    };
    assert!(
        Relabeling::new(vec![needs])
            .unwrap_err()
            .to_string()
            .contains("needs 'disable_on_use'")
    );
}

#[test]
fn a_dry_run_records_the_query_that_would_have_disabled_the_rule() {
    let fixture = Fixture::new(Limits::for_tests());
    set(
        &fixture,
        vec![
            RelabelConfig {
                state: RelabelRuleState::DryRun,
                ..drop_job("a")
            },
            drop_job("b"),
        ],
    );
    let write = |t: i64| {
        fixture
            .write(&[up("a", &[(T + t, 1.0)]), up("b", &[(T + t, 1.0)])])
            .unwrap()
            .stored
            .total
    };
    assert_eq!(
        (write(0), query(&fixture, Some("a"))),
        (1, vec!["#0".to_owned()])
    );
    let used = || {
        let stats = fixture.receiver.relabel_rule_stats();
        stats.into_iter().map(|rule| {
            (
                rule.disabled_by_use.is_some(),
                rule.would_be_disabled_by.is_some(),
            )
        })
    };
    assert!(used().eq([(false, true), (false, false)]));
    let enabled = EnabledRelabelRule {
        was_used: true,
        state: RelabelRuleState::DryRun,
    };
    assert_eq!(fixture.receiver.enable_relabel_rule("#0"), Some(enabled));
    // Neither changes the effect of a rule, so rules do not count their series again.
    assert!(
        fixture
            .receiver
            .relabel_rule_stats()
            .iter()
            .all(|rule| rule.series == 1)
    );
    assert!(used().eq([(false, false), (false, false)]));
}

#[test]
fn an_enabled_rule_drops_again_until_the_next_use() {
    let fixture = Fixture::new(Limits::for_tests());
    set(&fixture, vec![drop_job("a")]);
    let write = |t: i64| {
        fixture
            .write(&[up("a", &[(T + t, 1.0)])])
            .unwrap()
            .stored
            .total
    };
    let dropping_for = |matcher| {
        fixture
            .receiver
            .relabel_rules_dropping(&ReadContext::unbounded(), &[matcher])
            .unwrap()
    };
    let dropping = || dropping_for(Matcher::equal("__name__", "up"));
    let by = |is_disabled| {
        vec![DroppingRelabelRule {
            name: "#0".to_owned(),
            is_disabled,
        }]
    };
    assert_eq!((write(0), dropping()), (0, by(false)));
    query(&fixture, Some("a"));
    assert_eq!(
        (write(1), dropping()),
        (1, by(true)),
        "a query needs to know why its result is empty"
    );
    let enable = |name| {
        fixture
            .receiver
            .enable_relabel_rule(name)
            .map(|rule| (rule.was_used, rule.state))
    };
    assert_eq!(enable("unknown"), None);
    assert_eq!(
        (enable("#0"), write(2), dropping().len()),
        (Some((true, RelabelRuleState::Enforce)), 0, 1)
    );
    assert_eq!(
        (enable("#0"), write(3)),
        (Some((false, RelabelRuleState::Enforce)), 0)
    );
    assert!(
        dropping_for(Matcher::equal("job", "a")).is_empty(),
        "not by name"
    );
    assert_eq!(
        (query(&fixture, None), write(4)),
        (vec!["#0".to_owned()], 1)
    );
    assert_eq!(
        fixture.receiver.relabel_rule_stats()[0].series,
        1,
        "one label set, which was resolved four times"
    );
}

/// A rule that dropped the series of one tenant was disabled by a query of another one, whose
/// result is empty with and without the rule.
#[test]
fn a_query_of_a_tenant_disables_only_rules_that_drop_its_series() {
    let fixture = Fixture::new(Limits::for_tests());
    set(&fixture, vec![drop_job("a")]);
    fixture
        .receiver
        .set_tenant_label_names(&["team".to_owned()]);
    let write = |team: &str, t: i64| {
        let sent = series(
            &[("__name__", "up"), ("job", "a"), ("team", team)],
            &[(T + t, 1.0)],
        );
        fixture.write(&[sent]).unwrap().stored.total
    };
    let query_of = |team: &str| {
        let ctx = ReadContext::restricted(
            varve_context::QueryContext::unbounded(),
            [Matcher::equal("team", team)].into(),
        );
        let by = || DisabledByUse {
            at_ms: T,
            selector: "up".to_owned(),
            who: "test".to_owned(),
        };
        let used = fixture
            .receiver
            .note_use(&ctx, &[Matcher::equal("__name__", "up")], by);
        used.unwrap().len()
    };
    assert_eq!((write("b", 0), query_of("a")), (0, 0));
    assert_eq!(write("b", 1), 0, "the rule stays enabled");
    assert_eq!((query_of("b"), write("b", 2)), (1, 1));
}

#[test]
fn labels_of_new_tenants_are_remembered_from_the_next_sample_on() {
    let fixture = Fixture::new(Limits::for_tests());
    set(&fixture, vec![drop_job("a")]);
    fixture.write(&[up("a", &[(T, 1.0)])]).unwrap();
    let uses = || {
        let ctx = ReadContext::restricted(
            varve_context::QueryContext::unbounded(),
            [Matcher::equal("team", "")].into(),
        );
        let used = fixture
            .receiver
            .note_use(&ctx, &[Matcher::equal("__name__", "up")], || {
                DisabledByUse {
                    at_ms: T,
                    selector: "up".to_owned(),
                    who: "test".to_owned(),
                }
            });
        used.unwrap().len()
    };
    assert_eq!(uses(), 0, "nobody knows whose series was dropped");
    fixture
        .receiver
        .set_tenant_label_names(&["team".to_owned()]);
    fixture.write(&[up("a", &[(T + 1, 1.0)])]).unwrap();
    assert_eq!(uses(), 1);
}

/// Footprints without the label of a new tenant used up the limit, though nobody could use them.
#[test]
fn footprints_without_the_label_of_a_new_tenant_make_room() {
    let fixture = Fixture::new(Limits::for_tests());
    fixture.receiver.set_tenant_label_names(&["pod".to_owned()]);
    let rule = RelabelConfig {
        disable_on_use: true,
        ..drop_where("__name__", "m")
    };
    set(&fixture, vec![rule]);
    let dropped: Vec<_> = (0..5_000)
        .map(|pod| series(&[("__name__", "m"), ("pod", &pod.to_string())], &[(T, 1.0)]))
        .collect();
    fixture.write(&dropped).unwrap();
    assert_eq!(fixture.receiver.n_footprints(), 1 + 4_096);
    let names = ["team".to_owned()];
    fixture.receiver.set_tenant_label_names(&names);
    assert_eq!(fixture.receiver.n_footprints(), 1);
    let of_team = [("__name__", "m"), ("pod", "0"), ("team", "a")];
    fixture.write(&[series(&of_team, &[(T + 1, 1.0)])]).unwrap();
    assert_eq!(fixture.receiver.n_footprints(), 1 + 1);
}

/// Each value of a label that the matchers of a tenant name took one footprint of the rule, until
/// none was left for other metrics.
#[test]
fn the_labels_of_tenants_do_not_use_up_the_footprints_of_a_rule() {
    let fixture = Fixture::new(Limits::for_tests());
    fixture.receiver.set_tenant_label_names(&["pod".to_owned()]);
    let rule = RelabelConfig {
        disable_on_use: true,
        ..drop_where("__name__", "m_.*")
    };
    set(&fixture, vec![rule]);
    let n_pods = 5_000;
    let mut dropped = Vec::new();
    for pod in 0..n_pods {
        let pod = pod.to_string();
        dropped.push(series(&[("__name__", "m_a"), ("pod", &pod)], &[(T, 1.0)]));
    }
    dropped.push(series(&[("__name__", "m_b"), ("pod", "0")], &[(T, 1.0)]));
    assert_eq!(fixture.write(&dropped).unwrap().dropped.total, n_pods + 1);
    // 2 for requests without tenant, 4,096 for those of tenants.
    assert_eq!(fixture.receiver.n_footprints(), 2 + 4_096);
    assert_eq!(fixture.receiver.n_refused_footprints(), n_pods + 1 - 4_096);
    let used_by_tenant = |pod: &str| {
        let restriction = [Matcher::equal("pod", pod)];
        let ctx = ReadContext::restricted(QueryContext::unbounded(), restriction.into());
        let by = || DisabledByUse {
            at_ms: T,
            selector: "m_a".to_owned(),
            who: "test".to_owned(),
        };
        let used = fixture
            .receiver
            .note_use(&ctx, &[Matcher::equal("__name__", "m_a")], by)
            .unwrap();
        used.len()
    };
    assert_eq!(used_by_tenant("another"), 0);
    assert_eq!(
        select(&fixture, &[Matcher::equal("__name__", "m_b")]),
        ["#0"]
    );
}
