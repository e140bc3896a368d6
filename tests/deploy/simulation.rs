//! A small training cluster and the control plane of a fleet, simulated by `varve-bench`, on a
//! server that has evaluated the training pack and the rules of the cluster over it.

use std::process::Command;

use clap::Parser as _;
use serde_json::{Value, json};
use varve_bench::Cli;

use super::mixin::{CLUSTER, files, list, string, yaml};
use super::repository_path;
use crate::harness::{ConfigFile, Server, WriteRequest, now_ms, series, wait_until};

/// With this seed a link flaps, a PCIe link is degraded, a GPU has memory errors, a job is scheduled
/// only in part, another one waits for its image, and a team waits for its own nodes.
const SEED: &str = "6";
const NODES: &str = "24";
const MINUTES: i64 = 60;
/// The fleet is read for its control plane, which is asked for the newest values only.
const FLEET_MINUTES: i64 = 15;
const FLEET_SERIES: &str = "20000";
const STEP_S: i64 = 30;
/// The interval of all rules. In production it is 30 s or 1 m for most of them.
const INTERVAL_S: i64 = 120;
/// A node that is written by hand, with faults that the simulation draws only in large clusters.
const FAULTY_NODE: &str = "gpu-faulty";
/// The faults of that node begin and end so many seconds before the end of the data.
const FAULTS_S: std::ops::Range<i64> = 600..2_400;

/// Times are seconds.
pub(super) struct Simulation {
    pub(super) server: Server,
    pub(super) start: i64,
    pub(super) end: i64,
    _configs: [ConfigFile; 2],
}

/// A sample as `/api/v1/query` and `/api/v1/query_range` return it.
fn is_number(sample: &Value) -> bool {
    sample[1].as_str().is_some_and(|value| value != "NaN")
}

impl Simulation {
    /// Starts the server and evaluates the rules.
    pub(super) fn run() -> Self {
        let storage = json!({"tsdb": {"out_of_order_time_window": "1d"}});
        let plain = ConfigFile::new(&json!({"storage": storage}).to_string());
        let with_rules = ConfigFile::new(
            &json!({"storage": storage, "rules": {"wait": "none"}, "rule_files": ["rules.yml"]})
                .to_string(),
        );
        let end = now_ms() / 1000 / STEP_S * STEP_S;
        let mut simulation = Self {
            server: Server::start(&[&plain.flag(), "--web.enable-admin-api"]),
            start: end - MINUTES * 60,
            end,
            _configs: [plain, with_rules],
        };
        simulation.write_cluster();
        simulation.write_fleet();
        simulation.write_faults();
        simulation.write_what_nobody_simulates();
        simulation.evaluate_rules();
        simulation
    }

    /// Returns `true` if an instant query at the end of the data returns a number.
    pub(super) fn has_value(&self, query: &str) -> bool {
        let at = self.end.to_string();
        let found = self.query("/api/v1/query", &[("query", query), ("time", &at)]);
        match found["resultType"].as_str() {
            Some("scalar") => is_number(&found["result"]),
            _ => list(&found["result"])
                .iter()
                .any(|series| is_number(&series["value"])),
        }
    }

    /// Returns `true` if a range query over the data returns a number.
    pub(super) fn has_value_in_range(&self, query: &str) -> bool {
        let start = self.start.to_string();
        let end = self.end.to_string();
        let params = [
            ("query", query),
            ("start", &*start),
            ("end", &*end),
            ("step", "60"),
        ];
        let found = self.query("/api/v1/query_range", &params);
        let mut all = list(&found["result"]).iter();
        all.any(|series| list(&series["values"]).iter().any(is_number))
    }

    /// Returns the values of a label in series that match a selector within the data.
    pub(super) fn label_values(&self, selector: &str, label: &str) -> Vec<String> {
        let start = self.start.to_string();
        let end = self.end.to_string();
        let params = [("match[]", selector), ("start", &*start), ("end", &*end)];
        let found = self.query("/api/v1/series", &params);
        let all = list(&found).iter();
        let mut values: Vec<_> = all
            .filter_map(|series| series[label].as_str())
            .map(str::to_owned)
            .collect();
        values.sort();
        values.dedup();
        values
    }

    /// Returns a label of the first series of an instant query at the end of the data.
    pub(super) fn label(&self, query: &str, label: &str) -> String {
        let at = self.end.to_string();
        let found = self.query("/api/v1/query", &[("query", query), ("time", &at)]);
        let value = string(&found["result"][0]["metric"][label]);
        assert!(!value.is_empty(), "{query} has no label {label}: {found}");
        value.to_owned()
    }

    fn query(&self, path: &str, params: &[(&str, &str)]) -> Value {
        let answer = self.server.http().query(path, params);
        assert_eq!(answer.status, 200, "{params:?}: {}", answer.text());
        answer.json()["data"].take()
    }

    fn bench(&self, command: &[&str], start: i64, minutes: i64, flags: &[&str]) {
        let url = self.server.http().url("/api/v1/write");
        let start = start.to_string();
        let duration = format!("{minutes}m");
        let times = ["--start", &start, "--duration", &duration];
        let words = [&["varve-bench"], command, &[&url], &times, flags].concat();
        let cli = Cli::try_parse_from(&words).unwrap_or_else(|e| panic!("{words:?}: {e}"));
        varve_bench::run(&cli).unwrap_or_else(|e| panic!("{words:?}: {e:#}"));
    }

    fn write_cluster(&self) {
        let faults = ["--faults-per-kind", "1", "--decoys-per-kind", "0"];
        let flags = [&["--nodes", NODES, "--seed", SEED], &faults[..]].concat();
        self.bench(&["training", "write"], self.start, MINUTES, &flags);
    }

    fn write_fleet(&self) {
        let start = self.end - FLEET_MINUTES * 60;
        self.bench(
            &["write"],
            start,
            FLEET_MINUTES,
            &["--active-series", FLEET_SERIES],
        );
    }

    /// Writes a series with a sample in each step from `from` to `until`.
    fn write(&self, labels: &[(&str, &str)], from: i64, until: i64, value: impl Fn(i64) -> f64) {
        let times = (from..=until).step_by(STEP_S as usize);
        let samples: Vec<_> = times.map(|at| (at * 1000, value(at))).collect();
        let request = WriteRequest::new([series(labels, &samples)]);
        self.server.http().write(&request).expect_status(204);
    }

    /// Writes a node with bad hardware, failed pods, and an API server that rejects requests.
    fn write_faults(&self) {
        let from = self.end - FAULTS_S.end;
        let until = self.end - FAULTS_S.start;
        let constant = |labels: &[(&str, &str)], value: f64| {
            self.write(labels, from, until, |_| value);
        };
        let counter = |labels: &[(&str, &str)]| {
            self.write(labels, from, until, |at| ((at - from) / 60) as f64);
        };
        let node = ("instance", FAULTY_NODE);
        let port = [node, ("device", "mlx5_0"), ("port", "1")];
        let gpu = [("Hostname", FAULTY_NODE), ("gpu", "0")];
        let named = |metric, labels: &[(&'static str, &'static str)]| {
            [&[("__name__", metric)], labels].concat()
        };
        constant(&named("node_infiniband_rate_bytes_per_second", &port), 1e9);
        counter(&named("node_infiniband_link_downed_total", &port));
        counter(&named("node_infiniband_port_errors_received_total", &port));
        constant(&named("DCGM_FI_DEV_XID_ERRORS", &gpu), 79.0);
        constant(&named("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", &gpu), 1.0);
        counter(&[
            ("__name__", "apiserver_request_total"),
            ("code", "429"),
            ("verb", "LIST"),
        ]);

        let pods = "kube_pod_status_scheduled{namespace!=\"\"}";
        for namespace in self.label_values(pods, "namespace") {
            let pod = self.label_values(
                &format!("kube_pod_info{{namespace=\"{namespace}\"}}"),
                "pod",
            );
            let of_pod = [("namespace", &*namespace), ("pod", &*pod[0])];
            let failed = [("__name__", "kube_pod_status_phase"), ("phase", "Failed")];
            self.write(&[&failed[..], &of_pod].concat(), until - 60, until, |_| 1.0);
        }
    }

    /// Writes series of a healthy cluster that neither the training cluster nor the fleet has.
    fn write_what_nobody_simulates(&self) {
        let increasing = |labels: &[(&str, &str)]| {
            self.write(labels, self.start, self.end, |at| (at - self.start) as f64);
        };
        increasing(&[
            ("__name__", "node_infiniband_port_data_received_bytes_total"),
            ("instance", "gpu-0000"),
            ("device", "mlx5_0"),
        ]);
        increasing(&[
            (
                "__name__",
                "apiserver_flowcontrol_dispatched_requests_total",
            ),
            ("flow_schema", "service-accounts"),
        ]);
    }

    /// Lets the server catch up all evaluations since the start of the data, as after an outage.
    fn evaluate_rules(&mut self) {
        let config = &self._configs[1];
        let write = |rules: &Value| {
            let group =
                json!({"name": "all", "interval": format!("{INTERVAL_S}s"), "rules": rules});
            let file = json!({"groups": [group]}).to_string();
            std::fs::write(config.dir().join("rules.yml"), file).unwrap();
        };
        // The last evaluation before the outage.
        write(&json!([{"record": "simulation:start", "expr": "vector(1)"}]));
        let start = self.start.to_string();
        let end = (self.start + 2 * INTERVAL_S).to_string();
        let backfill = Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(["rules", "backfill", &self.server.http().url("")])
            // The path as the server knows it: evaluation times depend on it.
            .arg(config.dir().join("rules.yml"))
            .arg("--path")
            .arg(self.server.data_dir())
            .args(["--start", &start, "--end", &end])
            .output()
            .unwrap();
        assert!(
            backfill.status.success(),
            "{}",
            String::from_utf8_lossy(&backfill.stderr)
        );
        self.server.terminate();

        let mut rules = pack();
        rules.push(json!({"record": "simulation:start", "expr": "vector(1)"}));
        write(&json!(rules));
        self.server
            .restart(&[&config.flag(), "--rules.catch-up=1d"]);
        // Progress is expected of every fifth evaluation, however busy the machine is.
        for until in (self.start..=self.end)
            .step_by(5 * INTERVAL_S as usize)
            .skip(1)
        {
            let time = until.to_string();
            let evaluated = format!("timestamp(simulation:start) > {}", until - INTERVAL_S);
            wait_until("the rules have caught up", || {
                let params = [("query", &*evaluated), ("time", &time)];
                !list(&self.query("/api/v1/query", &params)["result"]).is_empty()
            });
        }
    }
}

/// Returns the rules of the training pack, records first, and those of the cluster.
fn pack() -> Vec<Value> {
    let mut rules = Vec::new();
    for path in pack_files() {
        for group in list(&yaml(&path)["groups"]) {
            rules.extend(list(&group["rules"]).to_vec());
        }
    }
    rules
}

/// Returns the rule files of the training pack, but those of Kueue and Slurm, in the order of what
/// they read, and that of the cluster.
pub(super) fn pack_files() -> Vec<String> {
    const TRAINING: &str = "docs/mixin/training";
    let named = [
        "jobs-owner",
        "jobs-jobset",
        "jobs-kubeflow",
        "jobs",
        "alerts",
        "nodes",
    ];
    let mut paths: Vec<_> = named
        .iter()
        .map(|name| format!("{TRAINING}/{name}.yaml"))
        .collect();
    let others = files(&repository_path(TRAINING), ".yaml");
    for path in others {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_other_scheduler = name.starts_with("jobs-");
        assert!(
            named.contains(&name) || is_other_scheduler || name.ends_with("tests"),
            "the simulation does not evaluate {name}.yaml"
        );
    }
    paths.push(CLUSTER.to_owned());
    paths
}
