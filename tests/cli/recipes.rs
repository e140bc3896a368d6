//! The recipes of docs/operations.md, run as they are written.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{ConfigFile, Server, WriteRequest, missing, now_ms, series};

/// Returns the shell blocks of a section of docs/operations.md, without the lines that start a
/// server.
fn recipes(section: &str) -> Vec<String> {
    let page = include_str!("../../docs/operations.md");
    let (_, rest) = page
        .split_once(&format!("\n## {section}\n"))
        .expect("the section exists");
    let text = rest.split("\n## ").next().unwrap_or(rest);
    let blocks = text
        .split("```sh\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap_or_default());
    let keep = |line: &&str| !line.starts_with("varve serve");
    blocks
        .map(|block| block.lines().filter(keep).collect::<Vec<_>>().join("\n"))
        .collect()
}

/// Runs a recipe with variables, and returns its output.
fn run(recipe: &str, variables: &[(&str, &str)]) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_varve"))
        .parent()
        .expect("a program has a directory");
    let path = format!(
        "{}:{}",
        binary.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut shell = Command::new("sh");
    let output = shell
        .args(["-euc", recipe])
        .env("PATH", path)
        .envs(variables.iter().copied())
        .output();
    let output = output.expect("run a shell");
    assert!(output.status.success(), "{recipe}\n{output:?}");
    String::from_utf8(output.stdout)
        .expect("names are text")
        .trim()
        .to_owned()
}

struct Incident {
    server: Server,
    backup: tempfile::TempDir,
    name: String,
    t_ms: i64,
}

const FLAGS: [&str; 2] = [
    "--web.enable-admin-api",
    "--storage.tsdb.retention.time=100y",
];

/// Starts a server with a rule that a query has disabled, HA pairs and a query, and backs it up.
fn backed_up() -> Incident {
    let rule =
        "{source_labels: [__name__], regex: dropped, action: drop, name: r, disable_on_use: true}";
    let config = ConfigFile::new("ingest: {relabel_files: [rules.yml], ha: {}, team_label: team}");
    std::fs::write(
        config.dir().join("rules.yml"),
        format!("ingest: {{metric_relabel_configs: [{rule}]}}"),
    )
    .expect("write rules");
    let server = Server::start(&[&FLAGS[..], &[&*config.flag()][..]].concat());
    let t_ms = now_ms() - 10_000;
    let labels = [
        ("__name__", "up"),
        ("prometheus", "k8s"),
        ("prometheus_replica", "a"),
    ];
    let dropped = series(&[("__name__", "dropped")], &[(t_ms, 1.0)]);
    server
        .http()
        .write(&WriteRequest::new([series(&labels, &[(t_ms, 1.0)])]))
        .expect_status(204);
    server
        .http()
        .write(&WriteRequest::new([dropped]))
        .expect_status(204);
    for query in ["sum(up)", "dropped"] {
        server
            .http()
            .query("/api/v1/query", &[("query", query)])
            .expect_status(200);
    }
    let backup = tempfile::tempdir().expect("make a directory");
    let (data, url) = (
        server.data_dir().display().to_string(),
        server.http().url(""),
    );
    let variables = [
        ("DATA", &*data),
        ("URL", &*url),
        ("BACKUP", backup.path().to_str().expect("a path is text")),
    ];
    let name = run(&recipes("Backup and restore")[0], &variables);
    assert!(
        !server.data_dir().join("snapshots").join(&name).exists(),
        "the space is free"
    );
    Incident {
        server,
        backup,
        name,
        t_ms,
    }
}

impl Incident {
    /// Stops the server, runs a recipe and starts a server as it says.
    fn recover(&mut self, recipe: &str) {
        let lost = series(&[("__name__", "later")], &[(self.t_ms + 5_000, 2.0)]);
        self.server
            .http()
            .write(&WriteRequest::new([lost]))
            .expect_status(204);
        assert!(self.server.terminate().success());
        let data = self.server.data_dir().display().to_string();
        let since = (self.t_ms - 600_000).to_string();
        let backup = self.backup.path().to_str().expect("a path is text");
        run(
            recipe,
            &[
                ("DATA", &data),
                ("BACKUP", backup),
                ("name", &self.name),
                ("SINCE", &since),
            ],
        );
        let flag = format!("--config.file={data}/config.yml");
        self.server.restart(&[&FLAGS[..], &[&*flag][..]].concat());
        // Samples, rules with their state, HA leaders, usage and configuration are there.
        let http = self.server.http();
        assert_eq!(self.value("last_over_time", "up"), json!("1"));
        // The export of a rollback has the sample, too.
        assert_eq!(self.value("count_over_time", "up"), json!("1"));
        let rule = http.get("/api/v1/status/relabel").data()["rules"][0].clone();
        assert_eq!(
            (&rule["name"], &rule["state"]),
            (&json!("r"), &json!("dry_run")),
            "{rule}"
        );
        let ha = http.get("/api/v1/status/ha").data();
        assert_eq!(ha["clusters"][0]["leader"]["replica"], "a", "{ha}");
        let usage = http.get("/api/v1/status/usage").data();
        let metrics = usage["metrics"].as_array().expect("a list").iter();
        assert!(
            metrics.into_iter().any(|metric| metric["metric"] == "up"),
            "{usage}"
        );
        assert_eq!(http.get("/api/v1/status/teams").data()["teamLabel"], "team");
    }

    /// Returns the value of a function of the last hour of a metric, or `null` if it has no sample.
    fn value(&self, function: &str, metric: &str) -> Value {
        let query = format!("{function}({metric}[1h])");
        self.server
            .http()
            .query("/api/v1/query", &[("query", &query)])
            .data()["result"][0]["value"][1]
            .clone()
    }
}

#[test]
fn a_backup_is_restored_with_rules_leaders_usage_and_configuration() {
    if missing(&["curl"]) {
        return;
    }
    let mut incident = backed_up();
    incident.recover(&recipes("Backup and restore")[1]);
    assert_eq!(incident.value("last_over_time", "later"), Value::Null);
}

#[test]
fn a_rollback_keeps_the_samples_since_the_backup() {
    if missing(&["curl"]) {
        return;
    }
    let mut incident = backed_up();
    incident.recover(&recipes("Upgrade and roll back")[0]);
    assert_eq!(incident.value("last_over_time", "later"), json!("2"));
}
