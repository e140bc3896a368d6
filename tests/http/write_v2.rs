//! Remote write 2.0: the response headers report what is stored.

use prost::Message;
use serde_json::json;

use super::{T0, everything};
use crate::harness::v2::{Exemplar, Metadata, Request, Sample, TimeSeries};
use crate::harness::{Answer, BucketSpan, Histogram, Server};

const SYMBOLS: [&str; 9] = [
    "", "__name__", "up", "h", "trace_id", "x", "Whether.", "job", "\u{e9}",
];

fn request(timeseries: Vec<TimeSeries>) -> Request {
    Request {
        symbols: SYMBOLS.map(Into::into).into(),
        timeseries,
    }
}

fn up(after_ms: i64) -> TimeSeries {
    let sample = Sample {
        value: 1_f64.to_bits(),
        timestamp_ms: T0 + after_ms,
        start_ms: T0 - 1000,
    };
    TimeSeries {
        labels_refs: vec![1, 2, 7, 8],
        samples: vec![sample],
        ..TimeSeries::default()
    }
}

/// Returns the counts of samples, histograms and exemplars in the response headers.
fn written(answer: &Answer) -> [String; 3] {
    ["samples", "histograms", "exemplars"].map(|of| {
        answer
            .header(&format!("x-prometheus-remote-write-{of}-written"))
            .to_owned()
    })
}

#[test]
fn everything_in_a_request_is_stored_and_counted() {
    let server = Server::start(&[]);
    let histogram = Histogram {
        count_int: Some(3),
        sum: 4.5,
        schema: -53,
        positive_spans: vec![BucketSpan {
            offset: 0,
            length: 2,
        }],
        positive_deltas: vec![1, 1],
        timestamp_ms: T0,
        custom_values: vec![1.0, 2.0],
        ..Histogram::default()
    };
    let exemplar = Exemplar {
        labels_refs: vec![4, 5],
        value: 1.0,
        timestamp_ms: T0,
    };
    let metadata = Some(Metadata {
        kind: 2,
        help_ref: 6,
        unit_ref: 0,
    });
    let series = [
        TimeSeries {
            exemplars: vec![exemplar],
            metadata,
            ..up(0)
        },
        TimeSeries {
            labels_refs: vec![1, 3],
            histograms: vec![histogram.encode_to_vec()],
            ..TimeSeries::default()
        },
    ];
    let answer = server
        .http()
        .write_v2(&request(series.to_vec()))
        .expect_status(204);
    assert_eq!(written(&answer), ["1", "1", "1"]);
    assert_eq!(
        everything(server.http())[0],
        "{\"__name__\":\"h\"} null",
        "it has no floats"
    );
    let found = server
        .http()
        .query(
            "/api/v1/query",
            &[("query", "h[1m]"), ("time", "1700000000")],
        )
        .data();
    let buckets = json!([[3, "-Inf", "1", "1"], [0, "1", "2", "2"]]);
    let expect = json!([[1_700_000_000, {"count": "3", "sum": "4.5", "buckets": buckets}]]);
    assert_eq!(found["result"][0]["histograms"], expect);
    assert_eq!(
        everything(server.http())[1],
        "{\"__name__\":\"up\",\"job\":\"é\"} [[1700000000,\"1\"]]"
    );
    let metadata = server.http().get("/api/v1/metadata").data();
    assert_eq!(
        metadata.to_string(),
        r#"{"up":[{"help":"Whether.","type":"gauge","unit":""}]}"#
    );
    let exemplars = server.http().query(
        "/api/v1/query_exemplars",
        &[
            ("query", "up"),
            ("start", "1699999999"),
            ("end", "1700000001"),
        ],
    );
    assert!(
        exemplars.text().contains(r#""labels":{"trace_id":"x"}"#),
        "{exemplars:?}"
    );
    // A duplicate request stores nothing and is confirmed again.
    let answer = server
        .http()
        .write_v2(&request(series.to_vec()))
        .expect_status(204);
    assert_eq!(written(&answer), ["1", "1", "1"]);
}

/// Prometheus sends each exemplar as a series of its own, after the sample or in a later request.
#[test]
fn exemplars_of_series_without_samples_are_stored() {
    let server = Server::start(&[]);
    let exemplar = |after_ms| Exemplar {
        labels_refs: vec![4, 5],
        value: 1.0,
        timestamp_ms: T0 + after_ms,
    };
    let only = |after_ms| TimeSeries {
        samples: Vec::new(),
        exemplars: vec![exemplar(after_ms)],
        ..up(0)
    };
    let unknown = TimeSeries {
        labels_refs: vec![1, 3],
        ..only(0)
    };
    let answer = server
        .http()
        .write_v2(&request(vec![up(0), only(0), unknown]))
        .expect_status(204);
    assert_eq!(written(&answer), ["1", "0", "1"]);
    let answer = server
        .http()
        .write_v2(&request(vec![only(1000), only(2000)]))
        .expect_status(204);
    assert_eq!(written(&answer), ["0", "0", "2"]);
    let range = [
        ("query", "up"),
        ("start", "1699999999"),
        ("end", "1700000009"),
    ];
    let found = server
        .http()
        .query("/api/v1/query_exemplars", &range)
        .data();
    assert_eq!(
        found[0]["exemplars"].as_array().map(Vec::len),
        Some(3),
        "{found}"
    );
}

#[test]
fn a_partially_invalid_request_reports_exact_counts() {
    let server = Server::start(&[]);
    let sample = Sample {
        value: 2_f64.to_bits(),
        timestamp_ms: T0,
        start_ms: 0,
    };
    let old = TimeSeries {
        samples: vec![sample],
        ..up(0)
    };
    server
        .http()
        .write_v2(&request(vec![up(0)]))
        .expect_status(204);
    let empty = TimeSeries {
        samples: Vec::new(),
        ..up(0)
    };
    let nameless = TimeSeries {
        labels_refs: vec![7, 8],
        ..up(0)
    };
    let answer = server
        .http()
        .write_v2(&request(vec![up(1000), old, empty, nameless, up(2000)]))
        .expect_status(400);
    assert_eq!(written(&answer), ["2", "0", "0"]);
    for words in [
        "duplicate sample for timestamp: 1 sample",
        "TimeSeries must contain at least one sample or histogram: 1 series",
        "missing metric name (__name__ label): 1 series with 1 sample",
    ] {
        assert!(answer.text().contains(words), "{answer:?}");
    }
    assert_eq!(
        everything(server.http()),
        [
            "{\"__name__\":\"up\",\"job\":\"é\"} [[1700000000,\"1\"],[1700000001,\"1\"],[1700000002,\"1\"]]"
        ]
    );
}

#[test]
fn an_invalid_reference_rejects_the_request() {
    let server = Server::start(&[]);
    let invalid = TimeSeries {
        labels_refs: vec![1, 9],
        ..up(0)
    };
    let answer = server
        .http()
        .write_v2(&request(vec![up(0), invalid]))
        .expect_status(400);
    assert!(
        answer
            .text()
            .contains("labelRefs 9 outside of symbols table (size 9)"),
        "{answer:?}"
    );
    assert_eq!(written(&answer), ["0", "0", "0"]);
    assert!(everything(server.http()).is_empty());
}
