//! Rules that fall back, on their way through the pipeline.

use super::*;
use crate::relabel::{Fallen, RelabelConfig, RuleState};

fn armed_drop(job: &str) -> RelabelConfig {
    RelabelConfig {
        source_labels: vec!["job".to_owned()],
        regex: Some(job.to_owned()),
        action: Some("drop".to_owned()),
        armed: true,
        ..RelabelConfig::default()
    }
}

fn set(fixture: &Fixture, rules: Vec<RelabelConfig>) {
    fixture.receiver.set_rules(Rules::new(rules).unwrap());
}

/// Asks for the metric `up`, of a job or of all.
fn ask(fixture: &Fixture, job: Option<&str>) -> Vec<String> {
    let name = Matcher::equal("__name__", "up");
    let matchers: Vec<_> = [name].into_iter().chain(job.map(|job| Matcher::equal("job", job))).collect();
    let fallen = || Fallen { at_ms: T, selector: "up".to_owned(), who: "test".to_owned() };
    fixture.receiver.note_asked(&matchers, fallen)
}

#[test]
fn a_rule_falls_back_once_somebody_asks_for_what_it_drops_and_stays_so() {
    let fixture = Fixture::new(Limits::default());
    set(&fixture, vec![armed_drop("a"), armed_drop("b")]);
    let write = |t: i64| {
        let written = fixture.write(&[up("a", &[(T + t, 1.0)]), up("b", &[(T + t, 1.0)])]).unwrap();
        (written.samples_stored, written.samples_dropped)
    };
    assert_eq!((write(0), write(1)), ((0, 2), (0, 2)));
    assert!(ask(&fixture, Some("c")).is_empty());
    assert_eq!(ask(&fixture, Some("a")), ["#0"]);
    assert!(ask(&fixture, Some("a")).is_empty());
    assert_eq!((write(2), write(3)), ((1, 1), (1, 1)));
    let stats = fixture.receiver.rule_stats();
    assert_eq!((stats[0].state, stats[0].samples, stats[0].fallen.is_some()), (RuleState::Shadow, 4, true));
    assert_eq!((stats[1].state, stats[1].samples, stats[1].armed), (RuleState::Enforce, 4, true));
    // A rule that is loaded again as it was stays in shadow, one that has changed is armed anew.
    set(&fixture, vec![armed_drop("a"), armed_drop("b")]);
    assert_eq!(write(4), (1, 1));
    set(&fixture, vec![armed_drop("a|c"), armed_drop("b")]);
    assert_eq!(write(5), (0, 2));
    assert_eq!(ask(&fixture, None), ["#0", "#1"]);
    assert_eq!(write(6), (2, 0));
}
