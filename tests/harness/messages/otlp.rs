//! OTLP requests: `ExportMetricsServiceRequest` and its messages.

use super::remote_write::messages;

messages! {
    /// `ExportMetricsServiceRequest`
    Request {
        resources: Vec<ResourceMetrics> = [message, repeated, tag = 1],
    }

    /// `ResourceMetrics`
    ResourceMetrics {
        resource: Option<Resource> = [message, optional, tag = 1],
        scopes: Vec<ScopeMetrics> = [message, repeated, tag = 2],
    }

    /// `Resource`
    Resource {
        attributes: Vec<KeyValue> = [message, repeated, tag = 1],
    }

    /// `ScopeMetrics`
    ScopeMetrics {
        scope: Option<Scope> = [message, optional, tag = 1],
        metrics: Vec<Metric> = [message, repeated, tag = 2],
        schema_url: String = [string, tag = 3],
    }

    /// `InstrumentationScope`
    Scope {
        name: String = [string, tag = 1],
        version: String = [string, tag = 2],
        attributes: Vec<KeyValue> = [message, repeated, tag = 3],
    }

    /// `KeyValue`
    KeyValue {
        key: String = [string, tag = 1],
        value: Option<AnyValue> = [message, optional, tag = 2],
    }

    /// `AnyValue`
    AnyValue {
        value: Option<Value> = [oneof = "Value", tags = "1, 2, 3, 4, 5, 7"],
    }
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
    #[prost(bytes = "vec", tag = "7")]
    Bytes(Vec<u8>),
}

messages! {
    /// `ArrayValue`
    ArrayValue {
        values: Vec<AnyValue> = [message, repeated, tag = 1],
    }

    /// `Metric`
    Metric {
        name: String = [string, tag = 1],
        description: String = [string, tag = 2],
        unit: String = [string, tag = 3],
        data: Option<Data> = [oneof = "Data", tags = "5, 7, 9, 10, 11"],
    }
}

/// `Metric.data`
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
    #[prost(message, tag = "10")]
    Exponential(Exponential),
    #[prost(message, tag = "11")]
    Summary(Summary),
}

messages! {
    /// `Gauge`
    Gauge {
        points: Vec<NumberPoint> = [message, repeated, tag = 1],
    }

    /// `Sum`
    Sum {
        points: Vec<NumberPoint> = [message, repeated, tag = 1],
        temporality: i32 = [int32, tag = 2],
        is_monotonic: bool = [bool, tag = 3],
    }

    /// `Histogram`
    Histogram {
        points: Vec<HistogramPoint> = [message, repeated, tag = 1],
        temporality: i32 = [int32, tag = 2],
    }

    /// `ExponentialHistogram`
    Exponential {
        points: Vec<ExponentialPoint> = [message, repeated, tag = 1],
        temporality: i32 = [int32, tag = 2],
    }

    /// `Summary`
    Summary {
        points: Vec<SummaryPoint> = [message, repeated, tag = 1],
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
}

/// `NumberDataPoint.value`
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub(crate) enum Number {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

messages! {
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
    }

    /// `ExponentialHistogramDataPoint.Buckets`
    Buckets {
        offset: i32 = [sint32, tag = 1],
        counts: Vec<u64> = [uint64, repeated, tag = 2],
    }

    /// `SummaryDataPoint`
    SummaryPoint {
        time_ns: u64 = [fixed64, tag = 3],
        count: u64 = [fixed64, tag = 4],
        sum: f64 = [double, tag = 5],
        quantiles: Vec<Quantile> = [message, repeated, tag = 6],
        attributes: Vec<KeyValue> = [message, repeated, tag = 7],
    }

    /// `SummaryDataPoint.ValueAtQuantile`
    Quantile {
        quantile: f64 = [double, tag = 1],
        value: f64 = [double, tag = 2],
    }

    /// `Exemplar`
    Exemplar {
        time_ns: u64 = [fixed64, tag = 2],
        value: f64 = [double, tag = 3],
        span_id: Vec<u8> = [bytes = "vec", tag = 4],
        trace_id: Vec<u8> = [bytes = "vec", tag = 5],
        attributes: Vec<KeyValue> = [message, repeated, tag = 7],
    }

    /// `ExportMetricsServiceResponse`
    ExportResponse {
        partial_success: Option<PartialSuccess> = [message, optional, tag = 1],
    }

    /// `ExportMetricsPartialSuccess`
    PartialSuccess {
        rejected_data_points: i64 = [int64, tag = 1],
        error_message: String = [string, tag = 2],
    }

    /// `google.rpc.Status`
    RpcStatus {
        code: i32 = [int32, tag = 1],
        message: String = [string, tag = 2],
        details: Vec<Detail> = [message, repeated, tag = 3],
    }

    /// `google.protobuf.Any`
    Detail {
        type_url: String = [string, tag = 1],
        value: Vec<u8> = [bytes = "vec", tag = 2],
    }
}

/// `AGGREGATION_TEMPORALITY_DELTA`
pub(crate) const DELTA: i32 = 1;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
pub(crate) const CUMULATIVE: i32 = 2;

/// Returns attributes.
pub(crate) fn attributes<'a>(pairs: impl IntoIterator<Item = (&'a str, Value)>) -> Vec<KeyValue> {
    let attribute = |(key, value): (&str, Value)| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    };
    pairs.into_iter().map(attribute).collect()
}

/// Returns a string value.
pub(crate) fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}
