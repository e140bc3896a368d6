//! The commands of docs/guides/migration.md, run against a real Prometheus and a real
//! VictoriaMetrics.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::text;
use crate::harness::{
    Http, Process, Prometheus, Server, WriteRequest, missing, now_ms, series, wait_for, wait_until,
};

/// Returns the shell blocks of a section of docs/guides/migration.md.
fn recipes(section: &str) -> Vec<String> {
    let page = text("docs/guides/migration.md");
    let (_, rest) = page
        .split_once(&format!("\n## {section}\n"))
        .expect("the section exists");
    let section = rest.split("\n## ").next().unwrap_or(rest);
    section
        .split("```sh\n")
        .skip(1)
        .map(|block| block.split("```").next().unwrap_or_default().to_owned())
        .collect()
}

/// Runs a recipe with variables, and returns its output.
fn run(recipe: &str, variables: &[(&str, &str)]) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_varve")).parent().unwrap();
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
        .output()
        .unwrap();
    assert!(output.status.success(), "{recipe}\n{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the value of a query that returns one series, or 0 if there is none.
fn value(http: &Http, query: &str) -> f64 {
    let data = http.query("/api/v1/query", &[("query", query)]).data();
    data["result"][0]["value"][1]
        .as_str()
        .map_or(0.0, |value| value.parse().unwrap())
}

/// Starts a VictoriaMetrics that scrapes an address.
fn victoria_metrics(dir: &Path, scrape_config: Option<&Path>) -> (Process, Http) {
    // It logs the address of its flag, so the port must be known.
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut command = Command::new("victoria-metrics");
    command
        .arg(format!("-httpListenAddr={free}"))
        .arg(format!("-storageDataPath={}", dir.display()));
    command.args(["-retentionPeriod=1", "-search.latencyOffset=1s"]);
    command.args(scrape_config.map(|config| format!("-promscrape.config={}", config.display())));
    let process = Process::start("victoria-metrics", &mut command);
    let http = Http::new(free);
    wait_until("victoria-metrics", || {
        http.try_get("/health")
            .is_ok_and(|answer| answer.status == 200)
    });
    (process, http)
}

fn scrape_config(job: &str, target: SocketAddr) -> String {
    let targets = format!("static_configs: [{{targets: ['{target}']}}]");
    format!("global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: {job}, {targets}}}]\n")
}

/// The process id of a vmagent, which ends with its handle.
struct Agent(String);

impl Drop for Agent {
    fn drop(&mut self) {
        // An error means that it has exited.
        let _ = Command::new("kill").arg(&self.0).status();
    }
}

/// Series of pods, of which one ended nine minutes ago, and a name that needs quotes.
struct SeriesThatEnd {
    end_ms: i64,
}

impl SeriesThatEnd {
    const SELECTOR: &str = "{__name__=~'mem|node.cpu-é'}";

    fn write_to(vm: &Http) -> Self {
        let end_ms = now_ms() - 540_000;
        let stale = f64::from_bits(0x7ff0_0000_0000_0002);
        let samples = |end_ms: i64, value: f64| -> Vec<(i64, f64)> {
            (1..10)
                .rev()
                .map(|i| (end_ms - i * 15_000, value))
                .collect()
        };
        let ended = [samples(end_ms, 3.0), vec![(end_ms, stale)]].concat();
        let running = [samples(end_ms, 7.0), samples(end_ms + 150_000, 7.0)].concat();
        vm.write(&WriteRequest::new([
            series(&[("__name__", "mem"), ("pod", "a")], &ended),
            series(&[("__name__", "mem"), ("pod", "b")], &running),
            series(&[("__name__", "node.cpu-é")], &ended),
        ]))
        .expect_status(204);
        Self { end_ms }
    }

    /// Checks that the copy ends where the source ends.
    fn check(&self, copy: &Http, source: &Http) {
        let exported = [copy, source].map(|http| {
            let parameters = [("match[]", Self::SELECTOR)];
            let text = http.form("/api/v1/export", &parameters).text();
            let mut lines: Vec<Value> = text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            lines.sort_by_key(|line| line["metric"].to_string());
            lines
        });
        assert_eq!(exported[0], exported[1]);
        assert_eq!(exported[0].len(), 3);
        for (offset_ms, sum, count) in [(-1, "10", "2"), (0, "7", "1"), (60_000, "7", "1")] {
            let time = format!("{}", (self.end_ms + offset_ms) as f64 / 1000.0);
            for (query, expect) in [("sum(mem)", sum), ("count(mem)", count)] {
                let parameters = [("query", query), ("time", &time)];
                let data = copy.query("/api/v1/query", &parameters).data();
                assert_eq!(data["result"][0]["value"][1], expect, "{query} {offset_ms}");
            }
        }
    }
}

#[test]
fn from_prometheus_and_back() {
    if missing(&["prometheus", "promtool", "curl"]) {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(&["--web.enable-admin-api"]);
    let prometheus = Prometheus::start("", &[]);
    let scrapes = scrape_config("prometheus", prometheus.http().address()).replacen(
        "global: {",
        "global: {external_labels: {prometheus: monitoring/k8s}, ",
        1,
    );
    prometheus.reload(&scrapes);
    wait_until("history", || {
        value(prometheus.http(), "count_over_time(up[1m])") >= 3.0
    });
    let first = value(prometheus.http(), "min_over_time(timestamp(up)[5m:1s])");

    // Both receive samples now. The history is older.
    let write = server.http().url("/api/v1/write");
    prometheus.reload(&format!(
        "{scrapes}remote_write: [{{url: '{write}', send_native_histograms: true}}]\n"
    ));
    wait_until("samples in both", || {
        value(server.http(), "count(up)") == 1.0
    });
    assert!(value(server.http(), "min_over_time(timestamp(up)[5m:1s])") > first);
    let (url, data) = (
        server.http().url(""),
        server.data_dir().display().to_string(),
    );
    let (prom, prom_data) = (
        prometheus.http().url(""),
        prometheus.data_dir().display().to_string(),
    );
    let variables = [
        ("URL", &*url),
        ("DATA", &*data),
        ("PROM", &*prom),
        ("PROM_DATA", &*prom_data),
        ("EXTERNAL_LABEL", "prometheus=monitoring/k8s"),
        ("WORK", work.path().to_str().unwrap()),
        ("AGE", "1"),
    ];
    let recipes = recipes("From Prometheus");
    let [import, compare, back] = &recipes[..] else {
        panic!("three recipes")
    };
    run(import, &variables);
    assert_eq!(
        value(server.http(), "min_over_time(timestamp(up)[5m:1s])"),
        first
    );
    wait_for("equal counts", || {
        let printed = run(compare, &variables);
        let counts: Vec<_> = printed
            .lines()
            .filter_map(|line| line.split(" => ").nth(1)?.split(" @").next())
            .collect();
        (counts.len() == 2 && counts[0] == counts[1] && printed.contains("=>")).then_some(())
    });

    run(back, &variables);
    let restored = Prometheus::start_on("", &[], |data_dir| {
        crate::harness::copy_dir(&work.path().join("prometheus"), data_dir);
    });
    assert_eq!(
        value(restored.http(), "min_over_time(timestamp(up)[5m:1s])"),
        first
    );
}

#[test]
fn from_victoria_metrics_and_back() {
    if missing(&["victoria-metrics", "vmagent", "vmctl", "script", "curl"]) {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name);
    let target = Prometheus::start("", &[]);
    std::fs::write(
        path("old.yml"),
        scrape_config("old", target.http().address()),
    )
    .unwrap();
    std::fs::write(
        path("agent.yml"),
        scrape_config("agent", target.http().address()),
    )
    .unwrap();
    let rule = "groups: [{name: g, rules: [{record: r, expr: 'keep_last_value(up)'}]}]";
    std::fs::write(path("metricsql.yml"), rule).unwrap();
    let (_old, vm) = victoria_metrics(&path("vm"), Some(&path("old.yml")));
    let (_new, back) = victoria_metrics(&path("back"), None);
    let server = Server::start(&["--web.enable-admin-api"]);
    wait_until("history", || {
        value(&vm, "count_over_time(up{job='old'}[1m])") >= 3.0
    });

    let (url, data) = (
        server.http().url(""),
        server.data_dir().display().to_string(),
    );
    let (vm_url, back_url) = (vm.url(""), back.url(""));
    let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    let seconds = an_hour_ago
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .to_string();
    let start = run(
        r#"date -u -d "@$SECONDS_AGO" +%Y-%m-%dT%H:%M:%SZ"#,
        &[("SECONDS_AGO", &seconds)],
    );
    let variables = [
        ("URL", &*url),
        ("DATA", &*data),
        ("VM", &*vm_url),
        ("VM_BACK", &*back_url),
        ("WORK", work.path().to_str().unwrap()),
        ("START", &*start),
    ];
    let recipes = recipes("From VictoriaMetrics");
    let [agent, history, check, way_back] = &recipes[..] else {
        panic!("four recipes")
    };
    // The shell would wait for the agent's output.
    let agent = agent.replace("forcePromProto &", "forcePromProto >/dev/null 2>&1 &");
    run(&agent, &variables);
    let agent = Agent(
        std::fs::read_to_string(path("agent.pid"))
            .unwrap()
            .trim()
            .to_owned(),
    );
    for http in [server.http(), &vm] {
        wait_until("samples of the agent in both", || {
            value(http, "count(up{job='agent'})") == 1.0
        });
    }
    drop(agent);

    let ends = SeriesThatEnd::write_to(&vm);
    vm.get("/internal/force_flush").expect_status(200);
    run(history, &variables);
    let exported = std::fs::read_to_string(path("history.jsonl")).unwrap();
    let n_exported: usize = exported
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["metric"]["__name__"] == "up" && line["metric"]["job"] == "old")
        .map(|line| line["values"].as_array().map_or(0, Vec::len))
        .sum();
    assert!(n_exported >= 3, "{n_exported}");
    assert_eq!(
        value(server.http(), "count_over_time(up{job='old'}[1h])"),
        n_exported as f64
    );
    ends.check(server.http(), &vm);
    run(check, &variables);

    let printed = run(way_back, &variables);
    assert!(printed.contains("total samples:"), "{printed}");
    back.get("/internal/force_flush").expect_status(200);
    let data: Value = back
        .query(
            "/api/v1/query",
            &[("query", "sum(count_over_time(up{job='old'}[1h]))")],
        )
        .data();
    let copied: f64 = data["result"][0]["value"][1]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(copied >= 1.0, "{data}");
}
