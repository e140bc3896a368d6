//! Rules over the samples of a real Prometheus that arrive late: its remote writes pass a proxy
//! that delays them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{ConfigFile, Http, NodeExporter, Process, Prometheus, Server, missing};

/// Delay of most samples, and of the samples of one target.
const DELAY: Duration = Duration::from_secs(5);
const DELAY_OF_SLOW: Duration = Duration::from_secs(20);
/// How long rules are evaluated.
const DURATION: Duration = Duration::from_secs(420);
const INTERVAL_S: u64 = 30;
/// The sums that are recorded, without the names of their series.
const EXPRS: [(&str, &str); 2] = [
    ("sum", "sum(node_cpu_seconds_total)"),
    ("rate", "sum(rate(node_cpu_seconds_total[30s]))"),
];

/// Starts a proxy to `target` that accepts each request at once and delivers it after `delay`, in
/// order.
fn start_proxy(target: SocketAddr, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("a listener has an address");
    let (accepted, requests) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, accepted) = (client.expect("accept"), accepted.clone());
            thread::spawn(move || accept_requests(&client, &accepted));
        }
    });
    thread::spawn(move || {
        for (arrival, request) in requests {
            thread::sleep((arrival + delay).saturating_duration_since(Instant::now()));
            // The receiver has stopped at the end of the test.
            let Ok(mut server) = TcpStream::connect(target) else {
                return;
            };
            let (mut status, is_sent) = ([0; 12], server.write_all(&request).is_ok());
            if is_sent
                && server.read_exact(&mut status).is_ok()
                && !status.starts_with(b"HTTP/1.1 2")
            {
                eprintln!("a delayed request failed: {}", status.escape_ascii());
            }
        }
    });
    address
}

/// Reads requests from a connection, and responds to each before its delivery.
fn accept_requests(client: &TcpStream, accepted: &Sender<(Instant, Vec<u8>)>) {
    let (mut reader, mut writer) = (BufReader::new(client), client);
    loop {
        let (mut request, mut body_len) = (Vec::new(), 0);
        loop {
            let from = request.len();
            if reader.read_until(b'\n', &mut request).unwrap_or(0) == 0 {
                return;
            }
            let line = String::from_utf8_lossy(&request[from..]).to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                body_len = value.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let head_len = request.len();
        request.resize(head_len + body_len, 0);
        let is_whole = reader.read_exact(&mut request[head_len..]).is_ok();
        if !is_whole
            || writer
                .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                .is_err()
        {
            return;
        }
        if accepted.send((Instant::now(), request)).is_err() {
            return;
        }
    }
}

/// A rule file whose metrics begin with `prefix`.
fn rules(prefix: &str) -> String {
    let rule =
        |(name, expr): (&str, &str)| json!({"record": format!("{prefix}:{name}"), "expr": expr});
    json!({"groups": [{"name": "g", "interval": format!("{INTERVAL_S}s"), "rules": EXPRS.map(rule)}]}).to_string()
}

/// Returns how many samples that rules have written equal a query asked later, and the number of
/// all.
fn equal(rules_at: &Http, data_at: &Http, prefix: &str) -> (usize, usize) {
    let (mut n_equal, mut n) = (0, 0);
    for (name, expr) in EXPRS {
        let data = rules_at
            .query(
                "/api/v1/query",
                &[("query", &format!("{prefix}:{name}[1h]"))],
            )
            .data();
        let samples = data["result"][0]["values"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        // The first evaluations do not know the senders yet, and the last samples may still be on
        // their way.
        for sample in samples.iter().skip(3) {
            let time = sample[0].to_string();
            let later = data_at
                .query("/api/v1/query", &[("query", expr), ("time", &time)])
                .data();
            let value = |value: &Value| value.as_str().and_then(|text| text.parse::<f64>().ok());
            let (recorded, later) = (value(&sample[1]), value(&later["result"][0]["value"][1]));
            let is_equal =
                matches!((recorded, later), (Some(a), Some(b)) if (a - b).abs() <= 1e-12 * b.abs());
            n_equal += usize::from(is_equal);
            n += 1;
            if !is_equal {
                eprintln!("{prefix}:{name} at {time}: {recorded:?}, later {later:?}");
            }
        }
    }
    (n_equal, n)
}

#[test]
#[ignore = "takes 8 minutes"]
fn sums_over_late_samples_equal_those_of_a_later_query() {
    if missing(&["prometheus", "prometheus-node-exporter", "vmalert"]) {
        return;
    }
    let config = ConfigFile::new(
        &json!({
            "rule_files": ["rules.yml"],
            "rules": {"wait": "data", "max_wait": "30s"},
        })
        .to_string(),
    );
    std::fs::write(config.dir().join("rules.yml"), rules("varve")).expect("write rules");
    std::fs::write(config.dir().join("prometheus.yml"), rules("prometheus")).expect("write rules");
    std::fs::write(config.dir().join("vmalert.yml"), rules("vmalert")).expect("write rules");
    let varve = Server::start(&[&config.flag()]);
    let receiver = Prometheus::start(
        &json!({"rule_files": [config.dir().join("prometheus.yml")]}).to_string(),
        &[],
    );

    let exporters: Vec<_> = (0..4).map(|_| NodeExporter::start()).collect();
    let targets: Vec<_> = exporters
        .iter()
        .map(|exporter| exporter.address().to_string())
        .collect();
    // One shard each: the samples of a series arrive in order.
    let queue = json!({"min_shards": 1, "max_shards": 1, "batch_send_deadline": "1s"});
    let remote = |http: &Http, delay, action: &str| {
        json!({
            "url": format!("http://{}/api/v1/write", start_proxy(http.address(), delay)),
            "name": format!("{} {action}", http.address()),
            "queue_config": queue,
            "write_relabel_configs": [{"source_labels": ["instance"], "regex": targets[0], "action": action}],
        })
    };
    let remotes = [varve.http(), receiver.http()].map(|http| {
        [
            remote(http, DELAY, "drop"),
            remote(http, DELAY_OF_SLOW, "keep"),
        ]
    });
    let source = json!({
        "global": {"scrape_interval": "5s"},
        "scrape_configs": [{"job_name": "node", "static_configs": [{"targets": targets}]}],
        "remote_write": remotes.concat(),
    });
    let _source = Prometheus::start(&source.to_string(), &[]);
    let mut command = Command::new("vmalert");
    let url = varve.http().url("");
    command.args([
        format!("-datasource.url={url}"),
        format!("-remoteWrite.url={url}"),
        format!("-rule={}", config.dir().join("vmalert.yml").display()),
        "-httpListenAddr=127.0.0.1:0".to_owned(),
        "-notifier.blackhole".to_owned(),
        "-remoteWrite.flushInterval=1s".to_owned(),
    ]);
    let _vmalert = Process::start("vmalert", &mut command);
    thread::sleep(DURATION);
    // All samples arrive.
    thread::sleep(DELAY_OF_SLOW * 2);
    let ours = equal(varve.http(), varve.http(), "varve");
    let prometheus = equal(receiver.http(), receiver.http(), "prometheus");
    let vmalert = equal(varve.http(), varve.http(), "vmalert");
    let delay = varve.metric("varve_rule_group_start_delay_seconds_sum")
        / varve.metric("varve_rule_group_start_delay_seconds_count");
    eprintln!(
        "equal of all: Varve {ours:?} after {delay:.1} s, Prometheus {prometheus:?}, vmalert {vmalert:?}"
    );
    assert!(ours.1 >= 16, "too little to compare");
    assert_eq!(ours.0, ours.1);
}
