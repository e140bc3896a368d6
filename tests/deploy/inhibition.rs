//! The inhibition rules of docs/mixin/training/README.md in a real Alertmanager: of the alerts of one
//! fault, exactly the cause notifies.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::mixin::{TRAINING, list, rules, string, yaml};
use super::text;
use crate::harness::{Alertmanager, missing, wait_until};

const SLOW: [&str; 5] = [
    "TrainingGpuSlow",
    "TrainingPortSlow",
    "TrainingNodeSlow",
    "TrainingFabricCongested",
    "TrainingFabricPaused",
];
const HALTED: [&str; 2] = ["TrainingJobHung", "TrainingJobIdle"];

/// A fault: the alert that names it, and those that follow from it.
struct Case {
    cause: &'static str,
    consequences: Vec<&'static str>,
    /// Only alerts of the same GPU follow from it.
    is_of_a_gpu: bool,
}

fn cases() -> Vec<Case> {
    let case = |cause, consequences: &[&[&'static str]]| Case {
        cause,
        consequences: consequences.concat(),
        is_of_a_gpu: false,
    };
    let of_a_gpu = |cause| Case {
        is_of_a_gpu: true,
        ..case(cause, &[&SLOW[..1]])
    };
    let node_slow = &SLOW[2..3];
    vec![
        case("TrainingNodeUnreachable", &[&SLOW, &HALTED]),
        case("TrainingGpuXid", &[&SLOW, &HALTED]),
        case("TrainingLinkFlapping", &[&SLOW]),
        case("TrainingLinkRateLow", &[&SLOW]),
        of_a_gpu("TrainingGpuThrottled"),
        of_a_gpu("TrainingGpuMemoryErrors"),
        of_a_gpu("TrainingGpuPcieDegraded"),
        of_a_gpu("TrainingGpuNvlinkErrors"),
        Case {
            is_of_a_gpu: true,
            ..case("TrainingGpuXidDriver", &[&SLOW[..1], &HALTED])
        },
        case("TrainingDiskFull", &[node_slow]),
        case("TrainingNodeDiskReadOnly", &[node_slow, &HALTED]),
        case("TrainingJobHalfScheduled", &[&HALTED[1..]]),
        case("TrainingImagePullSlow", &[&HALTED[1..]]),
    ]
}

/// Where an alert fires.
#[derive(Clone)]
struct Place {
    job_id: String,
    node: &'static str,
    gpu: &'static str,
}

/// Returns the rules as the README prints them.
fn printed_rules() -> String {
    let page = text("docs/mixin/training/README.md");
    let block = page.split("```yaml\ninhibit_rules:\n").nth(1);
    let block = block.expect("the README has inhibit_rules");
    let end = block.find("```").expect("the block ends");
    format!("inhibit_rules:\n{}", &block[..end])
}

/// Returns the names in a matcher such as `alertname =~ "A|B"`.
fn named(matchers: &Value) -> Vec<String> {
    assert_eq!(list(matchers).len(), 1, "{matchers}");
    let names = string(&matchers[0]).split('"').nth(1);
    let names = names.expect("the matcher has a quoted value");
    names.split('|').map(str::to_owned).collect()
}

/// Returns cause and consequence of each pair that a rule names.
fn pairs(rules: &str) -> BTreeSet<[String; 2]> {
    let config: Value = serde_yaml_ng::from_str(rules).expect("the rules are YAML");
    let mut pairs = BTreeSet::new();
    for rule in list(&config["inhibit_rules"]) {
        for cause in named(&rule["source_matchers"]) {
            for consequence in named(&rule["target_matchers"]) {
                pairs.insert([cause.clone(), consequence]);
            }
        }
    }
    pairs
}

/// Returns the labels with which an alert fires in its unit test, but at a place.
fn labels(tests: &Value, alert: &str, place: &Place) -> Map<String, Value> {
    let cases = list(&tests["tests"])
        .iter()
        .flat_map(|test| list(&test["alert_rule_test"]));
    let fired = cases
        .filter(|case| case["alertname"] == alert)
        .find_map(|case| case["exp_alerts"][0]["exp_labels"].as_object());
    let mut labels = fired
        .unwrap_or_else(|| panic!("{alert} fires in no unit test"))
        .clone();
    for (name, value) in [
        ("job_id", &*place.job_id),
        ("node", place.node),
        ("gpu", place.gpu),
    ] {
        if let Some(label) = labels.get_mut(name) {
            *label = json!(value);
        }
    }
    labels.insert("alertname".to_owned(), json!(alert));
    labels
}

/// Alerts of all cases, and those that must notify.
#[derive(Default)]
struct Posted {
    all: BTreeSet<String>,
    notifying: BTreeSet<String>,
}

impl Posted {
    fn add(&mut self, labels: Map<String, Value>, notifies: bool) {
        // Alerts without a node are the same for each place of a job.
        let labels = Value::Object(labels).to_string();
        self.all.insert(labels.clone());
        if notifies {
            self.notifying.insert(labels);
        }
    }
}

fn posted() -> Posted {
    let tests = yaml("docs/mixin/training/tests.yaml");
    let mut posted = Posted::default();
    for (i, case) in cases().iter().enumerate() {
        let here = Place {
            job_id: format!("team/job-{i}"),
            node: "gpu-0001",
            gpu: "3",
        };
        posted.add(labels(&tests, case.cause, &here), true);
        for consequence in &case.consequences {
            let inhibited = labels(&tests, consequence, &here);
            let mut others = vec![Place {
                job_id: format!("team/other-{i}"),
                ..here.clone()
            }];
            if inhibited.contains_key("node") {
                others.push(Place {
                    node: "gpu-0002",
                    ..here.clone()
                });
            }
            if case.is_of_a_gpu && inhibited.contains_key("gpu") {
                others.push(Place {
                    gpu: "4",
                    ..here.clone()
                });
            }
            posted.add(inhibited, false);
            for other in &others {
                posted.add(labels(&tests, consequence, other), true);
            }
        }
    }
    posted
}

#[test]
fn the_cases_are_those_of_the_printed_rules() {
    let mut expected = BTreeSet::new();
    for case in cases() {
        for consequence in case.consequences {
            expected.insert([case.cause.to_owned(), consequence.to_owned()]);
        }
    }
    assert_eq!(pairs(&printed_rules()), expected);
    let rules = rules(TRAINING);
    let alerts: BTreeSet<_> = rules.iter().map(|rule| string(&rule["alert"])).collect();
    for name in expected.iter().flatten() {
        assert!(alerts.contains(&**name), "{name} is no alert");
    }
}

#[test]
fn alertmanager_notifies_of_the_cause_alone() {
    if missing(&["prometheus-alertmanager"]) {
        return;
    }
    let alertmanager = Alertmanager::start_with(&printed_rules());
    let posted = posted();
    let body: Vec<Value> = posted
        .all
        .iter()
        .map(|labels| json!({"labels": serde_json::from_str::<Value>(labels).unwrap()}))
        .collect();
    alertmanager.post(&json!(body));

    let mut notifying = BTreeSet::new();
    // Alertmanager hands new alerts to its inhibitor a moment after it has accepted them.
    wait_until("the inhibition of the consequences", || {
        let alerts = alertmanager.alerts();
        let active = alerts
            .iter()
            .filter(|alert| alert["status"]["state"] != "suppressed");
        notifying = active.map(|alert| alert["labels"].to_string()).collect();
        alerts.len() == posted.all.len() && notifying.len() <= posted.notifying.len()
    });
    assert_eq!(notifying, posted.notifying);
}
