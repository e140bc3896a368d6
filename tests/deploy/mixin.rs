//! docs/mixin: alerts, dashboards and runbooks of Varve and of a cluster, and the names that
//! Prometheus' own dashboards and alerts expect.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use varve_bench::{Fleet, FleetOptions};

use super::{repository_path, text};
use crate::harness::kube_prometheus::{is_there, shared};
use crate::harness::{ConfigFile, Server, WriteRequest, now_ms, series, wait_until};

pub(super) const MIXIN: &str = "docs/mixin/alerts.yaml";
pub(super) const CLUSTER: &str = "docs/mixin/cluster/rules.yaml";
/// The place where the repository is published: a placeholder.
const PUBLISHED: &str = "https://varve.example.com/";
pub(super) const TRAINING: &str = "docs/mixin/training/alerts.yaml";
/// The node exporter exports these on nodes with InfiniBand, of which no scrape is recorded.
const INFINIBAND: [&str; 5] = [
    "node_infiniband_link_downed_total",
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_data_transmitted_bytes_total",
    "node_infiniband_port_errors_received_total",
    "node_infiniband_rate_bytes_per_second",
];

/// API servers export these; the fleet has the newer name of the first, and one etcd.
const APISERVER: [&str; 3] = [
    "apiserver_storage_objects",
    "apiserver_storage_size_bytes",
    "apiserver_flowcontrol_dispatched_requests_total",
];

/// The Python package iptables-exporter exports it; the fleet has another exporter.
const IPTABLES_EXPORTER: &str = "iptables_bytes_total";

/// Returns the files of a directory of the repository.
pub(super) fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(suffix));
    paths.sort();
    paths
}

pub(super) fn yaml(path: &str) -> Value {
    serde_yaml_ng::from_str(&text(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

pub(super) fn list(of: &Value) -> &[Value] {
    of.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn string(of: &Value) -> &str {
    of.as_str().unwrap_or_default()
}

/// Returns all rules of a file.
pub(super) fn rules(path: &str) -> Vec<Value> {
    list(&yaml(path)["groups"])
        .iter()
        .flat_map(|group| list(&group["rules"]).to_vec())
        .collect()
}

/// Returns the queries of a dashboard: of panels with their titles, and of variables.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let of_panel = |panel: &Value| -> Vec<_> {
        let title = string(&panel["title"]).to_owned();
        list(&panel["targets"])
            .iter()
            .map(|target| (title.clone(), string(&target["expr"]).to_owned()))
            .collect()
    };
    let inner = |panel: &Value| {
        list(&panel["panels"])
            .iter()
            .flat_map(of_panel)
            .collect::<Vec<_>>()
    };
    let panels = list(&dashboard["panels"])
        .iter()
        .flat_map(|panel| [of_panel(panel), inner(panel)].concat());
    let variables = list(&dashboard["templating"]["list"])
        .iter()
        .filter_map(|variable| {
            let selector = string(&variable["definition"])
                .strip_prefix("label_values(")?
                .rsplit_once(',')?
                .0
                .to_owned();
            Some((string(&variable["name"]).to_owned(), selector))
        });
    panels.chain(variables).collect()
}

/// Replaces Grafana's variables.
fn plain(query: &str) -> String {
    let query = query
        .replace("$__rate_interval", "5m")
        .replace("$__interval", "1m")
        .replace("$__range", "1h")
        .replace("$nodes_planned", "1");
    ["$instance", "$team", "$namespace", "$job", "$cluster"]
        .iter()
        .fold(query, |query, name| query.replace(name, ".*"))
}

/// Returns the names of metrics with one of these prefixes in an expression.
fn names(expr: &str, prefixes: &[&str]) -> BTreeSet<String> {
    let words = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    words
        .filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

/// Runs `varve test rules` on the unit tests beside a rule file, and checks that they cover each
/// alert: one that fires, and one that does not fire yet.
fn check_alerts(rule_file: &str, prefix: &str) {
    let dir = Path::new(rule_file).parent().unwrap().display().to_string();
    let tests_file = format!("{dir}/tests.yaml");
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["test", "rules"])
        .arg(repository_path(&tests_file))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
    );
    let tests = yaml(&tests_file);
    let cases: Vec<_> = list(&tests["tests"])
        .iter()
        .flat_map(|test| list(&test["alert_rule_test"]))
        .collect();
    let runbooks = text(&format!("{dir}/runbooks.md"));
    for rule in rules(rule_file)
        .iter()
        .filter(|rule| !rule["alert"].is_null())
    {
        let name = string(&rule["alert"]);
        assert!(prefix.is_empty() || name.starts_with(prefix), "{name}");
        let fires = |expect: bool| {
            cases.iter().any(|case| {
                case["alertname"] == name && list(&case["exp_alerts"]).is_empty() != expect
            })
        };
        assert!(fires(true), "no unit test in which {name} fires");
        let is_immediate = rule["for"].is_null() && string(&rule["expr"]).ends_with("> 0");
        assert!(
            is_immediate || fires(false),
            "no unit test in which {name} does not fire"
        );
        assert!(
            matches!(string(&rule["labels"]["severity"]), "warning" | "critical"),
            "{name}"
        );
        let annotations = &rule["annotations"];
        let link = format!("{PUBLISHED}{dir}/runbooks.md#{}", name.to_lowercase());
        assert_eq!(string(&annotations["runbook_url"]), link);
        for annotation in ["summary", "description"] {
            assert!(!string(&annotations[annotation]).is_empty(), "{name}");
        }
        let section = runbooks
            .split(&format!("\n## {name}\n"))
            .nth(1)
            .unwrap_or_else(|| panic!("no runbook of {name}"));
        let section = section.split("\n## ").next().unwrap().trim();
        assert!(
            section.lines().count() > 2,
            "the runbook of {name} says nothing: {section}"
        );
        for target in section
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let page = text(&format!("{dir}/{path}"));
            let is_heading = |line: &str| {
                let title = line
                    .trim_start_matches('#')
                    .trim()
                    .to_lowercase()
                    .replace(' ', "-");
                line.starts_with('#') && title.replace([',', '\''], "") == anchor
            };
            assert!(
                anchor.is_empty() || page.lines().any(is_heading),
                "{name}: {target} does not exist"
            );
        }
    }
}

#[test]
fn alerts_of_varve_have_unit_tests_and_runbooks() {
    check_alerts(MIXIN, "Varve");
    // The same rules as a manifest for Kubernetes.
    let manifest = yaml("docs/deploy/kubernetes/prometheusrule.yaml");
    assert_eq!(manifest["spec"]["groups"], yaml(MIXIN)["groups"]);
    // The chart can read only its own files.
    assert_eq!(text("docs/deploy/helm/files/alerts.yaml"), text(MIXIN));
}

#[test]
fn alerts_of_the_cluster_have_unit_tests_and_runbooks() {
    check_alerts(CLUSTER, "");
}

#[test]
fn alerts_of_training_jobs_have_unit_tests_and_runbooks() {
    check_alerts(TRAINING, "Training");
}

#[test]
fn the_unit_tests_of_the_training_pack_pass_in_varve_and_in_promtool() {
    let dir = repository_path("docs/mixin/training");
    let tests = files(&dir, "tests.yaml");
    assert_eq!(tests.len(), 2, "{tests:?}");
    let mut programs = vec![PathBuf::from(env!("CARGO_BIN_EXE_varve"))];
    if !varve_oracle::missing(&["promtool"]) {
        programs.extend(varve_oracle::find_all("promtool"));
    }
    for program in programs {
        let output = Command::new(&program)
            .args(["test", "rules"])
            .args(&tests)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}: {}",
            program.display(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
        );
    }
}

/// Starts a server with teams, a relabel rule, an HA pair, rules and an Alertmanager that does not
/// respond, and uses all of it.
fn used_server() -> (Server, ConfigFile) {
    let config = ConfigFile::new(
        &json!({
            "global": {"evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "rules": {"wait": "none"},
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:1"]}]}]},
            "ingest": {
                "team_label": "team",
                "budget": {"active_series": 1000},
                "teams": {"a": {"guaranteed": {"active_series": 1}, "maximum": {"active_series": 2}},
                          "b": {"maximum": {"samples_per_second": 1}}},
                "metric_relabel_configs": [{
                    "name": "unused", "source_labels": ["__name__"], "regex": "unused", "action": "drop",
                    "disable_on_use": true,
                }],
                "ha": {"cluster_label": "cluster", "replica_label": "replica", "failover_timeout": "30s"},
            },
        })
        .to_string(),
    );
    let rules =
        "groups: [{name: g, rules: [{record: r, expr: load}, {alert: Burning, expr: load > 0}]}]";
    std::fs::write(config.dir().join("rules.yml"), rules).unwrap();
    let server = Server::start(&[
        &config.flag(),
        "--query.max-samples=20000",
        "--self-scrape-interval=1s",
    ]);
    let now_ms = now_ms();
    let load = |team: &str, i: usize, samples: &[(i64, f64)]| {
        let i = i.to_string();
        series(
            &[
                ("__name__", "load"),
                ("team", team),
                ("i", &i),
                ("cluster", "c"),
                ("replica", "x"),
            ],
            samples,
        )
    };
    let write = |request: WriteRequest| server.http().write(&request).status;
    assert_eq!(
        write(WriteRequest::new((0..3).map(|i| load(
            "a",
            i,
            &[(now_ms, 1.0)]
        )))),
        400
    );
    // More samples than the team's budget, which the sender must retry.
    let many = |from: i64| {
        (0..100)
            .map(|i| (now_ms - 100_000 + from + i, 1.0))
            .collect::<Vec<_>>()
    };
    let throttled = |round: i64| write(WriteRequest::new([load("b", 0, &many(round * 100))]));
    assert!(
        (0..5).map(throttled).any(|status| status != 204),
        "no write was throttled"
    );
    let samples: Vec<_> = (0..25_000).map(|i| (now_ms - 30_000 + i, 1.0)).collect();
    assert_eq!(
        write(WriteRequest::new([series(
            &[("__name__", "many")],
            &samples
        )])),
        204
    );
    let too_many = server
        .http()
        .query("/api/v1/query", &[("query", "many[1h]")]);
    assert_eq!(too_many.status, 422, "{}", too_many.text());
    server
        .http()
        .query("/api/v1/query", &[("query", "load")])
        .expect_status(200);
    wait_until("rules and notifications", || {
        let text = server.http().get("/metrics").text();
        [
            "prometheus_notifications_errors_total{",
            "varve_rule_evaluation_seconds_total{",
            "varve_sender_arrival_lag",
        ]
        .iter()
        .all(|name| text.contains(&format!("\n{name}")))
    });
    (server, config)
}

/// Returns the names of all series in the text format.
fn exported(server: &Server) -> BTreeSet<String> {
    let text = server.http().get("/metrics").expect_status(200).text();
    let names = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn a_server_exports_every_metric_of_its_mixin_and_accepts_every_query() {
    let (server, _config) = used_server();
    let exported = exported(&server);
    let expr = |rule: Value| {
        (
            string(&rule["alert"]).to_owned(),
            string(&rule["expr"]).to_owned(),
        )
    };
    let mut all: Vec<(String, String)> = rules(MIXIN).into_iter().map(expr).collect();
    let dashboards = files(&repository_path("docs/mixin/dashboards"), ".json");
    let found: Vec<_> = dashboards
        .iter()
        .map(|path| path.file_stem().unwrap().to_string_lossy())
        .collect();
    assert_eq!(
        found,
        [
            "ingestion",
            "overview",
            "queries",
            "rules",
            "storage",
            "teams"
        ]
    );
    for path in &dashboards {
        let dashboard: Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        all.extend(queries(&dashboard));
    }
    let mut missing = BTreeMap::new();
    for (title, query) in &all {
        for name in names(query, &["varve_", "prometheus_", "process_"]) {
            if !exported.contains(&name) {
                missing.insert(name, title.clone());
            }
        }
        let answer = server
            .http()
            .query("/api/v1/query", &[("query", &plain(query))]);
        assert_eq!(answer.status, 200, "{title}: {query}: {}", answer.text());
    }
    assert!(all.len() > 100, "{} queries", all.len());
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

/// Returns the metrics of the fleet generator, of recorded scrapes and of kube-prometheus.
fn known_in_clusters() -> BTreeSet<String> {
    let fleet = Fleet::new(FleetOptions {
        active_series: 20_000,
        ..FleetOptions::default()
    });
    let mut known: BTreeSet<String> = INFINIBAND.map(str::to_owned).into();
    known.insert(IPTABLES_EXPORTER.to_owned());
    known.extend(APISERVER.map(str::to_owned));
    for place in 0..fleet.n_places() {
        let labels = fleet.labels(fleet.series_at(place, 0));
        known.extend(
            labels
                .iter()
                .find(|(name, _)| *name == "__name__")
                .map(|(_, value)| value.to_owned()),
        );
    }
    let expressions = std::fs::read_to_string(shared("kube-prometheus/expressions.json")).unwrap();
    let expressions: Value = serde_json::from_str(&expressions).unwrap();
    for expression in list(&expressions["expressions"]) {
        known.extend(
            list(&expression["metrics"])
                .iter()
                .map(|name| string(name).to_owned()),
        );
    }
    known
}

#[test]
fn the_cluster_pack_uses_metrics_of_the_fleet_and_of_kube_prometheus() {
    if !is_there() {
        return;
    }
    let known = known_in_clusters();
    let rules = rules(CLUSTER);
    let recorded: BTreeSet<_> = rules
        .iter()
        .map(|rule| string(&rule["record"]))
        .filter(|name| !name.is_empty())
        .collect();
    let mut all: Vec<_> = rules
        .iter()
        .map(|rule| string(&rule["expr"]).to_owned())
        .collect();
    for path in files(&repository_path("docs/mixin/cluster/dashboards"), ".json") {
        let dashboard: Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        all.extend(queries(&dashboard).into_iter().map(|(_, query)| query));
    }
    assert!(all.len() > 40, "{}", all.len());
    let prefixes = [
        "apiserver_",
        "etcd_",
        "DCGM_",
        "node_",
        "kube_",
        "kubelet_",
        "iptables_",
        "process_",
        "namespace_chain:",
        "namespace_pod_chain:",
        "node_traffic:",
    ];
    let server = Server::start(&[]);
    // A constant, such as the capacity of the uplink, reads no metric.
    for query in all.iter().filter(|query| !query.starts_with("vector(")) {
        let names = names(query, &prefixes);
        assert!(!names.is_empty(), "{query}");
        let unknown: Vec<_> = names
            .iter()
            .filter(|&name| !known.contains(name) && !recorded.contains(&**name))
            .collect();
        assert!(unknown.is_empty(), "{query}: {unknown:?}");
        server
            .http()
            .query("/api/v1/query", &[("query", &plain(query))])
            .expect_status(200);
    }
}

#[test]
fn prometheus_own_dashboards_and_alerts_find_their_metrics_or_the_docs_say_why_not() {
    if !is_there() {
        return;
    }
    let (server, _config) = used_server();
    let exported = exported(&server);
    let page = text("docs/metrics.md");
    let section = page
        .split("\n## Prometheus' dashboards and alerts\n")
        .nth(1)
        .expect("docs/metrics.md has a section");
    let rows = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let reasons = rows.flat_map(|cell| cell.split('`').step_by(2));
    let mut n_exported = 0;
    let mut missing = BTreeSet::new();
    for file in ["alerts.yaml", "prometheus.json"] {
        let source = std::fs::read_to_string(shared("dashboards/prometheus").join(file)).unwrap();
        for name in names(&source, &["prometheus_"])
            .into_iter()
            .filter(|name| !name.ends_with('_'))
        {
            let is_documented = reasons.clone().any(|pattern| {
                pattern
                    .strip_suffix('*')
                    .map_or(pattern == name, |prefix| name.starts_with(prefix))
            });
            if exported.contains(&name) {
                assert!(
                    !is_documented,
                    "{name} is exported, but docs/metrics.md says that it is not"
                );
                n_exported += 1;
            } else if !is_documented {
                missing.insert(name);
            }
        }
    }
    assert!(
        missing.is_empty(),
        "neither exported nor explained: {missing:?}"
    );
    assert!(n_exported >= 12, "{n_exported}");
}

#[test]
fn grafana_provisioning_names_the_data_source_of_the_dashboards() {
    let source = yaml("docs/deploy/grafana/provisioning/datasources/varve.yaml");
    assert_eq!(source["datasources"][0]["type"], "prometheus");
    let help = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["serve", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let url = string(&source["datasources"][0]["url"])
        .strip_prefix("http://")
        .unwrap()
        .to_owned();
    assert!(
        help.contains(&format!("[default: {url}]")),
        "{url} is not the default of --web.listen-address"
    );
    let destinations = &source["datasources"][0]["jsonData"]["exemplarTraceIdDestinations"];
    let labels: Vec<_> = list(destinations)
        .iter()
        .map(|to| string(&to["name"]))
        .collect();
    assert_eq!(labels, ["trace_id", "traceID"]);
    let providers = yaml("docs/deploy/grafana/provisioning/dashboards/varve.yaml");
    let mut uids = BTreeSet::new();
    for provider in list(&providers["providers"]) {
        let path = string(&provider["options"]["path"]).replace("/usr/share/varve/", "docs/");
        let dashboards = files(&repository_path(&path), ".json");
        assert!(!dashboards.is_empty(), "{path}");
        for file in dashboards {
            let dashboard: Value =
                serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            assert!(
                uids.insert(string(&dashboard["uid"]).to_owned()),
                "{} twice",
                dashboard["uid"]
            );
            // The data source is a variable: a fixed one would bind the dashboard to one Grafana.
            let panels = list(&dashboard["panels"])
                .iter()
                .filter(|panel| panel["type"] != "row");
            panels.for_each(|panel| assert_eq!(panel["datasource"]["uid"], "${datasource}"));
            assert_eq!(dashboard["templating"]["list"][0]["type"], "datasource");
        }
    }
}
