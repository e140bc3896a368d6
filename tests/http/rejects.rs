//! Rejected samples by reason, each with its last example.

use serde_json::{Value, json};

use crate::harness::{Random, Server, WriteRequest, now_ms, series};

#[test]
fn the_last_reject_of_each_reason_is_listed_with_its_sender() {
    let server = Server::start(&["--ingest.body-size-max=1KiB"]);
    // The store forgets the values of series whose samples are far behind the newest ones.
    let t0 = now_ms();
    let rejects = || server.http().get("/api/v1/status/rejects").data()["rejects"].clone();
    assert_eq!(rejects(), json!([]));

    let write = |request: &WriteRequest, agent: &str| {
        let headers = [("Content-Encoding", "snappy"), ("User-Agent", agent)];
        server
            .http()
            .post("/api/v1/write", &headers, &request.to_body())
    };
    let up = |at: i64, value: f64| series(&[("__name__", "up"), ("job", "x")], &[(t0 + at, value)]);
    write(&WriteRequest::new([up(0, 1.0)]), "a").expect_status(204);
    write(
        &WriteRequest::new([up(0, 2.5), series(&[("job", "nameless")], &[(t0, 3.0)])]),
        "b",
    )
    .expect_status(400);
    write(&WriteRequest::new([up(0, 7.5)]), "c").expect_status(400);
    // Incompressible.
    let mut random = Random::new(1);
    let long: String = (0..8_000)
        .map(|_| char::from(b'a' + random.below(26) as u8))
        .collect();
    write(
        &WriteRequest::new([series(&[("__name__", &long)], &[(t0, 1.0)])]),
        "d",
    )
    .expect_status(413);
    server
        .http()
        .post("/api/v1/write", &[("User-Agent", "e")], b"nonsense")
        .expect_status(400);

    let found = rejects();
    let of = |reason: &str| -> Value {
        let found = found
            .as_array()
            .expect("a list")
            .iter()
            .find(|of| of["reason"] == reason);
        found
            .unwrap_or_else(|| panic!("{reason} is not in {found:#?}"))
            .clone()
    };
    let reasons: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["reason"].as_str().unwrap())
        .collect();
    assert_eq!(
        reasons,
        [
            "malformed",
            "too_large",
            "duplicate_timestamp",
            "missing_metric_name"
        ]
    );
    let duplicate = of("duplicate_timestamp");
    assert_eq!(
        [
            &duplicate["count"],
            &duplicate["samples"],
            &duplicate["requests"]
        ],
        [&json!(2); 3]
    );
    let labels = r#"{__name__="up", job="x"}"#;
    let text = format!("series {labels} at {t0}");
    assert_eq!(
        duplicate["example"],
        json!({"text": text, "labels": labels, "timestampMs": t0, "value": "7.5"}),
        "{duplicate}"
    );
    let sender = &duplicate["sender"];
    assert_eq!(
        [&sender["userAgent"], &sender["path"]],
        [&json!("c"), &json!("/api/v1/write")]
    );
    assert!(
        sender["address"]
            .as_str()
            .is_some_and(|address| address.starts_with("127.0.0.1:")),
        "{sender}"
    );
    assert_eq!(of("missing_metric_name")["example"]["value"], "3");
    assert_eq!(of("too_large")["sender"]["userAgent"], "d");
    assert_eq!(of("malformed")["example"]["labels"], "");
}
