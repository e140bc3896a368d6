//! Remote-write requests: the messages of versions 1.0 and 2.0 for prost, independent of the
//! decoder of the product.
//!
//! Used by the tests of the server, the unit tests of `varve-ingest` and the benches.
//!
//! Strings are bytes, since Prometheus' decoder does not check them either and tests send invalid
//! UTF-8; a sample's value is its bits, since prost does not encode -0; the members of a `oneof`
//! are optional fields. The encodings are the same.

use prost::Message;

/// Declares messages: each field with its type and, in brackets, its protobuf type and number.
macro_rules! messages {
    ($($(#[$doc:meta])* $message:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = [$($prost:tt)*],)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct $message {
            $($(#[$field_doc])* #[prost($($prost)*)] pub(crate) $field: $type,)*
        }
    )*};
}
pub(crate) use messages;

messages! {
    /// `prometheus.WriteRequest`
    WriteRequest {
        timeseries: Vec<TimeSeries> = [message, repeated, tag = 1],
        metadata: Vec<MetricMetadata> = [message, repeated, tag = 3],
    }

    /// `prometheus.TimeSeries`
    TimeSeries {
        labels: Vec<Label> = [message, repeated, tag = 1],
        samples: Vec<Sample> = [message, repeated, tag = 2],
        exemplars: Vec<Exemplar> = [message, repeated, tag = 3],
        histograms: Vec<Histogram> = [message, repeated, tag = 4],
    }

    /// `prometheus.Label`
    Label {
        name: Vec<u8> = [bytes = "vec", tag = 1],
        value: Vec<u8> = [bytes = "vec", tag = 2],
    }

    /// `prometheus.Sample`
    Sample {
        value: u64 = [fixed64, tag = 1],
        timestamp_ms: i64 = [int64, tag = 2],
    }

    /// `prometheus.Exemplar`
    Exemplar {
        labels: Vec<Label> = [message, repeated, tag = 1],
        value: f64 = [double, tag = 2],
        timestamp_ms: i64 = [int64, tag = 3],
    }

    /// `prometheus.Histogram`
    Histogram {
        count_int: Option<u64> = [uint64, optional, tag = 1],
        count_float: Option<f64> = [double, optional, tag = 2],
        sum: f64 = [double, tag = 3],
        schema: i32 = [sint32, tag = 4],
        zero_threshold: f64 = [double, tag = 5],
        zero_count_int: Option<u64> = [uint64, optional, tag = 6],
        zero_count_float: Option<f64> = [double, optional, tag = 7],
        negative_spans: Vec<BucketSpan> = [message, repeated, tag = 8],
        negative_deltas: Vec<i64> = [sint64, repeated, tag = 9],
        negative_counts: Vec<f64> = [double, repeated, tag = 10],
        positive_spans: Vec<BucketSpan> = [message, repeated, tag = 11],
        positive_deltas: Vec<i64> = [sint64, repeated, tag = 12],
        positive_counts: Vec<f64> = [double, repeated, tag = 13],
        reset_hint: i32 = [int32, tag = 14],
        timestamp_ms: i64 = [int64, tag = 15],
        custom_values: Vec<f64> = [double, repeated, tag = 16],
    }

    /// `prometheus.BucketSpan`
    BucketSpan {
        offset: i32 = [sint32, tag = 1],
        length: u32 = [uint32, tag = 2],
    }

    /// `prometheus.MetricMetadata`
    MetricMetadata {
        kind: i32 = [enumeration = "MetricType", tag = 1],
        metric_family_name: Vec<u8> = [bytes = "vec", tag = 2],
        help: Vec<u8> = [bytes = "vec", tag = 4],
        unit: Vec<u8> = [bytes = "vec", tag = 5],
    }
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
        Self {
            timeseries: timeseries.into_iter().collect(),
            metadata: Vec::new(),
        }
    }

    /// Returns the body of the request.
    pub(crate) fn to_body(&self) -> Vec<u8> {
        snappy(&self.encode_to_vec())
    }
}

/// Compresses a message as a snappy block.
pub(crate) fn snappy(message: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new()
        .compress_vec(message)
        .expect("a message of less than 4 GiB")
}

/// Returns a series of label pairs, in the given order, and `(timestamp_ms, value)` samples.
pub(crate) fn series(labels: &[(&str, &str)], samples: &[(i64, f64)]) -> TimeSeries {
    TimeSeries {
        labels: labels
            .iter()
            .map(|&(name, value)| label(name, value))
            .collect(),
        samples: samples
            .iter()
            .map(|&(timestamp_ms, value)| Sample {
                value: value.to_bits(),
                timestamp_ms,
            })
            .collect(),
        ..TimeSeries::default()
    }
}

/// Returns a label.
pub(crate) fn label(name: &str, value: &str) -> Label {
    Label {
        name: name.into(),
        value: value.into(),
    }
}

/// Returns an exemplar.
pub(crate) fn exemplar(labels: &[(&str, &str)], value: f64, timestamp_ms: i64) -> Exemplar {
    Exemplar {
        labels: labels
            .iter()
            .map(|&(name, value)| label(name, value))
            .collect(),
        value,
        timestamp_ms,
    }
}

/// Returns the metadata of a metric family.
pub(crate) fn family(name: &str, kind: MetricType, help: &str, unit: &str) -> MetricMetadata {
    MetricMetadata {
        kind: kind.into(),
        metric_family_name: name.into(),
        help: help.into(),
        unit: unit.into(),
    }
}

/// The messages of version 2.0, except those above that are the same.
pub(crate) mod v2 {
    messages! {
        /// `io.prometheus.write.v2.Request`
        Request {
            symbols: Vec<Vec<u8>> = [bytes = "vec", repeated, tag = 4],
            timeseries: Vec<TimeSeries> = [message, repeated, tag = 5],
        }

        /// `io.prometheus.write.v2.TimeSeries`
        TimeSeries {
            labels_refs: Vec<u32> = [uint32, repeated, tag = 1],
            samples: Vec<Sample> = [message, repeated, tag = 2],
            /// A histogram of version 1.0, possibly followed by a field of its own of version 2.0.
            histograms: Vec<Vec<u8>> = [bytes = "vec", repeated, tag = 3],
            exemplars: Vec<Exemplar> = [message, repeated, tag = 4],
            metadata: Option<Metadata> = [message, optional, tag = 5],
        }

        /// `io.prometheus.write.v2.Sample`
        Sample {
            value: u64 = [fixed64, tag = 1],
            timestamp_ms: i64 = [int64, tag = 2],
            start_ms: i64 = [int64, tag = 3],
        }

        /// `io.prometheus.write.v2.Exemplar`
        Exemplar {
            labels_refs: Vec<u32> = [uint32, repeated, tag = 1],
            value: f64 = [double, tag = 2],
            timestamp_ms: i64 = [int64, tag = 3],
        }

        /// `io.prometheus.write.v2.Metadata`
        Metadata {
            kind: i32 = [int32, tag = 1],
            help_ref: u32 = [uint32, tag = 3],
            unit_ref: u32 = [uint32, tag = 4],
        }
    }

    impl Request {
        /// Adds a series of label pairs and `(timestamp_ms, value, start_ms)` samples, and returns
        /// it.
        pub(crate) fn add(
            &mut self,
            labels: &[(&str, &str)],
            samples: &[(i64, f64, i64)],
        ) -> &mut TimeSeries {
            let labels_refs = labels
                .iter()
                .flat_map(|&(name, value)| [self.refer(name), self.refer(value)])
                .collect();
            let sample = |&(timestamp_ms, value, start_ms): &(i64, f64, i64)| Sample {
                value: value.to_bits(),
                timestamp_ms,
                start_ms,
            };
            let samples = samples.iter().map(sample).collect();
            self.timeseries.push(TimeSeries {
                labels_refs,
                samples,
                ..TimeSeries::default()
            });
            self.timeseries.last_mut().expect("it was pushed above")
        }

        /// Returns the reference to a symbol. The first symbol is empty, by the specification.
        pub(crate) fn refer(&mut self, string: &str) -> u32 {
            if self.symbols.is_empty() {
                self.symbols.push(Vec::new());
            }
            let known = self
                .symbols
                .iter()
                .position(|symbol| symbol == string.as_bytes());
            known.unwrap_or_else(|| {
                self.symbols.push(string.into());
                self.symbols.len() - 1
            }) as u32
        }
    }
}
