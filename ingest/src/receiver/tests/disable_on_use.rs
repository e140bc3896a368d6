//! Rules with `disable_on_use`, in a receiver.

use super::*;
use crate::relabel::{DisabledByUse, RuleState};

fn drop_job(job: &str) -> RelabelConfig {
    RelabelConfig { disable_on_use: true, ..drop_where("job", job) }
}

fn set(fixture: &Fixture, rules: Vec<RelabelConfig>) {
    fixture.receiver.set_rules(Rules::new(rules).unwrap());
}

/// Queries the metric `up`, of one job or of all.
fn query(fixture: &Fixture, job: Option<&str>) -> Vec<String> {
    let name = Matcher::equal("__name__", "up");
    let matchers: Vec<_> = [name].into_iter().chain(job.map(|job| Matcher::equal("job", job))).collect();
    let by = || DisabledByUse { at_ms: T, selector: "up".to_owned(), who: "test".to_owned() };
    fixture.receiver.note_use(&matchers, by)
}

#[test]
fn a_query_for_what_a_rule_drops_disables_the_rule() {
    let fixture = Fixture::new(Limits::default());
    set(&fixture, vec![drop_job("a"), drop_job("b")]);
    let write = |t: i64| {
        let written = fixture.write(&[up("a", &[(T + t, 1.0)]), up("b", &[(T + t, 1.0)])]).unwrap();
        (written.stored.total, written.dropped.total)
    };
    assert_eq!((write(0), write(1)), ((0, 2), (0, 2)));
    assert!(query(&fixture, Some("c")).is_empty());
    assert_eq!(query(&fixture, Some("a")), ["#0"]);
    assert!(query(&fixture, Some("a")).is_empty());
    assert_eq!((write(2), write(3)), ((1, 1), (1, 1)));
    let stats = fixture.receiver.rule_stats();
    assert_eq!((stats[0].state, stats[0].samples, stats[0].disabled_by_use.is_some()), (RuleState::DryRun, 4, true));
    assert_eq!((stats[1].state, stats[1].samples, stats[1].disable_on_use), (RuleState::Enforce, 4, true));
    // An unchanged rule stays disabled when it is loaded again; a changed one is a new rule.
    set(&fixture, vec![drop_job("a"), drop_job("b")]);
    assert_eq!(write(4), (1, 1));
    set(&fixture, vec![drop_job("a|c"), drop_job("b")]);
    assert_eq!(write(5), (0, 2));
    assert_eq!(query(&fixture, None), ["#0", "#1"]);
    assert_eq!(write(6), (2, 0));
}
