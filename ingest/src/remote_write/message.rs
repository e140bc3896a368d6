//! The messages of remote write for prost: the reference that tests compare with.
//!
//! Strings are bytes, since Prometheus' decoder does not check them either; a sample's value is its bits, since prost does
//! not encode -0; the members of a `oneof` are optional fields. The encodings are the same.

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
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

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Label {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Sample {
    #[prost(fixed64, tag = "1")]
    pub(crate) value: u64,
    #[prost(int64, tag = "2")]
    pub(crate) timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(double, tag = "2")]
    pub(crate) value: f64,
    #[prost(int64, tag = "3")]
    pub(crate) timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) count_int: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(crate) count_float: Option<f64>,
    #[prost(double, tag = "3")]
    pub(crate) sum: f64,
    #[prost(sint32, tag = "4")]
    pub(crate) schema: i32,
    #[prost(double, tag = "5")]
    pub(crate) zero_threshold: f64,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) zero_count_int: Option<u64>,
    #[prost(double, optional, tag = "7")]
    pub(crate) zero_count_float: Option<f64>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) negative_spans: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "9")]
    pub(crate) negative_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "10")]
    pub(crate) negative_counts: Vec<f64>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) positive_spans: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "12")]
    pub(crate) positive_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "13")]
    pub(crate) positive_counts: Vec<f64>,
    #[prost(int32, tag = "14")]
    pub(crate) reset_hint: i32,
    #[prost(int64, tag = "15")]
    pub(crate) timestamp: i64,
    #[prost(double, repeated, tag = "16")]
    pub(crate) custom_values: Vec<f64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub(crate) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) length: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MetricMetadata {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) metric_family_name: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) help: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) unit: Vec<u8>,
}

/// Creates a series of label pairs and `(timestamp, value)` samples.
pub(crate) fn series(labels: &[(&str, &str)], samples: &[(i64, f64)]) -> TimeSeries {
    TimeSeries {
        labels: labels.iter().map(|&(name, value)| Label { name: name.into(), value: value.into() }).collect(),
        samples: samples.iter().map(|&(timestamp, value)| Sample { value: value.to_bits(), timestamp }).collect(),
        ..TimeSeries::default()
    }
}

/// The messages of version 2.0, except those above that are the same.
pub(crate) mod v2 {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Request {
        #[prost(bytes = "vec", repeated, tag = "4")]
        pub(crate) symbols: Vec<Vec<u8>>,
        #[prost(message, repeated, tag = "5")]
        pub(crate) timeseries: Vec<TimeSeries>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct TimeSeries {
        #[prost(uint32, repeated, tag = "1")]
        pub(crate) labels_refs: Vec<u32>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) samples: Vec<Sample>,
        /// A histogram of version 1.0, followed by a [`Start`].
        #[prost(bytes = "vec", repeated, tag = "3")]
        pub(crate) histograms: Vec<Vec<u8>>,
        #[prost(message, repeated, tag = "4")]
        pub(crate) exemplars: Vec<Exemplar>,
        #[prost(message, optional, tag = "5")]
        pub(crate) metadata: Option<Metadata>,
    }

    /// The field that histograms have in version 2.0 only.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Start {
        #[prost(int64, tag = "17")]
        pub(crate) start_timestamp: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Sample {
        #[prost(fixed64, tag = "1")]
        pub(crate) value: u64,
        #[prost(int64, tag = "2")]
        pub(crate) timestamp: i64,
        #[prost(int64, tag = "3")]
        pub(crate) start_timestamp: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Exemplar {
        #[prost(uint32, repeated, tag = "1")]
        pub(crate) labels_refs: Vec<u32>,
        #[prost(double, tag = "2")]
        pub(crate) value: f64,
        #[prost(int64, tag = "3")]
        pub(crate) timestamp: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Metadata {
        #[prost(int32, tag = "1")]
        pub(crate) kind: i32,
        #[prost(uint32, tag = "3")]
        pub(crate) help_ref: u32,
        #[prost(uint32, tag = "4")]
        pub(crate) unit_ref: u32,
    }

    impl Request {
        /// Adds a series of label pairs and `(timestamp, value, start)` samples, and returns it.
        pub(crate) fn add(&mut self, labels: &[(&str, &str)], samples: &[(i64, f64, i64)]) -> &mut TimeSeries {
            let labels_refs = labels.iter().flat_map(|&(name, value)| [self.refer(name), self.refer(value)]).collect();
            let samples = samples.iter().map(|&(timestamp, value, start_timestamp)| Sample {
                value: value.to_bits(),
                timestamp,
                start_timestamp,
            });
            let samples = samples.collect();
            self.timeseries.push(TimeSeries { labels_refs, samples, ..TimeSeries::default() });
            self.timeseries.last_mut().unwrap()
        }

        /// Returns the reference to a symbol. The first symbol is empty, by the specification.
        pub(crate) fn refer(&mut self, string: &str) -> u32 {
            if self.symbols.is_empty() {
                self.symbols.push(Vec::new());
            }
            let known = self.symbols.iter().position(|symbol| symbol == string.as_bytes());
            known.unwrap_or_else(|| {
                self.symbols.push(string.into());
                self.symbols.len() - 1
            }) as u32
        }
    }
}
