//! The inner messages of OTLP metrics (`opentelemetry/proto/{common,resource,metrics}/v1`), decoded
//! by prost one at a time.
//!
//! The outer messages, which may hold any number of them, are read in place (`translate`).
//!
//! Strings are decoded as bytes: one that is not UTF-8 must not make the whole request malformed.
//! As a label it gets U+FFFD for its invalid bytes, which is what Prometheus' API prints for it.

use std::borrow::Cow;

/// Declares messages: each field with its type and, in brackets, its protobuf type and number. A
/// `oneof` is an enum.
macro_rules! messages {
    ($($(#[$doc:meta])* $message:ident { $($field:ident: $type:ty = [$($prost:tt)*],)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct $message {
            $(#[prost($($prost)*)] pub(crate) $field: $type,)*
        }
    )*};
}

messages! {
    /// `KeyValue`
    KeyValue {
        key: Vec<u8> = [bytes = "vec", tag = 1],
        value: Option<AnyValue> = [message, optional, tag = 2],
    }

    /// `AnyValue`
    AnyValue {
        value: Option<Value> = [oneof = "Value", tags = "1, 2, 3, 4, 5, 6, 7"],
    }

    /// `ArrayValue`
    ArrayValue {
        values: Vec<AnyValue> = [message, repeated, tag = 1],
    }

    /// `KeyValueList`; `Resource` looks the same.
    Attributes {
        attributes: Vec<KeyValue> = [message, repeated, tag = 1],
    }

    /// `InstrumentationScope`
    Scope {
        name: Vec<u8> = [bytes = "vec", tag = 1],
        version: Vec<u8> = [bytes = "vec", tag = 2],
        attributes: Vec<KeyValue> = [message, repeated, tag = 3],
    }

    /// `NumberDataPoint`
    NumberPoint {
        start_ns: u64 = [fixed64, tag = 2],
        time_ns: u64 = [fixed64, tag = 3],
        value: Option<Number> = [oneof = "Number", tags = "4, 6"],
        exemplars: Vec<Exemplar> = [message, repeated, tag = 5],
        attributes: Vec<KeyValue> = [message, repeated, tag = 7],
        flags: u32 = [uint32, tag = 8],
    }

    /// `HistogramDataPoint`
    HistogramPoint {
        start_ns: u64 = [fixed64, tag = 2],
        time_ns: u64 = [fixed64, tag = 3],
        count: u64 = [fixed64, tag = 4],
        sum: Option<f64> = [double, optional, tag = 5],
        bucket_counts: Vec<u64> = [fixed64, repeated, tag = 6],
        explicit_bounds: Vec<f64> = [double, repeated, tag = 7],
        exemplars: Vec<Exemplar> = [message, repeated, tag = 8],
        attributes: Vec<KeyValue> = [message, repeated, tag = 9],
        flags: u32 = [uint32, tag = 10],
    }

    /// `ExponentialHistogramDataPoint`
    ExponentialPoint {
        attributes: Vec<KeyValue> = [message, repeated, tag = 1],
        start_ns: u64 = [fixed64, tag = 2],
        time_ns: u64 = [fixed64, tag = 3],
        count: u64 = [fixed64, tag = 4],
        sum: Option<f64> = [double, optional, tag = 5],
        scale: i32 = [sint32, tag = 6],
        zero_count: u64 = [fixed64, tag = 7],
        positive: Option<Buckets> = [message, optional, tag = 8],
        negative: Option<Buckets> = [message, optional, tag = 9],
        flags: u32 = [uint32, tag = 10],
        exemplars: Vec<Exemplar> = [message, repeated, tag = 11],
        zero_threshold: f64 = [double, tag = 14],
    }

    /// `ExponentialHistogramDataPoint.Buckets`
    Buckets {
        offset: i32 = [sint32, tag = 1],
        counts: Vec<u64> = [uint64, repeated, tag = 2],
    }

    /// `SummaryDataPoint`
    SummaryPoint {
        start_ns: u64 = [fixed64, tag = 2],
        time_ns: u64 = [fixed64, tag = 3],
        count: u64 = [fixed64, tag = 4],
        sum: f64 = [double, tag = 5],
        quantiles: Vec<Quantile> = [message, repeated, tag = 6],
        attributes: Vec<KeyValue> = [message, repeated, tag = 7],
        flags: u32 = [uint32, tag = 8],
    }

    /// `SummaryDataPoint.ValueAtQuantile`
    Quantile {
        quantile: f64 = [double, tag = 1],
        value: f64 = [double, tag = 2],
    }

    /// `Exemplar`
    Exemplar {
        time_ns: u64 = [fixed64, tag = 2],
        value: Option<ExemplarNumber> = [oneof = "ExemplarNumber", tags = "3, 6"],
        span_id: Vec<u8> = [bytes = "vec", tag = 4],
        trace_id: Vec<u8> = [bytes = "vec", tag = 5],
        attributes: Vec<KeyValue> = [message, repeated, tag = 7],
    }
}

/// `AnyValue.value`
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Value {
    #[prost(bytes = "vec", tag = "1")]
    String(Vec<u8>),
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

/// `NumberDataPoint.value`
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub(crate) enum Number {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

impl KeyValue {
    pub(crate) fn key(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.key)
    }
}

impl Number {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Double(value) => value,
            Self::Int(value) => value as f64,
        }
    }
}

/// `Exemplar.value`
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub(crate) enum ExemplarNumber {
    #[prost(double, tag = "3")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}
