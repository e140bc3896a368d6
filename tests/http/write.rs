//! Remote write 1.0: what is stored and what is rejected, and that nothing rejected is stored.

use prost::Message;
use serde_json::json;
use varve_model::staleness::STALE_NAN_BITS;

use super::{T0, everything};
use crate::harness::{
    ConfigFile, Histogram, Http, Label, MetricType, Server, WriteRequest, exemplar, family, series,
    snappy,
};

fn up(timestamp_ms: i64, value: f64) -> WriteRequest {
    WriteRequest::new([series(&[("__name__", "up")], &[(timestamp_ms, value)])])
}

#[test]
fn a_request_is_stored_and_answered_with_204() {
    let server = Server::start(&[]);
    let answer = server.http().write(&up(T0, 1.5)).expect_status(204);
    assert_eq!(answer.text(), "");
    assert_eq!(
        everything(server.http()),
        [r#"{"__name__":"up"} [[1700000000,"1.5"]]"#]
    );
    server
        .http()
        .write(&WriteRequest::default())
        .expect_status(204);
}

#[test]
fn a_repeated_request_is_204_and_stored_once() {
    let server = Server::start(&[]);
    let requests = [0, 10_000].map(|after_ms| {
        let samples = [
            (T0 + after_ms, 1.0),
            (T0 + after_ms + 1000, f64::NAN),
            (T0 + after_ms + 2000, -0.0),
        ];
        let of_job = |job: &str| series(&[("__name__", "up"), ("job", job)], &samples);
        WriteRequest::new([of_job("a"), of_job("b")])
    });
    for request in requests.iter() {
        drop(server.http().write(request).expect_status(204));
    }
    let stored = everything(server.http());
    // The older one too: its sender may have been delayed.
    for request in requests.iter().cycle().take(6) {
        server.http().write(request).expect_status(204);
    }
    assert_eq!(everything(server.http()), stored);
    let samples = r#"[[1700000000,"1"],[1700000001,"NaN"],[1700000002,"-0"],[1700000010,"1"],[1700000011,"NaN"],[1700000012,"-0"]]"#;
    assert_eq!(
        stored,
        ["a", "b"].map(|job| format!(r#"{{"__name__":"up","job":"{job}"}} {samples}"#))
    );
}

#[test]
fn encodings_of_one_label_set_reach_one_series() {
    let server = Server::start(&[]);
    let encodings: [&[(&str, &str)]; 4] = [
        &[("__name__", "up"), ("a", "1"), ("b", "2")],
        &[("b", "2"), ("a", "1"), ("__name__", "up")],
        &[("__name__", "up"), ("a", "1"), ("b", "2"), ("c", "")],
        &[
            ("0", ""),
            ("b", "2"),
            ("__name__", "up"),
            ("z", ""),
            ("a", "1"),
        ],
    ];
    // Twice: the second time the route cache skips parsing.
    for (timestamp_ms, labels) in (T0..).step_by(1000).zip(encodings.iter().chain(&encodings)) {
        server
            .http()
            .write(&WriteRequest::new([series(labels, &[(timestamp_ms, 0.0)])]))
            .expect_status(204);
    }
    let expect: Vec<_> = (0..8).map(|i| json!([T0 / 1000 + i, "0"])).collect();
    assert_eq!(
        everything(server.http()),
        [format!(
            r#"{{"__name__":"up","a":"1","b":"2"}} {}"#,
            json!(expect)
        )]
    );
}

#[test]
fn a_staleness_marker_ends_a_series() {
    let server = Server::start(&[]);
    server.http().write(&up(T0, 1.0)).expect_status(204);
    server
        .http()
        .write(&up(T0 + 10_000, f64::from_bits(STALE_NAN_BITS)))
        .expect_status(204);
    let at = |time: &str| {
        server
            .http()
            .query("/api/v1/query", &[("query", "up"), ("time", time)])
            .data()
    };
    assert_eq!(
        at("1700000009")["result"],
        json!([{"metric": {"__name__": "up"}, "value": [1_700_000_009, "1"]}])
    );
    assert_eq!(at("1700000010")["result"], json!([]));
    assert_eq!(
        everything(server.http()),
        [r#"{"__name__":"up"} [[1700000000,"1"]]"#]
    );
}

#[track_caller]
fn check_refused(http: &Http, body: &[u8], status: u16, reason: &str) {
    let answer = http.write_body(body).expect_status(status);
    assert!(
        answer.text().contains(reason),
        "{answer:?}, expected {reason:?}"
    );
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
}

#[test]
fn a_broken_snappy_block_is_400_and_stores_nothing() {
    let server = Server::start(&[]);
    let whole = up(T0, 1.0).to_body();
    check_refused(server.http(), b"", 400, "snappy");
    check_refused(server.http(), b"not snappy at all", 400, "snappy");
    check_refused(server.http(), &up(T0, 1.0).encode_to_vec(), 400, "");
    for len in 1..whole.len() {
        check_refused(server.http(), &whole[..len], 400, "snappy");
    }
    let with_more = [whole.as_slice(), b"more"].concat();
    check_refused(server.http(), &with_more, 400, "snappy");
    assert!(everything(server.http()).is_empty());
}

#[test]
fn a_truncated_protobuf_is_400_and_stores_nothing() {
    let server = Server::start(&[]);
    let message = up(T0, 1.0).encode_to_vec();
    // Every truncation of the second of two series: the first is complete, and not stored either.
    let whole = WriteRequest::new([series(&[("__name__", "whole")], &[(T0, 1.0)])]).encode_to_vec();
    for len in 1..message.len() {
        check_refused(server.http(), &snappy(&message[..len]), 400, "protobuf");
        check_refused(
            server.http(),
            &snappy(&[&whole, &message[..len]].concat()),
            400,
            "protobuf",
        );
    }
    check_refused(server.http(), &snappy(&[0xff; 64]), 400, "protobuf");
    assert!(everything(server.http()).is_empty());
}

#[test]
fn a_declared_length_of_4_gib_is_413_and_costs_no_memory() {
    let server = Server::start(&[]);
    server.http().write(&up(T0, 1.0)).expect_status(204);
    let before = server.resident_size();
    for declared in [
        &b"\xff\xff\xff\xff\x0f"[..],
        b"\x80\x80\x80\x80\x10",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ] {
        for _ in 0..20 {
            check_refused(
                server.http(),
                &[declared, b"\x00a"].concat(),
                413,
                "--ingest.decompressed-size-max",
            );
        }
    }
    let grown = server.resident_size().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
    assert_eq!(everything(server.http()).len(), 1);
}

#[test]
fn body_over_limit_is_413_and_stores_nothing() {
    let server = Server::start(&[
        "--ingest.body-size-max=64KiB",
        "--ingest.decompressed-size-max=1MiB",
    ]);
    let of_size = |size: usize| {
        // An incompressible label value.
        let mut random = crate::harness::Random::new(1);
        let value: String = (0..size)
            .map(|_| char::from(b'!' + random.below(90) as u8))
            .collect();
        WriteRequest::new([series(&[("__name__", "big"), ("v", &value)], &[(T0, 1.0)])]).to_body()
    };
    check_refused(
        server.http(),
        &of_size(65 << 10),
        413,
        "--ingest.body-size-max",
    );
    check_refused(
        server.http(),
        &snappy(&vec![0; (1 << 20) + 1]),
        413,
        "--ingest.decompressed-size-max",
    );

    let headers = "POST /api/v1/write HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Encoding: snappy\r\n";
    let chunk = vec![b'x'; 65 << 10];
    let chunked = format!(
        "{headers}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n",
        chunk.len()
    );
    let mut connection = server.http().connect();
    let answer = connection
        .send(chunked.as_bytes())
        .send(&chunk)
        .send(b"\r\n0\r\n\r\n")
        .read_to_end();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // A large declared body is rejected before it is sent.
    let declared = format!("{headers}Content-Length: 99999999999\r\n\r\n");
    let answer = server.http().connect().send(declared.as_bytes()).read(12);
    assert_eq!(answer, "HTTP/1.1 413");

    assert!(everything(server.http()).is_empty());
    server.http().write(&up(T0, 1.0)).expect_status(204);
}

#[test]
fn an_invalid_series_rejects_only_that_series() {
    let server = Server::start(&[]);
    let mut not_utf8 = series(&[("__name__", "bad5")], &[(T0, 1.0)]);
    not_utf8.labels.push(Label {
        name: b"x".to_vec(),
        value: b"\xff".to_vec(),
    });
    let request = WriteRequest::new([
        series(&[("__name__", "good1")], &[(T0, 1.0)]),
        series(&[("job", "bad1")], &[(T0, 1.0), (T0 + 1, 1.0)]),
        series(&[], &[(T0, 1.0)]),
        series(&[("__name__", ""), ("job", "bad2")], &[(T0, 1.0)]),
        series(&[("__name__", "bad3"), ("", "x")], &[(T0, 1.0)]),
        series(
            &[("__name__", "bad4"), ("a", "1"), ("a", "2")],
            &[(T0, 1.0)],
        ),
        series(
            &[("__name__", "bad4"), ("a", "1"), ("b", "1"), ("a", "")],
            &[(T0, 1.0)],
        ),
        not_utf8,
        series(&[("__name__", "good2"), ("ünï.cödé", "ok")], &[(T0, 1.0)]),
    ]);
    // Twice: the second time the invalid ones are found in the route cache, and still rejected.
    for _ in 0..2 {
        let answer = server.http().write(&request).expect_status(400);
        let text = answer.text();
        for reason in [
            "missing metric name (__name__ label): 3 series with 4 samples, e.g. series {job=\"bad1\"}",
            "label name is empty: 1 series with 1 sample, e.g. series {__name__=\"bad3\", \"\"=\"x\"}",
            "duplicate label name: 2 series with 2 samples, e.g. series {__name__=\"bad4\", a=\"1\", a=\"2\"}",
            "invalid UTF-8 in label name or value: 1 series with 1 sample",
        ] {
            assert!(text.contains(reason), "{text}\ndoes not say {reason}");
        }
        assert_eq!(
            everything(server.http()),
            [
                r#"{"__name__":"good1"} [[1700000000,"1"]]"#,
                r#"{"__name__":"good2","ünï.cödé":"ok"} [[1700000000,"1"]]"#
            ]
        );
    }
}

#[test]
fn an_invalid_sample_rejects_only_that_sample() {
    const HOUR: i64 = 3_600_000;
    let config = ConfigFile::new("storage: {tsdb: {out_of_order_time_window: 0s}}");
    let server = Server::start(&[&config.flag()]);
    let write = |samples: &[(i64, f64)]| write_up(&server, samples);
    assert_eq!(write(&[(T0, 1.0)]).0, 204);
    assert_eq!(
        write(&[(T0 - 1, 1.0)]),
        refused("out of order sample", T0 - 1)
    );
    assert_eq!(
        write(&[(T0, 2.0)]),
        refused("duplicate sample for timestamp", T0)
    );
    assert_eq!(
        write(&[(T0 - HOUR - 1, 1.0)]),
        refused_by(
            "out of bounds",
            T0 - HOUR - 1,
            " (3600.001s older than the newest time 1700000000000, limit 3600s while \
             storage.tsdb.out_of_order_time_window is 0)"
        )
    );
    // The samples of a series in one request are taken in order of time.
    assert_eq!(
        write(&[(T0 + 1000, 2.0), (T0 + 500, 3.0), (T0 + 2000, 4.0)]).0,
        204
    );
    let (status, text) = write(&[(i64::MAX, 1.0)]);
    assert_eq!(status, 400);
    let words = "out of bounds: timestamp is too far in the future: 2 samples, e.g. series {__name__=\"up\"}";
    assert!(text.starts_with(words), "{text}");
    let limit = "s ahead of the clock, limit 600s by storage.tsdb.ahead_max)\n";
    assert!(text.ends_with(limit), "{text}");
    assert_eq!(
        everything(server.http()),
        [
            r#"{"__name__":"other"} [[1700000000,"0"],[1700000001,"0"]]"#,
            r#"{"__name__":"up"} [[1700000000,"1"],[1700000000.5,"3"],[1700000001,"2"],[1700000002,"4"]]"#
        ]
    );
}

#[test]
fn out_of_order_samples_are_accepted_for_half_an_hour() {
    const MINUTE: i64 = 60_000;
    let server = Server::start(&[]);
    let write = |samples: &[(i64, f64)]| write_up(&server, samples);
    for t in [T0, T0 - 1, T0 - 30 * MINUTE, T0 - 29 * MINUTE] {
        assert_eq!(write(&[(t, 1.0)]).0, 204, "{t}");
    }
    assert_eq!(
        write(&[(T0 - 1, 2.0)]),
        refused("duplicate sample for timestamp", T0 - 1)
    );
    assert_eq!(
        write(&[(T0 - 30 * MINUTE - 1, 1.0)]),
        refused_by(
            "too old sample",
            T0 - 30 * MINUTE - 1,
            " (1800.001s older than the newest time 1700000000000, limit 10800s by \
             storage.tsdb.in_order_max_age, out of order 1800s by \
             storage.tsdb.out_of_order_time_window)"
        )
    );
    assert_eq!(
        everything(server.http())[1],
        r#"{"__name__":"up"} [[1699998200,"1"],[1699998260,"1"],[1699999999.999,"1"],[1700000000,"1"]]"#
    );
}

/// Writes samples of `up`, and a valid one of another series.
fn write_up(server: &Server, samples: &[(i64, f64)]) -> (u16, String) {
    let request = WriteRequest::new([
        series(&[("__name__", "up")], samples),
        series(&[("__name__", "other")], &[(samples[0].0.max(T0), 0.0)]),
    ]);
    let answer = server.http().write(&request);
    (answer.status, answer.text())
}

fn refused(words: &str, timestamp_ms: i64) -> (u16, String) {
    refused_by(words, timestamp_ms, "")
}

fn refused_by(words: &str, timestamp_ms: i64, excess: &str) -> (u16, String) {
    (
        400,
        format!("{words}: 1 sample, e.g. series {{__name__=\"up\"}} at {timestamp_ms}{excess}\n"),
    )
}

#[test]
fn other_encodings_and_messages_are_415() {
    let server = Server::start(&[]);
    let body = up(T0, 1.0).to_body();
    let check = |encoding: &str, content_type: &str, status: u16| {
        let headers = [
            ("Content-Encoding", encoding),
            ("Content-Type", content_type),
        ];
        let answer = server
            .http()
            .post("/api/v1/write", &headers, &body)
            .expect_status(status);
        answer.text()
    };
    check("gzip", "application/x-protobuf", 415);
    check("zstd", "application/x-protobuf", 415);
    check("snappy", "application/json", 415);
    check(
        "zstd",
        "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        415,
    );
    check("snappy", "application/x-protobuf;proto=unknown", 415);
    assert!(everything(server.http()).is_empty());
    check("snappy", "application/x-protobuf", 204);
    check(
        "snappy",
        "application/x-protobuf;proto=prometheus.WriteRequest",
        204,
    );
}

#[test]
fn a_histogram_is_stored_with_the_floats_of_its_request() {
    let server = Server::start(&[]);
    let mut both = series(&[("__name__", "b")], &[(T0 - 1, 1.0)]);
    both.histograms.push(Histogram {
        schema: 3,
        timestamp_ms: T0,
        ..Histogram::default()
    });
    both.exemplars.push(exemplar(&[], 1.0, T0));
    server
        .http()
        .write(&WriteRequest::new([both]))
        .expect_status(204);
    let range = [
        ("query", "b"),
        ("start", "1699999999"),
        ("end", "1700000001"),
    ];
    let exemplars = server.http().query("/api/v1/query_exemplars", &range);
    assert_eq!(exemplars.data()[0]["exemplars"][0]["value"], json!("1"));
    let answer = server
        .http()
        .query("/api/v1/query", &[("query", "b"), ("time", "1700000000")]);
    assert_eq!(
        answer.data()["result"][0]["histogram"][1],
        json!({"count": "0", "sum": "0"})
    );
}

#[test]
fn an_invalid_histogram_rejects_only_itself() {
    let server = Server::start(&[]);
    let mut series = series(&[("__name__", "b")], &[]);
    let histogram = |schema, timestamp_ms| Histogram {
        schema,
        timestamp_ms,
        ..Histogram::default()
    };
    series.histograms = vec![histogram(-5, T0), histogram(3, T0 + 1)];
    let answer = server
        .http()
        .write(&WriteRequest::new([series]))
        .expect_status(400);
    let expected = "invalid native histogram: 1 histogram, e.g. series {__name__=\"b\"} at 1700000000000: histogram has an \
                    invalid schema, which must be between -4 and 8 for exponential buckets, or -53 for custom buckets, \
                    got schema -5";
    assert_eq!(answer.text().trim_end(), expected);
    let metrics = server.http().get("/metrics").text();
    for line in [
        "prometheus_tsdb_head_samples_appended_total{type=\"histogram\"} 1",
        "varve_ingest_rejected_total{reason=\"invalid_histogram\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[test]
fn the_newest_metadata_of_a_family_is_kept() {
    let mut server = Server::start(&[]);
    let of = |metadata| WriteRequest {
        metadata,
        ..WriteRequest::default()
    };
    let first = [
        family("a_total", MetricType::Gauge, "old", ""),
        family("b", MetricType::Unknown, "", ""),
    ];
    server.http().write(&of(first.to_vec())).expect_status(204);
    server
        .http()
        .write(&of(vec![family(
            "a_total",
            MetricType::Counter,
            "All <a>.",
            "seconds",
        )]))
        .expect_status(204);
    let expect = r#"{"status":"success","data":{"a_total":[{"type":"counter","unit":"seconds","help":"All \u003ca\u003e."}],"b":[{"type":"unknown","unit":"","help":""}]}}"#;
    assert_eq!(server.http().get("/api/v1/metadata").text(), expect);
    server.kill();
    server.restart(&[]);
    assert_eq!(server.http().get("/api/v1/metadata").text(), expect);
}
