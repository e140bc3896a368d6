use super::*;
use proptest::prelude::*;

/// The staleness marker of Prometheus.
const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

fn encoded(values: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ValueEncoder::default().encode(values, &mut bytes);
    bytes
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Encodes a row, decodes it with and without bytes after it, and returns its size.
fn check(values: &[f64]) -> usize {
    let row = encoded(values);
    for behind in [&[][..], &[0xff; 100]] {
        let bytes = [&row, behind].concat();
        let (mut src, mut decoded) = (&bytes[..], vec![7.0]);
        assert_eq!(
            decode_values(&mut src, values.len(), &mut decoded),
            Some(()),
            "{values:?} as {row:?}"
        );
        assert_eq!(src, behind, "bytes after the row remain");
        assert_eq!(bits(&decoded[1..]), bits(values), "{values:?} as {row:?}");
    }
    row.len()
}

fn row_of(n: usize, value: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..n).map(value).collect()
}

/// A sequence below `bound` without a pattern.
fn noise(i: usize, bound: u64) -> u64 {
    (i as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        % bound
}

#[test]
fn rows_take_about_the_bits_of_their_information() {
    let stale = f64::from_bits(STALE_NAN_BITS);
    let counter = |i: usize| (i as u64 * 1_000 + noise(i, 64)) as f64;
    let cases: &[(&str, Vec<f64>, usize)] = &[
        ("zero", vec![0.0; 960], 2),
        ("one small decimal", vec![0.1; 960], 2),
        ("stale", vec![stale; 20], 1),
        ("minus zero", vec![-0.0; 20], 1),
        ("pi", vec![std::f64::consts::PI; 20], 9),
        (
            "counter of no noise",
            row_of(20, |i| 1e6 + 60.0 * i as f64),
            8,
        ),
        (
            "counter of 6 bits of noise",
            row_of(240, counter),
            240 * 7 / 8 + 8,
        ),
        (
            "the same, ended",
            row_of(241, |i| if i < 240 { counter(i) } else { stale }),
            240 * 7 / 8 + 11,
        ),
        (
            "the same, reset twice",
            row_of(240, |i| counter(i % 90)),
            240 * 7 / 8 + 20,
        ),
        (
            "gauge of 2 decimals",
            row_of(240, |i| 20.0 + noise(i, 128) as f64 / 100.0),
            240 * 7 / 8 + 6,
        ),
        (
            "memory in pages",
            row_of(240, |i| (4096 * (100_000 + noise(i, 32))) as f64),
            240 * 5 / 8 + 12,
        ),
        (
            "seldom other than zero",
            row_of(240, |i| if i % 40 == 3 { 1e6 } else { 0.0 }),
            36,
        ),
        (
            "nanoseconds over 2^51",
            row_of(240, |i| (3_000_000_000_000_000 + 1_000 * i as u64) as f64),
            16,
        ),
        (
            "NaN until it is known",
            row_of(240, |i| if i < 10 { f64::NAN } else { 5.0 }),
            16,
        ),
    ];
    for (name, values, size_max) in cases {
        let size = check(values);
        assert!(
            size <= *size_max,
            "{name}: {size} bytes, expected at most {size_max}"
        );
    }
}

#[test]
fn sums_of_decimals_take_the_decimals_and_their_rounding_errors() {
    let mut sum = 0.0;
    let values: Vec<_> = (0..240)
        .map(|i| {
            sum += noise(i, 100) as f64 / 100.0;
            sum
        })
        .collect();
    let size = check(&values);
    assert!(size < 240 * 2, "{size} bytes");
}

#[test]
fn every_length_round_trips_in_every_form() {
    for n in (1..140).chain([255, 256, 257, 959, 960]) {
        check(&row_of(n, |_| 1.5));
        check(&row_of(n, |i| i as f64));
        check(&row_of(n, |i| noise(i, 1 << 20) as f64 / 10.0));
        check(&row_of(n, |i| (noise(i, 1 << 52) as f64).sqrt()));
        check(&row_of(n, |i| if i % 3 == 0 { f64::NAN } else { i as f64 }));
        check(&row_of(n, |i| {
            if i % 2 == 0 { f64::NAN } else { f64::INFINITY }
        }));
    }
}

fn awkward() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>(),
        any::<u64>().prop_map(|payload| payload | 0x7ff0_0000_0000_0000),
        (0..1_u64 << 52),
        (-1_000_i64..1_000).prop_map(|v| (v as f64).to_bits()),
        (-100_000_i64..100_000).prop_map(|v| (v as f64 / 1_000.0).to_bits()),
        (any::<i64>(), 0..64_u32).prop_map(|(v, shift)| ((v >> shift) as f64).to_bits()),
        prop::sample::select(vec![
            STALE_NAN_BITS,
            1 << 63,
            0,
            1,
            f64::INFINITY.to_bits(),
            f64::MIN.to_bits()
        ]),
    ]
    .prop_map(f64::from_bits)
}

/// Generates rows of one kind of value with exceptions among them.
fn rows() -> impl Strategy<Value = Vec<f64>> {
    let decimals =
        (0..18_i32, 1..1_000_000_i64, any::<bool>()).prop_flat_map(|(exponent, range, sums)| {
            proptest::collection::vec(-range..range, 1..300).prop_map(move |integers| {
                let mut sum = 0.0;
                let values = integers
                    .into_iter()
                    .map(|v| v as f64 / 10_f64.powi(exponent));
                values
                    .map(|v| {
                        if sums {
                            sum += v;
                            sum
                        } else {
                            v
                        }
                    })
                    .collect::<Vec<_>>()
            })
        });
    let counters = (
        proptest::collection::vec(0..1_u64 << 40, 1..300),
        0..40_u32,
        1..10_000_u64,
    )
        .prop_map(|(steps, shift, unit)| {
            let mut sum = 0_u64;
            let mut next = |step: u64| {
                sum = if step.is_multiple_of(101) {
                    0
                } else {
                    sum + (step >> shift) * unit
                };
                sum as f64
            };
            steps.into_iter().map(&mut next).collect()
        });
    let base = prop_oneof![
        proptest::collection::vec(awkward(), 1..300),
        decimals,
        counters
    ];
    (
        base,
        proptest::collection::vec((0..300_usize, awkward()), 0..6),
    )
        .prop_map(|(mut values, exceptions)| {
            let n = values.len();
            for (at, value) in exceptions {
                values[at % n] = value;
            }
            values
        })
}

proptest! {
    #[test]
    fn every_double_round_trips_bit_for_bit(values in rows()) {
        check(&values);
    }

    #[test]
    fn truncated_and_flipped_rows_are_rejected_or_decode_to_n_values(
        values in rows(), cut in 0..400_usize, flipped in 0..3_000_usize, n in 0..1_000_usize,
    ) {
        let mut bytes = encoded(&values);
        for n in [values.len(), n] {
            check_damaged(&bytes[..cut.min(bytes.len())], n)?;
        }
        let at = flipped / 8 % bytes.len();
        bytes[at] ^= 1 << (flipped % 8);
        check_damaged(&bytes, values.len())?;
    }

    #[test]
    fn random_bytes_are_rejected_or_decode_to_n_values(
        tag in 0..16_u8, bytes in proptest::collection::vec(any::<u8>(), 0..200), n in 0..1_000_usize,
    ) {
        check_damaged(&bytes, n)?;
        check_damaged(&[&[tag], &bytes[..]].concat(), n)?;
    }
}

fn check_damaged(bytes: &[u8], n: usize) -> Result<(), TestCaseError> {
    let mut decoded = vec![7.0];
    let result = decode_values(&mut &bytes[..], n, &mut decoded);
    prop_assert_eq!(decoded.len(), if result.is_some() { n + 1 } else { 1 });
    Ok(())
}

#[test]
fn every_truncation_of_a_row_is_rejected() {
    let rows = [
        row_of(100, |i| noise(i, 1 << 20) as f64),
        row_of(100, |i| (noise(i, 1 << 52) as f64).sqrt()),
        row_of(100, |i| {
            if i % 9 == 0 {
                f64::NAN
            } else {
                0.1 + noise(i, 50) as f64
            }
        }),
        vec![0.25; 100],
        vec![std::f64::consts::E; 100],
    ];
    for row in rows {
        let bytes = encoded(&row);
        for size in 0..bytes.len() {
            assert_eq!(
                decode_values(&mut &bytes[..size], 100, &mut Vec::new()),
                None,
                "{size} of {bytes:?}"
            );
        }
    }
}
