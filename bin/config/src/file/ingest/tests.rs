use varve_model::Labels;

use super::*;

fn parse(text: &str) -> Result<Relabeling> {
    serde_yaml_ng::from_str::<IngestConfig>(text)?.relabeling()
}

#[track_caller]
fn rejected(text: &str, expect: &str) {
    let rejected = format!("{:#}", parse(text).unwrap_err());
    assert!(
        rejected.contains(expect),
        "{text}: {rejected}, expected {expect}"
    );
}

#[test]
fn errors_name_their_place() {
    rejected(
        "{metric_relabel_configs: [{action: drop, x: 1}]}",
        "unknown field `x`",
    );
    rejected(
        "{metric_relabel_configs: [{action: drop, state: on}]}",
        "state",
    );
    rejected(
        "{metric_relabel_configs: [{target_label: a, disable_on_use: true}]}",
        "'disable_on_use' is only for rules that drop series",
    );
    rejected(
        "{presets: [x]}",
        "unknown preset \"x\", known are: kube-prometheus",
    );
    rejected(
        "{metric_relabel_configs: [{action: keep}, {action: nothing}]}",
        "rule 1: unknown relabel action \"nothing\"",
    );
}

#[test]
fn budgets_are_read_and_checked() {
    let parse = |text: &str| {
        serde_yaml_ng::from_str::<IngestConfig>(text)
            .map_err(anyhow::Error::from)?
            .budgets()
    };
    let text = "{team_label: namespace, budget: {active_series: 100}, team_maximum: {samples_per_second: 5}, \
                teams: {a: {guaranteed: {active_series: 60}, senders: [x]}, \
                '': {maximum: {new_series_per_second: 1}}}}";
    let budgets = parse(text).unwrap();
    assert_eq!(
        (budgets.team_label.as_deref(), budgets.total.active_series),
        (Some("namespace"), Some(100))
    );
    assert_eq!(budgets.teams["a"].guaranteed.active_series, Some(60));
    assert_eq!(
        budgets.senders,
        [("a".to_owned(), ["x".to_owned()].into())].into()
    );
    assert_eq!(budgets.teams[""].maximum.new_series_per_second, Some(1));
    assert_eq!(
        (
            budgets.team_maximum.samples_per_second,
            budgets.team_maximum.active_series
        ),
        (Some(5), None)
    );
    let printed =
        serde_yaml_ng::to_string(&serde_yaml_ng::from_str::<IngestConfig>(text).unwrap()).unwrap();
    assert_eq!(parse(&printed).unwrap(), budgets);
    assert_eq!(parse("{}").unwrap(), Budgets::default());
    for (text, expect) in [
        ("{budget: {series: 1}}", "unknown field `series`"),
        ("{teams: {a: {minimum: {}}}}", "unknown field `minimum`"),
        (
            "{budget: {active_series: 0}}",
            "ingest: budget.active_series: must be from 1 to",
        ),
        ("{budget: {active_series: -1}}", "budget.active_series"),
        (
            "{budget: {active_series: 9}, teams: {a: {guaranteed: {active_series: 10}}}}",
            "all guarantees, 10, exceed the budget 9",
        ),
    ] {
        let rejected = format!("{:#}", parse(text).unwrap_err());
        assert!(
            rejected.contains(expect),
            "{text}: {rejected}, expected {expect}"
        );
    }
}

#[test]
fn ha_labels_default_to_those_of_the_operator() {
    let ha = |text: &str| {
        serde_yaml_ng::from_str::<IngestConfig>(text)
            .map_err(anyhow::Error::from)?
            .ha()
    };
    assert_eq!(ha("{}").unwrap(), None);
    let settings = ha("{ha: {}}").unwrap().unwrap();
    assert_eq!(
        (&*settings.cluster_label, &*settings.replica_label),
        ("prometheus", "prometheus_replica")
    );
    assert_eq!(settings.failover_timeout.as_secs(), 30);
    for (text, expect) in [
        ("{ha: {x: 1}}", "unknown field `x`"),
        (
            "{ha: {cluster_label: ''}}",
            "ingest.ha.cluster_label: is empty or __name__",
        ),
        (
            "{ha: {replica_label: __name__}}",
            "ingest.ha.replica_label: is empty or __name__",
        ),
        ("{ha: {replica_label: prometheus}}", "are the same"),
        ("{ha: {failover_timeout: 500ms}}", "must be from 1s to 1h"),
        ("{ha: {failover_timeout: 2h}}", "must be from 1s to 1h"),
    ] {
        let rejected = ha(text).unwrap_err().to_string();
        assert!(rejected.contains(expect), "{text}: {rejected}");
    }
}

#[test]
fn scalars_of_any_type_are_strings() {
    let rules = parse(
        "{metric_relabel_configs: [{target_label: a, replacement: 1}, {target_label: b, replacement: true}]}",
    );
    let left = rules
        .unwrap()
        .relabel(&labels(r#"{"__name__": "up"}"#))
        .unwrap()
        .unwrap();
    assert_eq!(left.to_string(), r#"{__name__="up", a="1", b="true"}"#);
}

#[test]
fn the_preset_drops_what_kube_prometheus_drops() {
    let rules = parse("{presets: [kube-prometheus]}").unwrap();
    let is_dropped = |text: &str| rules.relabel(&labels(text)).unwrap().is_none();
    for (text, expect) in [
        (
            r#"{"__name__": "container_tasks_state", "job": "kubelet"}"#,
            true,
        ),
        (
            r#"{"__name__": "container_tasks_state", "job": "other"}"#,
            false,
        ),
        (
            r#"{"__name__": "container_tasks_state", "job": "kubelet", "metrics_path": "/metrics/cadvisor"}"#,
            true,
        ),
        (
            r#"{"__name__": "container_tasks_state", "job": "kubelet", "metrics_path": "/metrics/probes"}"#,
            false,
        ),
        (
            r#"{"__name__": "container_last_seen", "job": "kubelet"}"#,
            true,
        ),
        (
            r#"{"__name__": "container_last_seen", "job": "kubelet", "pod": "p", "namespace": "n"}"#,
            false,
        ),
        (
            r#"{"__name__": "apiserver_request_duration_seconds_bucket", "job": "apiserver", "le": "0.15"}"#,
            true,
        ),
        (
            r#"{"__name__": "apiserver_request_duration_seconds_bucket", "job": "apiserver", "le": "1"}"#,
            false,
        ),
        (
            r#"{"__name__": "process_start_time_seconds", "job": "kubelet", "metrics_path": "/metrics/slis"}"#,
            true,
        ),
        (
            r#"{"__name__": "process_start_time_seconds", "job": "kubelet", "metrics_path": "/metrics"}"#,
            false,
        ),
        (
            r#"{"__name__": "process_start_time_seconds", "job": "other", "metrics_path": "/metrics/slis"}"#,
            false,
        ),
        (
            r#"{"__name__": "kube_pod_info", "job": "kube-state-metrics"}"#,
            false,
        ),
    ] {
        assert_eq!(is_dropped(text), expect, "{text}");
    }
}

/// `golden.txt` has configurations and the results of a real Prometheus. `tests/ingest/relabel.rs`
/// checks that they are current.
#[test]
fn rules_match_the_results_of_prometheus() {
    let golden = include_str!("../../../../../tests/data/relabel/golden.txt");
    let (mut rules, mut series, mut wrong, mut n_rows) =
        (Relabeling::default(), Vec::new(), Vec::new(), 0);
    let mut case = "";
    for line in golden.lines() {
        let (key, rest) = line.split_once(' ').unwrap();
        match key {
            "series" => series.push(labels(rest)),
            "case" => {
                case = rest;
                let configs = serde_json::from_str(rest).unwrap();
                rules = IngestConfig {
                    metric_relabel_configs: configs,
                    ..IngestConfig::default()
                }
                .relabeling()
                .unwrap();
            }
            idx => {
                let left = rules.relabel(&series[idx.parse::<usize>().unwrap()]);
                // Prometheus sends labels with an empty name, but no store accepts them.
                let agrees = match (rest, &left) {
                    ("-", left) => matches!(left, Ok(None)),
                    (_, Ok(Some(left))) => !rest.contains("\"\":") && *left == labels(rest),
                    (_, left) => rest.contains("\"\":") && left.is_err(),
                };
                n_rows += 1;
                if !agrees {
                    wrong.push(format!("{case}\n  series {idx}: {left:?}, expected {rest}"));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {n_rows} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(n_rows > 700, "{n_rows} rows");
}

fn labels(json: &str) -> Labels {
    let pairs: std::collections::BTreeMap<String, String> = serde_json::from_str(json).unwrap();
    let mut pairs: Vec<_> = pairs
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    Labels::from_unsorted(&mut pairs).unwrap()
}
