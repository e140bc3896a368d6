//! The components of docs/deploy/kubernetes rendered by kustomize, the chart of docs/deploy/helm
//! rendered by Helm, and the patches for kube-prometheus: the same objects, whichever way is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Map, Value, json};

use super::kubernetes::{BASE, documents, list};
use super::{repository_path, text};
use crate::harness::{copy_dir, missing};

pub(super) const CHART: &str = "docs/deploy/helm";

/// Components, and the values of the chart that give the same objects.
pub(super) struct Case {
    pub(super) components: &'static [&'static str],
    values: &'static str,
}

pub(super) const CASES: [Case; 10] = [
    Case {
        components: &[],
        values: "{}",
    },
    Case {
        components: &["auth"],
        values: "{auth: {enabled: true}}",
    },
    Case {
        components: &["tls"],
        values: "{tls: {enabled: true}}",
    },
    Case {
        components: &["auth-tls"],
        values: "{auth: {enabled: true}, tls: {enabled: true}}",
    },
    Case {
        components: &["rules"],
        values: "{rules: {enabled: true}}",
    },
    Case {
        components: &["rules", "alerting"],
        values: "{rules: {enabled: true}, alerting: {enabled: true}}",
    },
    Case {
        components: &["object-storage"],
        values: "{cluster: main, objectStorage: {enabled: true}}",
    },
    Case {
        components: &["migration"],
        values: "{migration: {enabled: true}}",
    },
    Case {
        components: &["ha"],
        values: "{ha: {enabled: true}}",
    },
    Case {
        components: &["auth-tls", "rules", "alerting", "object-storage", "ha"],
        values: "{auth: {enabled: true}, tls: {enabled: true}, rules: {enabled: true}, alerting: {enabled: true}, \
                 cluster: main, objectStorage: {enabled: true}, ha: {enabled: true}}",
    },
];

/// Runs a command, and returns what it prints, or its error.
pub(super) fn run(command: &mut Command) -> Result<String, String> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8(stdout).unwrap(),
        String::from_utf8_lossy(&stderr),
    );
    if status.success() {
        Ok(stdout)
    } else {
        Err(format!("{command:?}: {stdout}{stderr}"))
    }
}

fn kustomize(dir: &Path) -> Result<String, String> {
    run(Command::new("kustomize").arg("build").arg(dir))
}

/// Renders an overlay that adds components to the base. kustomize loads directories below a common
/// one only, so it works on a copy.
pub(super) fn render_overlay(components: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    copy_dir(&repository_path(BASE), &dir.path().join("base"));
    let paths: Vec<_> = components
        .iter()
        .map(|name| format!("../base/components/{name}"))
        .collect();
    let overlay = dir.path().join("overlay");
    std::fs::create_dir(&overlay).unwrap();
    let kustomization = json!({"resources": ["../base"], "components": paths});
    std::fs::write(
        overlay.join("kustomization.yaml"),
        kustomization.to_string(),
    )
    .unwrap();
    kustomize(&overlay).unwrap_or_else(|e| panic!("{components:?}: {e}"))
}

pub(super) fn render_chart(values: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("values.yaml");
    std::fs::write(&file, values).unwrap();
    run(Command::new("helm")
        // A helm that is built as a module believes in an old Kubernetes.
        .args(["template", "varve", "--kube-version=1.33.0"])
        .args(["--namespace=monitoring", "--values"])
        .arg(&file)
        .arg(repository_path(CHART)))
}

/// Returns objects by kind and name, without what differs by design: labels of the release, the
/// order of lists by name, and comments of files in ConfigMaps.
fn normalized(rendered: &str) -> BTreeMap<String, Value> {
    let mut objects = BTreeMap::new();
    for mut object in documents(rendered) {
        if object["kind"] == "ConfigMap" {
            for file in object["data"].as_object_mut().unwrap().values_mut() {
                *file = documents(file.as_str().unwrap()).remove(0);
            }
        }
        normalize(&mut object);
        let name = object["metadata"]["name"].as_str().unwrap();
        let key = format!("{} {name}", object["kind"].as_str().unwrap());
        assert!(objects.insert(key.clone(), object).is_none(), "{key} twice");
    }
    objects
}

fn normalize(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !is_of_release(key));
            map.values_mut().for_each(normalize);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(normalize);
            let is_named = items.iter().all(|item| item["name"].is_string());
            if is_named {
                items.sort_by_key(|item| item["name"].as_str().map(str::to_owned));
            }
        }
        _ => {}
    }
}

fn is_of_release(label: &str) -> bool {
    [
        "app.kubernetes.io/instance",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/version",
        "helm.sh/chart",
    ]
    .contains(&label)
}

#[test]
fn chart_and_components_give_the_same_objects() {
    if missing(&["kustomize", "helm"]) {
        return;
    }
    for Case { components, values } in &CASES {
        let of_chart = render_chart(values).unwrap_or_else(|e| panic!("{values}: {e}"));
        let of_chart = normalized(&of_chart);
        let of_overlay = normalized(&render_overlay(components));
        let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&of_chart), names(&of_overlay), "{components:?}");
        for (name, object) in &of_overlay {
            assert_eq!(&of_chart[name], object, "{components:?}: {name}");
        }
    }
}

/// Every directory is in a case, so that all are rendered and validated.
#[test]
fn every_component_is_tested() {
    let present = std::fs::read_dir(repository_path(BASE).join("components")).unwrap();
    let present: BTreeSet<_> = present
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let tested = CASES.iter().flat_map(|case| case.components);
    let tested: BTreeSet<_> = tested
        .chain(&["without-operator"])
        .map(|name| (*name).to_owned())
        .collect();
    assert_eq!(present, tested);
}

#[test]
fn selectors_select_the_pods_and_mounts_have_volumes() {
    if missing(&["kustomize"]) {
        return;
    }
    for Case { components, .. } in &CASES {
        let objects = normalized(&render_overlay(components));
        let app = |of: &Value| of["app.kubernetes.io/name"].clone();
        let set = &objects["StatefulSet varve"]["spec"];
        for selector in [
            &set["template"]["metadata"]["labels"],
            &set["selector"]["matchLabels"],
            &objects["Service varve"]["spec"]["selector"],
            &objects["Service varve"]["metadata"]["labels"],
            &objects["PodDisruptionBudget varve"]["spec"]["selector"]["matchLabels"],
            &objects["NetworkPolicy varve"]["spec"]["podSelector"]["matchLabels"],
            &objects["ServiceMonitor varve"]["spec"]["selector"]["matchLabels"],
        ] {
            assert_eq!(app(selector), "varve", "{components:?}");
        }
        for (name, object) in &objects {
            assert_eq!(object["metadata"]["namespace"], "monitoring", "{name}");
        }
        // Each volume is mounted, and each ConfigMap of a volume exists unless the user creates it.
        let pod = &set["template"]["spec"];
        let named = |of: &Value| -> BTreeSet<String> {
            let names = list(of)
                .iter()
                .map(|item| item["name"].as_str().unwrap().to_owned());
            names.collect()
        };
        let mut volumes = named(&pod["volumes"]);
        volumes.insert("data".to_owned());
        assert_eq!(named(&pod["containers"][0]["volumeMounts"]), volumes);
        for volume in list(&pod["volumes"]) {
            let Some(name) = volume["configMap"]["name"].as_str() else {
                continue;
            };
            let is_there = objects.contains_key(&format!("ConfigMap {name}"));
            assert!(is_there || name == "varve-ca-certificates", "{name}");
        }
    }
}

#[test]
fn without_the_operator_no_object_needs_its_types() {
    if missing(&["kustomize"]) {
        return;
    }
    let objects = documents(&render_overlay(&["without-operator"]));
    let kinds: BTreeSet<_> = objects
        .iter()
        .map(|o| o["kind"].as_str().unwrap())
        .collect();
    assert!(kinds.contains("Namespace") && kinds.contains("StatefulSet"));
    for object in &objects {
        let group = object["apiVersion"].as_str().unwrap();
        assert!(
            !group.starts_with("monitoring.coreos.com"),
            "{}",
            object["kind"]
        );
    }
}

/// The labels of the pods of Alertmanager in kube-prometheus, and the port of its network policy.
#[test]
fn the_policy_admits_varve_to_alertmanager_of_kube_prometheus() {
    let policy = documents(&text(&format!(
        "{BASE}/components/alerting/networkpolicy.yaml"
    )));
    let spec = &policy[0]["spec"];
    let of_kube_prometheus = json!({
        "app.kubernetes.io/component": "alert-router",
        "app.kubernetes.io/instance": "main",
        "app.kubernetes.io/name": "alertmanager",
        "app.kubernetes.io/part-of": "kube-prometheus",
    });
    for (label, value) in spec["podSelector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&of_kube_prometheus[label], value, "{label}");
    }
    let rule = &spec["ingress"][0];
    assert_eq!(
        rule["from"][0]["podSelector"]["matchLabels"],
        json!({"app.kubernetes.io/name": "varve"})
    );
    assert_eq!(rule["ports"], json!([{"port": 9093, "protocol": "TCP"}]));
}

/// Applies patches of docs/deploy/kubernetes/kube-prometheus to a Prometheus object, as
/// `kubectl patch --type=json` does: both use the same library.
pub(super) fn patched(remote_write: &Value, patches: &[&str]) -> Result<Value, String> {
    let mut spec = json!({"replicas": 2, "ruleSelector": {}});
    if !remote_write.is_null() {
        spec["remoteWrite"] = remote_write.clone();
    }
    let prometheus = json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "Prometheus",
        "metadata": {"name": "k8s", "namespace": "monitoring"},
        "spec": spec,
    });
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("prometheus.yaml", &prometheus.to_string());
    let mut listed = Vec::new();
    for name in patches {
        write(name, &text(&format!("{BASE}/kube-prometheus/{name}")));
        listed.push(json!({"path": name, "target": {"kind": "Prometheus"}}));
    }
    let kustomization = json!({"resources": ["prometheus.yaml"], "patches": listed});
    write("kustomization.yaml", &kustomization.to_string());
    Ok(documents(&kustomize(dir.path())?).remove(0))
}

#[test]
fn patches_of_remote_write_never_replace_what_is_there() {
    if missing(&["kustomize"]) {
        return;
    }
    let urls = |object: &Value| -> Vec<String> {
        let entries = list(&object["spec"]["remoteWrite"]);
        let urls = entries.iter().map(|entry| entry["url"].as_str().unwrap());
        urls.map(str::to_owned).collect()
    };
    let other = json!([{"url": "http://other/api/v1/write", "name": "other"}]);
    let one = vec!["http://varve.monitoring.svc:9898/api/v1/write".to_owned()];
    let two: Vec<_> = (0..2)
        .map(|i| format!("http://varve-{i}.varve.monitoring.svc:9898/api/v1/write"))
        .collect();
    for (first, append, expect) in [
        ("remote-write.json", "remote-write-append.json", &one),
        ("remote-write-ha.json", "remote-write-ha-append.json", &two),
    ] {
        let fresh = patched(&Value::Null, &[first]).unwrap();
        assert_eq!(&urls(&fresh), expect);
        assert_eq!(fresh["spec"]["replicas"], 2);
        // Each patch fails where the other one is needed.
        patched(&other, &[first]).unwrap_err();
        patched(&Value::Null, &[append]).unwrap_err();
        let appended = urls(&patched(&other, &[append]).unwrap());
        assert_eq!(appended[0], "http://other/api/v1/write");
        assert_eq!(&appended[1..], expect);
        for entry in list(&fresh["spec"]["remoteWrite"]) {
            assert_eq!(entry["sendNativeHistograms"], true, "{first}");
            assert_eq!(entry["sendExemplars"], true, "{first}");
        }
    }
}

#[test]
fn patches_of_tokens_and_tls_change_only_the_entry_of_varve() {
    if missing(&["kustomize"]) {
        return;
    }
    let all = [
        "remote-write.json",
        "authorization.json",
        "tls.json",
        "recorded-by-varve.json",
    ];
    let spec = patched(&Value::Null, &all).unwrap()["spec"].clone();
    let entry = &spec["remoteWrite"][0];
    assert_eq!(
        entry["url"],
        "https://varve.monitoring.svc:9898/api/v1/write"
    );
    let auth = normalized(&render_overlay(&["auth-tls"]));
    let monitor = &auth["ServiceMonitor varve"]["spec"]["endpoints"][0];
    let credentials = |of: &Value| of["authorization"]["credentials"]["name"].clone();
    assert_eq!(credentials(entry), credentials(monitor));
    assert_eq!(entry["tlsConfig"], monitor["tlsConfig"]);
    // Prometheus continues to evaluate the alerts on Varve, and Varve everything else.
    let kept = &spec["ruleSelector"]["matchLabels"];
    let rules = normalized(&render_overlay(&["rules"]));
    let label = "app.kubernetes.io/name";
    assert_eq!(
        kept[label],
        rules["PrometheusRule varve"]["metadata"]["labels"][label]
    );
    assert_eq!(
        rules["Prometheus varve-rules"]["spec"]["ruleSelector"]["matchExpressions"][0],
        json!({"key": label, "operator": "NotIn", "values": [kept[label]]})
    );
    let other = json!([{"url": "http://other/api/v1/write", "name": "other"}]);
    for patch in &all[1..] {
        patched(&other, &[patch]).unwrap_err();
    }
}

#[test]
fn patches_for_two_servers_secure_both_entries() {
    if missing(&["kustomize"]) {
        return;
    }
    let for_one = [
        "remote-write.json",
        "authorization.json",
        "tls.json",
        "recorded-by-varve.json",
    ];
    let for_two = [
        "remote-write-ha.json",
        "authorization-ha.json",
        "tls-ha.json",
        "recorded-by-varve-ha.json",
    ];
    let one = patched(&Value::Null, &for_one).unwrap()["spec"].clone();
    let two = patched(&Value::Null, &for_two).unwrap()["spec"].clone();
    let entries = list(&two["remoteWrite"]);
    assert_eq!(entries.len(), 2);
    for (i, entry) in entries.iter().enumerate() {
        let url = format!("https://varve-{i}.varve.monitoring.svc:9898/api/v1/write");
        assert_eq!(entry["url"], url);
        for key in ["authorization", "tlsConfig", "writeRelabelConfigs"] {
            assert_eq!(entry[key], one["remoteWrite"][0][key], "{key}");
        }
    }
    assert_eq!(two["ruleSelector"], one["ruleSelector"]);
    // With the patches for one server, an entry would send its samples to either of the two.
    let written = patched(&Value::Null, &for_two[..1]).unwrap()["spec"]["remoteWrite"].clone();
    for patch in &for_one[1..] {
        patched(&written, &[patch]).unwrap_err();
    }
}

/// Returns the paths of all values, with their defaults. A map that is empty or free is one value.
fn value_paths(of: &Map<String, Value>, prefix: &str, paths: &mut BTreeMap<String, Value>) {
    for (key, value) in of {
        let path = format!("{prefix}{key}");
        match value {
            Value::Object(map) if !map.is_empty() && path != "config" => {
                value_paths(map, &format!("{path}."), paths);
            }
            _ => {
                paths.insert(path, value.clone());
            }
        }
    }
}

#[test]
fn the_readme_of_the_chart_lists_all_values() {
    let values = documents(&text(&format!("{CHART}/values.yaml"))).remove(0);
    let mut paths = BTreeMap::new();
    value_paths(values.as_object().unwrap(), "", &mut paths);
    let readme = text(&format!("{CHART}/README.md"));
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut listed = BTreeMap::new();
    for row in rows {
        let (path, rest) = row.split_once("` | ").unwrap();
        let default = rest.split(" | ").next().unwrap();
        listed.insert(path.to_owned(), default.trim_matches('`').to_owned());
    }
    let shown = |(path, value): (&String, &Value)| {
        let text = match value {
            Value::String(text) if text.is_empty() => "\"\"".to_owned(),
            Value::String(text) => text.clone(),
            Value::Object(map) if map.is_empty() => "{}".to_owned(),
            Value::Array(items) if items.is_empty() => "[]".to_owned(),
            Value::Object(_) | Value::Array(_) => "see values.yaml".to_owned(),
            other => other.to_string(),
        };
        (path.clone(), text)
    };
    assert_eq!(listed, paths.iter().map(shown).collect());
    let chart = documents(&text(&format!("{CHART}/Chart.yaml"))).remove(0);
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
    let config = documents(&text(&format!("{BASE}/varve.yml"))).remove(0);
    assert_eq!(values["config"], config);
}

/// A volume of 100 GiB was rendered with a retention of 500 GiB.
#[test]
fn the_chart_refuses_a_volume_that_cannot_hold_what_is_retained() {
    if missing(&["helm"]) {
        return;
    }
    for values in [
        "{retention: {size: 500GiB}}",
        "{retention: {size: 100GiB}}",
        "{persistence: {size: 90G}}",
        "{config: {storage: {tsdb: {retention: {size: 2TiB}}}}}",
    ] {
        let error = render_chart(values).expect_err(values);
        assert!(error.contains("does not fit a volume of"), "{error}");
    }
    for values in [
        "{retention: {size: 500GiB}, persistence: {size: 575Gi}}",
        "{persistence: {size: 1T}}",
        "{retention: {size: 0B}, persistence: {size: 1Gi}}",
    ] {
        render_chart(values).unwrap_or_else(|error| panic!("{values}: {error}"));
    }
}

#[test]
fn the_schema_of_the_chart_rejects_unknown_values_and_wrong_types() {
    if missing(&["helm"]) {
        return;
    }
    for values in [
        "{autth: {enabled: true}}",
        "{auth: {enable: true}}",
        "{auth: {enabled: maybe}}",
        "{args: --query.timeout=1m}",
        "{alerting: {targets: alertmanager}}",
    ] {
        let error = render_chart(values).expect_err(values);
        assert!(
            error.contains("values don't meet the specifications"),
            "{error}"
        );
    }
    // Other names and images than those of the overlay.
    let other = "{fullnameOverride: metrics, image: {repository: r, tag: t}, tls: {enabled: true}, \
                 rules: {enabled: true}, imagePullSecrets: [{name: s}], nodeSelector: {a: b}, \
                 tolerations: [{operator: Exists}], persistence: {storageClassName: fast}, \
                 prometheusRule: {runbookUrl: 'https://wiki.example.org/varve'}}";
    let objects = normalized(&render_chart(other).unwrap());
    let pod = &objects["StatefulSet metrics"]["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "r:t");
    assert_eq!(pod["nodeSelector"], json!({"a": "b"}));
    let sources = &list(&pod["volumes"])
        .iter()
        .find(|volume| volume["name"] == "rules")
        .unwrap()["projected"]["sources"];
    let name = &sources[0]["configMap"]["name"];
    assert_eq!(name, "prometheus-metrics-rules-rulefiles-0");
    let monitor = &objects["ServiceMonitor metrics"]["spec"]["endpoints"][0];
    assert_eq!(monitor["tlsConfig"]["serverName"], "metrics.monitoring.svc");
    let rules = objects["PrometheusRule metrics"].to_string();
    assert!(!rules.contains("varve.example.com"), "{rules}");
    assert!(
        rules.contains("https://wiki.example.org/varve/runbooks.md#varvedown"),
        "{rules}"
    );
}
