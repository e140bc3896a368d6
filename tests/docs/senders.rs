//! The programs of docs/guides/senders.md, configured and started as printed, deliver samples. Only
//! ports and the scrape interval are replaced.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use varve_oracle::find_all;

use crate::harness::{Http, Process, Server, free_address, missing, wait_for, wait_until};

/// A section of the page in a directory of its own, which has its files.
struct Section {
    dir: TempDir,
    /// The shell block, which starts the program.
    script: String,
    /// The address of the program, by the first port of the script or the files.
    address: SocketAddr,
}

impl Section {
    /// Reads the section of a sender. `port` is the one at which its program listens.
    fn new(title: &str, port: u16, varve: SocketAddr) -> Self {
        let page = super::page("guides/senders.md");
        let (_, rest) = page
            .split_once(&format!("\n## {title}\n"))
            .unwrap_or_else(|| panic!("the page has a section {title}"));
        let section = rest.split("\n## ").next().unwrap_or(rest);
        let address = free_address();
        let mut text = section
            .replace("localhost:9898", &varve.to_string())
            .replace(&format!("localhost:{port}"), &address.to_string())
            .replace("scrape_interval: 15s", "scrape_interval: 1s")
            // The Collector's own metrics have a fixed port.
            .replace(
                "service:\n",
                "service:\n  telemetry: {metrics: {level: none}}\n",
            );
        while let Some((_, rest)) = text.split_once("localhost:") {
            let other: String = rest.chars().take_while(char::is_ascii_digit).collect();
            text = text.replace(&format!("localhost:{other}"), &free_address().to_string());
        }
        let dir = TempDir::new().expect("make a temporary directory");
        let mut script = None;
        for block in text.split("\n```").skip(1).step_by(2) {
            let (language, body) = block.split_once('\n').expect("a block has lines");
            let first = body.lines().next().unwrap_or_default();
            if language == "sh" {
                script = Some(body.trim_end().trim_end_matches('&').to_owned());
            } else if let Some(name) = first.strip_prefix("# ") {
                std::fs::write(dir.path().join(name), body).expect("write a file");
            }
        }
        Self {
            dir,
            script: script.expect("the section has a shell block"),
            address,
        }
    }

    /// Starts the program of the shell block, which is looked up in `path`.
    fn start(&self, path: &str) -> Process {
        let mut command = Command::new("sh");
        command
            .args(["-euc", &format!("exec {}", self.script)])
            .current_dir(self.dir.path())
            .env("PATH", path);
        Process::start(&self.script, &mut command)
    }
}

fn path() -> String {
    std::env::var("PATH").unwrap_or_default()
}

/// Returns PATH with the folder of a program in front.
fn path_to(program: &Path) -> String {
    let folder = program.parent().expect("a program is in a folder");
    format!("{}:{}", folder.display(), path())
}

/// Waits until a series has a value of 1.
fn wait_for_one(varve: &Server, selector: &str) {
    wait_until(selector, || {
        let found = varve
            .http()
            .query("/api/v1/query", &[("query", selector)])
            .data();
        found["result"][0]["value"][1] == "1"
    });
}

/// Returns the requests of the first sender with a `User-Agent`, and those that failed.
fn requests(varve: &Server, user_agent: &str) -> Option<(u64, u64)> {
    let senders = varve.http().get("/api/v1/status/senders").data();
    let sender = senders["senders"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|sender| {
            sender["userAgent"]
                .as_str()
                .is_some_and(|agent| agent.contains(user_agent))
        })?;
    Some((sender["requests"].as_u64()?, sender["failed"].as_u64()?))
}

#[test]
fn prometheus_and_its_agent_send() {
    if missing(&["prometheus"]) {
        return;
    }
    for program in find_all("prometheus") {
        for (title, port, job) in [
            ("Prometheus", 9090, "prometheus"),
            ("Prometheus agent", 9091, "agent"),
        ] {
            let varve = Server::start(&[]);
            let section = Section::new(title, port, varve.http().address());
            let _prometheus = section.start(&path_to(&program));
            wait_for_one(&varve, &format!("up{{job=\"{job}\"}}"));
            // A request is counted after its samples are stored.
            let (n_requests, n_failed) = wait_for("Prometheus to be listed", || {
                requests(&varve, "Prometheus/")
            });
            assert!(n_requests > 0);
            assert_eq!(n_failed, 0, "{title} of {}", program.display());
        }
    }
}

/// vmagent first sends with zstd, gets 415, and sends the same samples with snappy.
#[test]
fn vmagent_falls_back_and_loses_nothing() {
    if missing(&["vmagent"]) {
        return;
    }
    let varve = Server::start(&[]);
    let section = Section::new("vmagent", 8429, varve.http().address());
    let _vmagent = section.start(&path());
    wait_for_one(&varve, "up{job=\"vmagent\"}");
    let rejected = "prometheus_http_requests_total{code=\"415\",handler=\"/api/v1/write\"}";
    assert!(varve.metric(rejected) >= 1.0);
    let metrics = Http::new(section.address).get("/metrics").text();
    let dropped = metrics
        .lines()
        .find(|line| line.starts_with("vmagent_remotewrite_packets_dropped_total"))
        .expect("vmagent counts them");
    assert!(dropped.ends_with(" 0"), "{dropped}");
}

#[test]
fn the_collector_forwards() {
    if missing(&["otelcol"]) {
        return;
    }
    let varve = Server::start(&[]);
    let section = Section::new("OpenTelemetry Collector", 4318, varve.http().address());
    let _collector = section.start(&path());
    let http = Http::new(section.address);
    // The receiver answers all but POST with an error.
    wait_until("otelcol to be ready", || {
        http.try_get("/v1/metrics").is_ok()
    });
    let time_ns = crate::harness::now_ms() * 1_000_000;
    let request = format!(
        r#"{{"resourceMetrics": [{{"scopeMetrics": [{{"metrics": [
            {{"name": "sent", "gauge": {{"dataPoints": [{{"timeUnixNano": "{time_ns}", "asDouble": 1}}]}}}}
        ]}}]}}]}}"#
    );
    http.post(
        "/v1/metrics",
        &[("Content-Type", "application/json")],
        request.as_bytes(),
    )
    .expect_status(200);
    wait_for_one(&varve, "sent");
}
