//! Native histograms of two kinds, as a remote-write sender sends them.

use prost::Message;

use crate::harness::{Label, snappy};

/// `prometheus.WriteRequest`, as far as histograms need it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HistogramRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<HistogramSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "4")]
    histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count_int: u64,
    #[prost(double, tag = "3")]
    sum: f64,
    #[prost(sint32, tag = "4")]
    schema: i32,
    #[prost(double, tag = "5")]
    zero_threshold: f64,
    #[prost(uint64, tag = "6")]
    zero_count_int: u64,
    #[prost(message, repeated, tag = "11")]
    positive_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "12")]
    positive_deltas: Vec<i64>,
    #[prost(int32, tag = "14")]
    reset_hint: i32,
    #[prost(int64, tag = "15")]
    timestamp: i64,
    #[prost(double, repeated, tag = "16")]
    custom_values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

/// Returns the body of a request with histograms at these times: exponential ones, a gauge, and one with its own bounds.
pub(super) fn histograms(times_ms: &[i64]) -> Vec<u8> {
    let series = |name: &str, of: fn(i64) -> Histogram| {
        let labels = [("__name__", name), ("job", "h")];
        let histograms = times_ms.iter().zip(1..).map(|(&timestamp, n)| Histogram { timestamp, ..of(n) }).collect();
        HistogramSeries {
            labels: labels.map(|(name, value)| Label { name: name.into(), value: value.into() }).into(),
            histograms,
        }
    };
    let timeseries = vec![
        series("native", exponential),
        series("native_custom", custom),
        series("native_gauge", |n| Histogram { reset_hint: 3, ..exponential(n) }),
    ];
    snappy(&HistogramRequest { timeseries }.encode_to_vec())
}

fn exponential(n: i64) -> Histogram {
    Histogram {
        count_int: 4 * n as u64,
        sum: 2.5 * n as f64,
        schema: 1,
        zero_threshold: 0.001,
        zero_count_int: n as u64,
        positive_spans: vec![Span { offset: -1, length: 1 }, Span { offset: 2, length: 1 }],
        positive_deltas: vec![n, n],
        ..Histogram::default()
    }
}

fn custom(n: i64) -> Histogram {
    Histogram {
        count_int: 3 * n as u64,
        sum: 1.5 * n as f64,
        schema: -53,
        positive_spans: vec![Span { offset: 0, length: 1 }, Span { offset: 1, length: 1 }],
        positive_deltas: vec![n, n],
        custom_values: vec![0.5, 1.0, 2.5],
        ..Histogram::default()
    }
}
