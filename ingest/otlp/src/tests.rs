use std::ops::Range;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use varve_model::histogram::Histogram;
use varve_model::metadata::MetricType;
use varve_model::{StoredSeries, TenantLabels};

use super::limits::{DECODED_SIZE_MAX, TARGET_INFO_SAMPLES_MAX};
use super::message::{Attributes, KeyValue, Number, NumberPoint, Value};
use super::*;

/// A series with its timestamps and the labels of its exemplars.
#[derive(Debug, Default, PartialEq)]
struct Series {
    labels: String,
    times_ms: Vec<i64>,
    exemplars: Vec<String>,
}

/// Maximum number of labels of a series.
const LABELS_MAX: usize = 8;

/// Records the series of a request.
#[derive(Debug)]
struct Recorder {
    series: Vec<Series>,
    rejects: Vec<(u64, String)>,
    /// The times of the samples that the store has of each series.
    stored_ms: Vec<i64>,
    /// The samples of each data point.
    points: Vec<Range<Position>>,
    /// Bytes that may be reserved.
    room: usize,
}

fn print<'l>(labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> String {
    let pairs: Vec<_> = labels
        .into_iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

impl Recorder {
    fn current(&mut self) -> &mut Series {
        self.series.last_mut().expect("a series was started")
    }

    fn labels(&self) -> Vec<&str> {
        self.series
            .iter()
            .map(|series| series.labels.as_str())
            .collect()
    }

    fn times_ms(&self) -> Vec<i64> {
        self.series
            .iter()
            .flat_map(|series| series.times_ms.clone())
            .collect()
    }
}

impl Sink for Recorder {
    type Error = Error;
    type Key = usize;

    fn series<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
    ) -> Result<usize, Error> {
        self.series.push(Series {
            labels: print(labels),
            ..Series::default()
        });
        let labels = &self.current().labels.clone();
        Ok(self
            .series
            .iter()
            .position(|series| series.labels == *labels)
            .expect("it was added"))
    }

    fn sample(&mut self, timestamp_ms: i64, _value: f64, _start_ms: i64) -> Result<(), Error> {
        self.current().times_ms.push(timestamp_ms);
        Ok(())
    }

    fn histogram(
        &mut self,
        timestamp_ms: i64,
        _histogram: Histogram,
        _start_ms: i64,
    ) -> Result<(), Error> {
        self.current().times_ms.push(timestamp_ms);
        Ok(())
    }

    fn exemplar<'l>(
        &mut self,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        _value: f64,
        _timestamp_ms: i64,
    ) -> Result<(), Error> {
        self.current().exemplars.push(print(labels));
        Ok(())
    }

    fn end_series(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn family(
        &mut self,
        _name: &str,
        _kind: MetricType,
        _help: &str,
        _unit: &str,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn reserve(&mut self, size: usize) -> Result<(), Error> {
        let left = self.room.checked_sub(size);
        self.room = left.ok_or(Error::TooLarge {
            what: "memory",
            size: size as u64,
            limit: 0,
        })?;
        Ok(())
    }

    fn position(&self) -> Position {
        Position {
            n_floats: self.times_ms().len(),
            n_histograms: 0,
        }
    }

    fn stored<'l>(
        &self,
        _labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        timestamp_ms: i64,
    ) -> Result<StoredSeries, Error> {
        Ok(StoredSeries {
            newest_ms: self.stored_ms.iter().copied().max(),
            has_sample: self.stored_ms.contains(&timestamp_ms),
        })
    }

    fn labels_max(&self) -> usize {
        LABELS_MAX
    }

    fn takes_time(&self, _timestamp_ms: i64) -> bool {
        true
    }

    fn reject_time(&mut self, _metric: &str, _timestamp_ms: i64) {}

    fn reject(&mut self, n_points: u64, reason: String) {
        self.rejects.push((n_points, reason));
    }

    fn reject_point(&mut self, metric: &str, reason: &str) {
        self.rejects.push((1, format!("{metric}: {reason}")));
    }

    fn reject_info(&mut self, reason: String) {
        self.reject(1, reason);
    }

    fn end_point(&mut self, samples: Range<Position>) -> Result<(), Error> {
        self.points.push(samples);
        Ok(())
    }
}

/// Encodes a message as a field of another.
fn field(number: u8, message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    prost::encoding::encode_varint(message.len() as u64, &mut bytes);
    [bytes, message.to_vec()].concat()
}

/// Encodes a request of one gauge.
fn gauge(resource: &[(&str, &str)], points: &[NumberPoint]) -> Vec<u8> {
    let attributes = resource
        .iter()
        .map(|(key, value)| attribute(key, value))
        .collect();
    let resource = Attributes { attributes }.encode_to_vec();
    let points: Vec<_> = points
        .iter()
        .flat_map(|point| field(1, &point.encode_to_vec()))
        .collect();
    let metric = [field(1, b"m"), field(5, &points)].concat();
    let scope = field(2, &metric);
    // Fields may have any order: the resource is last.
    field(1, &[field(2, &scope), field(1, &resource)].concat())
}

fn point(time_ns: u64) -> NumberPoint {
    NumberPoint {
        time_ns,
        value: Some(Number::Int(1)),
        ..NumberPoint::default()
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = message::AnyValue {
        value: Some(Value::String(value.into())),
    };
    KeyValue {
        key: key.into(),
        value: Some(value),
    }
}

fn recorder(room: usize) -> Recorder {
    Recorder {
        series: Vec::new(),
        rejects: Vec::new(),
        stored_ms: Vec::new(),
        points: Vec::new(),
        room,
    }
}

fn translated_within(message: &[u8], room: usize) -> Result<Recorder, Error> {
    let mut to = recorder(room);
    translate_to(&mut to, message, &OtlpSettings::default()).map(|_| to)
}

fn translate_to(
    to: &mut Recorder,
    message: &[u8],
    settings: &OtlpSettings,
) -> Result<Translated, Error> {
    let streams = DeltaStreams::default();
    let tenant = TenantLabels::default();
    let mut deltas = RequestDeltas::new(&streams, &tenant, Duration::ZERO);
    translate(message, settings, &mut deltas, to)
}

/// Returns what a request becomes with some settings.
fn recorded(message: &[u8], settings: &OtlpSettings) -> (Recorder, Translated) {
    let mut to = recorder(usize::MAX);
    let translated = translate_to(&mut to, message, settings).expect("a valid request");
    (to, translated)
}

fn translated(message: &[u8]) -> Result<Recorder, Error> {
    translated_within(message, usize::MAX)
}

#[test]
fn a_string_that_is_not_utf8_does_not_make_the_request_malformed() {
    let value = message::AnyValue {
        value: Some(Value::String(b"v\xff".to_vec())),
    };
    let attributes = vec![KeyValue {
        key: b"k\xfe".to_vec(),
        value: Some(value),
    }];
    let points = [
        NumberPoint {
            attributes,
            ..point(5_000_000)
        },
        point(7_000_000),
    ];
    let mut request = gauge(&[("service.name", "shop")], &points);
    let found = translated(&request).unwrap();
    assert!(found.rejects.is_empty());
    let first = "{__name__=\"m\", job=\"shop\", k_=\"v\u{fffd}\"}";
    assert_eq!(
        found.labels()[..2],
        [first, r#"{__name__="m", job="shop"}"#]
    );

    let name = request
        .windows(3)
        .position(|bytes| bytes == [1 << 3 | 2, 1, b'm'])
        .unwrap()
        + 2;
    request[name] = 0xff;
    let found = translated(&request).unwrap();
    assert!(found.series.is_empty());
    let reason = "normalization for metric \"\u{fffd}\" resulted in empty name";
    assert_eq!(found.rejects, [(2, reason.to_owned())]);
}

#[test]
fn a_resource_may_be_the_last_field() {
    let found = translated(&gauge(
        &[("service.name", "shop"), ("a", "b")],
        &[point(5_000_000), point(7_000_000)],
    ))
    .unwrap();
    assert!(found.rejects.is_empty());
    let of_point = r#"{__name__="m", job="shop"}"#;
    assert_eq!(
        found.labels(),
        [
            of_point,
            of_point,
            r#"{__name__="target_info", a="b", job="shop"}"#
        ]
    );
    assert_eq!(found.times_ms(), [5, 7, 5, 7]);
}

#[test]
fn an_attribute_named_like_a_label_of_the_scope_is_dropped_with_promoted_scopes() {
    let attributes = [
        "otel_scope_name",
        "otel_scope_version",
        "otel.scope.schema.url",
        "otel_scope_x",
    ];
    let attributes = attributes
        .map(|name| attribute(name, "of the point"))
        .into();
    let metric = [
        field(1, b"m"),
        field(
            5,
            &field(
                1,
                &NumberPoint {
                    attributes,
                    ..point(5_000_000)
                }
                .encode_to_vec(),
            ),
        ),
    ];
    let scope = [field(1, &field(1, b"lib")), field(2, &metric.concat())].concat();
    let settings = OtlpSettings {
        promote_scope_metadata: true,
        ..OtlpSettings::default()
    };
    let (to, _) = recorded(&field(1, &field(2, &scope)), &settings);
    assert_eq!(
        to.labels(),
        [r#"{__name__="m", otel_scope_name="lib", otel_scope_x="of the point"}"#]
    );
}

#[test]
fn an_explicit_bound_of_infinity_and_attributes_named_like_the_trace_add_nothing() {
    let exemplar = message::Exemplar {
        value: Some(message::ExemplarNumber::Double(0.5)),
        trace_id: vec![1; 16],
        attributes: ["trace_id", "span_id"]
            .map(|key| attribute(key, "x"))
            .into(),
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
    let found = translated(&field(1, &field(2, &field(2, &metric)))).unwrap();
    assert!(found.rejects.is_empty());
    let bucket = |le: &str| format!("{{__name__=\"m_bucket\", le=\"{le}\"}}");
    assert_eq!(
        found.labels(),
        [r#"{__name__="m_count"}"#, &bucket("1"), &bucket("+Inf")]
    );
    let labels = format!("{{span_id=\"x\", trace_id=\"{}\"}}", "01".repeat(16));
    assert_eq!(found.series[1].exemplars, [labels]);
}

#[test]
fn an_old_timestamp_adds_a_bounded_number_of_samples() {
    let now_ns = 1_700_000_000_000_000_000;
    let found = translated(&gauge(
        &[("service.name", "x"), ("a", "b")],
        &[point(0), point(now_ns)],
    ))
    .unwrap();
    let times_ms = found.times_ms();
    assert_eq!(times_ms.len() as i64, 2 + TARGET_INFO_SAMPLES_MAX + 1);
    assert_eq!(times_ms.last(), Some(&1_700_000_000_000));
}

#[test]
fn added_samples_are_reserved() {
    let resource = |i: usize| {
        gauge(
            &[("service.name", &i.to_string()), ("a", "b")],
            &[point(0), point(1 << 60)],
        )
    };
    let translate = |n_resources: usize| {
        let message: Vec<u8> = (0..n_resources).flat_map(resource).collect();
        translated_within(&message, 144 << 10).map(|found| found.times_ms().len())
    };
    assert_eq!(translate(1), Ok(2 + TARGET_INFO_SAMPLES_MAX as usize + 1));
    assert!(
        translate(10).is_err(),
        "10,000 samples take more than 144 KiB"
    );
}

#[test]
fn the_size_of_a_data_point_is_bounded() {
    let large = "x".repeat(DECODED_SIZE_MAX);
    let refused = translated(&gauge(&[("a", &large)], &[point(1)])).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
    assert!(translated(&gauge(&[("a", &large[100..])], &[point(1)])).is_ok());
}

#[test]
fn the_parts_of_a_resource_or_scope_are_bounded_together() {
    let empty_attributes =
        |field_number: u8, size: usize| [field_number << 3 | 2, 0].repeat(size / 2);
    // Attributes are field 1 of a resource and field 3 of a scope.
    let resource = |size| field(1, &field(1, &empty_attributes(1, size)).repeat(3));
    let scope = |size| {
        field(
            1,
            &field(2, &field(1, &empty_attributes(3, size)).repeat(3)),
        )
    };
    for message in [resource(DECODED_SIZE_MAX / 2), scope(DECODED_SIZE_MAX / 2)] {
        let refused = translated(&message).unwrap_err();
        assert!(matches!(refused, Error::TooLarge { .. }), "{refused}");
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
    assert!(matches!(translated(&message), Err(Error::Message { .. })));
}

proptest! {
    #[test]
    fn damage_never_panics(cut in 0..80_usize, at in 0..80_usize, byte in any::<u8>(), random in vec(any::<u8>(), 0..100)) {
        let mut message = gauge(&[("service.name", "x"), ("a", "b")], &[point(1_000_000), point(2_000_000)]);
        let len = message.len();
        let at = at % message.len();
        message[at] = byte;
        let _either = translated(&message);
        message.truncate(len.saturating_sub(cut));
        let _either = translated(&message);
        let _either = translated(&random);
    }
}

#[test]
fn attributes_that_become_one_label_and_sums_without_observations_are_counted_once() {
    let point = |value: &str| NumberPoint {
        attributes: vec![
            attribute("http.method", value),
            attribute("http_method", "x"),
        ],
        ..Default::default()
    };
    let resource = [
        ("service.name", "shop"),
        ("k8s.pod.name", "a"),
        ("k8s_pod_name", "b"),
        ("k8s:pod:name", "c"),
    ];
    let numbers = gauge(&resource, &[point("a"), point("b")]);
    let empty = |sum| message::ExponentialPoint {
        sum: Some(sum),
        ..Default::default()
    };
    let points: Vec<_> = [0.0, 1.0, 1.0, 2.0]
        .iter()
        .flat_map(|&sum| field(1, &empty(sum).encode_to_vec()))
        .chain([16, 2])
        .collect();
    let metric = [field(1, b"h"), field(10, &points)].concat();
    let histograms = field(1, &field(2, &field(2, &metric)));

    let (to, translated) = recorded(&[numbers, histograms].concat(), &OtlpSettings::default());
    assert_eq!(to.rejects, []);
    assert_eq!(
        translated.warnings,
        WarningCounts {
            label_name_collisions: 2,
            zero_counts_with_sum: 2,
            cut_target_infos: 0,
        }
    );
}

/// It was refused at every export.
#[test]
fn target_info_keeps_the_first_labels_of_a_resource_with_many_attributes() {
    let names: Vec<_> = (0..20).map(|i| format!("a{i:02}")).collect();
    let mut resource: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    resource.extend([("service.name", "shop"), ("service.instance.id", "1")]);
    let twice = [
        gauge(&resource, &[point(1_000_000)]),
        gauge(&resource, &[point(2_000_000)]),
    ];
    let (to, translated) = recorded(&twice.concat(), &OtlpSettings::default());
    let info = r#"{__name__="target_info", a00="x", a01="x", a02="x", a03="x", a04="x", instance="1", job="shop"}"#;
    assert!(to.labels().contains(&info), "{:?}", to.labels());
    assert_eq!(to.rejects, []);
    assert_eq!(translated.warnings.cut_target_infos, 1);
}

#[test]
fn a_point_with_the_same_attribute_twice_is_rejected_with_its_name() {
    let twice = NumberPoint {
        attributes: vec![
            attribute("a", "1"),
            attribute("b", "2"),
            attribute("a", "1"),
        ],
        ..Default::default()
    };
    let message = gauge(&[("service.name", "shop")], &[twice, point(1_000_000)]);
    let (to, _) = recorded(&message, &OtlpSettings::default());
    assert_eq!(to.labels(), [r#"{__name__="m", job="shop"}"#]);
    assert_eq!(
        to.rejects,
        [(1, r#"m: the attribute "a" occurs twice"#.to_owned())]
    );
}

#[test]
fn scopes_that_no_label_tells_apart_are_noted() {
    let metric = [
        field(1, b"m"),
        field(5, &field(1, &point(1_000_000).encode_to_vec())),
    ]
    .concat();
    let scope = field(2, &field(2, &metric));
    let promoting = OtlpSettings {
        promote_scope_metadata: true,
        ..OtlpSettings::default()
    };
    for (n_scopes, settings, expected) in [
        (1, OtlpSettings::default(), false),
        (2, OtlpSettings::default(), true),
        (2, promoting, false),
    ] {
        let message = field(1, &scope.repeat(n_scopes));
        let (_, translated) = recorded(&message, &settings);
        assert_eq!(translated.merges_scopes, expected, "{n_scopes}");
    }
}

/// An earlier total of the series, before a restart, may be lower than the first of the new one.
#[test]
fn a_stream_of_deltas_starts_with_a_zero() {
    let sum = |start_ns, time_ns| {
        let point = NumberPoint {
            start_ns,
            time_ns,
            value: Some(Number::Int(3)),
            ..Default::default()
        };
        // Delta temporality, monotonic.
        let sum = [field(1, &point.encode_to_vec()), vec![16, 1, 24, 1]].concat();
        let metric = [field(1, b"m"), field(7, &sum)].concat();
        field(1, &field(2, &field(2, &metric)))
    };
    let settings = OtlpSettings {
        delta_to_cumulative: true,
        ..OtlpSettings::default()
    };
    for (start_ns, time_ns, times_ms) in [
        (5_000_000, 9_000_000, vec![6, 9]),
        (5_900_000, 9_000_000, vec![6, 9]),
        (8_000_000, 9_000_000, vec![9]),
        (0, 9_000_000, vec![9]),
    ] {
        let (to, _) = recorded(&sum(start_ns, time_ns), &settings);
        assert_eq!(to.times_ms(), times_ms, "{start_ns}");
        let last = to.points.last().expect("a data point");
        assert_eq!(
            last.end.n_floats - last.start.n_floats,
            1,
            "the zero is not of the sender"
        );
    }
    let two = [sum(5_000_000, 9_000_000), sum(9_000_000, 12_000_000)].concat();
    assert_eq!(recorded(&two, &settings).0.times_ms(), [6, 9, 12]);
    let (to, _) = recorded(&sum(1, 2), &OtlpSettings::default());
    let (_, reason) = &to.rejects[0];
    assert!(
        reason.ends_with("; --enable-feature=otlp-deltatocumulative accepts deltas"),
        "{reason}"
    );
}

/// After a restart some deltas are sent again: those that were stored, and others that were not.
#[test]
fn a_total_that_begins_again_follows_the_earlier_one() {
    let streams = DeltaStreams::default();
    let tenant = TenantLabels::default();
    let settings = OtlpSettings {
        delta_to_cumulative: true,
        ..OtlpSettings::default()
    };
    let send = |time_ms: u64| {
        let point = NumberPoint {
            start_ns: (time_ms - 10) * 1_000_000,
            time_ns: time_ms * 1_000_000,
            value: Some(Number::Int(1)),
            ..Default::default()
        };
        let sum = [field(1, &point.encode_to_vec()), vec![16, 1, 24, 1]].concat();
        let metric = [field(1, b"m"), field(7, &sum)].concat();
        let message = field(1, &field(2, &field(2, &metric)));
        let mut to = recorder(usize::MAX);
        to.stored_ms = vec![100, 120];
        let mut deltas = RequestDeltas::new(&streams, &tenant, Duration::from_secs(60));
        translate(&message, &settings, &mut deltas, &mut to).unwrap();
        assert_eq!((to.rejects.len(), to.points.len()), (0, 1));
        to.times_ms()
    };
    assert!(send(100).is_empty(), "its sample is stored");
    assert_eq!(send(110), [121, 122], "a zero and the total");
    assert!(send(120).is_empty(), "its sample is stored");
    assert_eq!(send(90), [123], "late");
    assert_eq!(send(110), [123], "repeated");
    assert_eq!(send(119), [124]);
    assert_eq!(send(130), [130]);
}

/// Each time that it was sent again, there would be another zero.
#[test]
fn a_rejected_first_delta_leaves_no_zero() {
    let point = message::ExponentialPoint {
        start_ns: 5_000_000,
        time_ns: 9_000_000,
        count: 3,
        ..Default::default()
    };
    let histogram = [field(1, &point.encode_to_vec()), vec![16, 1]].concat();
    let metric = [field(1, b"h"), field(10, &histogram)].concat();
    let settings = OtlpSettings {
        delta_to_cumulative: true,
        ..OtlpSettings::default()
    };
    let (to, _) = recorded(&field(1, &field(2, &field(2, &metric))), &settings);
    assert_eq!((to.rejects.len(), to.labels()), (1, vec![]));
}
