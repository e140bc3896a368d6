//! Tests of the encoding, and a strategy for arbitrary histograms, which other modules use too.

use proptest::prelude::*;
use varve_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, HISTOGRAM_BUCKETS_MAX};
use varve_model::staleness::STALE_NAN_BITS;

use super::*;

/// Returns `true` if two histograms are equal, including their reset hints.
pub(crate) fn is_identical(a: &Histogram, b: &Histogram) -> bool {
    a.reset_hint == b.reset_hint && a.is_same(b)
}

/// Generates histograms of a few layouts, with integer or float counts. The spans may not fit the
/// buckets.
pub(crate) fn any_histogram() -> impl Strategy<Value = Histogram> {
    let n_buckets = (0..6_usize, prop_oneof![4 => Just(0), 1 => 0..3_usize]);
    let counts = (
        any_double(),
        proptest::collection::vec(any_count(), 12),
        any::<bool>(),
    );
    (counts, n_buckets, 0..4_u8, 0..3_u8).prop_map(
        |((sum, counts, is_float), (n, m), hint, kind)| {
            let (count, zero_count, positive, negative) =
                (counts[0], counts[1], &counts[2..2 + n], &counts[8..8 + m]);
            let floats = |counts: &[u64]| counts.iter().map(|&count| count as f64 / 4.0).collect();
            let counts = if is_float {
                let (count, zero_count) = (count as f64, f64::from_bits(zero_count));
                HistogramCounts::Float {
                    count,
                    zero_count,
                    positive: floats(positive),
                    negative: floats(negative),
                }
            } else {
                HistogramCounts::Integer {
                    count,
                    zero_count,
                    positive: positive.to_vec(),
                    negative: negative.to_vec(),
                }
            };
            Histogram {
                reset_hint: ResetHint::from_code(hint).unwrap(),
                schema: if kind == 2 { CUSTOM_BUCKETS_SCHEMA } else { 3 },
                zero_threshold: if kind == 0 { 2.0_f64.powi(-128) } else { 0.0 },
                sum,
                counts,
                positive_spans: spans(n),
                negative_spans: spans(m),
                custom_bounds: if kind == 2 {
                    vec![0.5, 1.0, 1e300]
                } else {
                    Vec::new()
                },
            }
        },
    )
}

fn spans(n: usize) -> Vec<BucketSpan> {
    match n {
        0 => Vec::new(),
        n => vec![
            BucketSpan {
                offset: -3,
                length: 1,
            },
            BucketSpan {
                offset: 2,
                length: n as u32 - 1,
            },
        ],
    }
}

fn any_double() -> impl Strategy<Value = f64> {
    prop_oneof![
        (0..1000_i64).prop_map(|i| i as f64 / 8.0),
        any::<u64>().prop_map(f64::from_bits),
        Just(f64::from_bits(STALE_NAN_BITS)),
        Just(-0.0),
    ]
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..100_u64, 1 => any::<u64>()]
}

fn encoded(histogram: &Histogram) -> (Vec<u8>, Vec<u8>) {
    let (mut layout, mut counts) = (Vec::new(), Vec::new());
    Layout::of(histogram).encode(&mut layout);
    encode_counts(histogram, &mut counts);
    (layout, counts)
}

proptest! {
    #[test]
    fn histograms_round_trip_bit_for_bit(histogram in any_histogram(), other in any_histogram()) {
        let (layout, counts) = encoded(&histogram);
        let (mut src, mut bytes) = (&layout[..], &counts[..]);
        let layout = Layout::decode(&mut src).unwrap();
        let decoded = decode_counts(&layout, &mut bytes).unwrap();
        prop_assert!(src.is_empty() && bytes.is_empty());
        prop_assert!(is_identical(&decoded, &histogram), "{decoded:?} for {histogram:?}");
        prop_assert!(layout.is_of(&histogram));
        prop_assert_eq!(layout.is_of(&other), encoded(&histogram).0 == encoded(&other).0);
    }

    #[test]
    fn truncated_and_random_bytes_never_panic(
        histogram in any_histogram(), at in 0..200_usize, bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (layout, counts) = encoded(&histogram);
        prop_assert!(Layout::decode(&mut &layout[..at % layout.len()]).is_none());
        prop_assert!(decode_counts(&Layout::of(&histogram), &mut &counts[..at % counts.len()]).is_none());
        if let Some(layout) = Layout::decode(&mut &bytes[..]) {
            let _ = decode_counts(&layout, &mut &bytes[..]);
        }
        let _ = decode_counts(&Layout::of(&histogram), &mut &bytes[..]);
    }
}

#[test]
fn encoded_lengths_are_not_trusted() {
    for (bad, why) in [
        (&[2, 0, 0, 0, 0, 0, 0, 0][..], "an unknown flag"),
        (&[0, 0, 0, 0xff, 0x7f, 0, 0], "more spans than bytes"),
        (
            &[0, 0, 0, 0, 0x81, 0x80, 0x04, 0, 0, 0],
            "too many positive buckets",
        ),
        (
            &[0, 0, 0, 0, 0x80, 0x80, 0x04, 0, 1, 0],
            "too many buckets in total",
        ),
        (&[0, 0, 0, 0, 0, 0, 0, 9, 0], "more bounds than bytes"),
    ] {
        assert!(Layout::decode(&mut &bad[..]).is_none(), "{why}");
    }
    let large = Layout::decode(&mut &[0, 0, 0, 0, 0x80, 0x80, 0x04, 0, 0, 0][..]).unwrap();
    assert_eq!(large.n_buckets(), HISTOGRAM_BUCKETS_MAX);
    assert!(decode_counts(&large, &mut &[0; 100][..]).is_none());
}

#[test]
fn a_histogram_with_too_many_buckets_or_bounds_does_not_fit() {
    let with = |n: usize| Histogram {
        counts: HistogramCounts::Float {
            count: 0.0,
            zero_count: 0.0,
            positive: vec![0.0; n],
            negative: vec![0.0],
        },
        ..Histogram::default()
    };
    assert!(with(HISTOGRAM_BUCKETS_MAX - 1).fits() && !with(HISTOGRAM_BUCKETS_MAX).fits());
    let bounds = Histogram {
        custom_bounds: vec![0.0; HISTOGRAM_BUCKETS_MAX + 1],
        ..Histogram::default()
    };
    assert!(!bounds.fits());
}
