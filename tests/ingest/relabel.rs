//! Relabeling: the results of rules are those of a real Prometheus, recorded in
//! `tests/data/relabel/golden.txt`; and rules in a running server.
//!
//! Prometheus receives the label sets by remote write and sends them to a server of this test, once
//! for each case with the rules of the case. The value of a sample is the number of its label set.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use prost::Message;
use serde_json::{Value, json};

use crate::harness::{
    ConfigFile, Http, Prometheus, Server, WriteRequest, missing, now_ms, series, wait_until,
};

/// Relabeled label sets by the number of the original one.
type Relabeled = BTreeMap<usize, BTreeMap<String, String>>;

const SERIES: &[&[(&str, &str)]] = &[
    &[("__name__", "up"), ("instance", "h1:80"), ("job", "a")],
    &[
        ("__name__", "up"),
        ("instance", "h2:90"),
        ("job", "b"),
        ("label_a", "1"),
        ("label_b", "2"),
    ],
    &[
        ("__name__", "requests_total"),
        ("job", "abcd"),
        ("label_a", "x"),
        ("label_b", "x"),
        ("joined", "x;x"),
    ],
    &[
        ("__name__", "requests_total"),
        ("instance", "h1:80"),
        ("path", "/api/v1/query"),
        ("job", "nginx"),
    ],
    &[("__name__", "latency_bucket"), ("le", "0.1"), ("job", "A")],
    &[
        ("__name__", "latency_bucket"),
        ("le", "+Inf"),
        ("label_x", "y"),
        ("x_job", "z"),
    ],
    &[
        ("__name__", "with.dots"),
        ("path", "é/É"),
        ("job", "Straße"),
    ],
    &[("__name__", "text"), ("text", "a\nb"), ("job", "aaa")],
    &[
        ("__name__", "text"),
        ("text", "a$1b"),
        ("path", "été"),
        ("label_é", "u"),
    ],
    &[
        ("__name__", "x:y"),
        ("same", "s"),
        ("instance", "nohost"),
        ("job", "ΑΣ"),
    ],
    &[
        ("__name__", "имя"),
        ("a.b", "1"),
        ("ключ", "значение"),
        ("__tmp_x", "1"),
        ("job", "x"),
    ],
    &[
        ("__name__", "letters"),
        ("letters", "ǅİﬀßΣςſK"),
        ("job", "__name__"),
        ("label_a", "old"),
    ],
];

#[test]
fn the_golden_table_is_that_of_a_real_prometheus() {
    if missing(&["prometheus"]) {
        return;
    }
    let cases: Vec<_> = read("cases.txt").lines().map(str::to_owned).collect();
    let taken: Arc<Mutex<Vec<Relabeled>>> =
        Arc::new(Mutex::new(vec![Relabeled::new(); cases.len()]));
    let address = receive(&taken);
    let remotes: Vec<_> = (0..)
        .zip(&cases)
        .map(|(i, case)| remote(i, case, &address))
        .collect();
    let prometheus = Prometheus::start(&json!({ "remote_write": remotes }).to_string(), &[]);
    prometheus.http().write(&request()).expect_status(204);
    wait_until("all cases to be sent or dropped", || {
        done(prometheus.http())
            .iter()
            .filter(|(_, n)| **n >= SERIES.len() as f64)
            .count()
            == cases.len()
    });

    let mut golden = String::new();
    for labels in SERIES {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        golden += &format!("series {}\n", json!(labels));
    }
    for (case, relabeled) in cases.iter().zip(&*taken.lock().unwrap()) {
        golden += &format!("case {case}\n");
        for idx in 0..SERIES.len() {
            let left = relabeled
                .get(&idx)
                .map_or_else(|| "-".to_owned(), |labels| json!(labels).to_string());
            golden += &format!("{idx} {left}\n");
        }
    }
    if std::env::var_os("VARVE_WRITE_GOLDEN").is_some() {
        std::fs::write(path("golden.txt"), &golden).expect("write the table");
    }
    assert!(
        golden == read("golden.txt"),
        "the table differs; VARVE_WRITE_GOLDEN=1 regenerates it"
    );
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/relabel")
        .join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).expect("read the table")
}

fn remote(i: usize, case: &str, address: &str) -> Value {
    json!({
        "name": format!("case-{i}"),
        "url": format!("http://{address}/{i}"),
        "send_exemplars": false,
        "metadata_config": {"send": false},
        "queue_config": {"min_shards": 1, "max_shards": 1, "batch_send_deadline": "100ms"},
        "write_relabel_configs": serde_json::from_str::<Value>(case).expect("a case is JSON"),
    })
}

fn request() -> WriteRequest {
    let now_ms = now_ms();
    // Ahead of the clock: a remote write skips samples that are older than its start.
    let sample = |(idx, labels): (i32, &&[(&str, &str)])| {
        series(labels, &[(now_ms + AHEAD_MS, f64::from(idx))])
    };
    WriteRequest::new((0..).zip(SERIES).map(sample))
}

/// Returns the number of samples that each remote has sent or dropped.
fn done(http: &Http) -> BTreeMap<String, f64> {
    let mut done = BTreeMap::new();
    for line in http.get("/metrics").text().lines() {
        let counts = [
            "prometheus_remote_storage_samples_total{",
            "prometheus_remote_storage_samples_dropped_total{",
        ];
        if counts.iter().any(|name| line.starts_with(name)) {
            let (labels, value) = line.rsplit_once(' ').expect("a sample has a value");
            let name = labels
                .split("remote_name=\"")
                .nth(1)
                .and_then(|rest| rest.split('"').next());
            *done.entry(name.unwrap_or_default().to_owned()).or_default() +=
                value.parse::<f64>().unwrap_or(0.0);
        }
    }
    done
}

/// Starts a server that accepts remote writes. The path is the number of the case. It ends with the
/// process.
fn receive(taken: &Arc<Mutex<Vec<Relabeled>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("an address").to_string();
    let taken = Arc::clone(taken);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let taken = Arc::clone(&taken);
            std::thread::spawn(move || serve(stream, &taken));
        }
    });
    address
}

/// Serves the requests of one connection.
fn serve(stream: TcpStream, taken: &Mutex<Vec<Relabeled>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut line, mut size) = (String::new(), 0);
        reader.read_line(&mut line)?;
        let Some(case) = line
            .split(['/', ' '])
            .nth(2)
            .and_then(|case| case.parse::<usize>().ok())
        else {
            return Ok(());
        };
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            match header.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    size = value.trim().parse().expect("a length is a number");
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; size];
        reader.read_exact(&mut body)?;
        note(&mut taken.lock().unwrap()[case], &body);
        (&stream).write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
    }
}

fn note(of_case: &mut Relabeled, body: &[u8]) {
    let message = snap::raw::Decoder::new()
        .decompress_vec(body)
        .expect("a snappy block");
    for series in WriteRequest::decode(&message[..])
        .expect("a write request")
        .timeseries
    {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("labels are UTF-8");
        let labels = series
            .labels
            .iter()
            .map(|of| (text(&of.name), text(&of.value)))
            .collect::<BTreeMap<_, _>>();
        for sample in &series.samples {
            of_case.insert(f64::from_bits(sample.value) as usize, labels.clone());
        }
    }
}

#[test]
fn rules_drop_count_and_are_reloaded_for_known_series() {
    let with_rule = |rule: &str| format!("ingest: {{metric_relabel_configs: [{rule}]}}");
    let dry_run =
        "{source_labels: [__name__], regex: up, action: drop, name: no-up, state: dry_run}";
    let config = ConfigFile::new(&with_rule(dry_run));
    let server = Server::start(&[&config.flag()]);
    let write = |time_ms: i64| {
        let sample = |name| series(&[("__name__", name)], &[(time_ms, 1.0)]);
        server
            .http()
            .write(&WriteRequest::new([sample("up"), sample("down")]))
            .expect_status(204);
    };
    let n_stored = || server.metric("varve_ingest_samples_stored_total");
    let count = |metric: &str, state: &str| {
        server.metric(&format!(
            "varve_ingest_rule_{metric}_total{{rule=\"no-up\",state=\"{state}\"}}"
        ))
    };
    (0..3).for_each(|i| write(T0 + i));
    assert_eq!(
        (
            n_stored(),
            count("series", "dry_run"),
            count("samples", "dry_run")
        ),
        (6.0, 1.0, 3.0)
    );

    let reload = |what: &str| {
        let n_before = server.log().matches(what).count();
        server.signal("HUP");
        wait_until("the configuration to be read", || {
            server.log().matches(what).count() > n_before
        });
    };
    config.write(&with_rule(
        "{source_labels: [__name__], regex: up, action: drop, name: no-up}",
    ));
    reload("Completed loading of configuration file");
    (3..5).for_each(|i| write(T0 + i));
    assert_eq!(
        (
            n_stored(),
            count("series", "enforce"),
            count("samples", "enforce")
        ),
        (8.0, 1.0, 2.0)
    );
    assert_eq!(server.metric("varve_ingest_samples_dropped_total"), 2.0);

    // An invalid configuration changes nothing.
    config.write(&with_rule("{action: nothing}"));
    reload("Error reloading config");
    write(T0 + 5);
    assert_eq!(count("samples", "enforce"), 3.0);
}

#[test]
fn a_changed_file_is_reloaded_automatically() {
    let config = ConfigFile::new("{}");
    let server = Server::start(&[
        &config.flag(),
        "--config.auto-reload",
        "--config.auto-reload-interval=20ms",
    ]);
    let n_rules = || {
        server.http().get("/api/v1/status/relabel").data()["rules"]
            .as_array()
            .expect("a list")
            .len()
    };
    assert_eq!(n_rules(), 0);
    config.replace("ingest: {metric_relabel_configs: [{action: keep}]}");
    wait_until("the rule to be loaded", || n_rules() == 1);
    config.replace("nonsense: 1");
    wait_until("the file to be refused", || {
        server.log().contains("Error reloading config")
    });
    config.replace("{}");
    wait_until("the rule to be gone", || n_rules() == 0);
    // A file takes effect shortly before that is logged.
    let n_loaded = || {
        server
            .log()
            .matches("Completed loading of configuration file")
            .count()
    };
    wait_until("both files to be loaded", || n_loaded() >= 2);
    // An unchanged file is not reloaded.
    assert_eq!(
        (
            n_loaded(),
            server.log().matches("Error reloading config").count()
        ),
        (2, 1)
    );
}

#[test]
fn a_query_for_dropped_series_disables_the_rule() {
    let rule = "{source_labels: [__name__, job], regex: up;a, action: drop, name: no-up, disable_on_use: true}";
    let text = format!("ingest: {{metric_relabel_configs: [{rule}]}}");
    let config = ConfigFile::new(&text);
    let mut server = Server::start(&[&config.flag(), "--web.enable-admin-api"]);
    let write = |time_ms: i64| {
        let up = series(&[("__name__", "up"), ("job", "a")], &[(time_ms, 1.0)]);
        server
            .http()
            .write(&WriteRequest::new([up]))
            .expect_status(204);
    };
    let ask = |server: &Server, query: &str, agent: &str| {
        let body = format!("query={query}");
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let headers = [form, ("User-Agent", agent), ("X-Dashboard-Uid", "d1")];
        server
            .http()
            .post("/api/v1/query", &headers, body.as_bytes())
            .expect_status(200);
    };
    let rule = || server.http().get("/api/v1/status/relabel").data()["rules"][0].clone();
    write(T0);
    // Other queries, and Varve's own tools, do not use it.
    ask(&server, "up{job=\"b\"}", "Grafana/12");
    ask(&server, "down", "Grafana/12");
    ask(&server, "up", "varve-tools");
    write(T0 + 1);
    assert_eq!(
        [
            &rule()["state"],
            &rule()["disabledByUse"],
            &rule()["samples"]
        ],
        [&json!("enforce"), &Value::Null, &json!(2)]
    );
    ask(&server, "sum(rate(up[5m]))", "Grafana/12");
    write(T0 + 2);
    let (rule, used) = (rule(), rule()["disabledByUse"].clone());
    assert_eq!(
        [&rule["state"], &rule["disableOnUse"], &rule["samples"]],
        [&json!("dry_run"), &json!(true), &json!(3)]
    );
    assert_eq!(
        [&used["selector"], &used["who"]],
        [
            &json!("{__name__=\"up\"}"),
            &json!("Grafana/12 (dashboard d1)")
        ]
    );
    assert_eq!(server.metric("varve_ingest_samples_stored_total"), 1.0);
    assert_eq!(
        server.metric("varve_ingest_rules_disabled{rule=\"no-up\"}"),
        1.0
    );
    wait_until("the log line", || {
        server.log().contains("Relabel rule disabled because")
    });

    // The rule stays disabled after a restart or a kill, until its entry changes or an operator
    // enables it.
    let state = |server: &Server| {
        let rule = server.http().get("/api/v1/status/relabel").data()["rules"][0].clone();
        (
            rule["state"].as_str().expect("a text").to_owned(),
            rule["disabledByUse"]["who"].clone(),
        )
    };
    let disabled = ("dry_run".to_owned(), json!("Grafana/12 (dashboard d1)"));
    server.kill();
    server.restart(&[&config.flag(), "--web.enable-admin-api"]);
    assert_eq!(state(&server), disabled);
    assert!(server.terminate().success());
    server.restart(&[&config.flag(), "--web.enable-admin-api"]);
    assert_eq!(state(&server), disabled);
    let enable = |server: &Server, rule: &str| {
        let url = server.http().url("");
        Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(["relabel", "enable", rule, "--url", &url])
            .output()
    };
    let refused = enable(&server, "no-down").expect("run varve");
    assert!(
        String::from_utf8_lossy(&refused.stderr)
            .contains("no relabel rule has the name \"no-down\""),
        "{refused:?}"
    );
    let enabled = enable(&server, "no-up").expect("run varve");
    assert_eq!(
        String::from_utf8_lossy(&enabled.stdout),
        "rule no-up is enabled\n"
    );
    assert_eq!(state(&server), ("enforce".to_owned(), Value::Null));
    ask(&server, "up", "Grafana/12");
    config.write(&text.replace("no-up", "no-up-again"));
    assert!(server.terminate().success());
    server.restart(&[&config.flag(), "--web.enable-admin-api"]);
    assert_eq!(state(&server), ("enforce".to_owned(), Value::Null));
}

#[test]
fn browsing_and_nameless_selectors_leave_rules_enforced() {
    let rule =
        "{source_labels: [__name__], regex: up, action: drop, name: no-up, disable_on_use: true}";
    let config = ConfigFile::new(&format!("ingest: {{metric_relabel_configs: [{rule}]}}"));
    let server = Server::start(&[&config.flag(), "--enable-feature=search-api"]);
    let http = server.http();
    let stored = |name| series(&[("__name__", name), ("job", "a")], &[(T0, 1.0)]);
    http.write(&WriteRequest::new([stored("up"), stored("down")]))
        .expect_status(204);
    let rule = || http.get("/api/v1/status/relabel").data()["rules"][0].clone();
    for query in [
        "count({__name__=~\".+\"})",
        "{job=\"a\"}",
        "count by (__name__) ({__name__!=\"\"})",
        "{__name__=~\"u.*\"}",
    ] {
        http.query("/api/v1/query", &[("query", query)])
            .expect_status(200);
    }
    // Metadata calls do not count even if they name the metric.
    for path in [
        "/api/v1/series",
        "/api/v1/labels",
        "/api/v1/label/__name__/values",
        "/api/v1/label/job/values",
        "/federate",
    ] {
        http.query(path, &[("match[]", "{job=\"a\"}")])
            .expect_status(200);
    }
    for path in [
        "/api/v1/series",
        "/api/v1/labels",
        "/api/v1/label/job/values",
        "/api/v1/search/metric_names",
    ] {
        http.query(path, &[("match[]", "up"), ("search[]", "up")])
            .expect_status(200);
    }
    // Neither do responses without samples.
    for path in ["/api/v1/query_exemplars", "/api/v1/query_explain"] {
        http.query(path, &[("query", "up"), ("time", "0")])
            .expect_status(200);
    }
    assert_eq!(
        [&rule()["state"], &rule()["disabledByUse"]],
        [&json!("enforce"), &Value::Null]
    );
    http.query("/federate", &[("match[]", "up")])
        .expect_status(200);
    assert_eq!(rule()["state"], "dry_run");
}

#[test]
fn a_dry_run_shows_the_query_that_would_have_disabled_the_rule() {
    let rule = "{source_labels: [__name__], regex: up, action: drop, name: no-up, state: dry_run, disable_on_use: true}";
    let config = ConfigFile::new(&format!("ingest: {{metric_relabel_configs: [{rule}]}}"));
    let server = Server::start(&[&config.flag(), "--web.enable-admin-api"]);
    server
        .http()
        .write(&WriteRequest::new([series(
            &[("__name__", "up")],
            &[(T0, 1.0)],
        )]))
        .expect_status(204);
    let would_be_disabled =
        || server.metric("varve_ingest_rules_would_be_disabled{rule=\"no-up\"}");
    assert_eq!(would_be_disabled(), 0.0);
    server
        .http()
        .query("/api/v1/query", &[("query", "sum(up)")])
        .expect_status(200);
    let rule = server.http().get("/api/v1/status/relabel").data()["rules"][0].clone();
    assert_eq!(
        (
            &rule["disabledByUse"],
            &rule["wouldBeDisabledBy"]["selector"]
        ),
        (&Value::Null, &json!("{__name__=\"up\"}"))
    );
    assert!(
        rule["wouldBeDisabledBy"]["who"].is_string() && rule["wouldBeDisabledBy"]["atMs"].is_i64(),
        "{rule}"
    );
    assert_eq!(would_be_disabled(), 1.0);
    let (url, rules) = (server.http().url(""), config.dir().join("rules.yml"));
    std::fs::write(
        &rules,
        "{groups: [{name: g, rules: [{alert: a, expr: up}]}]}",
    )
    .expect("write rules");
    let mut advise = Command::new(env!("CARGO_BIN_EXE_varve"));
    let output = advise
        .args(["advise", "drops", &url, "--rules"])
        .arg(&rules)
        .output()
        .expect("run varve");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains(
            "the rule \"no-up\" in dry run would have been disabled by {__name__=\"up\"}"
        ),
        "{output:?}"
    );
    let mut enable = Command::new(env!("CARGO_BIN_EXE_varve"));
    let output = enable
        .args(["relabel", "enable", "no-up", "--url", &url])
        .output()
        .expect("run varve");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.starts_with("rule no-up stays in dry_run; the query"),
        "{output:?}"
    );
}

#[test]
fn an_empty_result_names_the_rule_that_drops_the_metric() {
    let rule = "{source_labels: [__name__, job], regex: up;a, action: drop, name: no-up}";
    let config = ConfigFile::new(&format!("ingest: {{metric_relabel_configs: [{rule}]}}"));
    let server = Server::start(&[&config.flag()]);
    let now_ms = now_ms();
    let stored = |name, job| series(&[("__name__", name), ("job", job)], &[(now_ms, 1.0)]);
    server
        .http()
        .write(&WriteRequest::new([
            stored("up", "a"),
            stored("up", "b"),
            stored("down", "a"),
        ]))
        .expect_status(204);
    let infos = |path: &str, query: &str| {
        let range = [("start", "0"), ("end", "1000"), ("step", "500")];
        let params = [
            &[("query", query)][..],
            if path.ends_with("range") { &range } else { &[] },
        ]
        .concat();
        server.http().query(path, &params).expect_status(200).json()["infos"].clone()
    };
    let expect = json!(["metric \"up\" is dropped by relabel rule \"no-up\""]);
    for query in [
        "up{job=\"a\"}",
        "sum(up{job=\"a\"})",
        "down / up{job=\"a\"}",
    ] {
        assert_eq!(infos("/api/v1/query", query), expect, "{query}");
        assert_eq!(infos("/api/v1/query_range", query), expect, "{query}");
    }
    for query in [
        "up",
        "up > 1",
        "up{job=\"b\"} > 1",
        "{job=\"c\"}",
        "missing",
        "count(up{job=\"a\"}) or vector(0)",
    ] {
        assert_eq!(infos("/api/v1/query", query), Value::Null, "{query}");
    }
}

/// A graph whose line ended had no info as long as its start had samples: for hours.
#[test]
fn a_graph_that_ends_names_the_rule_that_drops_the_metric() {
    let config = ConfigFile::new("ingest: {}");
    let server = Server::start(&[
        &config.flag(),
        "--config.auto-reload",
        "--config.auto-reload-interval=20ms",
    ]);
    const MINUTE_MS: i64 = 60_000;
    let now_ms = now_ms();
    let ended_ms = now_ms - 10 * MINUTE_MS;
    let until = |job: &str, end_ms: i64| {
        let samples: Vec<_> = (0..20)
            .rev()
            .map(|i| (end_ms - i * MINUTE_MS, 1.0))
            .collect();
        series(&[("__name__", "up"), ("job", job)], &samples)
    };
    let request = WriteRequest::new([until("dropped", ended_ms), until("stored", now_ms)]);
    server.http().write(&request).expect_status(204);
    let rule = "{source_labels: [job], regex: dropped, action: drop, name: no-up}";
    config.replace(&format!("ingest: {{metric_relabel_configs: [{rule}]}}"));
    wait_until("the rule to be in force", || {
        let rules = server.http().get("/api/v1/status/relabel").data();
        rules["rules"][0]["name"] == "no-up"
    });
    let request = WriteRequest::new([until("dropped", now_ms)]);
    server.http().write(&request).expect_status(204);
    let infos = |query: &str, end_ms: i64| {
        let seconds = |time_ms: i64| (time_ms / 1000).to_string();
        let params = [
            ("query", query),
            ("start", &seconds(now_ms - 30 * MINUTE_MS)),
            ("end", &seconds(end_ms)),
            ("step", "60"),
        ];
        let answer = server.http().query("/api/v1/query_range", &params);
        let answer = answer.expect_status(200).json();
        assert_ne!(answer["data"]["result"], json!([]), "{query}");
        answer["infos"].clone()
    };
    let expect = json!(["metric \"up\" is dropped by relabel rule \"no-up\""]);
    let dropped = "up{job=\"dropped\"}";
    assert_eq!(infos(dropped, now_ms), expect);
    // A range until the end of the day.
    assert_eq!(infos(dropped, now_ms + 600 * MINUTE_MS), expect);
    assert_eq!(infos(dropped, ended_ms), Value::Null);
    assert_eq!(infos("max_over_time(up[1h])", now_ms), Value::Null);
    assert_eq!(infos("up", now_ms), Value::Null);
    assert_eq!(infos("up", now_ms + 600 * MINUTE_MS), Value::Null);
}

#[test]
fn rules_of_files_follow_those_of_the_configuration_file() {
    let rule = |name: &str| {
        format!(
            "ingest: {{metric_relabel_configs: [{{action: drop, regex: {name}, source_labels: [__name__], name: {name}}}]}}"
        )
    };
    let config = ConfigFile::new(
        "ingest: {relabel_files: ['rules/*.yml', one.yml], metric_relabel_configs: [{action: keep, name: own}]}",
    );
    std::fs::create_dir(config.dir().join("rules")).expect("make a directory");
    let write = |path: &str, text: &str| {
        std::fs::write(config.dir().join(path), text).expect("write rules")
    };
    write("rules/b.yml", &rule("b"));
    write("rules/a.yml", &rule("a"));
    write("one.yml", &rule("one"));
    let server = Server::start(&[
        &config.flag(),
        "--config.auto-reload",
        "--config.auto-reload-interval=20ms",
    ]);
    let names = || {
        let rules = server.http().get("/api/v1/status/relabel").data()["rules"].clone();
        rules
            .as_array()
            .expect("a list")
            .iter()
            .map(|rule| rule["name"].as_str().unwrap_or("").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["own", "a", "b", "one"]);
    write("rules/c.yml", &rule("c"));
    wait_until("the new file to be loaded", || {
        names() == ["own", "a", "b", "c", "one"]
    });
    write("rules/c.yml", "ingest: {presets: [x]}");
    wait_until("the file to be rejected", || server.log().contains("c.yml"));
    assert_eq!(names(), ["own", "a", "b", "c", "one"]);
    std::fs::remove_file(config.dir().join("rules/c.yml")).expect("remove a file");
    wait_until("the file to be gone", || names().len() == 4);
    let check = |file: &str| {
        let command = ["check", "config", file];
        let output = Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(command)
            .output()
            .expect("run varve");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let path = config.dir().join("varve.yml").display().to_string();
    assert!(check(&path).0);
    std::fs::remove_file(config.dir().join("one.yml")).expect("remove a file");
    let (is_valid, text) = check(&path);
    assert!(
        !is_valid && text.contains("ingest.relabel_files: \"one.yml\" does not exist"),
        "{text}"
    );
}

const T0: i64 = 1_700_000_000_000;
const AHEAD_MS: i64 = 300_000;
