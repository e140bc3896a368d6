//! Remote read: an empty Prometheus reads from Varve, and a client decodes the stream.

use prost::Message;

use super::super::{T0, data, server_with_data};
use super::histogram::histograms;
use crate::harness::messages::remote_read::{Frame, Hints, Matcher, Query, ReadRequest};
use crate::harness::{
    Answer, ConfigFile, Http, Prometheus, Release, Server, releases, snappy, wait_until,
};

const STREAMED: i32 = 1;

pub(crate) fn query(kind: i32, name: &str, value: &str) -> Query {
    let matcher = Matcher {
        kind,
        name: name.into(),
        value: value.into(),
    };
    Query {
        start_timestamp_ms: T0,
        end_timestamp_ms: T0 + 3_600_000,
        matchers: vec![matcher],
        hints: None,
    }
}

pub(crate) fn read(http: &Http, queries: Vec<Query>, accepted: &[i32]) -> Answer {
    let request = ReadRequest {
        queries,
        accepted_response_types: accepted.to_vec(),
    };
    let headers = [
        ("Content-Encoding", "snappy"),
        ("Content-Type", "application/x-protobuf"),
    ];
    http.post("/api/v1/read", &headers, &snappy(&request.encode_to_vec()))
}

/// Decodes a stream, checking the length and the checksum of each frame.
fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let size = prost::encoding::decode_varint(&mut bytes).expect("a length") as usize;
        let (checksum, rest) = bytes.split_first_chunk::<4>().expect("a checksum");
        let (frame, rest) = rest.split_at(size);
        // Big endian.
        let checksum = checksum
            .iter()
            .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        assert_eq!(crc32c::crc32c(frame), checksum);
        frames.push(Frame::decode(frame).expect("a frame"));
        bytes = rest;
    }
    frames
}

fn server(flags: &[&str]) -> Server {
    let server = server_with_data(flags);
    server
        .http()
        .write_body(&histograms(&[T0, T0 + 15_000, T0 + 30_000]))
        .expect_status(204);
    server
}

/// Queries to which a Prometheus that reads remotely must respond as the store itself.
const QUERIES: &[&str] = &[
    "{__name__=~\".+\"}[1h]",
    "sum by (job) (rate(requests_total[1m]))",
    "up == 0",
    "histogram_quantile(0.9, native)",
    "histogram_count(native_custom) + histogram_sum(native_gauge)",
    "count({cluster=\"c1\"})",
    "count({cluster=\"c2\"})",
];

#[test]
fn a_prometheus_that_reads_from_varve_responds_as_one_with_the_data() {
    releases().iter().for_each(compare_reads);
}

fn compare_reads(release: &Release) {
    const CONFIG: &str = "global: {external_labels: {cluster: c1}}";
    let config = ConfigFile::new(CONFIG);
    // Small frames, so that series have several.
    let varve = server(&[
        &config.flag(),
        "--storage.remote.read-max-bytes-in-frame=100",
    ]);
    const HISTOGRAMS: &[&str] = &["--enable-feature=native-histograms"];
    let source = release.start(CONFIG, HISTOGRAMS);
    source.http().write(&data()).expect_status(204);
    source
        .http()
        .write_body(&histograms(&[T0, T0 + 15_000, T0 + 30_000]))
        .expect_status(204);

    let reading = |http: &Http| {
        let config = format!(
            "remote_read: [{{url: '{}', read_recent: true}}]",
            http.url("/api/v1/read")
        );
        release.start(&config, HISTOGRAMS)
    };
    let (of_ours, of_theirs) = (reading(varve.http()), reading(source.http()));
    for query in QUERIES {
        let params = [("query", *query), ("time", "1700000290")];
        let result = |prometheus: &Prometheus| {
            let mut data = prometheus.http().form("/api/v1/query", &params).data();
            data["result"]
                .as_array_mut()
                .expect("a list")
                .sort_by_key(ToString::to_string);
            data.to_string()
        };
        let (ours, theirs) = (result(&of_ours), result(&of_theirs));
        assert!(
            theirs.contains("metric") || query.contains("c2"),
            "{query}: {theirs}"
        );
        assert_eq!(ours, theirs, "{query}");
    }
    let range = [("start", "1699999990"), ("end", "1700000290")];
    for selector in [
        "{job=\"x\"}",
        "{__name__=~\"native.*\"}",
        "{job=\"nothing\"}",
    ] {
        let series = |prometheus: &Prometheus| {
            let params = [&[("match[]", selector)], &range[..]].concat();
            prometheus
                .http()
                .form("/api/v1/series", &params)
                .data()
                .to_string()
        };
        assert_eq!(series(&of_ours), series(&of_theirs), "{selector}");
    }
}

#[test]
fn a_stream_has_sorted_series_and_a_checksum_per_frame() {
    let varve = server(&[]);
    let answer = read(
        varve.http(),
        vec![query(0, "job", "x"), query(2, "__name__", "native.*")],
        &[STREAMED],
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    let content_type = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
    assert_eq!(answer.header("content-type"), content_type);
    let frames = frames(&answer.body);
    let mut encodings = Vec::new();
    for index in 0..2 {
        let of_query: Vec<_> = frames
            .iter()
            .filter(|frame| frame.query_index == index)
            .collect();
        let labels = |frame: &&Frame| {
            frame.series[0]
                .labels
                .iter()
                .map(|of| (of.name.clone(), of.value.clone()))
                .collect()
        };
        let labels: Vec<Vec<_>> = of_query.iter().map(labels).collect();
        assert!(labels.len() >= 3 && labels.is_sorted(), "{labels:?}");
        for frame in &of_query {
            assert_eq!(frame.series.len(), 1);
            for chunk in &frame.series[0].chunks {
                assert!(
                    T0 <= chunk.min_time_ms
                        && chunk.min_time_ms <= chunk.max_time_ms
                        && !chunk.data.is_empty()
                );
                encodings.push(chunk.encoding);
            }
        }
    }
    // Floats and histograms with integer counts.
    assert!(
        encodings.contains(&1) && encodings.contains(&2),
        "{encodings:?}"
    );
    let nothing = read(varve.http(), vec![query(0, "job", "nothing")], &[STREAMED]);
    assert_eq!((nothing.status, nothing.body.len()), (200, 0));
}

#[test]
fn a_stream_of_labels_has_a_frame_per_series() {
    let varve = server(&[]);
    let hints = Some(Hints {
        func: "series".into(),
        start_ms: T0,
        end_ms: T0 + 3_600_000,
    });
    let answer = read(
        varve.http(),
        vec![Query {
            hints,
            ..query(2, "__name__", "native.*")
        }],
        &[STREAMED],
    );
    let frames = frames(&answer.expect_status(200).body);
    assert!(frames.len() >= 3);
    for frame in frames {
        assert!(!frame.series[0].labels.is_empty() && frame.series[0].chunks.is_empty());
    }
}

#[test]
fn invalid_requests_are_rejected_in_plain_text() {
    let varve = server(&["--storage.remote.read-sample-limit=10"]);
    let refused = |answer: Answer, status: u16, text: &str| {
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, "text/plain; charset=utf-8"),
            "{answer:?}"
        );
        assert!(answer.text().contains(text), "{answer:?}");
    };
    let all = || vec![query(2, "__name__", ".+")];
    refused(
        read(varve.http(), all(), &[]),
        400,
        "exceeded sample limit (10)",
    );
    refused(
        read(varve.http(), all(), &[7, 9]),
        400,
        "does not support any of the requested response types: [7 9]; ",
    );
    // As in Prometheus, a query without matchers selects nothing.
    let nothing = Query {
        matchers: Vec::new(),
        ..query(0, "", "")
    };
    assert!(
        frames(
            &read(varve.http(), vec![nothing], &[1])
                .expect_status(200)
                .body
        )
        .is_empty()
    );
    refused(
        read(varve.http(), vec![query(2, "__name__", "(")], &[]),
        400,
        "",
    );
    refused(
        read(varve.http(), vec![query(9, "a", "b")], &[]),
        400,
        "invalid matcher type",
    );
    refused(varve.http().post("/api/v1/read", &[], b"nonsense"), 400, "");
    let answer = read(varve.http(), vec![query(0, "__name__", "nothing")], &[0]);
    assert_eq!(
        (answer.status, answer.header("content-encoding")),
        (200, "snappy")
    );
    assert_eq!(answer.header("content-type"), "application/x-protobuf");
    wait_until("the memory to be given back", || {
        varve.metric("varve_query_memory_bytes") == 0.0
    });
}

#[test]
fn remote_reads_have_their_own_gate() {
    let server = server(&[
        "--storage.remote.read-concurrent-limit=1",
        "--query.max-concurrency=1",
    ]);
    let up = || vec![query(0, "__name__", "up")];
    read(server.http(), up(), &[]).expect_status(200);
    let metrics = server.http().get("/metrics").text();
    assert!(
        metrics.contains("varve_request_queue_duration_seconds_count{class=\"remote_read\"} 1"),
        "{metrics}"
    );
    assert!(
        metrics.contains("varve_request_queue_duration_seconds_count{class=\"query\"} 0"),
        "{metrics}"
    );
}

/// Only `=` with the value of the external label was right.
#[test]
fn matchers_on_external_labels_apply_to_the_labels_of_the_response() {
    let config = ConfigFile::new("global: {external_labels: {role: far}}");
    let server = server_with_data(&[&config.flag()]);
    let n_frames = |kind, value: &str| {
        let selecting = Query {
            matchers: [query(0, "__name__", "up"), query(kind, "role", value)]
                .map(|query| query.matchers)
                .concat(),
            ..query(0, "", "")
        };
        let answer = read(server.http(), vec![selecting], &[STREAMED]).expect_status(200);
        frames(&answer.body).len()
    };
    let all = n_frames(0, "far");
    assert!(all > 0);
    for (kind, value, is_found) in [
        (0, "", false),
        (1, "far", false),
        (1, "", true),
        (2, "fa.*", true),
        (3, "fa.*", false),
        (3, "ne.*|", true),
    ] {
        let expect = if is_found { all } else { 0 };
        assert_eq!(n_frames(kind, value), expect, "{kind} {value:?}");
    }
}
