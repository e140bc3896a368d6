//! Metric families as push libraries send them: `io.prometheus.client.MetricFamily`, read in two
//! steps. The metrics of a family stay encoded, so that one is decoded at a time.

use prost::bytes::Bytes;

use super::exposition::LabelMessage;
use super::types::SpanMessage;
use crate::protobuf::messages;

messages! {
    PushedFamily {
        name: String = [string, tag = 1],
        help: String = [string, tag = 2],
        kind: i32 = [int32, tag = 3],
        /// Each one a [`PushedMetric`].
        metric: Vec<Bytes> = [bytes = "bytes", repeated, tag = 4],
        unit: String = [string, tag = 5],
    }

    PushedMetric {
        label: Vec<LabelMessage> = [message, repeated, tag = 1],
        gauge: Option<PushedValue> = [message, optional, tag = 2],
        counter: Option<PushedValue> = [message, optional, tag = 3],
        summary: Option<PushedSummary> = [message, optional, tag = 4],
        untyped: Option<PushedValue> = [message, optional, tag = 5],
        timestamp_ms: Option<i64> = [int64, optional, tag = 6],
        histogram: Option<PushedHistogram> = [message, optional, tag = 7],
    }

    PushedValue {
        value: f64 = [double, tag = 1],
    }

    PushedSummary {
        sample_count: u64 = [uint64, tag = 1],
        sample_sum: f64 = [double, tag = 2],
        quantile: Vec<PushedQuantile> = [message, repeated, tag = 3],
    }

    PushedQuantile {
        quantile: f64 = [double, tag = 1],
        value: f64 = [double, tag = 2],
    }

    PushedHistogram {
        sample_count: u64 = [uint64, tag = 1],
        sample_sum: f64 = [double, tag = 2],
        bucket: Vec<PushedBucket> = [message, repeated, tag = 3],
        /// Above 0 in a histogram of floats, whose other counts are floats, too.
        sample_count_float: f64 = [double, tag = 4],
        schema: i32 = [sint32, tag = 5],
        zero_threshold: f64 = [double, tag = 6],
        zero_count: u64 = [uint64, tag = 7],
        zero_count_float: f64 = [double, tag = 8],
        negative_span: Vec<SpanMessage> = [message, repeated, tag = 9],
        /// Each count as its difference from the one before.
        negative_delta: Vec<i64> = [sint64, repeated, tag = 10],
        negative_count: Vec<f64> = [double, repeated, tag = 11],
        positive_span: Vec<SpanMessage> = [message, repeated, tag = 12],
        /// Each count as its difference from the one before.
        positive_delta: Vec<i64> = [sint64, repeated, tag = 13],
        positive_count: Vec<f64> = [double, repeated, tag = 14],
    }

    PushedBucket {
        cumulative_count: u64 = [uint64, tag = 1],
        upper_bound: f64 = [double, tag = 2],
        cumulative_count_float: f64 = [double, tag = 4],
    }
}
