use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::batch::KeyLanes;
use crate::sources::remote_write::message::Histogram;
use crate::sources::remote_write::message::messages;
use crate::sources::remote_write::message::v2::{Request, TimeSeries};
use crate::sources::remote_write::v1::tests::{
    Contents, any_message, apply, assert_same, damage, double, histogram, histogram_numbers, len,
    number, text, varint,
};

messages! {
    /// The field that histograms have in version 2.0 only.
    Start {
        start_ms: i64 = [int64, tag = 17],
    }
}

fn ours(message: &[u8]) -> Result<Contents, WriteError> {
    Contents::of(message, &decoded(message, &Limits::for_tests())?)
}

fn theirs(message: &[u8]) -> Result<Contents, String> {
    let Request {
        symbols,
        timeseries,
    } = Request::decode(message).map_err(|refused| refused.to_string())?;
    if symbols.first().is_some_and(|first| !first.is_empty()) {
        return Err("the first symbol is not empty".to_owned());
    }
    let text = |number: u32| {
        symbols
            .get(number as usize)
            .cloned()
            .ok_or(format!("no symbol {number}"))
    };
    let pairs = |refs: &[u32]| {
        let pairs = refs.chunks(2).map(|pair| match pair {
            [name, value] => Ok((text(*name)?, text(*value)?)),
            _ => Err("odd references".to_owned()),
        });
        pairs.collect::<Result<Vec<_>, _>>()
    };
    let mut contents = Contents::default();
    for (idx, series) in timeseries.into_iter().enumerate() {
        let TimeSeries {
            labels_refs,
            samples,
            histograms,
            exemplars,
            metadata,
        } = series;
        let samples = samples
            .iter()
            .map(|sample| (sample.timestamp_ms, sample.value, sample.start_ms));
        contents
            .series
            .push((pairs(&labels_refs)?, samples.collect()));
        for bytes in histograms {
            let decoded = Histogram::decode(&bytes[..])
                .and_then(|histogram| Ok((histogram, Start::decode(&bytes[..])?)));
            let (histogram, start) = decoded.map_err(|refused| refused.to_string())?;
            contents
                .histograms
                .push((histogram_numbers(&histogram), start.start_ms));
        }
        for exemplar in exemplars {
            let bits = (exemplar.timestamp_ms, exemplar.value.to_bits());
            contents
                .exemplars
                .push((idx, pairs(&exemplar.labels_refs)?, bits));
        }
        for number in metadata
            .iter()
            .flat_map(|metadata| [metadata.help_ref, metadata.unit_ref])
            .filter(|number| *number != 0)
        {
            text(number)?;
        }
    }
    Ok(contents)
}

fn check_same(message: &[u8]) {
    assert_same(message, ours(message), theirs(message));
}

/// References, mostly to existing symbols.
fn refs() -> BoxedStrategy<Vec<u8>> {
    let number = || prop_oneof![30 => 0..N_SYMBOLS, 1 => any::<u64>()];
    let packed = vec((number(), number()), 0..4);
    let packed = packed.prop_map(|refs| {
        refs.iter()
            .flat_map(|(a, b)| [varint(*a, 0), varint(*b, 0)].concat())
            .collect()
    });
    let single = (number(), number())
        .prop_map(|(a, b)| [vec![8], varint(a, 0), vec![8], varint(b, 0)].concat());
    prop_oneof![8 => len(1, packed), 1 => single].boxed()
}

fn request() -> BoxedStrategy<Vec<u8>> {
    let sample = any_message(vec![(8, double(1)), (8, number(2)), (4, number(3))], 4);
    let exemplar = any_message(vec![(4, refs()), (4, double(2)), (4, number(3))], 5);
    let histogram = any_message(vec![(1, number(17))], 2);
    let histogram = (self::histogram(), histogram).prop_map(|(a, b)| [a, b].concat());
    let metadata = any_message(vec![(4, number(1)), (1, small(3)), (1, small(4))], 4);
    let time_series = any_message(
        vec![
            (16, refs()),
            (16, len(2, sample)),
            (2, len(3, histogram)),
            (2, len(4, exemplar)),
            (2, len(5, metadata)),
        ],
        12,
    );
    let symbols = vec(text(4), N_SYMBOLS as usize - 1);
    let symbols = symbols.prop_map(|symbols| [&[4 << 3 | 2, 0], &*symbols.concat()].concat());
    let series = any_message(vec![(8, len(5, time_series))], 6);
    // Symbols may be the last field.
    (symbols, series, any::<bool>())
        .prop_map(|(a, b, first)| if first { [a, b] } else { [b, a] }.concat())
        .boxed()
}

fn small(field: u64) -> BoxedStrategy<Vec<u8>> {
    (0..N_SYMBOLS)
        .prop_map(move |number| [varint(field << 3, 0), varint(number, 0)].concat())
        .boxed()
}

/// A name and a value among 300 symbols. References have one byte, or two, which may share the
/// first one.
fn near_refs() -> impl Strategy<Value = (u32, u32)> {
    let value = prop_oneof![
        0..300_u32,
        126..130_u32,
        (1..3_u32).prop_map(|high| high << 7 | 5)
    ];
    (prop_oneof![1..3_u32, 125..131_u32], value)
}

const N_SYMBOLS: u64 = 6;

proptest! {
    #[test]
    fn any_message_matches_prost(message in request()) {
        check_same(&message);
    }

    #[test]
    fn a_damaged_message_is_refused_if_prost_refuses_it(
        mut message in request(), damage in damage(),
    ) {
        apply(&damage, &mut message);
        check_same(&message);
    }

    /// The fast path, for consecutive series that share references, computes the same keys, sizes
    /// and families as the slow path for each series alone.
    #[test]
    fn the_series_before_changes_nothing(
        first in vec(near_refs(), 0..12),
        changes in vec(vec((0..24_usize, near_refs()), 0..3), 1..8),
    ) {
        let symbols = (0..300).map(|i| if i == 1 { "__name__".into() } else { "x".repeat(i).into_bytes() }).collect();
        let mut all = vec![first];
        for changes in changes {
            let mut refs = all[all.len() - 1].clone();
            for (at, change) in changes {
                // Replaces a label, changes a part of it, adds it or removes it.
                match (at % 3, refs.get_mut(at / 3)) {
                    (0, Some(label)) => *label = change,
                    (1, Some(label)) => label.1 = change.1,
                    (2, Some(_)) => drop(refs.remove(at / 3)),
                    _ => refs.push(change),
                }
            }
            all.push(refs);
        }
        let metadata = Some(crate::sources::remote_write::message::v2::Metadata { kind: 1, help_ref: 2, unit_ref: 0 });
        let sample = crate::sources::remote_write::message::v2::Sample { timestamp_ms: 1_764_000_000_000, ..Default::default() };
        let series = all.iter().enumerate().map(|(i, refs)| TimeSeries {
            labels_refs: refs.iter().flat_map(|&(name, value)| [name, value]).collect(),
            // A series without a sample takes the slow path.
            samples: vec![sample.clone(); usize::from(i % 4 != 3)],
            metadata: metadata.clone(),
            ..TimeSeries::default()
        });
        let series: Vec<_> = series.collect();
        let hasher = RouteHasher::new();
        let decoded = |timeseries: &[TimeSeries]| {
            let message = Request { symbols: Vec::clone(&symbols), timeseries: timeseries.to_vec() }.encode_to_vec();
            let mut batch = DecodedBatch::default();
            decode(&message, &hasher, &Limits::for_tests(), &mut batch).unwrap();
            let labels = batch.series.iter().map(|series| series.labels);
            let pairs = labels.flat_map(|labels| LabelPairs::new(&message, &batch.symbols, labels));
            let resolved_size: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
            let limited = |bytes_in_flight_max: usize| {
                let limits = Limits { bytes_in_flight_max, ..Limits::for_tests() };
                decode(&message, &hasher, &limits, &mut DecodedBatch::default())
            };
            assert!(limited(resolved_size).is_ok());
            assert!(resolved_size == 0 || limited(resolved_size - 1).is_err());
            let families = batch.families.iter().map(|family| family.name.slice(&message).to_vec());
            (batch.series.iter().map(|series| series.key.unwrap()).collect::<Vec<_>>(), families.collect::<Vec<_>>())
        };
        let (keys, families) = decoded(&series);
        let alone = series.into_iter().map(|series| decoded(&[TimeSeries { samples: Vec::new(), ..series }]));
        let alone: Vec<_> = alone.collect();
        prop_assert_eq!(keys, alone.iter().flat_map(|part| part.0.clone()).collect::<Vec<_>>());
        let mut expected: Vec<_> = alone.into_iter().flat_map(|part| part.1).collect();
        expected.dedup();
        prop_assert_eq!(families, expected);
    }

    #[test]
    fn random_bytes_never_panic(message in vec(any::<u8>(), 0..200)) {
        check_same(&message);
    }
}

fn decoded(message: &[u8], limits: &Limits) -> Result<DecodedBatch, WriteError> {
    let mut batch = DecodedBatch::default();
    decode(message, &RouteHasher::new(), limits, &mut batch).map(|()| batch)
}

#[test]
fn equal_label_sets_have_equal_keys_with_any_symbol_table() {
    let hasher = RouteHasher::new();
    let keys = |symbols: &[&str], refs: &[&[u32]]| {
        let symbols = symbols
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect();
        let series = |refs: &&[u32]| TimeSeries {
            labels_refs: refs.to_vec(),
            ..TimeSeries::default()
        };
        let message = Request {
            symbols,
            timeseries: refs.iter().map(series).collect(),
        }
        .encode_to_vec();
        let mut batch = DecodedBatch::default();
        decode(&message, &hasher, &Limits::for_tests(), &mut batch).unwrap();
        batch
            .series
            .iter()
            .map(|series| series.key.unwrap())
            .collect::<Vec<_>>()
    };
    let a = keys(&["", "__name__", "up", "x"], &[&[1, 2], &[1, 3], &[]]);
    let b = keys(&["", "up", "x", "__name__"], &[&[3, 1], &[3, 2], &[1, 3]]);
    assert_eq!(a[..2], b[..2]);
    assert!(a[0] != a[1] && a[0] != a[2] && a[0] != b[2]);
}

#[test]
fn label_sets_of_the_same_symbols_have_different_keys() {
    let hasher = RouteHasher::new();
    let symbols = ["a", "b", "c"].map(|text| hasher.hash(text.as_bytes()));
    let mut keys = std::collections::HashSet::new();
    // All sequences of up to eight of the symbols.
    let n_sequences = (0..=8).map(|len| 3_u32.pow(len)).sum::<u32>();
    for len in 0..=8 {
        for mut number in 0..3_u32.pow(len) {
            let mut key = KeyLanes::default();
            for at in 0..len {
                hasher.push(&mut key, at as usize, symbols[number as usize % 3]);
                number /= 3;
            }
            keys.insert(key.key());
        }
    }
    assert_eq!(keys.len(), n_sequences as usize);
}

#[test]
fn references_to_missing_symbols_are_malformed() {
    let mut request = Request::default();
    request.add(&[("__name__", "up")], &[(1, 1.0, 0)]);
    let refused = |request: &Request| match decoded(&request.encode_to_vec(), &Limits::for_tests())
    {
        Err(WriteError::Malformed(refused)) => refused.to_string(),
        other => panic!("{other:?}"),
    };
    let with = |change: fn(&mut TimeSeries)| {
        let mut request = request.clone();
        change(&mut request.timeseries[0]);
        refused(&request)
    };
    let mut shifted = request.clone();
    shifted.symbols[0] = b"x".to_vec();
    assert_eq!(
        refused(&shifted),
        "the first symbol is not the empty string"
    );
    let outside = "parsing labels for series: labelRefs 3 outside of symbols table (size 3)";
    assert_eq!(with(|series| series.labels_refs = vec![1, 3]), outside);
    assert_eq!(
        with(|series| series.labels_refs.push(0)),
        "parsing labels for series: invalid labelRefs length 3"
    );
    let exemplar = |refs: &[u32]| crate::sources::remote_write::message::v2::Exemplar {
        labels_refs: refs.to_vec(),
        ..Default::default()
    };
    request.timeseries[0].exemplars.push(exemplar(&[1, 3]));
    assert_eq!(refused(&request), outside);
    request.timeseries[0].exemplars[0] = exemplar(&[1]);
    assert_eq!(
        refused(&request),
        "parsing labels for series: invalid labelRefs length 1"
    );
}

#[test]
fn metadata_is_decoded_once_for_consecutive_series_of_a_family() {
    let mut request = Request::default();
    let help = request.refer("What it is.");
    for (name, kind) in [
        ("h_bucket", 3),
        ("h_bucket", 3),
        ("h_sum", 3),
        ("c_total", 1),
        ("s_count", 5),
        ("_sum", 5),
        ("x", 0),
    ] {
        let series = request.add(&[("__name__", name)], &[(1, 1.0, 0)]);
        let help_ref = if kind == 0 { 0 } else { help };
        series.metadata = Some(crate::sources::remote_write::message::v2::Metadata {
            kind,
            help_ref,
            unit_ref: 0,
        });
    }
    let message = request.encode_to_vec();
    let batch = decoded(&message, &Limits::for_tests()).unwrap();
    let names = batch
        .families
        .iter()
        .map(|family| String::from_utf8_lossy(family.name.slice(&message)));
    assert_eq!(names.collect::<Vec<_>>(), ["h", "c_total", "s", "_sum"]);
    assert!(
        batch
            .families
            .iter()
            .all(|family| family.help.slice(&message) == b"What it is.")
    );
}

#[test]
fn counts_and_sizes_over_the_limits_are_too_large() {
    let limits = Limits {
        series_per_request_max: 2,
        samples_per_request_max: 3,
        decompressed_size_max: 1000,
        ..Limits::for_tests()
    };
    let mut request = Request::default();
    request.add(&[("a", "b")], &[(1, 1.0, 0), (2, 1.0, 0), (3, 1.0, 0)]);
    let with = |change: &dyn Fn(&mut Request)| {
        let mut request = request.clone();
        change(&mut request);
        decoded(&request.encode_to_vec(), &limits)
            .map(|batch| batch.n_samples())
            .map_err(|refused| refused.to_string())
    };
    assert_eq!(with(&|_| ()), Ok(3));
    let refused = |change: &dyn Fn(&mut Request), what: &str| {
        let refused = with(change).unwrap_err();
        assert!(refused.starts_with(what), "{refused}");
    };
    let symbol = |request: &mut Request| {
        request.refer("c");
    };
    refused(&symbol, "number of symbols of 4");
    let sample = |request: &mut Request| {
        request.add(&[], &[(1, 1.0, 0)]);
    };
    refused(&sample, "number of samples of 4");
    let series = |request: &mut Request| {
        request.add(&[], &[]);
        request.add(&[], &[]);
    };
    refused(&series, "number of series of 3");
    // 100 bytes of references to 8,000 bytes of strings.
    let bomb = |request: &mut Request| {
        request.symbols[1] = vec![b'x'; 100];
        request.timeseries[0].labels_refs = vec![1; 82];
    };
    refused(
        &bomb,
        "size in bytes of label sets with resolved symbols of 8200 exceeds the limit of 8000",
    );
}
