//! OTLP deltas: the totals of tenants, and deltas that the store rejects.

use varve_otlp::OtlpSettings;

use super::*;
use crate::compression::Compression;
use crate::sources::otlp::OtlpEncoding;

const FUTURE: i64 = 4_000_000_000_000;

fn fixture() -> Fixture {
    fixture_with(Limits::for_tests())
}

fn fixture_with(limits: Limits) -> Fixture {
    let fixture = Fixture::new(limits);
    fixture.receiver.set_otlp(OtlpSettings {
        delta_to_cumulative: true,
        ..OtlpSettings::default()
    });
    fixture
}

/// Sends deltas of the counter `hits_total` as a tenant, or without one.
fn send(fixture: &Fixture, team: &str, deltas: &[(i64, i64)]) -> Written {
    let points: Vec<_> = deltas
        .iter()
        .map(|(time_ms, value)| {
            format!(r#"{{"startTimeUnixNano":1,"timeUnixNano":{time_ms}000000,"asInt":{value}}}"#)
        })
        .collect();
    let points = points.join(",");
    let body = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[
            {{"name":"hits","sum":{{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{points}]}}}}
        ]}}]}}]}}"#
    );
    let labels = [("team".to_owned(), team.to_owned())];
    let origin = Origin {
        labels: if team.is_empty() { &[] } else { &labels },
        ..Origin::default()
    };
    fixture
        .receiver
        .write_otlp(
            &origin,
            OtlpEncoding::Json,
            Compression::Identity,
            body.as_bytes(),
        )
        .unwrap()
}

/// Returns the stored totals of a tenant.
fn totals(fixture: &Fixture, team: &str) -> Vec<(i64, f64)> {
    let matchers = [
        Matcher::equal("__name__", "hits_total"),
        Matcher::equal("team", team),
    ];
    let found = fixture.select(&matchers);
    let samples = found.iter().flat_map(|(_, columns)| columns.iter());
    samples
        .map(|sample| (sample.timestamp_ms, sample.value))
        .collect()
}

/// The key of a stream lacked the tenant: the total of one was stored for another.
#[test]
fn tenants_add_up_deltas_of_their_own() {
    let fixture = fixture();
    send(&fixture, "a", &[(T, 5)]);
    send(&fixture, "b", &[(T + 1, 100)]);
    send(&fixture, "a", &[(T + 2, 1)]);
    send(&fixture, "", &[(T + 3, 7)]);
    assert_eq!(totals(&fixture, "a"), [(T, 5.0), (T + 2, 6.0)]);
    assert_eq!(totals(&fixture, "b"), [(T + 1, 100.0)]);
    assert_eq!(totals(&fixture, ""), [(T + 3, 7.0)]);
}

/// The delta from the future moved the stream, whose deltas were out of order from then on.
#[test]
fn a_delta_from_the_future_does_not_stop_its_stream() {
    let fixture = fixture();
    send(&fixture, "a", &[(T, 5)]);
    let written = send(&fixture, "a", &[(FUTURE, 100), (T + 1, 1)]);
    let text = written.rejections.to_string();
    let start = format!(
        "{}: 1 sample, e.g. metric \"hits\": delta at {FUTURE} (",
        RejectionReason::TooFarInFuture
    );
    let end = "s ahead of the clock, limit 600s by the maximum time ahead of the clock)";
    assert!(text.starts_with(&start) && text.ends_with(end), "{text}");
    send(&fixture, "a", &[(T + 2, 1)]);
    assert_eq!(
        totals(&fixture, "a"),
        [(T, 5.0), (T + 1, 6.0), (T + 2, 7.0)]
    );
}

/// A total contained deltas that the store had rejected.
#[test]
fn a_delta_that_the_store_rejects_is_rolled_back() {
    let fixture = fixture();
    send(&fixture, "", &[(T, 5)]);
    // Another sender writes the series, whose samples are then out of order.
    let name = [("__name__", "hits_total")];
    fixture.stored(&[series(&name, &[(T + 10, 5.0)])]);
    let written = send(&fixture, "", &[(T + 9, 100)]);
    assert_eq!(written.rejections.n_samples(), 1, "{}", written.rejections);
    // Of two deltas, the rejected one is part of the total of the stored one.
    let written = send(&fixture, "", &[(T + 8, 1), (T + 11, 1)]);
    assert_eq!(written.rejections.n_samples(), 1, "{}", written.rejections);
    send(&fixture, "", &[(T + 12, 1)]);
    assert_eq!(
        totals(&fixture, ""),
        [(T, 5.0), (T + 10, 5.0), (T + 11, 7.0), (T + 12, 8.0)]
    );
}

#[test]
fn a_delta_whose_series_is_rejected_is_rolled_back() {
    let fixture = fixture();
    let too_many = Limits {
        labels_per_series_max: 0,
        ..Limits::for_tests()
    };
    let narrow = fixture_with(too_many);
    for (fixture, n_streams) in [(&fixture, 1), (&narrow, 0)] {
        send(fixture, "", &[(T, 5), (T + 1, 5)]);
        assert_eq!(fixture.receiver.stats().delta_streams, n_streams);
    }
}

/// Only requests that failed before the first step of the write rolled their deltas back.
#[test]
fn a_request_that_fails_rolls_back_the_deltas_that_are_not_stored() {
    let fixture = fixture_with(Limits {
        queue_timeout: std::time::Duration::ZERO,
        ..Limits::for_tests()
    });
    let send_metrics = |metrics: &[(&str, i64)], time_ms: i64| {
        let metrics: Vec<_> = metrics
            .iter()
            .map(|(name, value)| {
                format!(
                    r#"{{"name":"{name}","sum":{{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[
                        {{"startTimeUnixNano":1,"timeUnixNano":{time_ms}000000,"asInt":{value}}}]}}}}"#
                )
            })
            .collect();
        let body = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{}]}}]}}]}}"#,
            metrics.join(",")
        );
        fixture.receiver.write_otlp(
            &Origin::default(),
            OtlpEncoding::Json,
            Compression::Identity,
            body.as_bytes(),
        )
    };
    let n_streams = || fixture.receiver.stats().delta_streams;
    let permit = fixture.receiver.admission.hold_creation();
    send_metrics(&[("hits", 5)], T).unwrap_err();
    assert_eq!(n_streams(), 0);
    drop(permit);

    send_metrics(&[("hits", 5)], T).unwrap();
    let _permit = fixture.receiver.admission.hold_creation();
    send_metrics(&[("hits", 1), ("misses", 1)], T + 1).unwrap_err();
    assert_eq!(n_streams(), 1, "the samples of the other are stored");
    send_metrics(&[("hits", 1)], T + 2).unwrap();
    let expect = [(T, 5.0), (T + 1, 6.0), (T + 2, 7.0)];
    assert_eq!(totals(&fixture, ""), expect);
}
