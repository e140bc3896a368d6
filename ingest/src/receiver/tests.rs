use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message;
use varve_tsdb::fs::MemFs;
use varve_tsdb::histogram::{HistogramCounts, ResetHint};
use varve_tsdb::staleness::STALE_NAN_BITS;
use varve_tsdb::{Labels, Matcher, Options, QueryContext, Sample, SampleColumns, TimeRange};

use std::time::{Duration, Instant};

use super::*;
use crate::error::Malformed;
use crate::outcome::{ExemplarRejection, Reason, SampleCounts};
use crate::relabel::{Attribution, RelabelConfig};
use crate::remote_write::message::{
    BucketSpan, Exemplar, Histogram, Label, MetricMetadata, TimeSeries, WriteRequest, series,
};
use crate::route::Route;

mod admission;
mod disable_on_use;
mod ha;

/// A receiver with its own store.
struct Fixture {
    receiver: Receiver,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new(limits: Limits) -> Self {
        Self::on(Options::default(), limits)
    }

    fn on(options: Options, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), Options { shards: 2, out_of_order_window_ms: 0, ..options }).unwrap();
        Self { receiver: Receiver::new(Arc::new(db), limits), _dir: dir }
    }

    fn write(&self, timeseries: &[TimeSeries]) -> Result<Written, WriteError> {
        self.write_message(&request(timeseries))
    }

    fn write_message(&self, message: &[u8]) -> Result<Written, WriteError> {
        self.receiver.write(&Origin::default(), Version::V1, &pack(message))
    }

    /// Writes series that must be stored completely.
    fn stored(&self, timeseries: &[TimeSeries]) {
        let written = self.write(timeseries).unwrap();
        assert!(written.rejects.is_empty(), "{}", written.rejects);
    }

    /// Returns the selected series that have samples, ascending by their labels.
    fn select(&self, matchers: &[Matcher]) -> Vec<(Labels, SampleColumns)> {
        let found = self.receiver.db.select(&QueryContext::unbounded(), matchers, TimeRange::ALL).unwrap();
        let read = |series: varve_tsdb::Result<varve_tsdb::select::Series>| {
            let (series, mut columns) = (series.unwrap(), SampleColumns::default());
            series.read(&mut columns).unwrap();
            (series.labels().clone(), columns)
        };
        let mut all: Vec<_> = found.map(read).filter(|(_, columns)| !columns.is_empty()).collect();
        all.sort_by_key(|(labels, _)| labels.to_string());
        all
    }

    /// Returns all series with their samples as timestamp and bits.
    fn contents(&self) -> Vec<(String, Vec<(i64, u64)>)> {
        let bits = |sample: Sample| (sample.timestamp_ms, sample.value.to_bits());
        let all = self.select(&[]).into_iter();
        all.map(|(labels, columns)| (labels.to_string(), columns.iter().map(bits).collect())).collect()
    }

    fn n_series(&self) -> u64 {
        self.receiver.db.stats().n_series
    }
}

fn pack(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).unwrap()
}

fn request(timeseries: &[TimeSeries]) -> Vec<u8> {
    WriteRequest { timeseries: timeseries.to_vec(), ..WriteRequest::default() }.encode_to_vec()
}

fn up(job: &str, samples: &[(i64, f64)]) -> TimeSeries {
    series(&[("__name__", "up"), ("job", job)], samples)
}

fn bits(samples: &[(i64, f64)]) -> Vec<(i64, u64)> {
    samples.iter().map(|&(t, value)| (t, value.to_bits())).collect()
}

fn drop_where(label: &str, regex: &str) -> RelabelConfig {
    RelabelConfig {
        source_labels: vec![label.to_owned()],
        regex: Some(regex.to_owned()),
        action: Some("drop".to_owned()),
        ..RelabelConfig::default()
    }
}

fn remove(label: &str) -> RelabelConfig {
    RelabelConfig { target_label: label.to_owned(), replacement: Some(String::new()), ..RelabelConfig::default() }
}

const T: i64 = 1_700_000_000_000;

#[test]
fn samples_are_stored_bit_for_bit() {
    let fixture = Fixture::new(Limits::default());
    let values = [1.5, -0.0, f64::from_bits(STALE_NAN_BITS), f64::from_bits(0xfff8_0000_dead_beef), f64::INFINITY];
    let samples: Vec<_> = (T..).zip(values).collect();
    let written = fixture.write(&[up("x", &samples), up("y", &samples[..1])]).unwrap();
    let times = Some(TimeRange { start_ms: T, end_ms: T + 4 });
    assert_eq!(written, Written { stored: SampleCounts::floats(6), times, ..Written::default() });
    let expect = [
        (r#"{__name__="up", job="x"}"#.to_owned(), bits(&samples)),
        (r#"{__name__="up", job="y"}"#.to_owned(), bits(&samples[..1])),
    ];
    assert_eq!(fixture.contents(), expect);
}

#[test]
fn a_repeated_request_is_accepted_and_stores_nothing_twice() {
    let fixture = Fixture::new(Limits::default());
    let request = [up("x", &[(T, 1.0), (T + 1, 2.0)])];
    fixture.stored(&request);
    fixture.stored(&request);
    assert_eq!(fixture.contents()[0].1, bits(&[(T, 1.0), (T + 1, 2.0)]));
}

#[test]
fn a_full_disk_is_waited_for_and_loses_nothing_acknowledged() {
    let disk = MemFs::new();
    // Background tasks free space when they cannot allocate the disk reserve.
    let options = || Options { fs: Arc::new(disk.clone()), background: false, ..Options::default() };
    let brief = Limits { queue_timeout: Duration::from_millis(50), ..Limits::default() };
    let fixture = Fixture::on(options(), brief);
    fixture.stored(&[up("x", &[(T, 1.0)])]);
    disk.set_room(0);
    // The first request finds out; the second one waits before it is decoded.
    assert!(matches!(fixture.write(&[up("x", &[(T + 1, 2.0)])]), Err(WriteError::Store(_))));
    let began = Instant::now();
    assert!(matches!(fixture.write(&[up("y", &[(T + 1, 2.0)])]), Err(WriteError::Store(_))));
    assert!(began.elapsed() >= brief.queue_timeout);
    assert_eq!(fixture.n_series(), 1, "it was not decoded");
    disk.set_room(u64::MAX);
    fixture.stored(&[up("x", &[(T + 1, 2.0)])]);
    assert_eq!(fixture.contents()[0].1, bits(&[(T, 1.0), (T + 1, 2.0)]));

    let patient = Fixture::on(options(), Limits { queue_timeout: Duration::from_secs(600), ..Limits::default() });
    disk.set_room(0);
    assert!(patient.write(&[up("x", &[(T, 1.0)])]).is_err());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| patient.stored(&[up("x", &[(T, 1.0)])]));
        disk.set_room(u64::MAX);
        waiting.join().unwrap();
    });
    assert_eq!(patient.contents()[0].1, bits(&[(T, 1.0)]));
}

#[test]
fn all_encodings_of_a_label_set_reach_one_series() {
    let fixture = Fixture::new(Limits::default());
    for (t, labels) in (T..).zip([
        &[("__name__", "up"), ("job", "x")][..],
        &[("job", "x"), ("__name__", "up")],
        &[("", ""), ("job", "x"), ("__name__", "up")][1..],
        &[("instance", ""), ("job", "x"), ("__name__", "up"), ("zone", "")],
    ]) {
        for _twice in 0..2 {
            fixture.stored(&[series(labels, &[(t, 1.0)])]);
        }
    }
    let (a, b) = (b"\x0a\x0e\x0a\x08__name__\x12\x02up", b"\x0a\x08\x0a\x03job\x12\x01x");
    let sample = |t: i64| request(&[series(&[], &[(t, 1.0)])])[2..].to_vec();
    for t in [T + 4, T + 6] {
        let body = [&a[..], &sample(t), b, &sample(t + 1)].concat();
        let written = fixture.write_message(&[&[0x0a, body.len() as u8][..], &body].concat()).unwrap();
        let times = Some(TimeRange { start_ms: t, end_ms: t + 1 });
        assert_eq!(written, Written { stored: SampleCounts::floats(2), times, ..Written::default() });
    }
    let samples: Vec<_> = (T..T + 8).map(|t| (t, 1.0)).collect();
    assert_eq!(fixture.contents(), [(r#"{__name__="up", job="x"}"#.to_owned(), bits(&samples))]);
    assert_eq!(fixture.receiver.stats().route.entries, 3);
}

#[test]
fn an_invalid_series_rejects_that_series_every_time() {
    let fixture = Fixture::new(Limits { label_value_size_max: 10, ..Limits::default() });
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
            written.rejects.to_string(),
            "missing metric name (__name__ label): 2 series with 2 samples, e.g. series {job=\"x\"}; \
             label name is empty: 1 series with 2 samples, e.g. series {__name__=\"up\", \"\"=\"x\"}; \
             duplicate label name: 2 series with 4 samples, e.g. series {__name__=\"up\", a=\"1\", a=\"2\"}; \
             label value longer than --ingest.label-value-size-max: 1 series with 2 samples, \
             e.g. series {__name__=\"up\", a=\"12345678901\"}"
        );
    }
    assert_eq!((fixture.contents().len(), fixture.n_series()), (2, 2));
    let stats = fixture.receiver.stats();
    // The series without samples is resolved each time: it has no route.
    assert_eq!((stats.route.entries, stats.route.hits, stats.route.misses), (7, 7, 9));
    assert_eq!(stats.rejected[&Reason::DuplicateLabelName], 8);
    assert_eq!((stats.requests_partial, stats.samples_stored), (2, 4));
}

#[test]
fn an_invalid_sample_rejects_that_sample_only() {
    let fixture = Fixture::new(Limits::default());
    fixture.stored(&[up("x", &[(T, 1.0)]), up("y", &[(T, 1.0)])]);
    let far = T + 400 * 365 * 86_400_000;
    let written = fixture
        .write(&[
            up("x", &[(T - 2, 1.0), (T - 1, 1.0), (T, 7.0), (T + 1, 1.0), (far, 1.0), (T - 86_400_000, 1.0)]),
            up("y", &[(T - 1, 1.0), (T + 1, 1.0)]),
        ])
        .unwrap();
    assert_eq!(written.stored.total, 2);
    let found: Vec<_> = written.rejects.iter().map(|reject| (reject.reason.name(), reject.count)).collect();
    for expect in [("out_of_order", 3), ("duplicate_timestamp", 1), ("too_far_in_future", 1), ("out_of_bounds", 1)] {
        assert!(found.contains(&expect), "{found:?}");
    }
    let text = written.rejects.to_string();
    assert!(text.contains(r#"out of order sample: 3 samples, e.g. series {__name__="up", job="x"} at 1699999999998"#));
    assert!(text.contains("duplicate sample for timestamp: 1 sample, e.g. "), "{text}");
    assert!(text.contains("out of bounds: 1 sample, e.g. "), "{text}");
    assert_eq!(fixture.contents()[1].1, bits(&[(T, 1.0), (T + 1, 1.0)]));
}

#[test]
fn a_new_series_whose_samples_are_all_rejected_is_not_created() {
    let fixture = Fixture::new(Limits::default());
    fixture.stored(&[up("x", &[(T, 1.0)])]);
    let (old, far) = (T - 86_400_000, T + 400 * 365 * 86_400_000);
    let mut rejected = up("new", &[(old, 1.0), (far, 1.0)]);
    rejected.histograms = vec![histogram(old, &[1]), Histogram { positive_spans: vec![], ..histogram(T, &[4]) }];
    rejected.exemplars = vec![Exemplar { labels: vec![], value: 1.0, timestamp_ms: T }];
    for t in [T + 1, T + 2] {
        let written = fixture.write(&[rejected.clone(), up("x", &[(t, 1.0)])]).unwrap();
        let found: Vec<_> = written.rejects.iter().map(|reject| (reject.reason.name(), reject.count)).collect();
        assert_eq!(found, [("out_of_bounds", 2), ("too_far_in_future", 1), ("invalid_histogram", 1)]);
        assert_eq!((written.stored.total, written.exemplars.stored), (1, 0));
        assert_eq!(written.exemplars.rejected[&ExemplarRejection::UnknownSeries], 1);
    }
    assert_eq!(fixture.n_series(), 1);
    // One acceptable sample is enough.
    let written = fixture.write(&[up("new", &[(old, 1.0), (T + 2, 1.0)])]).unwrap();
    assert_eq!((written.stored.total, written.rejects.n_samples(), fixture.n_series()), (1, 1, 2));
}

#[test]
fn a_malformed_request_stores_nothing_not_even_of_known_series() {
    let fixture = Fixture::new(Limits::default());
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
        let refused = fixture.write_message(&[&good, damage].concat()).unwrap_err();
        assert!(matches!(refused, WriteError::Malformed(Malformed::Protobuf { .. })), "{refused}");
    }
    let whole = pack(&good);
    for body in [&whole[..whole.len() - 1], b"", b"\x00\x00", b"not snappy"] {
        let refused = fixture.receiver.write(&Origin::default(), Version::V1, body).unwrap_err();
        assert!(matches!(refused, WriteError::Malformed(Malformed::Snappy(_))), "{refused}");
    }
    assert_eq!((fixture.contents(), fixture.n_series()), (before, 1));
    assert_eq!(
        (fixture.receiver.stats().requests_malformed, fixture.receiver.stats().admission.in_flight_bytes),
        (14, 0)
    );
}

#[test]
fn empty_requests_and_series_are_accepted_and_create_nothing() {
    let fixture = Fixture::new(Limits::default());
    for timeseries in [&[][..], &[up("x", &[])]] {
        assert_eq!(fixture.write(timeseries).unwrap(), Written::default());
    }
    assert_eq!(fixture.n_series(), 0);
}

fn histogram(timestamp_ms: i64, counts: &[i64]) -> Histogram {
    let deltas = |(i, count): (usize, &i64)| count - if i == 0 { 0 } else { counts[i - 1] };
    Histogram {
        count_int: Some(counts.iter().sum::<i64>().cast_unsigned()),
        sum: 1.5,
        schema: 3,
        positive_spans: vec![BucketSpan { offset: -2, length: counts.len() as u32 }],
        positive_deltas: counts.iter().enumerate().map(deltas).collect(),
        reset_hint: 3,
        timestamp_ms,
        ..Histogram::default()
    }
}

#[test]
fn histograms_are_stored_beside_floats_and_invalid_ones_are_rejected() {
    let fixture = Fixture::new(Limits::default());
    let mut mixed = up("x", &[(T, 1.0)]);
    let bad = Histogram { positive_spans: vec![], ..histogram(T + 2, &[4]) };
    let finer = Histogram { schema: 9, ..histogram(T + 4, &[1, 2, 3]) };
    mixed.histograms = vec![histogram(T + 1, &[4, 2, 9]), bad, histogram(T + 1, &[4]), finer];
    let mut unnamed = series(&[("job", "z")], &[]);
    unnamed.histograms = vec![histogram(T, &[1])];
    let request = [mixed, unnamed, up("y", &[(T, 1.0)])];
    // In the second request the duplicate is older than the newest sample.
    for reason in ["duplicate sample for timestamp", "out of order sample"] {
        let written = fixture.write(&request).unwrap();
        assert_eq!((written.stored.total, written.rejects.n_samples()), (4, 3));
        assert_eq!(
            written.rejects.to_string(),
            format!(
                "invalid native histogram: 1 histogram, e.g. series {{__name__=\"up\", job=\"x\"}} at 1700000000002: \
             histogram spans specify different number of buckets than provided; \
             missing metric name (__name__ label): 1 series with 1 sample, e.g. series {{job=\"z\"}}; \
             {reason}: 1 sample, e.g. series {{__name__=\"up\", job=\"x\"}} at 1700000000001"
            )
        );
    }
    let (_, columns) = &fixture.select(&[Matcher::equal("job", "x")])[0];
    assert_eq!(columns.timestamps_ms, [T, T + 1, T + 4]);
    assert!(columns.histogram(0).is_none());
    let (first, finer) = (columns.histogram(1).unwrap(), columns.histogram(2).unwrap());
    let HistogramCounts::Integer { count: 15, positive, .. } = &first.counts else { panic!("{first:?}") };
    assert_eq!((&positive[..], first.reset_hint, first.schema), (&[4, 2, 9][..], ResetHint::Gauge, 3));
    // Buckets -2 to 0 of schema 9 are -1 and 0 | 0.
    let HistogramCounts::Integer { positive, .. } = &finer.counts else { panic!("{finer:?}") };
    assert_eq!((&positive[..], finer.schema, finer.positive_spans[0].offset), (&[1, 5][..], 8, -1));
    assert_eq!(fixture.receiver.stats().rejected[&Reason::InvalidHistogram], 2);
}

#[test]
fn the_samples_of_a_series_are_taken_in_order_of_time() {
    let mut mixed = up("x", &[(T + 4, 1.0), (T, 1.0), (T + 2, 1.0)]);
    mixed.histograms = vec![histogram(T + 3, &[1]), histogram(T + 1, &[1])];
    let mut v2 = crate::remote_write::message::v2::Request::default();
    let in_v2 = v2.add(&[("__name__", "up"), ("job", "x")], &[(T + 4, 1.0, 0), (T, 1.0, 0), (T + 2, 1.0, 0)]);
    in_v2.histograms = mixed.histograms.iter().map(Message::encode_to_vec).collect();
    // One entry with both types, two entries, and version 2.0.
    let apart =
        [TimeSeries { samples: Vec::new(), ..mixed.clone() }, TimeSeries { histograms: Vec::new(), ..mixed.clone() }];
    for (version, message) in
        [(Version::V1, request(&[mixed])), (Version::V1, request(&apart)), (Version::V2, v2.encode_to_vec())]
    {
        let fixture = Fixture::new(Limits::default());
        let written = fixture.receiver.write(&Origin::default(), version, &pack(&message)).unwrap();
        assert_eq!((written.stored.total, written.rejects.to_string()), (5, String::new()));
        let times: Vec<_> = fixture.contents()[0].1.iter().map(|(t, _)| t - T).collect();
        assert_eq!(times, [0, 1, 2, 3, 4]);
    }
}

/// Creates a series with exemplars, of a label `a`, value and timestamp, and without samples.
fn exemplars(job: &str, exemplars: &[(&[u8], f64, i64)]) -> TimeSeries {
    let exemplar = |&(value, number, timestamp_ms): &(&[u8], f64, i64)| {
        let label = Label { name: b"a".to_vec(), value: value.to_vec() };
        Exemplar { labels: vec![label], value: number, timestamp_ms }
    };
    TimeSeries { exemplars: exemplars.iter().map(exemplar).collect(), ..up(job, &[]) }
}

#[test]
fn exemplars_are_stored_with_known_series_and_rejected_ones_leave_the_request_valid() {
    let fixture = Fixture::new(Limits::default());
    let found = || {
        let found = fixture.receiver.db.exemplars(&QueryContext::unbounded(), &[vec![]], TimeRange::ALL).unwrap();
        let of = |one: &varve_tsdb::exemplars::SeriesExemplars| {
            let times = one.exemplars.iter().map(|e| (e.timestamp_ms, e.value)).collect::<Vec<_>>();
            (one.labels.get("job").unwrap().to_owned(), times)
        };
        found.series.iter().map(of).collect::<Vec<_>>()
    };
    let long = [b'x'; 128];
    let written = fixture
        .write(&[
            exemplars("nobody", &[(b"1", 1.0, T)]),
            up("x", &[(T, 1.0)]),
            exemplars(
                "x",
                &[
                    (b"1", 1.0, T),
                    (b"2", -0.0, T + 1),
                    // Exemplars of a series are taken in order of time.
                    (b"3", 1.0, T - 1),
                    (b"\xff", 1.0, T + 2),
                    (&long, 1.0, T + 2),
                    (b"4", 1.0, T + 400 * 365 * 86_400_000),
                ],
            ),
            up("y", &[(T, 1.0)]),
        ])
        .unwrap();
    assert_eq!((written.stored.total, written.exemplars.stored, written.rejects.is_empty()), (2, 3, true));
    let refused = written.exemplars.rejected.iter().map(|(refusal, n)| (refusal.name(), *n));
    let expect = [("out_of_bounds", 1), ("labels_too_long", 1), ("unknown_series", 1), ("invalid_labels", 1)];
    assert_eq!(refused.collect::<Vec<_>>(), expect);
    // In a later request: of a cached route, and of a series that only the store knows.
    let later = [(&b"4"[..], 2.0, T + 5), (b"5", 1.0, T - 2)];
    fixture.stored(&[exemplars("x", &later), exemplars("y", &[(b"4", f64::NAN, 0)])]);
    let all = found();
    assert_eq!(all[0], ("x".to_owned(), vec![(T - 1, 1.0), (T, 1.0), (T + 1, -0.0), (T + 5, 2.0)]));
    assert!(all[1].1[0].1.is_nan() && all.len() == 2);
    assert_eq!(fixture.n_series(), 2, "no series is created for an exemplar");
    let stats = fixture.receiver.stats();
    assert_eq!((stats.exemplars.stored, stats.exemplars.rejected.len(), stats.requests_stored), (5, 5, 2));
}

#[test]
fn histograms_and_exemplars_are_counted_before_they_are_decoded() {
    let fixture = Fixture::new(Limits { samples_per_request_max: 3, ..Limits::default() });
    let histograms = |n| TimeSeries { histograms: vec![histogram(T, &[1]); n], ..up("x", &[(T, 1.0)]) };
    let exemplars = |n| exemplars("x", &vec![(&b"1"[..], 1.0, T); n]);
    for (accepted, rejected, counted) in
        [(histograms(2), histograms(3), "number of samples"), (exemplars(3), exemplars(4), "number of exemplars")]
    {
        assert!(fixture.write(&[accepted]).is_ok());
        let refused = fixture.write(&[rejected]).unwrap_err();
        assert!(matches!(refused, WriteError::TooLarge { what, size: 4, .. } if what == counted), "{refused}");
    }
}

#[test]
fn metadata_is_stored_and_invalid_metadata_is_rejected() {
    let fixture = Fixture::new(Limits::default());
    let family = |name: &str, kind, help: &[u8]| MetricMetadata {
        kind,
        metric_family_name: name.into(),
        help: help.to_vec(),
        unit: b"s".to_vec(),
    };
    let metadata = vec![
        family("a", 1, b"first"),
        family("", 1, b"x"),
        family("b", 99, b"second"),
        family("c", 2, b"\xff"),
        family("d", 2, &[b'x'; 70_000]),
    ];
    let message = WriteRequest { metadata, ..WriteRequest::default() }.encode_to_vec();
    let written = fixture.write_message(&message).unwrap();
    assert_eq!(
        written.rejects.to_string(),
        "invalid metadata: 3 metric families, e.g. an entry without metric family name"
    );
    let known = fixture.receiver.db.metadata();
    let known: Vec<_> = known.iter().map(|(name, m)| (&**name, m.kind.as_str(), m.help.as_str())).collect();
    assert_eq!(known, [("a", "counter", "first"), ("b", "unknown", "second")]);
}

#[test]
fn a_request_over_a_limit_is_refused_and_stores_nothing() {
    let limits = Limits { body_size_max: 100, decompressed_size_max: 1000, ..Limits::default() };
    let fixture = Fixture::new(limits);
    let many = request(&vec![up("x", &[(T, 1.0)]); 100]);
    let bodies: [(&[u8], &str); 4] = [
        (&[0; 101], "body size in bytes of 101 exceeds the limit of 100 (--ingest.body-size-max)"),
        (b"\xe9\x07", "decompressed size in bytes of 1001 exceeds the limit of 1000 (--ingest.decompressed-size-max)"),
        (
            b"\xff\xff\xff\xff\x0f\x00",
            "decompressed size in bytes of 4294967295 exceeds the limit of 1000 (--ingest.decompressed-size-max)",
        ),
        (
            &pack(&many)[..100],
            "decompressed size in bytes of 4600 exceeds the limit of 1000 (--ingest.decompressed-size-max)",
        ),
    ];
    for (body, expect) in bodies {
        let refused = fixture.receiver.write(&Origin::default(), Version::V1, body).unwrap_err();
        assert!(matches!(refused, WriteError::TooLarge { .. }));
        assert_eq!(refused.to_string(), expect);
    }
    assert_eq!((fixture.n_series(), fixture.receiver.stats().requests_too_large), (0, 4));
}

#[test]
fn a_request_without_free_memory_is_busy() {
    let fixture = Fixture::new(Limits { bytes_in_flight_max: 10_000, ..Limits::default() });
    let held = fixture.receiver.admission.hold_memory(9_900);
    let many = vec![up("x", &[(T, 1.0)]); 10];
    assert!(matches!(fixture.write(&many), Err(WriteError::Busy { in_flight: 9_900, .. })));
    // The body fits, its decoded form does not.
    assert!(matches!(fixture.write(&[up("x", &[(T, 1.0)])]), Err(WriteError::Busy { size: 116, .. })));
    assert_eq!((fixture.n_series(), fixture.receiver.stats().admission.in_flight_bytes), (0, 9_900));
    drop(held);
    fixture.stored(&many);
    let stats = fixture.receiver.stats();
    assert_eq!((stats.requests_busy, stats.admission.in_flight_bytes, stats.samples_stored), (2, 0, 10));
}

#[test]
fn a_series_that_has_moved_is_resolved_again() {
    let other = Fixture::new(Limits::default());
    for n in 0..100 {
        other.stored(&[up(&n.to_string(), &[(T, 1.0)])]);
    }
    let labels = Labels::from_pairs([("__name__", "up"), ("job", "99")]).unwrap();
    let stranger = other.receiver.db.series(&labels).unwrap();
    let fixture = Fixture::new(Limits::default());
    let request = [up("a", &[(T, 1.0)]), up("b", &[(T, 1.0), (T + 1, 2.0)])];
    let mut batch = DecodedBatch::default();
    v1::decode(&self::request(&request), &fixture.receiver.hasher, &Limits::default(), &mut batch).unwrap();
    fixture.receiver.routes.insert(batch.series[1].key.unwrap(), Route::Series(stranger, Attribution::default()));
    let written = fixture.write(&request).unwrap();
    let times = Some(TimeRange { start_ms: T, end_ms: T + 1 });
    assert_eq!(written, Written { stored: SampleCounts::floats(3), times, ..Written::default() });
    assert_eq!(fixture.contents()[1].1, bits(&[(T, 1.0), (T + 1, 2.0)]));
    fixture.stored(&[up("b", &[(T + 2, 2.0)])]);
    assert_eq!(fixture.receiver.stats().route.entries, 2);
}

#[test]
fn known_series_are_stored_if_new_ones_cannot_be_created() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { head_size_max_bytes: 200_000, ..Options::default() };
    let db = Arc::new(Db::open(dir.path(), options).unwrap());
    let fixture = Fixture { receiver: Receiver::new(db, Limits::default()), _dir: dir };
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
    assert!(matches!(refused, WriteError::Store(varve_tsdb::Error::Limit { .. })), "{refused}");
    let contents = fixture.contents();
    let (_, known) = contents.iter().find(|(labels, _)| labels.contains("known")).unwrap();
    // A full store may refuse the append too. What it accepted is complete and in order.
    assert!(known.last().unwrap().0 >= t - 1);
}

#[test]
fn own_samples_are_appended_and_rejects_are_returned() {
    let fixture = Fixture::new(Limits::default());
    let labels = Labels::from_pairs([("__name__", "varve_up")]).unwrap();
    let append = |t| fixture.receiver.append_own(&[(labels.clone(), Sample { timestamp_ms: t, value: 1.0 })]).unwrap();
    assert!(append(T).is_empty());
    let rejects = append(T - 1);
    let expect = format!("out of order sample: 1 sample, e.g. series {{__name__=\"varve_up\"}} at {}", T - 1);
    assert_eq!(rejects.to_string(), expect);
    assert_eq!(fixture.contents()[0].1, [(T, 1.0_f64.to_bits())]);
}

#[test]
fn many_threads_create_each_series_once() {
    let fixture = Fixture::new(Limits::default());
    let all: Vec<_> = (0..200).map(|n| up(&n.to_string(), &[(T, f64::from(n))])).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| all.chunks(20).for_each(|some| fixture.stored(some)));
        }
    });
    assert_eq!((fixture.n_series(), fixture.contents().len()), (200, 200));
    assert_eq!(fixture.receiver.stats().samples_stored, 800);
}

#[test]
fn damaged_bodies_never_panic() {
    let fixture = Fixture::new(Limits::default());
    let body = pack(&request(&[up("x", &[(T, 1.0), (T + 1, 2.0)]), up("y", &[(T, 3.0)])]));
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
            prop_assert!(written.stored.total + written.rejects.n_samples() <= 20);
        }
    });
    assert_eq!(fixture.receiver.stats().admission.in_flight_bytes, 0);
}

#[test]
fn version_2_is_stored_with_start_timestamps_and_counted() {
    use crate::remote_write::message::v2::Request;
    use crate::remote_write::v2::tests::Start;
    let fixture = Fixture::new(Limits::default());
    let mut request = Request::default();
    request.add(&[("__name__", "a_total")], &[(T, 1.0, T - 10), (T + 1, 2.0, 0), (T + 2, 3.0, T - 5)]);
    let empty = request.add(&[("__name__", "empty")], &[]);
    empty.exemplars.push(Default::default());
    let of_histogram = request.add(&[("__name__", "h")], &[]);
    let (sent, start) = (Histogram { timestamp_ms: T, ..Histogram::default() }, Start { start_ms: T - 7 });
    of_histogram.histograms.push([sent.encode_to_vec(), start.encode_to_vec()].concat());
    for _twice in 0..2 {
        let written = fixture.receiver.write(&Origin::default(), Version::V2, &pack(&request.encode_to_vec())).unwrap();
        assert_eq!((written.stored.total, written.stored.histograms), (4, 1));
        assert_eq!(written.exemplars.rejected[&ExemplarRejection::NoSamples], 1);
        let reasons: Vec<_> = written.rejects.iter().map(|of| (of.reason, of.count)).collect();
        assert_eq!(reasons, [(Reason::NoSamples, 1)]);
    }
    assert_eq!(fixture.contents()[0].1, bits(&[(T, 1.0), (T + 1, 2.0), (T + 2, 3.0)]));
    let starts = |name: &str| {
        let (_, columns) = &fixture.select(&[Matcher::equal("__name__", name)])[0];
        (0..columns.len()).map(|idx| columns.start_ms(idx)).collect::<Vec<_>>()
    };
    assert_eq!(starts("a_total"), [T - 10, 0, T - 5]);
    assert_eq!(starts("h"), [T - 7]);
}

#[test]
fn new_rules_apply_to_known_series() {
    let fixture = Fixture::new(Limits::default());
    let request = |t: i64| {
        let mut down = up("b", &[(t, 1.0)]);
        down.exemplars.push(Exemplar { timestamp_ms: t, ..Exemplar::default() });
        [up("a", &[(t, 1.0), (t + 1, 2.0)]), down]
    };
    fixture.stored(&request(T));
    fixture.receiver.set_rules(Rules::new(vec![drop_where("job", "b")]).unwrap());
    for t in [T + 10, T + 20] {
        let written = fixture.write(&request(t)).unwrap();
        assert_eq!((written.stored.total, written.dropped.total), (2, 1));
        assert_eq!(written.exemplars.rejected[&ExemplarRejection::Dropped], 1);
        assert!(written.rejects.is_empty(), "{}", written.rejects);
    }
    let stats = fixture.receiver.rule_stats();
    assert_eq!((stats[0].series, stats[0].samples), (1, 2));
    fixture.receiver.set_rules(Rules::new(vec![drop_where("job", "b"), remove("job")]).unwrap());
    fixture.stored(&request(T + 30));
    fixture.receiver.set_rules(Rules::default());
    fixture.stored(&request(T + 40));
    let times = |from: &[i64]| bits(&from.iter().flat_map(|t| [(T + t, 1.0), (T + t + 1, 2.0)]).collect::<Vec<_>>());
    assert_eq!(
        fixture.contents(),
        [
            (r#"{__name__="up", job="a"}"#.to_owned(), times(&[0, 10, 20, 40])),
            (r#"{__name__="up", job="b"}"#.to_owned(), bits(&[(T, 1.0), (T + 40, 1.0)])),
            (r#"{__name__="up"}"#.to_owned(), times(&[30])),
        ]
    );
}

/// Writes series as a router sends them.
fn write_routed(fixture: &Fixture, origin: &Origin<'_>, tenant: &str, timeseries: &[TimeSeries]) -> Written {
    // The number of the replica has the number of another field in `prometheus.WriteRequest`.
    let tenant_and_replica = [&[0x12, tenant.len() as u8], tenant.as_bytes(), b"\x18\x02"].concat();
    let message = [request(timeseries), tenant_and_replica].concat();
    fixture.receiver.write_routed(origin, "tenant_id", &message, |body, _| Ok(body)).unwrap()
}

#[test]
fn the_tenant_of_a_router_is_a_label_and_replaces_one() {
    let fixture = Fixture::new(Limits::default());
    let own = |t| series(&[("__name__", "up"), ("a", "b"), ("tenant_id", "own")], &[(t, 1.0)]);
    for t in [T, T + 1] {
        for tenant in ["", "t", "other"] {
            let written = write_routed(&fixture, &Origin::default(), tenant, &[up("x", &[(t, 1.0)]), own(t)]);
            assert_eq!((written.stored.total, written.rejects.to_string()), (2, String::new()));
        }
    }
    let names: Vec<_> = fixture.contents().into_iter().map(|(labels, samples)| (labels, samples.len())).collect();
    let expect = [
        r#"{__name__="up", a="b", tenant_id="other"}"#,
        r#"{__name__="up", a="b", tenant_id="own"}"#,
        r#"{__name__="up", a="b", tenant_id="t"}"#,
        r#"{__name__="up", job="x", tenant_id="other"}"#,
        r#"{__name__="up", job="x", tenant_id="t"}"#,
        r#"{__name__="up", job="x"}"#,
    ];
    assert_eq!(names, expect.map(|labels| (labels.to_owned(), 2)));
    let route = fixture.receiver.stats().route;
    assert_eq!((route.entries, route.hits), (6, 6), "tenants have routes of their own");
    // Two labels of the name are still two, and so is a rejected one printed.
    let twice = series(&[("__name__", "up"), ("tenant_id", "a"), ("tenant_id", "b")], &[(T, 1.0)]);
    let written = write_routed(&fixture, &Origin::default(), "t", &[twice]);
    let expect =
        r#"duplicate label name: 1 series with 1 sample, e.g. series {tenant_id="t", __name__="up", tenant_id="b"}"#;
    assert_eq!(written.rejects.to_string(), expect);
}

#[test]
fn tenants_with_equal_messages_have_series_of_their_own() {
    let fixture = Fixture::new(Limits::default());
    let tenants = ["s", "t"].map(|tenant| [("tenant".to_owned(), tenant.to_owned())]);
    let write = |version, message: &[u8]| {
        for labels in &tenants {
            let origin = Origin { labels, ..Origin::default() };
            assert_eq!(fixture.receiver.write(&origin, version, &pack(message)).unwrap().stored.total, 1);
        }
    };
    for t in [T, T + 2] {
        write(Version::V1, &request(&[up("x", &[(t, 1.0)])]));
        let mut v2 = crate::remote_write::message::v2::Request::default();
        v2.add(&[("__name__", "up"), ("job", "x")], &[(t + 1, 1.0, 0)]);
        write(Version::V2, &v2.encode_to_vec());
    }
    let found: Vec<_> = fixture.contents().into_iter().map(|(labels, samples)| (labels, samples.len())).collect();
    let expect = [r#"{__name__="up", job="x", tenant="s"}"#, r#"{__name__="up", job="x", tenant="t"}"#];
    assert_eq!(found, expect.map(|labels| (labels.to_owned(), 4)));
    assert_eq!(fixture.receiver.stats().route.hits, 4);
}

#[test]
fn rules_may_remove_the_tenant_of_a_router_but_not_that_of_a_token() {
    let fixture = Fixture::new(Limits::default());
    fixture.receiver.set_rules(Rules::new(vec![remove("tenant_id")]).unwrap());
    let forced = [("tenant_id".to_owned(), "t".to_owned())];
    let of_token = Origin { labels: &forced, ..Origin::default() };
    for origin in [Origin::default(), of_token] {
        write_routed(&fixture, &origin, "t", &[up("x", &[(T, 1.0)])]);
    }
    let names: Vec<_> = fixture.contents().into_iter().map(|(labels, _)| labels).collect();
    assert_eq!(names, [r#"{__name__="up", job="x", tenant_id="t"}"#, r#"{__name__="up", job="x"}"#]);
}

#[test]
fn malformed_messages_of_a_router_are_rejected() {
    let fixture = Fixture::new(Limits::default());
    for message in [&b"\x0a"[..], b"\x0a\x05a", b"\x0b", b"\x12\x01\xff", b"\x0a\x02\x0a\x05\x12\x01t"] {
        let refused = fixture.receiver.write_routed(&Origin::default(), "tenant_id", message, |body, _| Ok(body));
        assert!(matches!(refused, Err(WriteError::Malformed(_))), "{message:?}");
    }
}

#[test]
fn a_rule_that_removes_the_metric_name_rejects_the_series() {
    let fixture = Fixture::new(Limits::default());
    fixture.receiver.set_rules(Rules::new(vec![remove("__name__")]).unwrap());
    for _twice in 0..2 {
        let written = fixture.write(&[up("a", &[(T, 1.0)])]).unwrap();
        assert_eq!(written.rejects.iter().next().unwrap().reason, Reason::MissingMetricName);
    }
}
