//! Who sent a query: in running queries, the most expensive ones, the query log, and the last words
//! of a server.

use std::process::Command;

use serde_json::{Value, json};

use super::running::running;
use super::{SERIES_PER_REQUEST, endless, ingest};
use crate::harness::{ConfigFile, Server, wait_for, wait_until};

const HEADERS: [(&str, &str); 5] = [
    ("User-Agent", "Grafana/12.1"),
    ("X-Dashboard-Uid", "d1"),
    ("X-Panel-Id", "7"),
    ("X-Rule-Uid", "r1"),
    ("X-Grafana-User", "ann"),
];

/// Asserts the fields of the requester.
fn check(found: &Value, what: &str) {
    let expect = [
        ("userAgent", "Grafana/12.1"),
        ("dashboard", "d1"),
        ("panel", "7"),
        ("grafanaRule", "r1"),
        ("grafanaUser", "ann"),
    ];
    for (name, text) in expect {
        assert_eq!(found[name], text, "{what}: {name} of {found}");
    }
}

fn varve(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(args)
        .output();
    let output = output.expect("run varve");
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("a report is UTF-8")
}

#[test]
fn the_requester_of_a_query_is_told_everywhere() {
    let config = ConfigFile::new("global: {query_log_file: queries.log}");
    let mut server = Server::start(&["--web.enable-admin-api", &config.flag()]);
    let url = server.http().url("");
    ingest(&server, SERIES_PER_REQUEST);
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let headers = [&HEADERS[..], &form].concat();
    server
        .http()
        .post(
            "/api/v1/query",
            &headers,
            b"query=count(load)&time=1700000045",
        )
        .expect_status(200);
    // Another program, without headers of Grafana.
    server
        .http()
        .query("/api/v1/query", &[("query", "sum(load)")])
        .expect_status(200);

    let logged = wait_for("both lines", || {
        let text = std::fs::read_to_string(config.dir().join("queries.log")).ok()?;
        let lines: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        (lines.len() == 2).then_some(lines)
    });
    let of = |query: &str| {
        let line = logged.iter().find(|line| line["params"]["query"] == query);
        &line.unwrap_or_else(|| panic!("no {query} in {logged:?}"))["httpRequest"]
    };
    check(of("count(load)"), "the query log");
    assert_eq!(of("sum(load)")["dashboard"], Value::Null);

    let top = |by: &str| {
        let path = format!("/api/v1/status/top_queries?by={by}");
        server.http().get(&path).data()["queries"]
            .as_array()
            .expect("a list")
            .clone()
    };
    let shapes = top("shape");
    let shape = shapes.iter().find(|query| query["shape"] == "count(load)");
    check(shape.expect("the query is listed"), "top queries");
    let panels = top("panel");
    let panel = panels.iter().find(|group| group["dashboard"] == "d1");
    let panel = panel.expect("the panel is listed");
    assert_eq!(
        [&panel["panel"], &panel["shape"], &panel["userAgent"]],
        [&json!("7"), &json!(""), &json!("")]
    );
    assert!(
        top("user")
            .iter()
            .any(|group| group["grafanaUser"] == "ann"),
        "by user"
    );
    let error = server.http().get("/api/v1/status/top_queries?by=color");
    assert!(
        error.expect_status(400).error().1.contains("user_agent"),
        "the error lists the groupings"
    );
    let printed = varve(&["status", "top", "--by=dashboard", &url]);
    assert!(printed.contains("d1"), "{printed}");

    // A running query, and its cancellation.
    let head: String = HEADERS
        .iter()
        .skip(1)
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let send = || {
        let request = endless("").replace(
            "User-Agent: endless\r\n",
            &format!("User-Agent: Grafana/12.1\r\n{head}"),
        );
        let mut connection = server.http().connect();
        connection.send(request.as_bytes());
        connection
    };
    let mut connection = send();
    let listed = wait_for("the query to run", || running(&server).pop());
    check(&listed, "running queries");
    let printed = varve(&["status", "queries", &url]);
    assert!(
        printed.contains("d1") && printed.contains("ann"),
        "{printed}"
    );
    let id = listed["id"].to_string();
    varve(&["query", "cancel", &url, &id]);
    let answer = connection.read(2000);
    assert!(answer.contains("an operator ended it"), "{answer}");

    // The last words of a killed server.
    let connection = send();
    let dir = server.data_dir().display().to_string();
    wait_until("the query to be in the log", || {
        varve(&["status", "last-words", &dir]).contains("Active requests, heaviest first (1)")
    });
    server.kill();
    drop(connection);
    let printed = varve(&["status", "last-words", &dir]);
    let grafana = "grafana \"dashboard d1, panel 7, rule r1, user ann\"";
    assert!(printed.contains(grafana), "{printed}");
    server.restart(&[]);
    let last = server.http().get("/api/v1/status/last_words").data();
    check(&last["process"]["requests"][0], "last words");
}
