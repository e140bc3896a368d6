//! Remote-write requests: the messages of versions 1.0 and 2.0, independent of the decoder of the product.

use prost::Message;

/// `prometheus.WriteRequest`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) metadata: Vec<MetricMetadata>,
}

/// `prometheus.TimeSeries`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) histograms: Vec<Histogram>,
}

/// `prometheus.Label`; bytes, so that tests can send invalid UTF-8.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Label {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// `prometheus.Sample`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample {
    /// Optional, because prost skips a value that equals zero, as -0 does; `Some(-0.0)` is encoded.
    #[prost(double, optional, tag = "1")]
    pub(crate) value: Option<f64>,
    #[prost(int64, tag = "2")]
    pub(crate) timestamp_ms: i64,
}

/// `prometheus.Exemplar`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(double, tag = "2")]
    pub(crate) value: f64,
    #[prost(int64, tag = "3")]
    pub(crate) timestamp_ms: i64,
}

/// `prometheus.Histogram`: the fields of an integer histogram of positive observations.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Histogram {
    #[prost(uint64, tag = "1")]
    pub(crate) count_int: u64,
    #[prost(double, tag = "3")]
    pub(crate) sum: f64,
    #[prost(sint32, tag = "4")]
    pub(crate) schema: i32,
    #[prost(message, repeated, tag = "11")]
    pub(crate) positive_spans: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "12")]
    pub(crate) positive_deltas: Vec<i64>,
    #[prost(int64, tag = "15")]
    pub(crate) timestamp_ms: i64,
}

/// `prometheus.BucketSpan`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub(crate) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) length: u32,
}

/// `prometheus.MetricMetadata`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricMetadata {
    #[prost(enumeration = "MetricType", tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) metric_family_name: String,
    #[prost(string, tag = "4")]
    pub(crate) help: String,
    #[prost(string, tag = "5")]
    pub(crate) unit: String,
}

/// `prometheus.MetricMetadata.MetricType`: the types that tests use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum MetricType {
    Unknown = 0,
    Counter = 1,
    Gauge = 2,
}

impl WriteRequest {
    pub(crate) fn new(timeseries: impl IntoIterator<Item = TimeSeries>) -> Self {
        Self { timeseries: timeseries.into_iter().collect(), metadata: Vec::new() }
    }

    /// Returns the body of the request.
    pub(crate) fn to_body(&self) -> Vec<u8> {
        snappy(&self.encode_to_vec())
    }
}

/// Compresses a message as a snappy block.
pub(crate) fn snappy(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(message).expect("a message of less than 4 GiB")
}

/// Returns a series of label pairs, in the given order, and samples of timestamp and value.
pub(crate) fn series(labels: &[(&str, &str)], samples: &[(i64, f64)]) -> TimeSeries {
    let label = |&(name, value): &(&str, &str)| Label { name: name.into(), value: value.into() };
    let sample = |&(timestamp_ms, value): &(i64, f64)| Sample { value: Some(value), timestamp_ms };
    TimeSeries {
        labels: labels.iter().map(label).collect(),
        samples: samples.iter().map(sample).collect(),
        ..TimeSeries::default()
    }
}

/// The messages of version 2.0.
pub(crate) mod v2 {
    use prost::Message;

    /// `io.prometheus.write.v2.Request`
    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Request {
        #[prost(string, repeated, tag = "4")]
        pub(crate) symbols: Vec<String>,
        #[prost(message, repeated, tag = "5")]
        pub(crate) timeseries: Vec<TimeSeries>,
    }

    /// `io.prometheus.write.v2.TimeSeries`
    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct TimeSeries {
        #[prost(uint32, repeated, tag = "1")]
        pub(crate) labels_refs: Vec<u32>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) samples: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(crate) histograms: Vec<Histogram>,
        #[prost(message, repeated, tag = "4")]
        pub(crate) exemplars: Vec<Exemplar>,
        #[prost(message, optional, tag = "5")]
        pub(crate) metadata: Option<Metadata>,
    }

    /// `io.prometheus.write.v2.Sample`
    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Sample {
        #[prost(double, tag = "1")]
        pub(crate) value: f64,
        #[prost(int64, tag = "2")]
        pub(crate) timestamp_ms: i64,
        #[prost(int64, tag = "3")]
        pub(crate) start_ms: i64,
    }

    /// `io.prometheus.write.v2.Histogram`: the fields of a histogram with custom buckets.
    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Histogram {
        #[prost(uint64, tag = "1")]
        pub(crate) count: u64,
        #[prost(double, tag = "3")]
        pub(crate) sum: f64,
        #[prost(sint32, tag = "4")]
        pub(crate) schema: i32,
        #[prost(message, repeated, tag = "11")]
        pub(crate) spans: Vec<Span>,
        #[prost(sint64, repeated, tag = "12")]
        pub(crate) deltas: Vec<i64>,
        #[prost(int64, tag = "15")]
        pub(crate) timestamp_ms: i64,
        #[prost(double, repeated, tag = "16")]
        pub(crate) bounds: Vec<f64>,
    }

    /// `io.prometheus.write.v2.BucketSpan`
    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Span {
        #[prost(sint32, tag = "1")]
        pub(crate) offset: i32,
        #[prost(uint32, tag = "2")]
        pub(crate) length: u32,
    }

    /// `io.prometheus.write.v2.Exemplar`
    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Exemplar {
        #[prost(uint32, repeated, tag = "1")]
        pub(crate) labels_refs: Vec<u32>,
        #[prost(double, tag = "2")]
        pub(crate) value: f64,
        #[prost(int64, tag = "3")]
        pub(crate) timestamp_ms: i64,
    }

    /// `io.prometheus.write.v2.Metadata`
    #[derive(Clone, PartialEq, Message)]
    pub(crate) struct Metadata {
        #[prost(int32, tag = "1")]
        pub(crate) kind: i32,
        #[prost(uint32, tag = "3")]
        pub(crate) help_ref: u32,
        #[prost(uint32, tag = "4")]
        pub(crate) unit_ref: u32,
    }
}
