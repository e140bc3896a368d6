//! What is stored of valid and invalid samples, floats and native histograms.

use super::*;

#[test]
fn samples_are_stored_bit_for_bit() {
    let fixture = Fixture::new(Limits::for_tests());
    let values = [
        1.5,
        -0.0,
        f64::from_bits(STALE_NAN_BITS),
        f64::from_bits(0xfff8_0000_dead_beef),
        f64::INFINITY,
    ];
    let samples: Vec<_> = (T..).zip(values).collect();
    let written = fixture
        .write(&[up("x", &samples), up("y", &samples[..1])])
        .unwrap();
    let times = Some(TimeRange {
        start_ms: T,
        end_ms: T + 4,
    });
    assert_eq!(
        written,
        Written {
            stored: SampleCounts::floats(6),
            times,
            series: written.series.clone(),
            ..Written::default()
        }
    );
    let expect = [
        (r#"{__name__="up", job="x"}"#.to_owned(), bits(&samples)),
        (
            r#"{__name__="up", job="y"}"#.to_owned(),
            bits(&samples[..1]),
        ),
    ];
    assert_eq!(fixture.contents(), expect);
}

#[test]
fn a_repeated_request_is_accepted_and_stores_nothing_twice() {
    let fixture = Fixture::new(Limits::for_tests());
    let request = [up("x", &[(T, 1.0), (T + 1, 2.0)])];
    fixture.stored(&request);
    fixture.stored(&request);
    assert_eq!(fixture.contents()[0].1, bits(&[(T, 1.0), (T + 1, 2.0)]));
}

#[test]
fn a_full_disk_is_waited_for_and_loses_nothing_acknowledged() {
    let disk = MemFs::new();
    // Background tasks free space when they cannot allocate the disk reserve.
    let options = || Options {
        fs: Arc::new(disk.clone()),
        background: false,
        ..Options::default()
    };
    let brief = Limits {
        queue_timeout: Duration::from_millis(50),
        ..Limits::for_tests()
    };
    let fixture = Fixture::on(options(), brief);
    fixture.stored(&[up("x", &[(T, 1.0)])]);
    disk.set_room(0);
    // The first request finds out; the second one waits before it is decoded.
    assert!(matches!(
        fixture.write(&[up("x", &[(T + 1, 2.0)])]),
        Err(WriteError::Store(_))
    ));
    let began = Instant::now();
    assert!(matches!(
        fixture.write(&[up("y", &[(T + 1, 2.0)])]),
        Err(WriteError::Store(_))
    ));
    assert!(began.elapsed() >= brief.queue_timeout);
    assert_eq!(fixture.n_series(), 1, "it was not decoded");
    disk.set_room(u64::MAX);
    fixture.stored(&[up("x", &[(T + 1, 2.0)])]);
    assert_eq!(fixture.contents()[0].1, bits(&[(T, 1.0), (T + 1, 2.0)]));

    let patient = Fixture::on(
        options(),
        Limits {
            queue_timeout: Duration::from_secs(600),
            ..Limits::for_tests()
        },
    );
    disk.set_room(0);
    assert!(patient.write(&[up("x", &[(T, 1.0)])]).is_err());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| patient.stored(&[up("x", &[(T, 1.0)])]));
        disk.set_room(u64::MAX);
        waiting.join().unwrap();
    });
    assert_eq!(patient.contents()[0].1, bits(&[(T, 1.0)]));
}

#[test]
fn an_invalid_sample_rejects_that_sample_only() {
    let fixture = Fixture::new(Limits::for_tests());
    fixture.stored(&[up("x", &[(T, 1.0)]), up("y", &[(T, 1.0)])]);
    let far = T + 400 * 365 * 86_400_000;
    let written = fixture
        .write(&[
            up(
                "x",
                &[
                    (T - 2, 1.0),
                    (T - 1, 1.0),
                    (T, 7.0),
                    (T + 1, 1.0),
                    (far, 1.0),
                    (T - 86_400_000, 1.0),
                ],
            ),
            up("y", &[(T - 1, 1.0), (T + 1, 1.0)]),
        ])
        .unwrap();
    assert_eq!(written.stored.total, 2);
    let found: Vec<_> = written
        .rejections
        .iter()
        .map(|reject| (reject.reason.name(), reject.count))
        .collect();
    for expect in [
        ("out_of_order", 3),
        ("duplicate_timestamp", 1),
        ("too_far_in_future", 1),
        ("out_of_bounds", 1),
    ] {
        assert!(found.contains(&expect), "{found:?}");
    }
    let text = written.rejections.to_string();
    assert!(text.contains(
        r#"out of order sample: 3 samples, e.g. series {__name__="up", job="x"} at 1699999999998"#
    ));
    assert!(
        text.contains("duplicate sample for timestamp: 1 sample, e.g. "),
        "{text}"
    );
    assert!(text.contains("out of bounds: 1 sample, e.g. "), "{text}");
    assert_eq!(fixture.contents()[1].1, bits(&[(T, 1.0), (T + 1, 1.0)]));
}

#[test]
fn a_new_series_whose_samples_are_all_rejected_is_not_created() {
    let fixture = Fixture::new(Limits::for_tests());
    fixture.stored(&[up("x", &[(T, 1.0)])]);
    let old = T - 86_400_000;
    let far = T + 400 * 365 * 86_400_000;
    let mut rejected = up("new", &[(old, 1.0), (far, 1.0)]);
    rejected.histograms = vec![
        histogram(old, &[1]),
        Histogram {
            positive_spans: vec![],
            ..histogram(T, &[4])
        },
    ];
    rejected.exemplars = vec![Exemplar {
        labels: vec![],
        value: 1.0,
        timestamp_ms: T,
    }];
    for t in [T + 1, T + 2] {
        let written = fixture
            .write(&[rejected.clone(), up("x", &[(t, 1.0)])])
            .unwrap();
        let found: Vec<_> = written
            .rejections
            .iter()
            .map(|reject| (reject.reason.name(), reject.count))
            .collect();
        assert_eq!(
            found,
            [
                ("out_of_bounds", 2),
                ("too_far_in_future", 1),
                ("invalid_histogram", 1)
            ]
        );
        assert_eq!((written.stored.total, written.exemplars.stored), (1, 0));
        assert_eq!(
            written.exemplars.rejected[&ExemplarRejection::UnknownSeries],
            1
        );
    }
    assert_eq!(fixture.n_series(), 1);
    // One acceptable sample is enough.
    let written = fixture
        .write(&[up("new", &[(old, 1.0), (T + 2, 1.0)])])
        .unwrap();
    assert_eq!(
        (
            written.stored.total,
            written.rejections.n_samples(),
            fixture.n_series()
        ),
        (1, 1, 2)
    );
}

#[test]
fn empty_requests_and_series_are_accepted_and_create_nothing() {
    let fixture = Fixture::new(Limits::for_tests());
    for timeseries in [&[][..], &[up("x", &[])]] {
        let written = fixture.write(timeseries).unwrap();
        let expect = Written {
            series: written.series.clone(),
            ..Written::default()
        };
        assert_eq!(written, expect);
    }
    assert_eq!(fixture.n_series(), 0);
}

#[test]
fn histograms_are_stored_beside_floats_and_invalid_ones_are_rejected() {
    let fixture = Fixture::new(Limits::for_tests());
    let mut mixed = up("x", &[(T, 1.0)]);
    let bad = Histogram {
        positive_spans: vec![],
        ..histogram(T + 2, &[4])
    };
    let finer = Histogram {
        schema: 9,
        ..histogram(T + 4, &[1, 2, 3])
    };
    mixed.histograms = vec![
        histogram(T + 1, &[4, 2, 9]),
        bad,
        histogram(T + 1, &[4]),
        finer,
    ];
    let mut unnamed = series(&[("job", "z")], &[]);
    unnamed.histograms = vec![histogram(T, &[1])];
    let request = [mixed, unnamed, up("y", &[(T, 1.0)])];
    // In the second request the duplicate is older than the newest sample.
    for reason in ["duplicate sample for timestamp", "out of order sample"] {
        let written = fixture.write(&request).unwrap();
        assert_eq!(
            (written.stored.total, written.rejections.n_samples()),
            (4, 3)
        );
        assert_eq!(
            written.rejections.to_string(),
            format!(
                "invalid native histogram: 1 histogram, e.g. series {{__name__=\"up\", job=\"x\"}} at 1700000000002: \
             spans need 0 buckets, have 1 buckets: histogram spans specify different number of buckets than provided; \
             missing metric name (__name__ label): 1 series with 1 sample, e.g. series {{job=\"z\"}}; \
             {reason}: 1 sample, e.g. series {{__name__=\"up\", job=\"x\"}} at 1700000000001"
            )
        );
    }
    let (_, columns) = &fixture.select(&[Matcher::equal("job", "x")])[0];
    assert_eq!(columns.timestamps_ms, [T, T + 1, T + 4]);
    assert!(columns.histogram(0).is_none());
    let first = columns.histogram(1).unwrap();
    let finer = columns.histogram(2).unwrap();
    let HistogramCounts::Integer {
        count: 15,
        positive,
        ..
    } = &first.counts
    else {
        panic!("{first:?}")
    };
    assert_eq!(
        (&positive[..], first.reset_hint, first.schema),
        (&[4, 2, 9][..], ResetHint::Gauge, 3)
    );
    // Buckets -2 to 0 of schema 9 are -1 and 0 | 0.
    let HistogramCounts::Integer { positive, .. } = &finer.counts else {
        panic!("{finer:?}")
    };
    assert_eq!(
        (&positive[..], finer.schema, finer.positive_spans[0].offset),
        (&[1, 5][..], 8, -1)
    );
    assert_eq!(
        fixture.receiver.stats().rejected[&RejectionReason::InvalidHistogram],
        2
    );
}

#[test]
fn the_samples_of_a_series_are_taken_in_order_of_time() {
    let mut mixed = up("x", &[(T + 4, 1.0), (T, 1.0), (T + 2, 1.0)]);
    mixed.histograms = vec![histogram(T + 3, &[1]), histogram(T + 1, &[1])];
    let mut v2 = crate::sources::remote_write::message::v2::Request::default();
    let in_v2 = v2.add(
        &[("__name__", "up"), ("job", "x")],
        &[(T + 4, 1.0, 0), (T, 1.0, 0), (T + 2, 1.0, 0)],
    );
    in_v2.histograms = mixed
        .histograms
        .iter()
        .map(Message::encode_to_vec)
        .collect();
    // One entry with both types, two entries, and version 2.0.
    let apart = [
        TimeSeries {
            samples: Vec::new(),
            ..mixed.clone()
        },
        TimeSeries {
            histograms: Vec::new(),
            ..mixed.clone()
        },
    ];
    for (version, message) in [
        (Version::V1, request(&[mixed])),
        (Version::V1, request(&apart)),
        (Version::V2, v2.encode_to_vec()),
    ] {
        let fixture = Fixture::new(Limits::for_tests());
        let written = fixture
            .receiver
            .write(&Origin::default(), version, &pack(&message))
            .unwrap();
        assert_eq!(
            (written.stored.total, written.rejections.to_string()),
            (5, String::new())
        );
        let times: Vec<_> = fixture.contents()[0].1.iter().map(|(t, _)| t - T).collect();
        assert_eq!(times, [0, 1, 2, 3, 4]);
    }
}

#[test]
fn version_2_is_stored_with_start_timestamps_and_counted() {
    use crate::sources::remote_write::message::v2::Request;
    use crate::sources::remote_write::v2::tests::Start;
    let fixture = Fixture::new(Limits::for_tests());
    let mut request = Request::default();
    request.add(
        &[("__name__", "a_total")],
        &[(T, 1.0, T - 10), (T + 1, 2.0, 0), (T + 2, 3.0, T - 5)],
    );
    request.add(&[("__name__", "empty")], &[]);
    request
        .add(&[("__name__", "unknown")], &[])
        .exemplars
        .push(Default::default());
    let of_histogram = request.add(&[("__name__", "h")], &[]);
    let sent = Histogram {
        timestamp_ms: T,
        ..Histogram::default()
    };
    let start = Start { start_ms: T - 7 };
    of_histogram
        .histograms
        .push([sent.encode_to_vec(), start.encode_to_vec()].concat());
    for _twice in 0..2 {
        let written = fixture
            .receiver
            .write(
                &Origin::default(),
                Version::V2,
                &pack(&request.encode_to_vec()),
            )
            .unwrap();
        assert_eq!((written.stored.total, written.stored.histograms), (4, 1));
        assert_eq!(
            written.exemplars.rejected[&ExemplarRejection::UnknownSeries],
            1
        );
        let reasons: Vec<_> = written
            .rejections
            .iter()
            .map(|rejected| (rejected.reason, rejected.count))
            .collect();
        assert_eq!(reasons, [(RejectionReason::NoSamples, 1)]);
    }
    assert_eq!(
        fixture.contents()[0].1,
        bits(&[(T, 1.0), (T + 1, 2.0), (T + 2, 3.0)])
    );
    let starts = |name: &str| {
        let (_, columns) = &fixture.select(&[Matcher::equal("__name__", name)])[0];
        (0..columns.len())
            .map(|idx| columns.start_ms(idx))
            .collect::<Vec<_>>()
    };
    assert_eq!(starts("a_total"), [T - 10, 0, T - 5]);
    assert_eq!(starts("h"), [T - 7]);
}

#[test]
fn own_samples_are_appended_and_rejects_are_returned() {
    let fixture = Fixture::new(Limits::for_tests());
    let labels = Labels::from_pairs([("__name__", "varve_up")]).unwrap();
    let append = |t| {
        fixture
            .receiver
            .append_self_metrics(&[(
                labels.clone(),
                Sample {
                    timestamp_ms: t,
                    value: 1.0,
                },
            )])
            .unwrap()
    };
    assert!(append(T).is_empty());
    let rejections = append(T - 1);
    let expect = format!(
        "out of order sample: 1 sample, e.g. series {{__name__=\"varve_up\"}} at {}",
        T - 1
    );
    assert_eq!(rejections.to_string(), expect);
    assert_eq!(fixture.contents()[0].1, [(T, 1.0_f64.to_bits())]);
}
