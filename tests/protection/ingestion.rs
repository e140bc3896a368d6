//! Limits of write requests: the response names the limit, it is counted, and only what exceeds it
//! is rejected.

use super::{T0, n_names};
use crate::harness::{
    Answer, MetricType, Server, TimeSeries, WriteRequest, family, series, wait_until,
};

fn one(name: &str) -> TimeSeries {
    series(&[("__name__", name)], &[(T0, 1.0)])
}

fn hits(server: &Server, flag: &str) -> f64 {
    let text = server.http().get("/metrics").text();
    let line = format!("varve_limits_hit_total{{limit=\"{flag}\"}} ");
    text.lines()
        .find_map(|found| found.strip_prefix(&line))
        .map_or(0.0, |n| n.parse().expect("a number"))
}

/// Checks that a whole request was rejected by a limit that is named and counted.
#[track_caller]
fn refused_whole(server: &Server, flag: &str, answer: Answer) {
    let text = answer.expect_status(413).text();
    assert!(text.contains(flag), "{text}");
    assert_eq!((hits(server, flag), n_names(server)), (1.0, 0), "{flag}");
}

#[test]
fn a_request_beyond_a_bound_of_all_of_it_is_413_and_stores_nothing() {
    let server = Server::start(&[
        "--ingest.series-per-request-max=10",
        "--ingest.samples-per-request-max=20",
        "--ingest.body-size-max=4KiB",
        "--ingest.decompressed-size-max=8KiB",
    ]);
    let write = |request: &WriteRequest| server.http().write(request);
    let names: Vec<_> = (0..11).map(|i| format!("m{i}")).collect();
    let all = |n: usize| WriteRequest::new(names[..n].iter().map(|name| one(name)));
    refused_whole(&server, "--ingest.series-per-request-max", write(&all(11)));
    let samples: Vec<_> = (0..21).map(|i| (T0 + i, 1.0)).collect();
    let many = |n: usize| WriteRequest::new([series(&[("__name__", "m0")], &samples[..n])]);
    refused_whole(
        &server,
        "--ingest.samples-per-request-max",
        write(&many(21)),
    );
    let valued = |size: usize| {
        WriteRequest::new([series(
            &[("__name__", "m0"), ("a", &"x".repeat(size))],
            &[(T0, 1.0)],
        )])
    };
    refused_whole(
        &server,
        "--ingest.decompressed-size-max",
        write(&valued(9_000)),
    );
    let body = server.http().post(
        "/api/v1/write",
        &[("Content-Encoding", "snappy")],
        &[0; 5_000],
    );
    refused_whole(&server, "--ingest.body-size-max", body);
    // Requests exactly at the limits are stored.
    for request in [all(10), many(20), valued(7_000)] {
        write(&request).expect_status(204);
    }
    assert_eq!(n_names(&server), 10);
}

#[test]
fn a_request_with_too_many_metadata_entries_is_413_and_stores_nothing() {
    const FAMILIES_MAX: usize = 100_000;
    let server = Server::start(&[]);
    let families = |n: usize| {
        let mut request = WriteRequest::new([one("m0")]);
        request.metadata = (0..n)
            .map(|i| family(&format!("m{i}"), MetricType::Counter, "Helps.", ""))
            .collect();
        request
    };
    let too_many = server.http().write(&families(FAMILIES_MAX + 1));
    refused_whole(&server, "metadata entries", too_many);
    let as_many_as_allowed = server.http().write(&families(FAMILIES_MAX));
    as_many_as_allowed.expect_status(204);
}

#[test]
fn a_series_beyond_a_bound_of_its_own_is_400_and_the_rest_is_stored() {
    let server = Server::start(&[
        "--ingest.labels-per-series-max=3",
        "--ingest.label-value-size-max=20B",
    ]);
    // One byte more than a label name and a label value may have.
    let name = "n".repeat(1025);
    let value = "v".repeat(21);
    let request = WriteRequest::new([
        one("good"),
        series(
            &[("__name__", "bad1"), ("a", "1"), ("b", "1"), ("c", "1")],
            &[(T0, 1.0), (T0 + 1, 1.0)],
        ),
        series(&[("__name__", "bad2"), (&name, "1")], &[(T0, 1.0)]),
        series(&[("__name__", "bad3"), ("a", &value)], &[(T0, 1.0)]),
        series(
            &[("__name__", "edge"), (&name[1..], &value[1..]), ("z", "1")],
            &[(T0, 1.0)],
        ),
    ]);
    let text = server.http().write(&request).expect_status(400).text();
    for (flag, reason, n_samples) in [
        ("--ingest.labels-per-series-max", "too_many_labels", 2.0),
        (
            "label name longer than 1024 bytes",
            "label_name_too_long",
            1.0,
        ),
        ("--ingest.label-value-size-max", "label_value_too_long", 1.0),
    ] {
        assert!(text.contains(flag), "{text}");
        assert_eq!(
            server.metric(&format!(
                "varve_ingest_rejected_total{{reason=\"{reason}\"}}"
            )),
            n_samples,
            "{reason}"
        );
    }
    let names = server.http().get("/api/v1/label/__name__/values").data();
    assert_eq!(names, serde_json::json!(["edge", "good"]));
}

#[test]
fn bytes_in_flight_are_bounded_and_rejected_requests_can_be_retried() {
    let server = Server::start(&[
        "--ingest.bytes-in-flight-max=1MiB",
        "--ingest.queue-timeout=100ms",
    ]);
    // A sender that has sent most of its body, whose memory stays charged.
    let mut slow = server.http().connect();
    slow.send(b"POST /api/v1/write HTTP/1.1\r\nHost: x\r\nContent-Encoding: snappy\r\nContent-Length: 1000000\r\n\r\n");
    slow.send(&[0; 900_000]);
    wait_until("the first to hold its body", || {
        server.metric("varve_ingest_body_bytes") >= 900_000.0
    });
    // Random bytes are incompressible.
    let mut random = crate::harness::Random::new(1);
    let value: String = (0..200_000)
        .map(|_| char::from(b'a' + (random.below(26)) as u8))
        .collect();
    let parts: Vec<_> = value
        .as_bytes()
        .chunks(50_000)
        .map(|part| std::str::from_utf8(part).expect("ASCII"))
        .collect();
    let large = WriteRequest::new(
        parts
            .iter()
            .map(|part| series(&[("__name__", "m"), ("a", part)], &[(T0, 1.0)])),
    );
    let write = || server.http().write(&large);
    let answer = write().expect_status(503);
    assert!(
        answer.text().contains("--ingest.bytes-in-flight-max"),
        "{answer:?}"
    );
    assert!(
        !answer.header("retry-after").is_empty()
            && hits(&server, "--ingest.bytes-in-flight-max") >= 1.0
    );
    drop(slow);
    wait_until("the repetition to be stored", || write().status == 204);
}
