//! The base of docs/deploy/kubernetes: names, ports, labels, flags and paths agree with each other
//! and with the binary, and its configuration does what the manifests need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{repository_path, text};
use crate::harness::{
    Access, Process, Server, WriteRequest, new_data_dir, now_ms, series, wait_until,
};

pub(super) const BASE: &str = "docs/deploy/kubernetes";
/// The label that selects the pods.
const APP: &str = "app.kubernetes.io/name";
const POD_PORT: u64 = 9898;

/// Parses all documents of a file or of rendered output; empty ones are omitted.
pub(super) fn documents(text: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).unwrap())
        .filter(|document| !document.is_null())
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

pub(super) fn list(of: &Value) -> &[Value] {
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

/// Starts a server with the configuration of the base, whose directories are in `mounts`.
fn server_of_the_base(mounts: &Path) -> Server {
    let config = text(&format!("{BASE}/varve.yml"));
    let file = mounts.join("varve.yml");
    let here = format!("{}/varve-", mounts.display());
    std::fs::write(&file, config.replace("/etc/varve-", &here)).unwrap();
    Server::start(&[
        &format!("--config.file={}", file.display()),
        "--config.auto-reload",
        "--config.auto-reload-interval=1s",
        "--self-scrape-interval=1s",
    ])
}

#[test]
fn metrics_of_varve_that_prometheus_sends_back_are_not_stored_twice() {
    let dir = tempfile::tempdir().unwrap();
    let server = server_of_the_base(dir.path());
    let scraped = |name: &str, more: &[(&str, &str)]| {
        let labels = [
            &[("__name__", name), ("job", "varve"), ("pod", "varve-0")],
            more,
        ]
        .concat();
        series(&labels, &[(now_ms(), 1.0)])
    };
    let request = WriteRequest::new([
        scraped("up", &[]),
        scraped("varve_memory_used_bytes", &[]),
        scraped("ALERTS", &[("alertname", "VarveVolumeFull")]),
    ]);
    server.http().write(&request).expect_status(204);
    let count = |query: &str| {
        let answer = server.http().query("/api/v1/query", &[("query", query)]);
        answer.data()["result"][0]["value"][1]
            .as_str()
            .map(str::to_owned)
    };
    wait_until("the server to store its own metrics", || {
        count("count(varve_memory_used_bytes)").as_deref() == Some("1")
    });
    assert_eq!(
        count("count({pod=\"varve-0\", __name__!=\"ALERTS\"})"),
        None
    );
    assert_eq!(count("count(ALERTS)").as_deref(), Some("1"));
    // The HA labels are those that the operator sets.
    let config = documents(&text(&format!("{BASE}/varve.yml"))).remove(0);
    let ha = &config["ingest"]["ha"];
    assert_eq!(
        (&ha["cluster_label"], &ha["replica_label"]),
        (&"prometheus".into(), &"prometheus_replica".into())
    );
}

/// The kubelet replaces a ConfigMap by renaming the link `..data` to a new directory.
#[test]
fn rules_and_alertmanagers_in_mounted_config_maps_are_read_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let publish = |volume: &str, version: &str, name: &str, text: &str| {
        let volume = dir.path().join(volume);
        std::fs::create_dir_all(volume.join(version)).unwrap();
        std::fs::write(volume.join(version).join(name), text).unwrap();
        std::os::unix::fs::symlink(version, volume.join("..new")).unwrap();
        std::fs::rename(volume.join("..new"), volume.join("..data")).unwrap();
        let link = volume.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(format!("..data/{name}"), link).unwrap();
        }
    };
    // As the operator writes the groups of a PrometheusRule.
    let rule = |name: &str| {
        format!("groups:\n- name: example\n  rules:\n  - expr: vector(1)\n    record: {name}\n")
    };
    let name = "monitoring-node-rules-7bd3a9c2-6c1e-4d5e-8a87-0f1d2c3b4a59.yaml";
    publish("varve-rules", "..1", name, &rule("a:b"));
    let targets = text(&format!("{BASE}/components/alerting/alertmanagers.yml"));
    publish("varve-alertmanagers", "..1", "alertmanagers.yml", &targets);
    let server = server_of_the_base(dir.path());
    let record = || {
        let rules = server.http().get("/api/v1/rules").data();
        rules["groups"][0]["rules"][0]["name"]
            .as_str()
            .map(str::to_owned)
    };
    assert_eq!(record().as_deref(), Some("a:b"));
    let alertmanagers = server.http().get("/api/v1/alertmanagers").data();
    let urls: Vec<_> = list(&alertmanagers["activeAlertmanagers"])
        .iter()
        .map(|found| found["url"].as_str().unwrap().to_owned())
        .collect();
    let expect = (0..3).map(|i| {
        format!(
            "http://alertmanager-main-{i}.alertmanager-operated.monitoring.svc:9093/api/v2/alerts"
        )
    });
    assert_eq!(urls, expect.collect::<Vec<_>>());
    publish("varve-rules", "..2", name, &rule("c:d"));
    wait_until("the changed rules", || record().as_deref() == Some("c:d"));
}

/// The web configuration of the component `auth`, with probes that send nothing.
#[test]
fn each_token_of_the_component_auth_grants_what_its_client_does() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "prometheus",
        "prometheus-next",
        "scrape",
        "grafana",
        "admin",
    ] {
        std::fs::write(dir.path().join(name), format!("t0ken-{name}\n")).unwrap();
    }
    let web = text(&format!("{BASE}/components/auth/web.yml"));
    let file = dir.path().join("web.yml");
    let web = web.replace("/etc/varve-tokens", &dir.path().display().to_string());
    std::fs::write(&file, web).unwrap();
    let server = Server::start(&[&format!("--web.config.file={}", file.display())]);
    let of = |name: &str| {
        server.http().with(&Access {
            authorization: Some(format!("Bearer t0ken-{name}")),
            ..Access::default()
        })
    };
    let request = WriteRequest::new([series(&[("__name__", "m")], &[(now_ms(), 1.0)])]);
    for name in ["prometheus", "prometheus-next"] {
        of(name).write(&request).expect_status(204);
    }
    of("scrape").get("/metrics").expect_status(200);
    of("grafana")
        .get("/api/v1/query?query=m")
        .expect_status(200);
    assert_eq!(of("prometheus").get("/api/v1/query?query=m").status, 403);
    for name in ["scrape", "grafana"] {
        assert_eq!(of(name).write(&request).status, 403, "{name}");
    }
    let objects = from_files();
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let path = container(&objects)[probe]["httpGet"]["path"]
            .as_str()
            .unwrap();
        server.http().get(path).expect_status(200);
    }
    assert_eq!(server.http().get("/metrics").status, 401);
}

#[test]
fn grafana_gets_the_data_source_of_the_provisioning_files_and_the_dashboards() {
    let mut expect = documents(&text(
        "docs/deploy/grafana/provisioning/datasources/varve.yaml",
    ));
    let mut expect = expect[0]["datasources"][0].take();
    for destination in expect["jsonData"]["exemplarTraceIdDestinations"]
        .as_array_mut()
        .unwrap()
    {
        destination
            .as_object_mut()
            .unwrap()
            .remove("urlDisplayLabel");
    }
    let patch = |file: &str| documents(&text(&format!("{BASE}/kube-prometheus/{file}"))).remove(0);
    let source = |file: &str| {
        let text = patch(file)["stringData"]["varve.yaml"].take();
        documents(text.as_str().unwrap())[0]["datasources"][0].take()
    };
    expect["url"] = "http://varve.monitoring.svc:9898".into();
    assert_eq!(source("grafana-datasource.yaml"), expect);
    expect["url"] = "https://varve.monitoring.svc:9898".into();
    let mut with_token = source("grafana-datasource-auth-tls.yaml");
    // The names that `kubectl set env` gives to the keys of the Secrets.
    assert_eq!(
        with_token["secureJsonData"].take(),
        json!({"httpHeaderValue1": "Bearer $VARVE_TOKEN_GRAFANA", "tlsCACert": "$VARVE_TLS_CA_CRT"})
    );
    with_token.as_object_mut().unwrap().remove("secureJsonData");
    let more = json!({"httpHeaderName1": "Authorization", "tlsAuthWithCACert": true});
    for (key, value) in more.as_object().unwrap() {
        expect["jsonData"][key] = value.clone();
    }
    assert_eq!(with_token, expect);
    // The directory of kube-prometheus' provider.
    let deployment = patch("grafana-dashboards.yaml");
    let pod = &deployment["spec"]["template"]["spec"];
    let mounts = list(&pod["containers"][0]["volumeMounts"]);
    let volumes = list(&pod["volumes"]);
    assert_eq!(mounts.len(), volumes.len());
    let mut maps = BTreeSet::new();
    for (mount, volume) in mounts.iter().zip(volumes) {
        assert_eq!(mount["name"], volume["name"]);
        let path = mount["mountPath"].as_str().unwrap();
        assert!(path.starts_with("/grafana-dashboard-definitions/0/varve"));
        maps.insert(volume["configMap"]["name"].as_str().unwrap());
    }
    // The ConfigMaps of the kustomization that its head names.
    let kustomization = documents(&text("docs/mixin/kustomization.yaml")).remove(0);
    let generated = list(&kustomization["configMapGenerator"]).iter();
    let generated: BTreeSet<_> = generated.map(|map| map["name"].as_str().unwrap()).collect();
    assert_eq!(maps, generated);
}
