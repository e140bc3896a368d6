//! Tests of record decoding.

use super::*;
use proptest::prelude::*;
use varve_codec::varint::put_i64;
use varve_model::histogram::{BucketSpan, HistogramCounts};

#[test]
fn records_of_all_types_are_decoded() {
    let mut definitions = Vec::new();
    let record = [&[1, 0, 0, 0, 0, 0, 0, 0, 7, 1, 1][..], b"a", &[1], b"b"].concat();
    decode_definitions(&record, &mut definitions).unwrap();
    assert_eq!(definitions[0].series, 7);
    assert_eq!(definitions[0].labels().collect::<Vec<_>>(), [("a", "b")]);

    let one = 1.0_f64.to_bits().to_be_bytes();
    let base = [&[2][..], &9_u64.to_be_bytes(), &1000_i64.to_be_bytes()].concat();
    let record = [&base[..], &[0, 0], &one, &[2, 20], &one].concat();
    let mut samples = Vec::new();
    for_each_sample(&record, |it| samples.push(it)).unwrap();
    let plain = |samples: &[RefSample]| {
        samples
            .iter()
            .map(|s| (s.series, s.timestamp_ms, s.start_ms, s.value))
            .collect::<Vec<_>>()
    };
    assert_eq!(plain(&samples), [(9, 1000, 0, 1.0), (10, 1010, 0, 1.0)]);

    // Series 9 at 100, started at 50; series 10 at 105, same start; 11 at 105 without a start; 12
    // at 105, started at 51.
    let next = [
        &[2, 10, 1][..],
        &one,
        &[2, 10, 0],
        &one,
        &[2, 10, 2, 2],
        &one,
    ]
    .concat();
    let record = [&[11, 18, 200, 1, 100][..], &one, &next].concat();
    samples.clear();
    for_each_sample(&record, |it| samples.push(it)).unwrap();
    assert_eq!(
        plain(&samples),
        [
            (9, 100, 50, 1.0),
            (10, 105, 50, 1.0),
            (11, 105, 0, 1.0),
            (12, 105, 51, 1.0)
        ]
    );

    let mut tombstones = Vec::new();
    let record = [&[3][..], &5_u64.to_be_bytes(), &[2, 4]].concat();
    decode_tombstones(&record, &mut tombstones).unwrap();
    assert_eq!(
        tombstones,
        [RefTombstone {
            series: 5,
            min_ms: 1,
            max_ms: 2
        }]
    );

    let mut metadata = Vec::new();
    let record = [
        &[6, 5, 1, 2, 4][..],
        b"UNIT",
        &[1],
        b"s",
        &[4],
        b"HELP",
        &[2],
        b"hi",
    ]
    .concat();
    decode_metadata(&record, &mut metadata).unwrap();
    assert_eq!(
        (
            metadata[0].metric_type.name(),
            metadata[0].unit,
            metadata[0].help
        ),
        ("counter", "s", "hi")
    );

    // One timestamp of eight bytes, and nothing else.
    for (size, expect) in [(8, Some(-2)), (7, None), (9, None), (16, None)] {
        let record = [&[14][..], &(-2_i64).to_be_bytes(), &[0; 8]].concat();
        let (content, error) = RecordContent::decode(RecordType::MinValidTime, &record[..1 + size]);
        let RecordContent::MinValidTime(times) = content else {
            panic!("{content:?}")
        };
        assert_eq!(
            (times.first().copied(), error.is_none()),
            (expect, expect.is_some()),
            "{size}"
        );
    }
}

/// Types 12 and 13, which Prometheus 3.5 does not write, as `histogramSamplesV2` and
/// `floatHistogramSamplesV2` of 3.16 encode them.
#[test]
fn histograms_with_start_timestamps_are_decoded() {
    // A histogram of schema 0: threshold 0.5, zero count 1, count 4, sum 8, buckets 1 and 2 from
    // index -1.
    let double = |value: f64| value.to_bits().to_be_bytes();
    let spans = [1, 1, 2, 0];
    let integer = [
        &[1, 0][..],
        &double(0.5),
        &[1, 4],
        &double(8.0),
        &spans,
        &[2, 2, 2, 0],
    ]
    .concat();
    let counts = [double(1.0), double(4.0), double(8.0)].concat();
    let float = [
        &[1, 0][..],
        &double(0.5),
        &counts,
        &spans,
        &[2],
        &double(1.0),
        &double(2.0),
        &[0],
    ]
    .concat();
    // Custom buckets: schema -53, one bound.
    let custom = [
        &[0, 105][..],
        &double(0.0),
        &[0, 3],
        &double(1.5),
        &[1, 0, 1, 0, 1, 6, 0, 1],
        &double(2.5),
    ]
    .concat();
    for (code, histogram, last) in [(12, &integer, &custom), (13, &float, &float)] {
        // Series 9 at 100, started at 50; 10 at 105, same start; 8 at 99 without a start; 8 at 99,
        // same; 11 at 100, started at 40.
        let heads: [&[u8]; 5] = [
            &[18, 200, 1, 100],
            &[2, 10, 1],
            &[3, 1, 0],
            &[0, 1, 1],
            &[6, 0, 2, 19],
        ];
        let mut record = vec![code];
        for (i, head) in heads.iter().enumerate() {
            record.extend_from_slice(head);
            record.extend_from_slice(if i == 4 { last } else { histogram });
        }
        let mut found = Vec::new();
        assert_eq!(decode_histograms(&record, &mut found), Ok(0), "{code}");
        let heads: Vec<_> = found
            .iter()
            .map(|it| (it.series, it.timestamp_ms, it.start_ms))
            .collect();
        assert_eq!(
            heads,
            [
                (9, 100, 50),
                (10, 105, 50),
                (8, 99, 0),
                (8, 99, 0),
                (11, 100, 40)
            ],
            "{code}"
        );
        let first = &found[0].histogram;
        assert_eq!(
            (first.schema, first.zero_threshold, first.sum),
            (0, 0.5, 8.0)
        );
        assert_eq!(
            first.positive_spans,
            [BucketSpan {
                offset: -1,
                length: 2
            }]
        );
        match &first.counts {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => {
                assert_eq!(
                    (code, *count, *zero_count, &positive[..], negative.len()),
                    (12, 4, 1, &[1, 2][..], 0)
                );
                assert_eq!(
                    (
                        found[4].histogram.schema,
                        &found[4].histogram.custom_bounds[..]
                    ),
                    (-53, &[2.5][..])
                );
            }
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => {
                let found = (code, *count, *zero_count, &positive[..], negative.len());
                assert_eq!(found, (13, 4.0, 1.0, &[1.0, 2.0][..], 0));
            }
        }
        for size in 1..record.len() {
            let mut found = Vec::new();
            let _ = decode_histograms(&record[..size], &mut found);
            assert!(found.len() < 5);
        }
    }
}

#[test]
fn a_truncated_record_gives_the_items_before_the_cut() {
    let one = 1.0_f64.to_bits().to_be_bytes();
    let record = [
        &[2][..],
        &9_u64.to_be_bytes(),
        &1000_i64.to_be_bytes(),
        &[0, 0],
        &one,
        &[2, 20],
        &one,
    ]
    .concat();
    let mut samples = Vec::new();
    let error = for_each_sample(&record[..record.len() - 1], |it| samples.push(it)).unwrap_err();
    assert_eq!(
        (error, samples.len()),
        (
            RecordError {
                offset: 27,
                record_type: 2
            },
            1
        )
    );
}

proptest! {
    #[test]
    fn samples_round_trip(
        first in (any::<u64>(), any::<i64>()),
        steps in proptest::collection::vec((any::<i64>(), any::<i64>(), 0..64_u32, 0..64_u32, any::<u64>()), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut record = [&[2][..], &first.0.to_be_bytes(), &first.1.to_be_bytes()].concat();
        let (mut expected, mut ends) = (Vec::new(), vec![record.len()]);
        for (series, time, series_shift, time_shift, bits) in steps {
            let (series, time) = (series >> series_shift, time >> time_shift);
            put_i64(&mut record, series);
            put_i64(&mut record, time);
            record.extend_from_slice(&bits.to_be_bytes());
            expected.push((first.0.wrapping_add_signed(series), first.1.wrapping_add(time), bits));
            ends.push(record.len());
        }
        let size = 17 + cut.index(record.len() - 16);
        for size in [record.len(), size] {
            let mut found = Vec::new();
            let decoded = for_each_sample(&record[..size], |it| {
                found.push((it.series, it.timestamp_ms, it.value.to_bits()));
            });
            let n_whole = ends.iter().filter(|&&end| end <= size).count() - 1;
            prop_assert_eq!(&found[..], &expected[..n_whole]);
            prop_assert_eq!(decoded.is_err(), ends[n_whole] < size || n_whole == 0);
        }
    }

    #[test]
    fn no_record_panics(code in 0..16_u8, mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        bytes.insert(0, code);
        for record_type in RecordType::ALL {
            let _ = RecordContent::decode(record_type, &bytes);
        }
    }
}
