//! Metric families: `io.prometheus.client.MetricFamily`.

use super::types::SpanMessage;
use crate::protobuf::messages;

messages! {
    FamilyMessage {
        name: Option<String> = [string, optional, tag = 1],
        kind: Option<i32> = [int32, optional, tag = 3],
        metric: Vec<MetricMessage> = [message, repeated, tag = 4],
    }

    MetricMessage {
        label: Vec<LabelMessage> = [message, repeated, tag = 1],
        untyped: Option<UntypedMessage> = [message, optional, tag = 5],
        histogram: Option<HistogramMessage> = [message, optional, tag = 7],
        timestamp_ms: Option<i64> = [int64, optional, tag = 6],
    }

    LabelMessage {
        name: Option<String> = [string, optional, tag = 1],
        value: Option<String> = [string, optional, tag = 2],
    }

    UntypedMessage {
        value: Option<f64> = [double, optional, tag = 1],
    }

    HistogramMessage {
        sample_sum: Option<f64> = [double, optional, tag = 2],
        bucket: Vec<BucketMessage> = [message, repeated, tag = 3],
        sample_count_float: Option<f64> = [double, optional, tag = 4],
        schema: Option<i32> = [sint32, optional, tag = 5],
        zero_threshold: Option<f64> = [double, optional, tag = 6],
        zero_count_float: Option<f64> = [double, optional, tag = 8],
        negative_span: Vec<SpanMessage> = [message, repeated, tag = 9],
        negative_count: Vec<f64> = [double, repeated, packed = "false", tag = 11],
        positive_span: Vec<SpanMessage> = [message, repeated, tag = 12],
        positive_count: Vec<f64> = [double, repeated, packed = "false", tag = 14],
    }

    BucketMessage {
        upper_bound: Option<f64> = [double, optional, tag = 2],
        cumulative_count_float: Option<f64> = [double, optional, tag = 4],
    }
}
