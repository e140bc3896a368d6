//! From label sets to series.

use super::*;
use crate::write::NEW_ROUTES_MAX;

#[test]
fn all_encodings_of_a_label_set_reach_one_series() {
    let fixture = Fixture::new(Limits::for_tests());
    for (t, labels) in (T..).zip([
        &[("__name__", "up"), ("job", "x")][..],
        &[("job", "x"), ("__name__", "up")],
        &[("", ""), ("job", "x"), ("__name__", "up")][1..],
        &[
            ("instance", ""),
            ("job", "x"),
            ("__name__", "up"),
            ("zone", ""),
        ],
    ]) {
        for _twice in 0..2 {
            fixture.stored(&[series(labels, &[(t, 1.0)])]);
        }
    }
    let a = b"\x0a\x0e\x0a\x08__name__\x12\x02up";
    let b = b"\x0a\x08\x0a\x03job\x12\x01x";
    let sample = |t: i64| request(&[series(&[], &[(t, 1.0)])])[2..].to_vec();
    for t in [T + 4, T + 6] {
        let body = [&a[..], &sample(t), b, &sample(t + 1)].concat();
        let written = fixture
            .write_message(&[&[0x0a, body.len() as u8][..], &body].concat())
            .unwrap();
        let times = Some(TimeRange {
            start_ms: t,
            end_ms: t + 1,
        });
        assert_eq!(
            written,
            Written {
                stored: SampleCounts::floats(2),
                times,
                series: written.series.clone(),
                ..Written::default()
            }
        );
    }
    let samples: Vec<_> = (T..T + 8).map(|t| (t, 1.0)).collect();
    assert_eq!(
        fixture.contents(),
        [(r#"{__name__="up", job="x"}"#.to_owned(), bits(&samples))]
    );
    assert_eq!(fixture.receiver.stats().route.entries, 3);
}

#[test]
fn an_invalid_series_rejects_that_series_every_time() {
    let fixture = Fixture::new(Limits {
        label_value_size_max: 10,
        ..Limits::for_tests()
    });
    let bad = |labels: &[(&str, &str)]| series(labels, &[(T, 1.0), (T + 1, 1.0)]);
    let request = [
        up("a", &[(T, 1.0)]),
        bad(&[("job", "x")]),
        bad(&[("__name__", "up"), ("", "x")]),
        bad(&[("__name__", "up"), ("a", "1"), ("a", "2")]),
        bad(&[("__name__", "up"), ("a", "1"), ("a", "3")]),
        bad(&[("__name__", "up"), ("a", "12345678901")]),
        series(&[], &[]),
        up("b", &[(T, 2.0)]),
    ];
    for _known_by_then in 0..2 {
        let written = fixture.write(&request).unwrap();
        assert_eq!(written.stored.total, 2);
        assert_eq!(
            written.rejections.to_string(),
            "missing metric name (__name__ label): 2 series with 2 samples, e.g. series {job=\"x\"}; \
             label name is empty: 1 series with 2 samples, e.g. series {__name__=\"up\", \"\"=\"x\"}; \
             duplicate label name: 2 series with 4 samples, e.g. series {__name__=\"up\", a=\"1\", a=\"2\"}; \
             label value longer than 10 bytes (the maximum size): 1 series with 2 samples, \
             e.g. series {__name__=\"up\", a=\"12345678901\"} with 11 bytes in label a"
        );
    }
    assert_eq!((fixture.contents().len(), fixture.n_series()), (2, 2));
    let stats = fixture.receiver.stats();
    // The series without samples is resolved each time: it has no route.
    assert_eq!(
        (stats.route.entries, stats.route.hits, stats.route.misses),
        (7, 7, 9)
    );
    assert_eq!(stats.rejected[&RejectionReason::DuplicateLabelName], 8);
    assert_eq!((stats.requests_partial, stats.samples_stored), (2, 4));
}

#[test]
fn all_series_of_a_large_request_are_cached() {
    let fixture = Fixture::new(Limits::for_tests());
    let request: Vec<_> = (0..2 * NEW_ROUTES_MAX + 1)
        .map(|n| up(&n.to_string(), &[(T, 1.0)]))
        .collect();
    fixture.stored(&request);
    fixture.stored(&request);
    let n = request.len() as u64;
    let route = fixture.receiver.stats().route;
    assert_eq!((route.entries, route.hits, route.misses), (n, n, n));
}

#[test]
fn a_series_that_has_moved_is_resolved_again() {
    let fixture = Fixture::new(Limits::for_tests());
    let request = [up("a", &[(T, 1.0)]), up("b", &[(T, 1.0), (T + 1, 2.0)])];
    fixture.cache_outdated_route(&request, 1, Attribution::default());
    let written = fixture.write(&request).unwrap();
    let times = Some(TimeRange {
        start_ms: T,
        end_ms: T + 1,
    });
    assert_eq!(
        written,
        Written {
            stored: SampleCounts::floats(3),
            times,
            series: written.series.clone(),
            ..Written::default()
        }
    );
    assert_eq!(fixture.contents()[1].1, bits(&[(T, 1.0), (T + 1, 2.0)]));
    fixture.stored(&[up("b", &[(T + 2, 2.0)])]);
    assert_eq!(fixture.receiver.stats().route.entries, 2);
}

#[test]
fn known_series_are_stored_if_new_ones_cannot_be_created() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        head_size_max_bytes: 200_000,
        ..Options::default()
    };
    let db = Arc::new(Db::open(dir.path(), options).unwrap());
    let fixture = Fixture {
        receiver: Receiver::new(db, Limits::for_tests()),
        _dir: dir,
    };
    fixture.stored(&[up("known", &[(T, 1.0)])]);
    let mut full = None;
    for n in 0..10_000 {
        let t = T + 1 + n;
        match fixture.write(&[up(&n.to_string(), &[(t, 1.0)]), up("known", &[(t, 1.0)])]) {
            Ok(_) => {}
            Err(refused) => {
                full = Some((t, refused));
                break;
            }
        }
    }
    let (t, refused) = full.expect("200 kB do not hold 10,000 series");
    assert!(
        matches!(refused, WriteError::Store(varve_tsdb::Error::Limit { .. })),
        "{refused}"
    );
    let contents = fixture.contents();
    let (_, known) = contents
        .iter()
        .find(|(labels, _)| labels.contains("known"))
        .unwrap();
    // A full store may refuse the append too. What it accepted is complete and in order.
    assert!(known.last().unwrap().0 >= t - 1);
}

#[test]
fn many_threads_create_each_series_once() {
    let fixture = Fixture::new(Limits::for_tests());
    let all: Vec<_> = (0..200)
        .map(|n| up(&n.to_string(), &[(T, f64::from(n))]))
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| all.chunks(20).for_each(|some| fixture.stored(some)));
        }
    });
    assert_eq!((fixture.n_series(), fixture.contents().len()), (200, 200));
    assert_eq!(fixture.receiver.stats().samples_stored, 800);
}

#[test]
fn new_label_names_beyond_the_maximum_are_rejected_and_known_names_are_not() {
    let limits = Limits {
        label_names_max: 3,
        ..Limits::for_tests()
    };
    let fixture = Fixture::new(limits);
    let with = |name, value| series(&[("__name__", "m"), ("i", "1"), (name, value)], &[(T, 1.0)]);
    let request = [
        with("a", "1"),
        with("b", "1"),
        with("a", "2"),
        with("c", "1"),
    ];
    for _repetition in 0..2 {
        let written = fixture.write(&request).unwrap();
        assert_eq!(written.stored.total, 2);
        assert_eq!(
            written.rejections.to_string(),
            "new label name beyond 3 of all series in memory (label names in memory): 2 series with 2 \
             samples, e.g. series {__name__=\"m\", i=\"1\", b=\"1\"}, with 3 of 3 label names"
        );
    }
    assert_eq!(
        fixture.receiver.stats().rejected,
        [(RejectionReason::TooManyLabelNames { limit: 3 }, 4)].into()
    );
}

#[test]
fn new_series_beyond_the_maximum_of_their_metric_are_rejected_and_others_are_not() {
    let limits = Limits {
        series_per_metric_max: Some(2),
        ..Limits::for_tests()
    };
    let fixture = Fixture::new(limits);
    let of = |metric, i| series(&[("__name__", metric), ("i", i)], &[(T, 1.0)]);
    let request = [
        of("m", "1"),
        of("m", "2"),
        of("m", "3"),
        of("n", "1"),
        of("m", "1"),
    ];
    for _repetition in 0..2 {
        let written = fixture.write(&request).unwrap();
        assert_eq!(written.stored.total, 4);
        assert_eq!(
            written.rejections.to_string(),
            "new series beyond 2 of its metric (series of a metric): 1 series with 1 sample, e.g. \
             series {__name__=\"m\", i=\"3\"}, with 2 of 2 series of its metric"
        );
    }
}
