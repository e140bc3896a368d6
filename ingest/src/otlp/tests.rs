use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::message::{Attributes, KeyValue, Number, NumberPoint, Value};
use super::*;
use crate::admission::memory::Memory;
use crate::batch::{BatchBuilder, DecodedBatch, RouteHasher};
use crate::error::WriteError;
use crate::limits::Limits;
use crate::outcome::Rejects;

/// Encodes a message as a field of another.
fn field(number: u8, message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encoding::encode_varint(message.len() as u64, &mut bytes);
    [bytes, message.to_vec()].concat()
}

/// Encodes a request of one gauge.
fn gauge(resource: &[(&str, &str)], points: &[NumberPoint]) -> Vec<u8> {
    let attribute = |&(key, value): &(&str, &str)| {
        let value = message::AnyValue { value: Some(Value::String(value.into())) };
        KeyValue { key: key.into(), value: Some(value) }
    };
    let resource = Attributes { attributes: resource.iter().map(attribute).collect() }.encode_to_vec();
    let points: Vec<_> = points.iter().flat_map(|point| field(1, &point.encode_to_vec())).collect();
    let metric = [field(1, b"m"), field(5, &points)].concat();
    let scope = field(2, &metric);
    // Fields may have any order: the resource is last.
    field(1, &[field(2, &scope), field(1, &resource)].concat())
}

fn point(time_ns: u64) -> NumberPoint {
    NumberPoint { time_ns, value: Some(Number::Int(1)), ..NumberPoint::default() }
}

fn translated(message: &[u8]) -> Result<(DecodedBatch, Vec<u8>, Rejects), WriteError> {
    let (memory, hasher, limits) = (Memory::new(1 << 30), RouteHasher::new(), Limits::default());
    let (mut batch, mut text, mut rejects) = (DecodedBatch::default(), Vec::new(), Rejects::default());
    let mut reservation = memory.reserve(0)?;
    let mut builder = BatchBuilder::new(&mut batch, &mut text, &mut reservation, &hasher, &limits);
    translate(message, &OtlpSettings::default(), &DeltaStreams::default(), &mut builder, &mut rejects)?;
    Ok((batch, text, rejects))
}

fn labels(batch: &DecodedBatch, text: &[u8], series_idx: usize) -> String {
    crate::label_set::print(crate::remote_write::label_pairs(batch, text, batch.series[series_idx].labels))
}

#[test]
fn a_string_that_is_not_utf8_does_not_make_the_request_malformed() {
    let value = message::AnyValue { value: Some(Value::String(b"v\xff".to_vec())) };
    let attributes = vec![KeyValue { key: b"k\xfe".to_vec(), value: Some(value) }];
    let points = [NumberPoint { attributes, ..point(5_000_000) }, point(7_000_000)];
    let mut request = gauge(&[("service.name", "shop")], &points);
    let (batch, text, rejects) = translated(&request).unwrap();
    assert!(rejects.is_empty());
    let first = "{__name__=\"m\", job=\"shop\", k_=\"v\u{fffd}\"}";
    assert_eq!([labels(&batch, &text, 0), labels(&batch, &text, 1)], [first, r#"{__name__="m", job="shop"}"#]);

    let name = request.windows(3).position(|bytes| bytes == [1 << 3 | 2, 1, b'm']).unwrap() + 2;
    request[name] = 0xff;
    let (batch, _, rejects) = translated(&request).unwrap();
    assert_eq!((batch.n_series(), rejects.n_samples()), (0, 2));
    let reason = "normalization for metric \"\u{fffd}\" resulted in empty name";
    assert!(rejects.to_string().contains(reason), "{rejects}");
}

#[test]
fn a_resource_may_be_the_last_field() {
    let (batch, text, rejects) =
        translated(&gauge(&[("service.name", "shop"), ("a", "b")], &[point(5_000_000), point(7_000_000)])).unwrap();
    assert!(rejects.is_empty());
    let series: Vec<_> = (0..batch.n_series()).map(|idx| labels(&batch, &text, idx)).collect();
    let of_point = r#"{__name__="m", job="shop"}"#;
    assert_eq!(series, [of_point, of_point, r#"{__name__="target_info", a="b", job="shop"}"#]);
    let times: Vec<_> = batch.samples.iter().map(|sample| sample.timestamp_ms).collect();
    assert_eq!(times, [5, 7, 5, 7]);
}

#[test]
fn an_explicit_bound_of_infinity_and_attributes_named_like_the_trace_add_nothing() {
    let attribute = |key: &str| {
        let value = message::AnyValue { value: Some(Value::String("x".into())) };
        KeyValue { key: key.into(), value: Some(value) }
    };
    let exemplar = message::Exemplar {
        value: Some(message::ExemplarNumber::Double(0.5)),
        trace_id: vec![1; 16],
        attributes: ["trace_id", "span_id"].map(attribute).into(),
        ..Default::default()
    };
    let point = message::HistogramPoint {
        count: 3,
        bucket_counts: vec![1, 2, 0],
        explicit_bounds: vec![1.0, f64::INFINITY],
        exemplars: vec![exemplar],
        ..Default::default()
    };
    let cumulative = [2 << 3, 2];
    let histogram = [field(1, &point.encode_to_vec()), cumulative.to_vec()].concat();
    let metric = [field(1, b"m"), field(9, &histogram)].concat();
    let (batch, text, rejects) = translated(&field(1, &field(2, &field(2, &metric)))).unwrap();
    assert!(rejects.is_empty(), "{rejects}");
    let series: Vec<_> = (0..batch.n_series()).map(|idx| labels(&batch, &text, idx)).collect();
    let bucket = |le: &str| format!("{{__name__=\"m_bucket\", le=\"{le}\"}}");
    assert_eq!(series, [r#"{__name__="m_count"}"#.to_owned(), bucket("1"), bucket("+Inf")]);
    let exemplar = crate::append::exemplars::parse(&text, &batch, &batch.exemplars[0]).expect("no label occurs twice");
    assert_eq!(exemplar.exemplar.labels.to_string(), format!("{{span_id=\"x\", trace_id=\"{}\"}}", "01".repeat(16)));
}

#[test]
fn an_old_timestamp_adds_a_bounded_number_of_samples() {
    let now_ns = 1_700_000_000_000_000_000;
    let (batch, ..) = translated(&gauge(&[("service.name", "x"), ("a", "b")], &[point(0), point(now_ns)])).unwrap();
    assert_eq!(batch.n_samples() as i64, 2 + TARGET_INFO_SAMPLES_MAX + 1);
    assert_eq!(batch.samples.last().unwrap().timestamp_ms, 1_700_000_000_000);
}

#[test]
fn added_samples_are_reserved() {
    let (memory, hasher, limits) = (Memory::new(400 << 10), RouteHasher::new(), Limits::default());
    // A request that runs alone may reserve more.
    let _other = memory.reserve(1).unwrap();
    let resource = |i: usize| gauge(&[("service.name", &i.to_string()), ("a", "b")], &[point(0), point(1 << 60)]);
    let translate = |n_resources: usize| {
        let mut reservation = memory.reserve(0).unwrap();
        let (mut batch, mut text, mut rejects) = (DecodedBatch::default(), Vec::new(), Rejects::default());
        let mut builder = BatchBuilder::new(&mut batch, &mut text, &mut reservation, &hasher, &limits);
        let message: Vec<u8> = (0..n_resources).flat_map(resource).collect();
        super::translate(&message, &OtlpSettings::default(), &DeltaStreams::default(), &mut builder, &mut rejects)
            .map(|()| batch.n_samples())
    };
    assert_eq!(translate(1).unwrap(), 2 + TARGET_INFO_SAMPLES_MAX as usize + 1);
    assert!(matches!(translate(10), Err(WriteError::Busy { .. })), "10,000 samples take more than 144 KiB");
}

#[test]
fn the_size_of_a_data_point_is_bounded() {
    let large = "x".repeat(DECODED_SIZE_MAX);
    let refused = translated(&gauge(&[("a", &large)], &[point(1)])).unwrap_err();
    assert!(matches!(refused, WriteError::TooLarge { .. }), "{refused}");
    assert!(translated(&gauge(&[("a", &large[100..])], &[point(1)])).is_ok());
}

#[test]
fn the_parts_of_a_resource_or_scope_are_bounded_together() {
    let empty_attributes = |field_number: u8, size: usize| [field_number << 3 | 2, 0].repeat(size / 2);
    // Attributes are field 1 of a resource and field 3 of a scope.
    let resource = |size| field(1, &field(1, &empty_attributes(1, size)).repeat(3));
    let scope = |size| field(1, &field(2, &field(1, &empty_attributes(3, size)).repeat(3)));
    for message in [resource(DECODED_SIZE_MAX / 2), scope(DECODED_SIZE_MAX / 2)] {
        let refused = translated(&message).unwrap_err();
        assert!(matches!(refused, WriteError::TooLarge { .. }), "{refused}");
    }
    for message in [resource(1000), scope(1000)] {
        assert!(translated(&message).is_ok());
    }
}

#[test]
fn deeply_nested_values_are_malformed() {
    let mut value = Vec::new();
    for _ in 0..10_000 {
        value = field(5, &field(1, &value));
        value.truncate(DECODED_SIZE_MAX / 2);
    }
    let attribute = [field(1, b"a"), field(2, &value)].concat();
    let message = field(1, &field(1, &field(1, &attribute)));
    assert!(matches!(translated(&message), Err(WriteError::Malformed(_))));
}

proptest! {
    #[test]
    fn damage_never_panics(cut in 0..80_usize, at in 0..80_usize, byte in any::<u8>(), random in vec(any::<u8>(), 0..100)) {
        let mut message = gauge(&[("service.name", "x"), ("a", "b")], &[point(1_000_000), point(2_000_000)]);
        let (len, at) = (message.len(), at % message.len());
        message[at] = byte;
        let _either = translated(&message);
        message.truncate(len.saturating_sub(cut));
        let _either = translated(&message);
        let _either = translated(&random);
    }
}
