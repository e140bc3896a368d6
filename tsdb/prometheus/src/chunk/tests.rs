use std::sync::Arc;

use proptest::prelude::*;
use varve_codec::varint::take_u64;
use varve_model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, Histogram, HistogramCounts, ResetHint,
};
use varve_model::staleness::STALE_NAN_BITS;
use varve_model::{Sample, SampleColumns};

use super::bstream::BitSink;
use super::*;
use crate::testing::{recorded, recorded_3_16};

fn floats(samples: &[(i64, f64)]) -> SampleColumns {
    let mut columns = SampleColumns::default();
    for &(timestamp_ms, value) in samples.iter() {
        columns.push(Sample {
            timestamp_ms,
            value,
        })
    }
    columns
}

fn histograms(samples: Vec<Histogram>) -> SampleColumns {
    let mut columns = SampleColumns::default();
    for (i, histogram) in (0..).zip(samples) {
        columns.push_histogram(1_000_000 + i * 15_000, Arc::new(histogram));
    }
    columns
}

fn integer(spans: &[(i32, u32)], counts: &[u64]) -> Histogram {
    let positive_spans = spans
        .iter()
        .map(|&(offset, length)| BucketSpan { offset, length })
        .collect();
    let count = counts.iter().sum();
    let counts = HistogramCounts::Integer {
        count,
        zero_count: 0,
        positive: counts.to_vec(),
        negative: Vec::new(),
    };
    Histogram {
        sum: 5.0,
        zero_threshold: 0.001,
        counts,
        positive_spans,
        ..Histogram::default()
    }
}

fn gauge(spans: &[(i32, u32)], counts: &[u64]) -> Histogram {
    Histogram {
        reset_hint: ResetHint::Gauge,
        ..integer(spans, counts)
    }
}

fn encode(columns: &SampleColumns, starts: StartTimestamps) -> Vec<Chunk> {
    let mut encoder = Encoder::new(starts);
    encoder.push_columns(columns);
    encoder.finish()
}

fn decode_all(chunks: &[Chunk]) -> SampleColumns {
    let mut columns = SampleColumns::default();
    for chunk in chunks {
        let from = columns.len();
        decode(chunk.encoding, &chunk.bytes, &mut columns).unwrap();
        assert_eq!(columns.len() - from, chunk.n_samples as usize);
        assert_eq!(n_samples(chunk.encoding, &chunk.bytes), Ok(chunk.n_samples));
        assert_eq!(
            (
                columns.timestamps_ms[from],
                *columns.timestamps_ms.last().unwrap()
            ),
            (chunk.min_ms, chunk.max_ms)
        );
    }
    columns
}

fn bits(columns: &SampleColumns) -> Vec<(i64, u64, i64)> {
    columns
        .iter()
        .enumerate()
        .map(|(idx, s)| (s.timestamp_ms, s.value.to_bits(), columns.start_ms(idx)))
        .collect()
}

/// Decodes a chunk and encodes it again. Returns `None` if that gives more than one chunk.
fn again(encoding: Encoding, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut columns = SampleColumns::default();
    decode(encoding, bytes, &mut columns).unwrap();
    let chunks = encode(
        &columns,
        if encoding.has_starts() {
            StartTimestamps::Keep
        } else {
            StartTimestamps::Drop
        },
    );
    match chunks.as_slice() {
        [chunk] => {
            let mut again = chunk.bytes.clone();
            // One chunk alone cannot tell about resets before it.
            if matches!(encoding, Encoding::Histogram | Encoding::FloatHistogram) {
                again[2] = bytes[2];
            }
            Some(again)
        }
        _ => None,
    }
}

/// All chunks of recorded Prometheus blocks, up to 120 samples each, round-trip.
#[test]
fn recorded_chunks_round_trip_byte_for_byte() {
    let mut n_same = [0; 5];
    let blocks = recorded()
        .into_iter()
        .chain([recorded_3_16()])
        .flat_map(|dir| std::fs::read_dir(dir).unwrap());
    for block in blocks {
        let Ok(segment) = std::fs::read(block.unwrap().path().join("chunks/000001")) else {
            continue;
        };
        let mut rest = &segment[8..];
        while let Some(size) = take_u64(&mut rest).filter(|_| rest.len() > 4) {
            let (encoding, data) = rest.split_first().unwrap();
            let bytes = &data[..size as usize];
            rest = &data[size as usize + 4..];
            let encoding = Encoding::from_code(*encoding).unwrap();
            if n_samples(encoding, bytes).unwrap() > SAMPLES_PER_CHUNK {
                continue;
            }
            let Some(again) = again(encoding, bytes) else {
                continue;
            };
            assert_eq!(again, bytes, "{encoding:?}");
            n_same[encoding.code() as usize] += 1;
        }
    }
    assert!(
        recorded().is_none() || n_same[1] > 1000 && n_same[2] > 10 && n_same[3] > 3,
        "{n_same:?}"
    );
    assert!(n_same[4] > 20, "{n_same:?}");
}

#[test]
fn special_floats_round_trip() {
    let values = [
        0.0,
        -0.0,
        1.0,
        1.5,
        f64::NAN,
        f64::INFINITY,
        f64::MIN_POSITIVE,
        f64::from_bits(STALE_NAN_BITS),
        1.0,
    ];
    let times = [
        i64::MIN / 4,
        -5,
        0,
        1,
        60_000,
        120_000,
        180_001,
        i64::MAX / 4,
        i64::MAX / 2,
    ];
    let samples: Vec<_> = times.into_iter().zip(values).collect();
    for starts in [StartTimestamps::Drop, StartTimestamps::Keep] {
        let columns = floats(&samples);
        assert_eq!(
            bits(&decode_all(&encode(&columns, starts))),
            bits(&columns),
            "{starts:?}"
        );
    }
}

#[test]
fn a_chunk_has_the_documented_bytes() {
    let columns = floats(&[(1000, 1.0), (2000, 1.0), (3000, 1.0), (4000, 2.0)]);
    // Four samples: timestamp 1000 as a varint, value 1.0; delta 1000 as a varint, same value; the
    // same again; another value in a new window: 0, 11, 1 leading zero, 11 bits, XOR.
    let known = [0, 4, 0xd0, 0x0f, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xe8, 0x07];
    let [chunk] = &encode(&columns, StartTimestamps::Drop)[..] else {
        panic!("one chunk")
    };
    assert_eq!(
        (
            &chunk.bytes[..14],
            chunk.min_ms,
            chunk.max_ms,
            chunk.n_samples
        ),
        (&known[..], 1000, 4000, 4)
    );
    assert_eq!(
        chunk.bytes[14..],
        [0b0000_1100, 0b0010_0101, 0xff, 0b1111_0000]
    );
}

#[test]
fn chunks_end_after_120_samples_and_where_the_sample_type_changes() {
    let mut columns = floats(&(0..300).map(|i| (i * 15_000, 1.0)).collect::<Vec<_>>());
    columns.push_histogram(5_000_000, Arc::new(integer(&[(0, 1)], &[1])));
    columns.push(Sample {
        timestamp_ms: 6_000_000,
        value: 2.0,
    });
    let sizes: Vec<_> = encode(&columns, StartTimestamps::Drop)
        .iter()
        .map(|c| (c.encoding.code(), c.n_samples))
        .collect();
    assert_eq!(sizes, [(1, 120), (1, 120), (1, 60), (2, 1), (1, 1)]);
}

/// Encodes histograms. Returns number of samples, header and first span of each chunk.
fn cut_histograms(samples: Vec<Histogram>) -> Vec<(u32, u8)> {
    let columns = histograms(samples);
    let chunks = encode(&columns, StartTimestamps::Drop);
    let back = decode_all(&chunks);
    assert_eq!(bits(&back), bits(&columns));
    chunks
        .iter()
        .map(|chunk| (chunk.n_samples, chunk.bytes[2]))
        .collect()
}

#[test]
fn histograms_share_a_chunk_until_a_counter_reset() {
    let stale = || Histogram {
        sum: f64::from_bits(STALE_NAN_BITS),
        ..Histogram::default()
    };
    let grown = integer(&[(0, 2), (1, 1)], &[1, 2, 1]);
    let one = || integer(&[(0, 2)], &[1, 2]);
    for (samples, expected) in [
        (vec![one(), one(), grown.clone()], vec![(3, 0)]),
        (vec![grown.clone(), one()], vec![(1, 0), (1, 0x80)]),
        (
            vec![integer(&[(0, 2)], &[0, 2]), integer(&[(1, 1)], &[3])],
            vec![(2, 0)],
        ),
        (
            vec![
                integer(&[(0, 2)], &[0, 2]),
                integer(&[(1, 1), (3, 1)], &[3, 1]),
            ],
            vec![(2, 0)],
        ),
        (
            vec![
                one(),
                Histogram {
                    schema: 3,
                    ..grown.clone()
                },
            ],
            vec![(1, 0), (1, 0)],
        ),
        (vec![one(), stale(), stale(), one()], vec![(3, 0), (1, 0)]),
        (vec![stale(), one()], vec![(1, 0), (1, 0)]),
        (
            vec![
                one(),
                Histogram {
                    reset_hint: ResetHint::Reset,
                    ..one()
                },
            ],
            vec![(1, 0), (1, 0x80)],
        ),
        (
            vec![gauge(&[(0, 2)], &[9, 2]), gauge(&[(1, 2)], &[1, 0])],
            vec![(2, 0xc0)],
        ),
        (
            vec![gauge(&[(0, 2)], &[9, 2]), one()],
            vec![(1, 0xc0), (1, 0x40)],
        ),
        (
            vec![one(), gauge(&[(0, 2)], &[9, 2])],
            vec![(1, 0), (1, 0xc0)],
        ),
    ] {
        assert_eq!(cut_histograms(samples.clone()), expected, "{samples:?}");
    }
}

#[test]
fn recoded_histograms_keep_their_counts() {
    let columns = histograms(vec![
        integer(&[(0, 2)], &[0, 2]),
        integer(&[(-3, 1), (3, 1), (4, 2)], &[1, 2, 1, 1]),
        integer(&[(-3, 1), (3, 2), (3, 2)], &[1, 2, 7, 1, 1]),
    ]);
    let back = decode_all(&encode(&columns, StartTimestamps::Drop));
    let sparse = |histogram: &Histogram| {
        let HistogramCounts::Integer { positive, .. } = &histogram.counts else {
            panic!("integers")
        };
        let (mut index, mut at, mut buckets) = (0, 0, Vec::new());
        for span in &histogram.positive_spans {
            index += span.offset;
            for _ in 0..span.length {
                buckets.push((index, positive[at]));
                (index, at) = (index + 1, at + 1);
            }
        }
        buckets.retain(|(_, count)| *count > 0);
        buckets
    };
    for ((_, ours), (_, theirs)) in columns.histograms.iter().zip(&back.histograms) {
        assert_eq!(sparse(ours), sparse(theirs));
    }
}

#[test]
fn thresholds_and_bounds_round_trip() {
    for zero_threshold in [
        0.0,
        1e-200,
        0.001,
        2.0_f64.powi(-128),
        1024.0,
        2048.0,
        2.0_f64.powi(-243),
        -1.0,
    ] {
        let custom_bounds = vec![-1.0, 0.0, 0.005, 2.5, 33_554.43, 33_554.431, 1e9, 0.1 + 0.2];
        let histogram = Histogram {
            zero_threshold,
            schema: CUSTOM_BUCKETS_SCHEMA,
            custom_bounds: custom_bounds.clone(),
            ..integer(&[(0, 1)], &[3])
        };
        let back = decode_all(&encode(&histograms(vec![histogram]), StartTimestamps::Drop));
        let back = &back.histograms[0].1;
        assert_eq!(
            (back.zero_threshold.to_bits(), &back.custom_bounds),
            (zero_threshold.to_bits(), &custom_bounds)
        );
    }
}

#[test]
fn a_chunk_whose_header_claims_too_much_is_rejected() {
    let mut columns = SampleColumns::default();
    for encoding in (1..=6).filter_map(Encoding::from_code) {
        for bytes in [
            &[][..],
            &[0],
            &[0, 1],
            &[0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert!(
                decode(encoding, bytes, &mut columns).is_err(),
                "{encoding:?} {bytes:?}"
            );
        }
    }
    assert!(columns.is_empty());
    // 60,000 empty spans in a chunk of 16,383 samples of a few bits each: it would decode to a
    // gigabyte.
    let mut dst = bstream::BitWriter::with_header(3);
    dst.put(0, 8);
    dst.put_varbit(0);
    dst.put_varbit_unsigned(60_000);
    (0..60_000).for_each(|_| dst.put(0, 2));
    dst.put(0, 1);
    (0..3).for_each(|_| dst.put(0, 1));
    dst.put(0, 64);
    for _ in 0..16_382 {
        dst.put(0b100_0100, 7);
        dst.put(0, 1);
    }
    let bytes = dst.finish(&[0x3f, 0xff, 0]);
    assert_eq!(
        decode(Encoding::Histogram, &bytes, &mut columns),
        Err(ChunkError::TooLarge)
    );
    assert!(columns.len() < 100);
}

#[test]
fn samples_out_of_order_are_rejected() {
    let chunks = encode(&floats(&[(10, 1.0), (20, 2.0)]), StartTimestamps::Drop);
    let mut columns = floats(&[(15, 0.0)]);
    assert_eq!(
        decode(Encoding::Xor, &chunks[0].bytes, &mut columns),
        Err(ChunkError::OutOfOrder)
    );
    assert_eq!(columns.len(), 1);
}

fn samples() -> impl Strategy<Value = Vec<(i64, u64, i64)>> {
    let step = prop_oneof![Just(15_000_i64), 1..40_000_i64, 1..i64::MAX / 1024];
    let value = prop_oneof![
        Just(1.0_f64.to_bits()),
        any::<u64>(),
        Just(STALE_NAN_BITS),
        (0..50_u32).prop_map(|v| f64::from(v).to_bits())
    ];
    let start = prop_oneof![Just(0_i64), Just(500), -9_i64..9, any::<i64>()];
    proptest::collection::vec((step, value, start), 0..300).prop_map(|steps| {
        let mut time = -3_i64;
        let next = |(step, value, start): (i64, u64, i64)| {
            time += step;
            (time, value, start)
        };
        steps.into_iter().map(next).collect()
    })
}

proptest! {
    #[test]
    fn floats_round_trip(samples in samples()) {
        let mut encoder = Encoder::new(StartTimestamps::Keep);
        let mut plain = Encoder::new(StartTimestamps::Drop);
        for &(timestamp_ms, value, start_ms) in &samples {
            let sample = Sample { timestamp_ms, value: f64::from_bits(value) };
            encoder.push(sample, start_ms);
            plain.push(sample, start_ms);
        }
        let (kept, dropped) = (encoder.finish(), plain.finish());
        prop_assert_eq!(&bits(&decode_all(&kept)), &samples);
        let without: Vec<_> = samples.iter().map(|&(time, value, _)| (time, value, 0)).collect();
        prop_assert_eq!(bits(&decode_all(&dropped)), without);
    }

    #[test]
    fn no_bytes_panic(code in 1..=6_u8, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(Encoding::from_code(code).unwrap(), &bytes, &mut SampleColumns::default());
    }

    /// Known start timestamps cost a chunk of another encoding only where they are.
    #[test]
    fn floats_with_some_start_timestamps_keep_them(samples in samples(), known in any::<u64>()) {
        let [mut some, mut all] = [StartTimestamps::KeepKnown, StartTimestamps::Keep].map(Encoder::new);
        let mut n_known = 0;
        for (idx, (timestamp_ms, value, start_ms)) in samples.into_iter().enumerate() {
            let start_ms = if known >> (idx / 8 % 64) & 1 == 1 { start_ms } else { 0 };
            n_known += usize::from(start_ms != 0);
            let sample = Sample { timestamp_ms, value: f64::from_bits(value) };
            some.push(sample, start_ms);
            all.push(sample, start_ms);
        }
        let (some, all) = (some.finish(), all.finish());
        prop_assert_eq!(bits(&decode_all(&some)), bits(&decode_all(&all)));
        let has_starts = |chunk: &Chunk| {
            let columns = decode_all(std::slice::from_ref(chunk));
            (0..columns.len()).any(|idx| columns.start_ms(idx) != 0)
        };
        for chunk in &some {
            prop_assert_eq!(chunk.encoding == Encoding::Xor2, has_starts(chunk));
        }
        prop_assert!(n_known > 0 || some.iter().all(|chunk| chunk.encoding == Encoding::Xor));
    }

    #[test]
    fn float_time_range_agrees_with_decode(
        samples in samples(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 0..3),
    ) {
        let mut encoder = Encoder::new(StartTimestamps::Drop);
        for (timestamp_ms, value, start_ms) in samples {
            encoder.push(Sample { timestamp_ms, value: f64::from_bits(value) }, start_ms);
        }
        for mut chunk in encoder.finish() {
            let size = chunk.bytes.len();
            for (at, bit) in flips.iter() { chunk.bytes[at.index(size)] ^= 1 << bit; }
            let mut columns = SampleColumns::default();
            let decoded = decode(Encoding::Xor, &chunk.bytes, &mut columns);
            let times = columns.timestamps_ms.first().copied().zip(columns.timestamps_ms.last().copied());
            prop_assert_eq!(float_time_range(&chunk.bytes), decoded.map(|()| times));
        }
    }

    #[test]
    fn damaged_chunks_do_not_panic(
        spans in proptest::collection::vec((0..4_i32, 0..4_u32), 0..6),
        is_float: bool, kept: bool,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 0..4),
    ) {
        let n = spans.iter().map(|(_, length)| *length as usize).sum();
        let mut histogram = integer(&spans, &vec![3; n]);
        if is_float {
            let positive = vec![2.5; n];
            histogram.counts = HistogramCounts::Float { count: 9.0, zero_count: 0.5, positive, negative: Vec::new() };
        }
        let starts = if kept { StartTimestamps::Keep } else { StartTimestamps::Drop };
        let columns = histograms(vec![histogram; 12]);
        let chunks = encode(&columns, starts);
        prop_assert_eq!(bits(&decode_all(&chunks)), bits(&columns));
        let mut bytes = chunks[0].bytes.clone();
        for (at, bit) in flips.iter() { bytes[at.index(chunks[0].bytes.len())] ^= 1 << bit; }
        let _ = decode(chunks[0].encoding, &bytes, &mut SampleColumns::default());
    }
}

/// The floats of the second chunk used to have the last start timestamp of the first one.
#[test]
fn floats_after_a_chunk_with_start_timestamps_have_none() {
    let mut encoder = Encoder::new(StartTimestamps::Keep);
    let sample = |timestamp_ms| Sample {
        timestamp_ms,
        value: 1.0,
    };
    encoder.push(sample(10), 5);
    let mut chunks = encoder.finish();
    chunks.extend(encode(&floats(&[(20, 2.0)]), StartTimestamps::Drop));
    let columns = decode_all(&chunks);
    assert_eq!([0, 1].map(|idx| columns.start_ms(idx)), [5, 0]);
}

/// Values of all widths, so that chunks end by their number of samples and by their size.
#[test]
fn floats_at_once_have_the_chunks_of_floats_one_by_one() {
    let value =
        |i: i64| f64::from_bits((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i / 300 % 40));
    let samples: Vec<_> = (0..6000).map(|i| (i * 15_000 + i % 7, value(i))).collect();
    let columns = floats(&samples);
    let mut encoder = Encoder::default();
    for &(timestamp_ms, value) in &samples {
        encoder.push(
            Sample {
                timestamp_ms,
                value,
            },
            0,
        );
    }
    let one_by_one = encoder.finish();
    assert!(
        one_by_one.iter().any(|chunk| chunk.n_samples < 120),
        "a chunk ends by its size"
    );
    assert_eq!(encode(&columns, StartTimestamps::Drop), one_by_one);
}

fn encode_aligned(columns: &SampleColumns) -> Vec<Chunk> {
    let mut encoder = Encoder::default();
    encoder.push_aligned(columns);
    encoder.finish()
}

#[test]
fn aligned_chunks_have_120_samples_at_usual_intervals() {
    const HOURS_2_MS: i64 = 7_200_000;
    for (interval_ms, n_expected) in [
        (15_000, 120),
        (30_000, 120),
        (60_000, 120),
        (10_000, 90),
        (300_000, 24),
    ] {
        let samples: Vec<_> = (0..HOURS_2_MS / interval_ms)
            .map(|i| (i * interval_ms, i as f64))
            .collect();
        let chunks = encode_aligned(&floats(&samples));
        assert!(
            chunks.iter().all(|chunk| chunk.n_samples == n_expected),
            "{interval_ms}"
        );
    }
    let ends = [(i64::MIN, 1.0), (-1, 2.0), (0, 3.0), (i64::MAX, 4.0)];
    assert_eq!(
        bits(&decode_all(&encode_aligned(&floats(&ends)))),
        bits(&floats(&ends))
    );
    assert!(encode_aligned(&SampleColumns::default()).is_empty());
}

proptest! {
    #[test]
    fn aligned_chunks_do_not_depend_on_earlier_samples(
        steps in proptest::collection::vec((1..40_000_i64, any::<u64>()), 1..2500),
        n_missing in 0..2000_usize,
        start_ms in any::<i32>(),
    ) {
        let mut time_ms = i64::from(start_ms);
        let samples: Vec<_> = steps.iter().map(|&(step, bits)| {
            time_ms += step;
            (time_ms, f64::from_bits(bits))
        }).collect();
        let later = &samples[n_missing.min(samples.len())..];
        let [whole, part] = [&samples[..], later].map(|samples| encode_aligned(&floats(samples)));
        prop_assert_eq!(bits(&decode_all(&whole)), bits(&floats(&samples)));
        prop_assert!(whole.iter().all(|chunk| chunk.n_samples <= SAMPLES_PER_CHUNK));
        // Chunks of periods that both have completely are equal.
        let from_ms = later.first().map_or(i64::MAX, |(time_ms, _)| (time_ms.div_euclid(7_200_000) + 1) * 7_200_000);
        let after = |chunks: &[Chunk]| -> Vec<Chunk> {
            chunks.iter().filter(|chunk| chunk.min_ms >= from_ms).cloned().collect()
        };
        prop_assert_eq!(after(&whole), after(&part));
    }
}
