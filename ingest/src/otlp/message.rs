//! The inner messages of OTLP metrics (`opentelemetry/proto/{common,resource,metrics}/v1`), decoded by prost one at a time.
//!
//! The outer messages, which may hold any number of them, are read in place (`translate`).

/// `KeyValue`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

/// `AnyValue`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(crate) value: Option<Value>,
}

/// `AnyValue.value`
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Value {
    #[prost(string, tag = "1")]
    String(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Array(ArrayValue),
    #[prost(message, tag = "6")]
    Map(Attributes),
    #[prost(bytes = "vec", tag = "7")]
    Bytes(Vec<u8>),
}

/// `ArrayValue`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    pub(crate) values: Vec<AnyValue>,
}

/// `KeyValueList`; `Resource` looks the same.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Attributes {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// `InstrumentationScope`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Scope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// `NumberDataPoint.value`
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub(crate) enum Number {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

/// `NumberDataPoint`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NumberPoint {
    #[prost(fixed64, tag = "2")]
    pub(crate) start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_ns: u64,
    #[prost(oneof = "Number", tags = "4, 6")]
    pub(crate) value: Option<Number>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "8")]
    pub(crate) flags: u32,
}

/// `HistogramDataPoint`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HistogramPoint {
    #[prost(fixed64, tag = "2")]
    pub(crate) start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_ns: u64,
    #[prost(fixed64, tag = "4")]
    pub(crate) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(crate) sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub(crate) bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub(crate) explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "10")]
    pub(crate) flags: u32,
}

/// `ExponentialHistogramDataPoint`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExponentialPoint {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    pub(crate) start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_ns: u64,
    #[prost(fixed64, tag = "4")]
    pub(crate) count: u64,
    #[prost(double, optional, tag = "5")]
    pub(crate) sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    pub(crate) scale: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) zero_count: u64,
    #[prost(message, optional, tag = "8")]
    pub(crate) positive: Option<Buckets>,
    #[prost(message, optional, tag = "9")]
    pub(crate) negative: Option<Buckets>,
    #[prost(uint32, tag = "10")]
    pub(crate) flags: u32,
    #[prost(message, repeated, tag = "11")]
    pub(crate) exemplars: Vec<Exemplar>,
}

/// `ExponentialHistogramDataPoint.Buckets`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Buckets {
    #[prost(sint32, tag = "1")]
    pub(crate) offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) counts: Vec<u64>,
}

/// `SummaryDataPoint`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SummaryPoint {
    #[prost(fixed64, tag = "2")]
    pub(crate) start_ns: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) time_ns: u64,
    #[prost(fixed64, tag = "4")]
    pub(crate) count: u64,
    #[prost(double, tag = "5")]
    pub(crate) sum: f64,
    #[prost(message, repeated, tag = "6")]
    pub(crate) quantiles: Vec<Quantile>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "8")]
    pub(crate) flags: u32,
}

/// `SummaryDataPoint.ValueAtQuantile`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Quantile {
    #[prost(double, tag = "1")]
    pub(crate) quantile: f64,
    #[prost(double, tag = "2")]
    pub(crate) value: f64,
}

/// `Exemplar`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Exemplar {
    #[prost(fixed64, tag = "2")]
    pub(crate) time_ns: u64,
    #[prost(oneof = "ExemplarNumber", tags = "3, 6")]
    pub(crate) value: Option<ExemplarNumber>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// `Exemplar.value`
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub(crate) enum ExemplarNumber {
    #[prost(double, tag = "3")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}
