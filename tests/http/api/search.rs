//! The search endpoints, with the feature enabled.

use serde_json::{Value, json};

use super::super::T0;
use crate::harness::{Answer, MetricType, Server, WriteRequest, family, series};

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, "application/x-ndjson; charset=utf-8"),
        "{answer:?}"
    );
    answer
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect()
}

#[test]
fn names_and_values_are_found_in_batches() {
    let server = Server::start(&["--enable-feature=search-api", "--web.search.max-limit=50"]);
    let names = [
        "node_cpu_seconds_total",
        "node_memory_bytes",
        "process_cpu_seconds_total",
        "up",
    ];
    let mut request = WriteRequest::new(names.map(|name| {
        series(
            &[("__name__", name), ("job", "x"), ("Job2", "y")],
            &[(T0, 1.0)],
        )
    }));
    request.metadata.push(family(
        "node_cpu_seconds_total",
        MetricType::Counter,
        "Seconds <of> CPUs.",
        "",
    ));
    server.http().write(&request).expect_status(204);
    let range = [("start", "1699999999"), ("end", "1700000001")];
    let search = |field: &str, params: &[(&str, &str)]| {
        let params: Vec<_> = range.iter().chain(params).copied().collect();
        lines(
            &server
                .http()
                .query(&format!("/api/v1/search/{field}"), &params),
        )
    };
    let end = |has_more: bool| json!({ "status": "success", "has_more": has_more });

    assert_eq!(
        search("metric_names", &[("batch_size", "3")]),
        [
            json!({ "results": names[..3].iter().map(|name| json!({ "name": name })).collect::<Vec<_>>() }),
            json!({ "results": [{ "name": "up" }] }),
            end(false),
        ]
    );
    assert_eq!(
        search(
            "metric_names",
            &[
                ("search[]", "cpu"),
                ("sort_by", "alpha"),
                ("sort_dir", "dsc"),
                ("limit", "1")
            ]
        ),
        [
            json!({ "results": [{ "name": "process_cpu_seconds_total" }] }),
            end(true)
        ]
    );
    let with_metadata = search(
        "metric_names",
        &[("search[]", "node_cpu"), ("include_metadata", "true")],
    );
    let found = json!({ "name": "node_cpu_seconds_total", "type": "counter", "help": "Seconds <of> CPUs." });
    assert_eq!(with_metadata, [json!({ "results": [found] }), end(false)]);
    let scored = search(
        "label_names",
        &[
            ("search[]", "jo"),
            ("case_sensitive", "false"),
            ("include_score", "1"),
        ],
    );
    assert_eq!(
        scored[0]["results"],
        json!([{ "name": "Job2", "score": 1 }, { "name": "job", "score": 1 }])
    );
    assert_eq!(
        search(
            "label_values",
            &[("label", "job"), ("match[]", "up"), ("match[]", "nothing")]
        ),
        [json!({ "results": [{ "value": "x" }] }), end(false)]
    );
    assert_eq!(
        search("label_values", &[("label", "nothing")]),
        [json!({ "results": [] }), end(false)]
    );
    let refused = server
        .http()
        .query("/api/v1/search/label_values", &[])
        .expect_status(400);
    assert_eq!(refused.error().1, "missing required parameter \"label\"");
}

#[test]
fn search_is_disabled_by_default() {
    let server = Server::start(&[]);
    let refused = server
        .http()
        .form("/api/v1/search/label_names", &[])
        .expect_status(500);
    assert_eq!(
        refused.error(),
        ("unavailable".to_owned(), "search API disabled".to_owned())
    );
}
