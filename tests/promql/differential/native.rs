//! Native histograms in remote write 1.0: the messages of `prompb/types.proto` that the harness does not have, and series of
//! every kind.

use std::collections::BTreeMap;

use prost::Message;

use crate::harness::{Random, snappy};

/// `prometheus.WriteRequest`
#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

/// `prometheus.TimeSeries`
#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    histograms: Vec<Histogram>,
}

/// `prometheus.Label`
#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `prometheus.Sample`
#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp_ms: i64,
}

/// `prometheus.Histogram` with integer counts.
#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "3")]
    sum: f64,
    #[prost(sint32, tag = "4")]
    schema: i32,
    #[prost(double, tag = "5")]
    zero_threshold: f64,
    #[prost(uint64, tag = "6")]
    zero_count: u64,
    #[prost(message, repeated, tag = "8")]
    negative_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "9")]
    negative_deltas: Vec<i64>,
    #[prost(message, repeated, tag = "11")]
    positive_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "12")]
    positive_deltas: Vec<i64>,
    #[prost(int32, tag = "14")]
    reset_hint: i32,
    #[prost(int64, tag = "15")]
    timestamp_ms: i64,
    #[prost(double, repeated, tag = "16")]
    custom_values: Vec<f64>,
}

/// `prometheus.BucketSpan`
#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

/// `prometheus.Histogram.ResetHint`
const GAUGE: i32 = 3;
/// The schema of custom buckets.
const CUSTOM: i32 = -53;

/// The layout of the histograms of a series.
#[derive(Clone, Copy)]
struct Layout {
    schema: i32,
    /// First bucket and number of buckets, on each side of zero.
    positive: (i32, usize),
    negative: (i32, usize),
    bounds: &'static [f64],
    gauge: bool,
}

const PLAIN: Layout = Layout { schema: 2, positive: (-4, 10), negative: (0, 0), bounds: &[], gauge: false };

type Labels = BTreeMap<String, String>;

/// Series of native histograms.
pub(super) struct Natives {
    random: Random,
    series: BTreeMap<Labels, (Vec<Sample>, Vec<Histogram>)>,
}

impl Natives {
    /// Creates the series, with a histogram every 15 s from `start_ms` to `end_ms`.
    pub(super) fn new(seed: u64, start_ms: i64, end_ms: i64) -> Self {
        let mut natives = Self { random: Random::new(seed), series: BTreeMap::new() };
        let times: Vec<_> = (start_ms + 2_345..=end_ms).step_by(15_000).collect();
        for job in ["api", "db"] {
            for (instance, schema) in [("host-1:80", 2), ("host-2:80", 2), ("host-10:80", 0)] {
                let labels = |name| [("__name__", name), ("job", job), ("instance", instance)];
                natives.add(&labels("latency_seconds"), &times, Layout { schema, ..PLAIN });
                let both = Layout { negative: (-2, 5), gauge: true, ..PLAIN };
                natives.add(&labels("balance"), &times, both);
                let custom = Layout { schema: CUSTOM, positive: (0, 4), bounds: &[0.1, 0.5, 2.0], ..PLAIN };
                natives.add(&labels("size_bytes"), &times, custom);
                let half = if job == "api" { &times[..100] } else { &times[60..] };
                natives.add(&labels("short_seconds"), half, Layout { schema: schema + 1, ..PLAIN });
                natives.add(&labels("changing"), &times[90..], PLAIN);
                let floats = times[..90].iter().enumerate();
                let floats = floats.map(|(n, &timestamp_ms)| Sample { value: n as f64 * 2.5, timestamp_ms }).collect();
                let series = natives.series.get_mut(&map(&labels("changing"))).expect("it was added");
                series.0 = floats;
            }
        }
        natives
    }

    /// Encodes the body of a write request.
    pub(super) fn to_body(&self) -> Vec<u8> {
        let timeseries = self.series.iter().map(|(labels, (samples, histograms))| TimeSeries {
            labels: labels.iter().map(|(name, value)| Label { name: name.clone(), value: value.clone() }).collect(),
            samples: samples.clone(),
            histograms: histograms.clone(),
        });
        snappy(&WriteRequest { timeseries: timeseries.collect() }.encode_to_vec())
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = &Labels> {
        self.series.keys()
    }

    fn add(&mut self, labels: &[(&str, &str)], times: &[i64], layout: Layout) {
        let (mut positive, mut negative) = (vec![0; layout.positive.1], vec![0; layout.negative.1]);
        let mut zero_count = 0;
        let mut histograms = Vec::new();
        for &timestamp_ms in times {
            let resets = self.random.below(60) == 0 || layout.gauge;
            for count in positive.iter_mut().chain(&mut negative) {
                *count = if resets { 0 } else { *count } + self.random.below(5) as i64;
            }
            if layout.schema != CUSTOM {
                zero_count = if resets { 0 } else { zero_count } + self.random.below(2);
            }
            let count = positive.iter().chain(&negative).sum::<i64>() as u64 + zero_count;
            histograms.push(Histogram {
                count,
                sum: count as f64 * 0.75,
                schema: layout.schema,
                zero_threshold: if layout.schema == CUSTOM { 0.0 } else { 1e-3 },
                zero_count,
                negative_spans: span(layout.negative),
                negative_deltas: deltas(&negative),
                positive_spans: span(layout.positive),
                positive_deltas: deltas(&positive),
                reset_hint: if layout.gauge { GAUGE } else { 0 },
                timestamp_ms,
                custom_values: layout.bounds.to_vec(),
            });
        }
        assert!(self.series.insert(map(labels), (Vec::new(), histograms)).is_none(), "two series have the same labels");
    }
}

fn map(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn span((offset, length): (i32, usize)) -> Vec<Span> {
    let span = Span { offset, length: u32::try_from(length).expect("a few") };
    (length > 0).then_some(span).into_iter().collect()
}

fn deltas(counts: &[i64]) -> Vec<i64> {
    let before = [0].into_iter().chain(counts.iter().copied());
    counts.iter().zip(before).map(|(count, before)| count - before).collect()
}
