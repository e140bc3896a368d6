//! Costs of metrics and labels, advice on what to drop, and tests of relabel rules.

use serde_json::{Value, json};

use crate::harness::{ConfigFile, Server, WriteRequest, now_ms, series};

/// Returns a server with 30 series of `a`, ten per pod, and one series of `b`, all with current
/// samples.
fn server(flags: &[&str]) -> Server {
    let server = Server::start(flags);
    let now_ms = now_ms();
    let values = |n: i64| {
        (0..n)
            .map(|i| (now_ms - i * 1000, i as f64))
            .rev()
            .collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    for i in 0..30 {
        let (id, pod) = (i.to_string(), format!("p{}", i / 10));
        all.push(series(
            &[
                ("__name__", "a"),
                ("id", id.as_str()),
                ("job", "x"),
                ("pod", pod.as_str()),
            ],
            &values(5),
        ));
    }
    all.push(series(&[("__name__", "b"), ("job", "x")], &values(5)));
    server
        .http()
        .write(&WriteRequest::new(all))
        .expect_status(204);
    server
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let list = list.as_array().expect("a list");
    list.iter()
        .map(|entry| entry[key].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn metrics_labels_and_values_have_costs_in_memory_and_on_disk() {
    let server = server(&["--web.enable-admin-api"]);
    let cardinality = |parameters: &[(&str, &str)]| {
        server
            .http()
            .query("/api/v1/status/cardinality", parameters)
            .data()
    };
    let in_memory = cardinality(&[]);
    assert_eq!(
        [
            &in_memory["total"]["series"],
            &in_memory["total"]["diskBytes"]
        ],
        [&json!(31), &json!(0)]
    );
    assert!(
        in_memory["total"]["memoryBytes"].as_u64() > Some(1_000),
        "{in_memory}"
    );

    server
        .http()
        .post("/api/v1/admin/tsdb/compact", &[], b"")
        .expect_status(204);
    server
        .http()
        .query("/api/v1/query", &[("query", "sum(b)")])
        .expect_status(200);
    let whole = cardinality(&[("focus", "pod"), ("limit", "2")]);
    assert_eq!(whole["total"]["diskSamples"], json!(155));
    assert_eq!(
        (names(&whole["metrics"], "name"), &whole["metricCount"]),
        (vec!["a".to_owned(), "b".to_owned()], &json!(2))
    );
    let [a, b] = [&whole["metrics"][0], &whole["metrics"][1]];
    assert_eq!(
        [&a["cost"]["series"], &a["queries"], &a["lastUsedMs"]],
        [&json!(30), &json!(0), &Value::Null]
    );
    assert_eq!((&b["queries"], b["lastUsedMs"].is_i64()), (&json!(1), true));
    let bytes = |of: &Value| of["cost"]["diskBytes"].as_u64().expect("a size");
    assert_eq!(
        Some(bytes(a) + bytes(b)),
        whole["total"]["diskBytes"].as_u64()
    );
    assert_eq!(
        (names(&whole["values"], "value"), &whole["valueCount"]),
        (vec!["p0".to_owned(), "p1".to_owned()], &json!(3))
    );
    assert_eq!(
        (names(&whole["labels"], "name"), &whole["labelCount"]),
        (vec!["job".to_owned(), "id".to_owned()], &json!(3))
    );
    assert_eq!(whole["pairs"][0]["value"], "x");

    let selected = cardinality(&[
        ("match[]", "{pod=\"p1\"}"),
        ("match[]", "b"),
        ("sort", "disk"),
    ]);
    assert_eq!(selected["total"]["series"], json!(11));
    let refused = |parameters: &[(&str, &str)]| {
        let refused = server
            .http()
            .query("/api/v1/status/cardinality", parameters)
            .expect_status(400);
        refused.text()
    };
    assert!(
        refused(&[("sort", "name")]).contains("none of"),
        "an unknown key"
    );
    assert!(refused(&[("match[]", "{}")]).contains("non-empty matcher"));
    assert!(refused(&[("limit", "10001")]).contains("10000"));
}

#[test]
fn costs_are_charged_to_the_memory_of_a_query() {
    let server = server(&["--query.max-memory=2KiB"]);
    let refused = server
        .http()
        .get("/api/v1/status/cardinality")
        .expect_status(422);
    assert!(refused.text().contains("--query.max-memory"), "{refused:?}");
}

/// The form and the evaluation of a request had a budget each.
#[test]
fn form_and_evaluation_share_the_memory_of_a_request() {
    const MEMORY_MAX: usize = 2 << 20;
    let server = Server::start(&["--query.max-memory=2MiB"]);
    let query = |padding_size: usize| {
        let padding = "x".repeat(padding_size);
        let form = format!("query=time()&start=0&end=10999&step=1&padding={padding}");
        let headers = [("Content-Type", "application/x-www-form-urlencoded")];
        server
            .http()
            .post("/api/v1/query_range", &headers, form.as_bytes())
    };
    // 11,000 points are 8 % of the memory as a column, and as much as a result.
    query(0).expect_status(200);
    // A form is charged five times.
    let refused = query(MEMORY_MAX * 9 / 10 / 5).expect_status(422);
    assert!(refused.text().contains("--query.max-memory"), "{refused:?}");
}

#[test]
fn advice_drops_what_no_rule_or_query_uses() {
    let rules = "groups: [{name: g, interval: 30d, rules: [{record: r, expr: sum(b)}]}]";
    let dir = tempfile::TempDir::new().expect("create a directory");
    let path = dir.path().join("rules.yml");
    std::fs::write(&path, rules).expect("write a file");
    let config = ConfigFile::new(&format!("rule_files: [{}]", path.display()));
    let server = server(&[&config.flag()]);
    let advice = |parameters: &[(&str, &str)]| {
        server
            .http()
            .query("/api/v1/status/advice", parameters)
            .data()
    };
    let found = advice(&[]);
    assert_eq!(
        (
            names(&found["unused"], "metric"),
            names(&found["unread"], "metric")
        ),
        (vec!["a".into()], vec!["b".into()])
    );
    assert_eq!(
        [&found["totals"]["series"], &found["totals"]["unusedSeries"]],
        [&json!(31), &json!(30)]
    );
    let rules = found["rules"].as_str().expect("YAML");
    assert!(
        rules.contains("state: dry_run\n    disable_on_use: true"),
        "{rules}"
    );
    let foreign = advice(&[("format", "prometheus")])["rules"].take();
    assert!(
        foreign
            .as_str()
            .is_some_and(|rules| rules.contains("write_relabel_configs:")),
        "{foreign}"
    );

    // The advice is a valid argument of the test, and drops the series.
    let test = |series: &str| {
        server
            .http()
            .form(
                "/api/v1/status/relabel/test",
                &[("series", series), ("rules", rules)],
            )
            .data()
    };
    let dropped = test("a{job=\"x\",id=\"1\"}");
    assert_eq!(
        [
            &dropped["steps"][0]["name"],
            &dropped["steps"][0]["drops"],
            &dropped["steps"][0]["state"]
        ],
        [&json!("unused-x"), &json!(true), &json!("dry_run")]
    );
    assert_eq!(test("b{job=\"x\"}")["steps"], json!([]));

    server
        .http()
        .query("/api/v1/query", &[("query", "sum by (id) (a)")])
        .expect_status(200);
    let used = advice(&[("labels", "true")]);
    assert_eq!(names(&used["unused"], "label"), ["pod"]);
    let later = ((now_ms() + 60_000) / 1000).to_string();
    assert_eq!(
        names(&advice(&[("since", &later)])["unused"], "metric"),
        ["a"],
        "the query is too old to count"
    );
    server
        .http()
        .query("/api/v1/status/advice", &[("format", "x")])
        .expect_status(400);
}

#[test]
fn a_relabel_test_shows_each_step_and_disables_nothing() {
    let rules = "[{name: team, source_labels: [ns], target_label: team}, \
                 {name: trial, action: labeldrop, regex: ns, state: dry_run}, \
                 {name: no-x, source_labels: [job], regex: x, action: drop, disable_on_use: true}]";
    let config = ConfigFile::new(&format!("ingest: {{metric_relabel_configs: {rules}}}"));
    let server = Server::start(&[&config.flag()]);
    let test = |parameters: &[(&str, &str)]| {
        server
            .http()
            .query("/api/v1/status/relabel/test", parameters)
    };
    let found = test(&[("series", "up{ns=\"a\",job=\"y\"}")]).data();
    assert_eq!(names(&found["steps"], "name"), ["team", "trial"]);
    assert_eq!(
        [&found["steps"][0]["set"], &found["steps"][1]["deleted"]],
        [&json!({"team": "a"}), &json!(["ns"])]
    );
    assert_eq!(
        found["result"],
        json!({"__name__": "up", "job": "y", "ns": "a", "team": "a"}),
        "a dry run changes nothing"
    );
    let dropped = test(&[("series", "up{job=\"x\"}")]).data();
    assert_eq!(
        [&dropped["steps"][0]["drops"], &dropped["result"]],
        [&json!(true), &Value::Null]
    );

    // Had the series been dropped, the query would disable the rule.
    server
        .http()
        .query("/api/v1/query", &[("query", "up")])
        .expect_status(200);
    let status = server.http().get("/api/v1/status/relabel").data();
    assert_eq!(
        [
            &status["rules"][2]["disabledByUse"],
            &status["rules"][2]["series"]
        ],
        [&Value::Null, &json!(0)]
    );

    let own = [
        ("series", "up{job=\"x\"}"),
        (
            "rules",
            "- {action: labeldrop, regex: job}\n- {action: labeldrop, regex: __name__}",
        ),
    ];
    assert_eq!(test(&own).data()["result"], Value::Null, "no label is left");
    for (parameters, expect) in [
        (&[("series", "up{job=~\"x\"}")][..], "matchers only"),
        (&[("series", "sum(up)")][..], "parse error"),
        (
            &[("series", "up"), ("rules", "- {action: nonsense}")][..],
            "unknown relabel action",
        ),
        (&[("series", "up"), ("rules", "a: b")][..], "unknown field"),
    ] {
        let refused = test(parameters).expect_status(400).text();
        assert!(refused.contains(expect), "{parameters:?}: {refused}");
    }
}
