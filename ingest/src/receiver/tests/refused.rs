//! Requests that are refused as a whole: malformed, over a limit, or without free memory.

use super::*;

#[test]
fn a_malformed_request_stores_nothing_not_even_of_known_series() {
    let fixture = Fixture::new(Limits::for_tests());
    fixture.stored(&[up("x", &[(T, 1.0)])]);
    let before = fixture.contents();
    let good = request(&[up("x", &[(T + 1, 1.0)]), up("new", &[(T + 1, 1.0)])]);
    for damage in [
        &b"\x0a"[..],
        b"\x0a\x05",
        b"\x00",
        b"\x08\x01",
        b"\x0a\x02\x0a\x05",
        // A label with malformed contents.
        b"\x0a\x05\x0a\x03\x0a\x05a",
        // An exemplar, a histogram and metadata with malformed contents.
        b"\x0a\x03\x1a\x01\x0a",
        b"\x0a\x03\x22\x01\x09",
        b"\x1a\x01\x12",
        b"\x7b\x7c",
    ] {
        let refused = fixture
            .write_message(&[&good, damage].concat())
            .unwrap_err();
        assert!(
            matches!(refused, WriteError::Malformed(Malformed::Protobuf { .. })),
            "{refused}"
        );
    }
    let whole = pack(&good);
    for body in [&whole[..whole.len() - 1], b"", b"\x00\x00", b"not snappy"] {
        let refused = fixture
            .receiver
            .write(&Origin::default(), Version::V1, body)
            .unwrap_err();
        assert!(
            matches!(refused, WriteError::Malformed(Malformed::Snappy(_))),
            "{refused}"
        );
    }
    assert_eq!((fixture.contents(), fixture.n_series()), (before, 1));
    assert_eq!(
        (
            fixture.receiver.stats().requests_malformed,
            fixture.receiver.stats().admission.in_flight_bytes
        ),
        (14, 0)
    );
}

#[test]
fn damaged_bodies_never_panic() {
    let fixture = Fixture::new(Limits::for_tests());
    let body = pack(&request(&[
        up("x", &[(T, 1.0), (T + 1, 2.0)]),
        up("y", &[(T, 3.0)]),
    ]));
    proptest!(|(damage in vec((any::<Index>(), any::<u8>()), 0..4), end in any::<Index>(), cut in any::<bool>())| {
        let mut body = body.clone();
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if cut {
            body.truncate(end.index(body.len()));
        }
        if let Ok(written) = fixture.receiver.write(&Origin::default(), Version::V1, &body) {
            prop_assert!(written.stored.total + written.rejections.n_samples() <= 20);
        }
    });
    assert_eq!(fixture.receiver.stats().admission.in_flight_bytes, 0);
}

#[test]
fn a_request_over_a_limit_is_refused_and_stores_nothing() {
    let limits = Limits {
        body_size_max: 100,
        decompressed_size_max: 1000,
        ..Limits::for_tests()
    };
    let fixture = Fixture::new(limits);
    let many = request(&vec![up("x", &[(T, 1.0)]); 100]);
    let bodies: [(&[u8], &str); 4] = [
        (
            &[0; 101],
            "body size in bytes of 101 exceeds the limit of 100 (size of a body)",
        ),
        (
            b"\xe9\x07",
            "decompressed size in bytes of 1001 exceeds the limit of 1000 (decompressed size of a body)",
        ),
        (
            b"\xff\xff\xff\xff\x0f\x00",
            "decompressed size in bytes of 4294967295 exceeds the limit of 1000 (decompressed size of a body)",
        ),
        (
            &pack(&many)[..100],
            "decompressed size in bytes of 4600 exceeds the limit of 1000 (decompressed size of a body)",
        ),
    ];
    for (body, expect) in bodies {
        let refused = fixture
            .receiver
            .write(&Origin::default(), Version::V1, body)
            .unwrap_err();
        assert!(matches!(refused, WriteError::TooLarge { .. }));
        assert_eq!(refused.to_string(), expect);
    }
    assert_eq!(
        (
            fixture.n_series(),
            fixture.receiver.stats().requests_too_large
        ),
        (0, 4)
    );
}

#[test]
fn a_request_without_free_memory_is_busy() {
    let fixture = Fixture::new(Limits {
        bytes_in_flight_max: 10_000,
        ..Limits::for_tests()
    });
    let held = fixture.receiver.admission.hold_memory(9_900);
    let many = vec![up("x", &[(T, 1.0)]); 10];
    assert!(matches!(
        fixture.write(&many),
        Err(WriteError::Busy {
            in_flight: 9_900,
            ..
        })
    ));
    // The body fits, its decoded form does not.
    assert!(matches!(
        fixture.write(&[up("x", &[(T, 1.0)])]),
        Err(WriteError::Busy { size: 116, .. })
    ));
    assert_eq!(
        (
            fixture.n_series(),
            fixture.receiver.stats().admission.in_flight_bytes
        ),
        (0, 9_900)
    );
    drop(held);
    fixture.stored(&many);
    let stats = fixture.receiver.stats();
    assert_eq!(
        (
            stats.requests_busy,
            stats.admission.in_flight_bytes,
            stats.samples_stored
        ),
        (2, 0, 10)
    );
}

#[test]
fn histograms_and_exemplars_are_counted_before_they_are_decoded() {
    let fixture = Fixture::new(Limits {
        samples_per_request_max: 3,
        ..Limits::for_tests()
    });
    let histograms = |n| TimeSeries {
        histograms: vec![histogram(T, &[1]); n],
        ..up("x", &[(T, 1.0)])
    };
    let exemplars = |n| exemplars("x", &vec![(&b"1"[..], 1.0, T); n]);
    for (accepted, rejected, counted) in [
        (histograms(2), histograms(3), "number of samples"),
        (exemplars(3), exemplars(4), "number of exemplars"),
    ] {
        assert!(fixture.write(&[accepted]).is_ok());
        let refused = fixture.write(&[rejected]).unwrap_err();
        assert!(
            matches!(refused, WriteError::TooLarge { what, size: 4, .. } if what == counted),
            "{refused}"
        );
    }
}
