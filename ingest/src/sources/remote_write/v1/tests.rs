use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;

use std::fmt::Debug;

use super::*;
use crate::sources::remote_write::message::{self, WriteRequest};

/// The contents of a request of either version, from either decoder.
#[derive(Debug, PartialEq, Default)]
pub(crate) struct Contents {
    /// Labels as pairs, samples as timestamp, bits and start.
    pub(crate) series: Vec<(Vec<Pair>, Vec<BitsAndStart>)>,
    /// With start timestamps.
    pub(crate) histograms: Vec<(HistogramNumbers, i64)>,
    /// Series, labels, timestamp and bits.
    pub(crate) exemplars: Vec<(usize, Vec<Pair>, (i64, u64))>,
    /// Type, name, help and unit.
    families: Vec<Family>,
}

pub(crate) type Pair = (Vec<u8>, Vec<u8>);
type BitsAndStart = (i64, u64, i64);
type Family = (i32, Vec<u8>, Vec<u8>, Vec<u8>);
/// All numbers of a histogram except those of a `oneof`: only our decoder knows which member is the
/// last.
pub(crate) type HistogramNumbers = Vec<Vec<u64>>;

impl Contents {
    /// Returns what our decoder has found, except families.
    pub(crate) fn of(message: &[u8], batch: &DecodedBatch) -> Result<Self, WriteError> {
        let pairs = |labels| {
            let pairs = crate::sources::remote_write::label_pairs(batch, message, labels);
            pairs
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect()
        };
        let mut contents = Self::default();
        for (series, samples) in batch.series() {
            let samples = samples.entries().map(|entry| {
                let value_bits = entry.sample.value.to_bits();
                (entry.sample.timestamp_ms, value_bits, entry.start_ms)
            });
            contents
                .series
                .push((pairs(series.labels), samples.collect()));
        }
        for entry in &batch.histograms {
            let HistogramEntry::Encoded(span) = entry else {
                panic!("{entry:?}")
            };
            let sent = histogram::decode(Reader::over(message, *span), batch.version)?;
            contents.histograms.push((sent.numbers(), sent.start_ms));
        }
        for entry in &batch.exemplars {
            let sample = exemplar_sample(message, entry.fields);
            let bits = (sample.timestamp_ms, sample.value.to_bits());
            contents
                .exemplars
                .push((entry.series_idx as usize, pairs(entry.fields), bits));
            // Must not panic, whatever the labels are.
            let _parsed = crate::write::exemplars::parse(message, batch, entry);
        }
        Ok(contents)
    }
}

fn ours(message: &[u8]) -> Result<Contents, WriteError> {
    let mut batch = DecodedBatch::default();
    decode(
        message,
        &RouteHasher::new(),
        &Limits::for_tests(),
        &mut batch,
    )?;
    batch
        .series
        .iter()
        .try_for_each(|series| check_labels(message, series.labels))?;
    let contents = Contents::of(message, &batch)?;
    let mut strings = Vec::new();
    for (series, (pairs, _)) in batch.series.iter().zip(&contents.series) {
        if plain_strings(message, series.labels, &mut strings) {
            let plain = strings
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
            assert!(plain.eq(pairs.iter().cloned()));
        }
    }
    let text = |span: Span| span.slice(message).to_vec();
    let families = batch
        .families
        .iter()
        .map(|f| (f.kind as i32, text(f.name), text(f.help), text(f.unit)))
        .collect();
    Ok(Contents {
        families,
        ..contents
    })
}

fn theirs(message: &[u8]) -> Result<Contents, prost::DecodeError> {
    let request = WriteRequest::decode(message)?;
    let mut contents = Contents::default();
    for (idx, series) in request.timeseries.into_iter().enumerate() {
        let pairs = series
            .labels
            .into_iter()
            .map(|label| (label.name, label.value));
        let samples = series
            .samples
            .iter()
            .map(|sample| (sample.timestamp_ms, sample.value, 0));
        contents.series.push((pairs.collect(), samples.collect()));
        contents.histograms.extend(
            series
                .histograms
                .iter()
                .map(|histogram| (histogram_numbers(histogram), 0)),
        );
        for exemplar in series.exemplars {
            let pairs = exemplar
                .labels
                .into_iter()
                .map(|label| (label.name, label.value));
            contents.exemplars.push((
                idx,
                pairs.collect(),
                (exemplar.timestamp_ms, exemplar.value.to_bits()),
            ));
        }
    }
    contents.families = request
        .metadata
        .into_iter()
        .map(|f| {
            (
                MetricType::from_number(f.kind) as i32,
                f.metric_family_name,
                f.help,
                f.unit,
            )
        })
        .collect();
    Ok(contents)
}

pub(crate) fn histogram_numbers(histogram: &message::Histogram) -> HistogramNumbers {
    let signed = |numbers: &[i64]| {
        numbers
            .iter()
            .map(|n| n.cast_unsigned())
            .collect::<Vec<_>>()
    };
    let doubles = |numbers: &[f64]| numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
    let spans = |spans: &[message::BucketSpan]| {
        spans
            .iter()
            .flat_map(|span| [u64::from(span.offset.cast_unsigned()), span.length.into()])
            .collect::<Vec<_>>()
    };
    let numbers = [histogram.schema, histogram.reset_hint].map(|n| u64::from(n.cast_unsigned()));
    vec![
        vec![
            histogram.timestamp_ms.cast_unsigned(),
            histogram.sum.to_bits(),
            histogram.zero_threshold.to_bits(),
            numbers[0],
            numbers[1],
        ],
        spans(&histogram.negative_spans),
        signed(&histogram.negative_deltas),
        doubles(&histogram.negative_counts),
        spans(&histogram.positive_spans),
        signed(&histogram.positive_deltas),
        doubles(&histogram.positive_counts),
        doubles(&histogram.custom_values),
    ]
}

fn check_same(message: &[u8]) {
    assert_same(message, ours(message), theirs(message));
}

/// Both decoders must refuse the message, or return the same contents. Only groups are refused by
/// ours alone.
pub(crate) fn assert_same<T: PartialEq + Debug>(
    message: &[u8],
    ours: Result<T, WriteError>,
    theirs: Result<T, impl Debug>,
) {
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
        (Err(_), Err(_)) => {}
        (Err(refused), Ok(_)) if refused.to_string().contains("groups") => {}
        (ours, theirs) => panic!("{message:?}\nours: {ours:?}\ntheirs: {theirs:?}"),
    }
}

pub(crate) fn varint(mut value: u64, padding: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    // A varint may be longer than necessary.
    for _ in 0..padding.min(10 - bytes.len()) {
        *bytes.last_mut().unwrap() |= 0x80;
        bytes.push(0);
    }
    bytes
}

fn key(number: u32, wire_type: u64) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => Just(0), 1 => 0..4usize]
        .prop_map(move |pad| varint(u64::from(number) << 3 | wire_type, pad))
}

fn field(
    number: u32,
    wire_type: u64,
    payload: impl Strategy<Value = Vec<u8>>,
) -> impl Strategy<Value = Vec<u8>> {
    (key(number, wire_type), payload).prop_map(|(key, payload)| [key, payload].concat())
}

pub(crate) fn number(number: u32) -> BoxedStrategy<Vec<u8>> {
    let value = prop_oneof![any::<u64>(), 0..300u64, (-300..0i64).prop_map(|v| v as u64)];
    field(
        number,
        0,
        (value, 0..2usize).prop_map(|(value, pad)| varint(value, pad)),
    )
    .boxed()
}

pub(crate) fn double(number: u32) -> BoxedStrategy<Vec<u8>> {
    let bits = prop_oneof![
        any::<u64>(),
        Just(varve_model::staleness::STALE_NAN_BITS),
        Just(0)
    ];
    field(number, 1, bits.prop_map(|bits| bits.to_le_bytes().to_vec())).boxed()
}

pub(crate) fn len(
    number: u32,
    payload: impl Strategy<Value = Vec<u8>> + 'static,
) -> BoxedStrategy<Vec<u8>> {
    let delimited =
        (payload, 0..2usize).prop_map(|(p, pad)| [varint(p.len() as u64, pad), p].concat());
    field(number, 2, delimited).boxed()
}

pub(crate) fn text(number: u32) -> BoxedStrategy<Vec<u8>> {
    len(
        number,
        prop_oneof![
            "[a-z_]{0,12}".prop_map(String::into_bytes),
            vec(any::<u8>(), 0..140)
        ],
    )
}

fn unknown() -> BoxedStrategy<Vec<u8>> {
    let numbers = || prop_oneof![17..40u32, Just((1 << 29) - 1)];
    let fixed32 = any::<[u8; 4]>().prop_map(Vec::from);
    prop_oneof![
        numbers().prop_flat_map(number),
        numbers().prop_flat_map(double),
        numbers().prop_flat_map(text),
        (numbers(), fixed32).prop_flat_map(|(number, payload)| field(number, 5, Just(payload))),
    ]
    .boxed()
}

/// A message of such fields in any order and number, with some unknown ones.
pub(crate) fn any_message(
    fields: Vec<(u32, BoxedStrategy<Vec<u8>>)>,
    len_max: usize,
) -> BoxedStrategy<Vec<u8>> {
    let fields = proptest::strategy::Union::new_weighted([fields, vec![(1, unknown())]].concat());
    vec(fields, 0..len_max)
        .prop_map(|fields| fields.concat())
        .boxed()
}

pub(crate) fn label() -> BoxedStrategy<Vec<u8>> {
    any_message(vec![(8, text(1)), (8, text(2))], 4)
}

pub(crate) fn histogram() -> BoxedStrategy<Vec<u8>> {
    let span = || any_message(vec![(4, number(1)), (4, number(2))], 4);
    let packed = || {
        vec((any::<u64>(), 0..2usize), 0..4)
            .prop_map(|v| v.iter().flat_map(|&(v, p)| varint(v, p)).collect())
    };
    let doubles = || vec(any::<[u8; 8]>(), 0..4).prop_map(|v| v.concat());
    let mut fields: Vec<_> = [1, 4, 6, 9, 12, 14, 15].map(|n| (1, number(n))).into();
    fields.extend([2, 3, 5, 7, 10, 13, 16].map(|n| (1, double(n))));
    fields.extend([8, 11].map(|n| (1, len(n, span()))));
    fields.extend([9, 12].map(|n| (1, len(n, packed()))));
    fields.extend([10, 13, 16].map(|n| (1, len(n, doubles()))));
    any_message(fields, 12)
}

fn write_request() -> BoxedStrategy<Vec<u8>> {
    let sample = any_message(vec![(8, double(1)), (8, number(2))], 4);
    let exemplar = any_message(
        vec![(4, len(1, label())), (4, double(2)), (4, number(3))],
        5,
    );
    let family = any_message(
        vec![(4, number(1)), (4, text(2)), (4, text(4)), (4, text(5))],
        6,
    );
    let time_series = any_message(
        vec![
            (16, len(1, label())),
            (16, len(2, sample)),
            (2, len(3, exemplar)),
            (2, len(4, histogram())),
        ],
        12,
    );
    any_message(vec![(8, len(1, time_series)), (2, len(3, family))], 6)
}

/// Positions, bytes and kinds of damage.
type Damage = Vec<(Index, u8, u8)>;

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
    vec((any::<Index>(), any::<u8>(), 0..4u8), 1..4)
}

pub(crate) fn apply(damage: &Damage, message: &mut Vec<u8>) {
    for (at, byte, kind) in damage {
        let at = at.index(message.len() + 1);
        match kind {
            0 => message.truncate(at),
            1 => message.insert(at, *byte),
            _ if at == message.len() => {}
            2 => message[at] = *byte,
            _ => message[at] ^= 1 << (byte % 8),
        }
    }
}

proptest! {
    #[test]
    fn any_valid_message_matches_prost(message in write_request()) {
        prop_assert!(theirs(&message).is_ok());
        check_same(&message);
    }

    #[test]
    fn a_damaged_message_is_refused_if_prost_refuses_it(
        mut message in write_request(), damage in damage(),
    ) {
        apply(&damage, &mut message);
        check_same(&message);
    }

    #[test]
    fn random_bytes_never_panic(message in vec(any::<u8>(), 0..200)) {
        check_same(&message);
    }
}

#[test]
fn every_truncation_matches_prost() {
    let message = WriteRequest {
        timeseries: vec![crate::sources::remote_write::message::series(
            &[("__name__", "up")],
            &[(1_700_000_000_000, -0.0)],
        )],
        ..WriteRequest::default()
    }
    .encode_to_vec();
    for end in 0..=message.len() {
        check_same(&message[..end]);
        assert_eq!(
            ours(&message[..end]).is_ok(),
            end == 0 || end == message.len()
        );
    }
}

#[test]
fn plain_series_and_similar_ones_match_prost() {
    let times = [
        0,
        1,
        (1 << 35) - 1,
        1 << 35,
        1_700_000_000_123,
        (1 << 42) - 1,
        1 << 42,
        i64::MAX,
        -1,
    ];
    let value_sizes = [
        0, 1, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 300, 16_370, 16_371,
    ];
    for (timestamp_ms, size) in times
        .iter()
        .flat_map(|&time| value_sizes.map(|size| (time, size)))
    {
        for bits in [
            0,
            1.5f64.to_bits(),
            (-0.0f64).to_bits(),
            varve_model::staleness::STALE_NAN_BITS,
        ] {
            let value = "x".repeat(size);
            let labels = [("__name__", &*value), ("a", &*value)];
            let series = message::series(&labels, &[(timestamp_ms, f64::from_bits(bits))]);
            let encoded = series.encode_to_vec();
            let is_plain = (1 << 35..1 << 42).contains(&timestamp_ms) && size <= 16_370;
            assert_eq!(
                plain_series(&encoded).is_some(),
                is_plain,
                "{timestamp_ms} {size}"
            );
            let request = WriteRequest {
                timeseries: vec![series; 2],
                ..Default::default()
            };
            check_same(&request.encode_to_vec());
        }
    }
}

#[test]
fn a_plain_series_is_labels_followed_by_one_sample() {
    let label = b"\x0a\x06\x0a\x01a\x12\x011";
    let time = b"\x10\x95\x96\x97\x98\x99\x1a";
    let sample = [b"\x12\x10\x0912345678", &time[..]].concat();
    let of_zero = [b"\x12\x07", &time[..]].concat();
    let plain = |parts: &[&[u8]]| {
        plain_series(&parts.concat()).map(|(size, sample)| (size, sample.timestamp_ms))
    };
    let timestamp_ms = 0x15 | 0x16 << 7 | 0x17 << 14 | 0x18 << 21 | 0x19 << 28 | 0x1a << 35;
    assert_eq!(plain(&[label, &sample]), Some((8, timestamp_ms)));
    assert_eq!(plain(&[label, label, &of_zero]), Some((16, timestamp_ms)));
    for other in [
        &[&label[..]][..],
        &[label, &sample, &sample],
        &[label, &sample, label],
        &[label, &sample[..17]],
        &[label, &sample, b"\0"],
        &[label, b"\x12\x00"],
        &[label, b"\x12\x06\x10\x95\x96\x97\x98\x19"],
        &[label, b"\x12\x07\x10\x95\x96\x97\x98\x99\x9a"],
        &[label, b"\x12\x07\x10\x95\x96\x17\x98\x99\x1a"],
        &[label, b"\x12\x07\x18\x95\x96\x97\x98\x99\x1a"],
        &[b"\x0a\x7f", &sample],
    ] {
        assert_eq!(plain(other), None, "{other:?}");
    }
}

fn keys_of(message: &[u8]) -> Vec<Option<crate::batch::RouteKey>> {
    let mut batch = DecodedBatch::default();
    decode(
        message,
        &RouteHasher::new(),
        &Limits::for_tests(),
        &mut batch,
    )
    .unwrap();
    batch.series.iter().map(|series| series.key).collect()
}

#[test]
fn equal_label_bytes_have_equal_keys_and_scattered_labels_have_none() {
    let (a, b, sample) = (
        b"\x0a\x06\x0a\x01a\x12\x011",
        b"\x0a\x06\x0a\x01b\x12\x012",
        b"\x12\x02\x10\x07",
    );
    let series = |fields: &[&[u8]]| {
        let body = fields.concat();
        [&[0x0a, body.len() as u8][..], &body].concat()
    };
    let message = [
        series(&[a, b, sample]),
        series(&[sample, a, b]),
        series(&[a, b]),
        series(&[b, a, sample]),
        series(&[a, sample, b]),
    ]
    .concat();
    let keys = keys_of(&message);
    assert!(keys[0].is_some() && keys[0] == keys[1] && keys[0] == keys[2]);
    assert!(keys[3].is_some() && keys[3] != keys[0]);
    assert_eq!(keys[4], None);
    let contents = ours(&message).unwrap();
    assert_eq!(contents.series[4], contents.series[0]);
}

#[test]
fn counts_over_the_limits_are_too_large() {
    let limits = Limits {
        series_per_request_max: 2,
        samples_per_request_max: 3,
        families_per_request_max: 1,
        ..Limits::for_tests()
    };
    let decode = |message: &[u8]| {
        decode(
            message,
            &RouteHasher::new(),
            &limits,
            &mut DecodedBatch::default(),
        )
    };
    let with_samples = |n: usize| [&[0x0a, 2 * n as u8][..], &b"\x12\x00".repeat(n)].concat();
    decode(&[with_samples(3), with_samples(0)].concat()).unwrap();
    decode(b"\x1a\x00").unwrap();
    for (message, what) in [
        (with_samples(4), "number of samples"),
        (
            [with_samples(3), with_samples(1)].concat(),
            "number of samples",
        ),
        (with_samples(0).repeat(3), "number of series"),
        (b"\x1a\x00\x1a\x00".to_vec(), "number of metadata entries"),
    ] {
        let refused = decode(&message).unwrap_err();
        assert!(
            matches!(refused, WriteError::TooLarge { what: w, .. } if w == what),
            "{refused}"
        );
    }
}

#[test]
fn labels_are_plain_if_they_are_short_ascii_and_nothing_else() {
    let plain = |labels: &[(&str, &str)]| {
        let message = message::series(labels, &[]).encode_to_vec();
        let mut strings = Vec::new();
        let is_plain = plain_strings(&message, Span::new(0, message.len()), &mut strings);
        is_plain.then(|| {
            strings
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        })
    };
    let of_100 = "x".repeat(100);
    assert_eq!(plain(&[]), Some(vec![]));
    assert_eq!(
        plain(&[("a", "1"), ("b", "2")]),
        Some(vec!["a=1".into(), "b=2".into()])
    );
    assert_eq!(plain(&[("a", &of_100)]), Some(vec![format!("a={of_100}")]));
    for other in [("", "1"), ("a", ""), ("a", "\u{fc}"), (&*of_100, &*of_100)] {
        assert_eq!(plain(&[("a", "1"), other]), None, "{other:?}");
    }
}
