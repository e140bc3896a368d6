//! The manifests under docs/deploy/kubernetes: names, ports, labels, flags and paths agree with
//! each other and with the binary. `kubectl kustomize` renders them where it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize as _;
use serde_json::Value;

use super::{repository_path, text};
use crate::harness::{Process, Server, missing, new_data_dir};

const BASE: &str = "docs/deploy/kubernetes";
/// The label that selects the pods.
const APP: &str = "app.kubernetes.io/name";
const POD_PORT: u64 = 9898;

/// Parses all documents of a file or of rendered output.
fn documents(text: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// The objects of the base by kind.
fn objects(all: Vec<Value>) -> BTreeMap<String, Value> {
    all.into_iter()
        .map(|object| (object["kind"].as_str().unwrap().to_owned(), object))
        .collect()
}

fn from_files() -> BTreeMap<String, Value> {
    let kustomization = documents(&text(&format!("{BASE}/kustomization.yaml"))).remove(0);
    let files: Vec<_> = list(&kustomization["resources"])
        .iter()
        .map(|file| file.as_str().unwrap())
        .collect();
    let present = std::fs::read_dir(repository_path(BASE))
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let present: BTreeSet<_> = present
        .map(|name| name.into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    let named: BTreeSet<_> = files
        .iter()
        .copied()
        .chain(["kustomization.yaml"])
        .map(str::to_owned)
        .collect();
    assert_eq!(present, named, "kustomization.yaml lists all files");
    objects(
        files
            .iter()
            .flat_map(|file| documents(&text(&format!("{BASE}/{file}"))))
            .collect(),
    )
}

fn list(of: &Value) -> &[Value] {
    of.as_array().unwrap_or_else(|| panic!("a list, not {of}"))
}

fn strings(of: &Value) -> Vec<&str> {
    list(of).iter().map(|item| item.as_str().unwrap()).collect()
}

fn container(objects: &BTreeMap<String, Value>) -> &Value {
    &objects["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
}

/// Returns the value of a flag in the arguments of the container.
fn flag<'a>(args: &'a [&str], name: &str) -> &'a str {
    args.iter()
        .find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn names_ports_and_paths_agree() {
    let objects = from_files();
    for (kind, object) in &objects {
        assert_eq!(object["metadata"]["name"], "varve", "{kind}");
    }
    let (set, container) = (&objects["StatefulSet"]["spec"], container(&objects));
    let pod = &set["template"]["spec"];
    assert_eq!(set["serviceName"], objects["Service"]["metadata"]["name"]);
    assert_eq!(
        pod["serviceAccountName"],
        objects["ServiceAccount"]["metadata"]["name"]
    );
    // One server owns one data directory.
    assert_eq!(set["replicas"], 1);

    let args = strings(&container["args"]);
    assert_eq!(args[0], "serve");
    let port = &container["ports"][0];
    let (name, number) = (
        port["name"].as_str().unwrap(),
        port["containerPort"].as_u64().unwrap(),
    );
    assert_eq!(number, POD_PORT);
    assert_eq!(
        flag(&args, "--web.listen-address"),
        format!("0.0.0.0:{number}")
    );
    let service = &objects["Service"]["spec"]["ports"][0];
    assert_eq!(
        (&service["name"], &service["targetPort"]),
        (&port["name"], &port["name"])
    );
    assert_eq!(service["port"], POD_PORT);
    assert_eq!(
        objects["ServiceMonitor"]["spec"]["endpoints"][0]["port"],
        name
    );
    assert_eq!(
        objects["NetworkPolicy"]["spec"]["ingress"][0]["ports"][0]["port"],
        name
    );
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], name, "{probe}");
    }

    let mounts: BTreeMap<_, _> = list(&container["volumeMounts"])
        .iter()
        .map(|mount| (mount["name"].as_str().unwrap(), mount))
        .collect();
    let data = mounts["data"]["mountPath"].as_str().unwrap();
    assert_eq!(flag(&args, "--storage.tsdb.path"), data);
    assert_eq!(set["volumeClaimTemplates"][0]["metadata"]["name"], "data");
    let config = Path::new(flag(&args, "--config.file"));
    assert_eq!(
        config.parent().unwrap().to_str(),
        mounts["config"]["mountPath"].as_str()
    );
    let kustomization = documents(&text(&format!("{BASE}/kustomization.yaml"))).remove(0);
    let generated = &kustomization["configMapGenerator"][0];
    assert_eq!(
        generated["files"][0],
        config.file_name().unwrap().to_str().unwrap()
    );
    assert_eq!(pod["volumes"][0]["configMap"]["name"], generated["name"]);
    assert_eq!(kustomization["labels"][0]["pairs"][APP], "varve");
    assert_eq!(kustomization["images"][0]["name"], container["image"]);

    // The same user, directory and port as the image.
    let image = text("docs/deploy/container/Containerfile");
    let user = pod["securityContext"]["runAsUser"].as_u64().unwrap();
    for line in [
        format!("USER {user}:{user}"),
        format!("VOLUME {data}"),
        format!("EXPOSE {POD_PORT}"),
    ] {
        assert!(image.lines().any(|found| found == line), "{line}");
    }
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
}

#[test]
fn patience_of_probes_and_termination_is_longer_than_replay_and_shutdown() {
    let objects = from_files();
    let container = container(&objects);
    let seconds = |probe: &str| {
        let probe = &container[probe];
        probe["periodSeconds"].as_u64().unwrap() * probe["failureThreshold"].as_u64().unwrap()
    };
    // 10 million series and two hours of samples are replayed in minutes (docs/guides/sizing.md).
    assert!(seconds("startupProbe") >= 3600 && seconds("livenessProbe") >= 120);
    // Readiness while the series are loaded is 503, so the liveness probe must not use it.
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/-/healthy");
    // Requests get up to 7 s, notifications 10 s.
    let grace = objects["StatefulSet"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap();
    assert!(grace >= 2 * (7 + 10), "{grace}");
}

#[test]
fn the_arguments_start_a_server_whose_probes_succeed() {
    let objects = from_files();
    let container = container(&objects);
    let (_dir, data_dir) = new_data_dir();
    let config = repository_path(BASE).join("varve.yml");
    let args = strings(&container["args"])
        .into_iter()
        .map(|arg| match arg.split_once('=') {
            Some(("--config.file", _)) => format!("--config.file={}", config.display()),
            Some(("--storage.tsdb.path", _)) => {
                format!("--storage.tsdb.path={}", data_dir.display())
            }
            Some(("--web.listen-address", _)) => "--web.listen-address=127.0.0.1:0".to_owned(),
            _ => arg.to_owned(),
        });
    let args: Vec<_> = args.collect();
    let mut server = Process::start(
        "varve",
        Command::new(env!("CARGO_BIN_EXE_varve")).args(&args),
    );
    let http = crate::harness::Http::new(server.listening_address());
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        crate::harness::wait_until(probe, || http.get(path).status == 200);
    }
    let monitor = &objects["ServiceMonitor"]["spec"]["endpoints"][0];
    http.get(monitor["path"].as_str().unwrap())
        .expect_status(200);
    assert!(server.terminate().success());
}

#[test]
fn remote_write_of_kube_prometheus_names_the_service_and_the_ha_labels_of_the_operator() {
    let patch = documents(&text(&format!(
        "{BASE}/kube-prometheus/prometheus-remote-write.yaml"
    )))
    .remove(0);
    let service = &from_files()["Service"];
    let kustomization = documents(&text(&format!("{BASE}/kustomization.yaml"))).remove(0);
    let url = patch["spec"]["remoteWrite"][0]["url"].as_str().unwrap();
    let (name, namespace) = (
        service["metadata"]["name"].as_str().unwrap(),
        kustomization["namespace"].as_str().unwrap(),
    );
    assert_eq!(
        url,
        format!("http://{name}.{namespace}.svc:{POD_PORT}/api/v1/write")
    );
    // The path exists: a body of one byte is malformed, not unknown.
    let server = Server::start(&[&format!(
        "--config.file={}",
        repository_path(BASE).join("varve.yml").display()
    )]);
    assert_eq!(server.http().post("/api/v1/write", &[], b"x").status, 400);
    let config = documents(&text(&format!("{BASE}/varve.yml"))).remove(0);
    let ha = &config["ingest"]["ha"];
    assert_eq!(
        (&ha["cluster_label"], &ha["replica_label"]),
        (&"prometheus".into(), &"prometheus_replica".into())
    );
}

#[test]
fn kustomize_renders_what_the_files_say() {
    if missing(&["kubectl"]) {
        return;
    }
    let output = Command::new("kubectl")
        .arg("kustomize")
        .arg(repository_path(BASE))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rendered = objects(documents(&String::from_utf8(output.stdout).unwrap()));
    let kinds: Vec<_> = rendered.keys().map(String::as_str).collect();
    let expect = [
        "ConfigMap",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PrometheusRule",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
        "StatefulSet",
    ];
    assert_eq!(kinds, expect);
    let app = |of: &Value| of[APP].as_str().unwrap_or_default().to_owned();
    // Every selector selects the pods.
    let set = &rendered["StatefulSet"]["spec"];
    assert_eq!(app(&set["template"]["metadata"]["labels"]), "varve");
    assert_eq!(app(&set["selector"]["matchLabels"]), "varve");
    assert_eq!(app(&rendered["Service"]["spec"]["selector"]), "varve");
    assert_eq!(
        app(&rendered["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]),
        "varve"
    );
    assert_eq!(
        app(&rendered["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]),
        "varve"
    );
    assert_eq!(
        app(&rendered["ServiceMonitor"]["spec"]["selector"]["matchLabels"]),
        "varve"
    );
    // A changed configuration restarts the pod: the name of the ConfigMap has its hash.
    let name = &rendered["ConfigMap"]["metadata"]["name"];
    assert!(name.as_str().unwrap().starts_with("varve-"));
    assert_eq!(
        &set["template"]["spec"]["volumes"][0]["configMap"]["name"],
        name
    );
    assert_eq!(
        rendered["ConfigMap"]["data"]["varve.yml"],
        text(&format!("{BASE}/varve.yml"))
    );
}
