//! Exemplars and metadata of a request.

use super::*;

#[test]
fn exemplars_are_stored_with_known_series_and_rejected_ones_leave_the_request_valid() {
    let fixture = Fixture::new(Limits::for_tests());
    let found = || {
        let found = fixture
            .receiver
            .db
            .exemplars(&ReadContext::unbounded(), &[vec![]], TimeRange::ALL)
            .unwrap();
        let print = |one: &varve_tsdb::exemplars::SeriesExemplars| {
            let times = one
                .exemplars
                .iter()
                .map(|e| (e.timestamp_ms, e.value))
                .collect::<Vec<_>>();
            (one.labels.get("job").unwrap().to_owned(), times)
        };
        found.series.iter().map(print).collect::<Vec<_>>()
    };
    let long = [b'x'; 128];
    let written = fixture
        .write(&[
            exemplars("nobody", &[(b"1", 1.0, T)]),
            up("x", &[(T, 1.0)]),
            exemplars(
                "x",
                &[
                    (b"1", 1.0, T),
                    (b"2", -0.0, T + 1),
                    // Exemplars of a series are taken in order of time.
                    (b"3", 1.0, T - 1),
                    (b"\xff", 1.0, T + 2),
                    (&long, 1.0, T + 2),
                    (b"4", 1.0, T + 400 * 365 * 86_400_000),
                ],
            ),
            up("y", &[(T, 1.0)]),
        ])
        .unwrap();
    assert_eq!(
        (
            written.stored.total,
            written.exemplars.stored,
            written.rejections.is_empty()
        ),
        (2, 3, true)
    );
    let refused = written
        .exemplars
        .rejected
        .iter()
        .map(|(refusal, n)| (refusal.name(), *n));
    let expect = [
        ("out_of_bounds", 1),
        ("labels_too_long", 1),
        ("unknown_series", 1),
        ("invalid_labels", 1),
    ];
    assert_eq!(refused.collect::<Vec<_>>(), expect);
    // In a later request: of a cached route, and of a series that only the store knows.
    let later = [(&b"4"[..], 2.0, T + 5), (b"5", 1.0, T - 2)];
    fixture.stored(&[
        exemplars("x", &later),
        exemplars("y", &[(b"4", f64::NAN, 0)]),
    ]);
    let all = found();
    assert_eq!(
        all[0],
        (
            "x".to_owned(),
            vec![(T - 1, 1.0), (T, 1.0), (T + 1, -0.0), (T + 5, 2.0)]
        )
    );
    assert!(all[1].1[0].1.is_nan() && all.len() == 2);
    assert_eq!(
        fixture.n_series(),
        2,
        "no series is created for an exemplar"
    );
    let stats = fixture.receiver.stats();
    assert_eq!(
        (
            stats.exemplars.stored,
            stats.exemplars.rejected.len(),
            stats.requests_stored
        ),
        (5, 5, 2)
    );
}

#[test]
fn metadata_is_stored_and_invalid_metadata_is_rejected() {
    let fixture = Fixture::new(Limits::for_tests());
    let family = |name: &str, kind, help: &[u8]| MetricMetadata {
        kind,
        metric_family_name: name.into(),
        help: help.to_vec(),
        unit: b"s".to_vec(),
    };
    let metadata = vec![
        family("a", 1, b"first"),
        family("", 1, b"x"),
        family("b", 99, b"second"),
        family("c", 2, b"\xff"),
        family("d", 2, &[b'x'; 70_000]),
    ];
    let message = WriteRequest {
        metadata,
        ..WriteRequest::default()
    }
    .encode_to_vec();
    let written = fixture.write_message(&message).unwrap();
    assert_eq!(
        written.rejections.to_string(),
        "invalid metadata: 3 metric families, e.g. an entry without metric family name"
    );
    let known = fixture.receiver.db.metadata();
    let known: Vec<_> = known
        .iter()
        .map(|(name, m)| (&**name, m.kind.as_str(), m.help.as_str()))
        .collect();
    assert_eq!(
        known,
        [("a", "counter", "first"), ("b", "unknown", "second")]
    );
}
