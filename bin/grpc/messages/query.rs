//! `pkg/api/query/querypb/query.proto` and `pkg/exemplars/exemplarspb/rpc.proto`.

use prost::{Message, Oneof};

use super::LabelSet;
use super::store::{LabelMatcher, ShardInfo};
use crate::http::api::remote_read::message::TimeSeries;

/// A request of `Query/Query`. The query plan is ignored: the text says the same.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct QueryRequest {
    #[prost(string, tag = "1")]
    pub(in crate::grpc) query: String,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) time_seconds: i64,
    #[prost(int64, tag = "3")]
    pub(in crate::grpc) timeout_seconds: i64,
    #[prost(string, repeated, tag = "5")]
    pub(in crate::grpc) replica_labels: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(in crate::grpc) store_matchers: Vec<StoreMatchers>,
    #[prost(bool, tag = "7")]
    pub(in crate::grpc) enable_dedup: bool,
    #[prost(message, optional, tag = "11")]
    pub(in crate::grpc) shard_info: Option<ShardInfo>,
    #[prost(int64, tag = "12")]
    pub(in crate::grpc) lookback_delta_seconds: i64,
    #[prost(int64, tag = "15")]
    pub(in crate::grpc) response_batch_size: i64,
}

/// A request of `Query/QueryRange`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct QueryRangeRequest {
    #[prost(string, tag = "1")]
    pub(in crate::grpc) query: String,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) start_time_seconds: i64,
    #[prost(int64, tag = "3")]
    pub(in crate::grpc) end_time_seconds: i64,
    #[prost(int64, tag = "4")]
    pub(in crate::grpc) interval_seconds: i64,
    #[prost(int64, tag = "5")]
    pub(in crate::grpc) timeout_seconds: i64,
    #[prost(string, repeated, tag = "7")]
    pub(in crate::grpc) replica_labels: Vec<String>,
    #[prost(message, repeated, tag = "8")]
    pub(in crate::grpc) store_matchers: Vec<StoreMatchers>,
    #[prost(bool, tag = "9")]
    pub(in crate::grpc) enable_dedup: bool,
    #[prost(message, optional, tag = "13")]
    pub(in crate::grpc) shard_info: Option<ShardInfo>,
    #[prost(int64, tag = "14")]
    pub(in crate::grpc) lookback_delta_seconds: i64,
    #[prost(int64, tag = "17")]
    pub(in crate::grpc) response_batch_size: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct StoreMatchers {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::grpc) matchers: Vec<LabelMatcher>,
}

/// A part of the response to either request.
#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct QueryResponse {
    #[prost(oneof = "QueryPart", tags = "1, 2, 3, 4")]
    pub(in crate::grpc) part: Option<QueryPart>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(in crate::grpc) enum QueryPart {
    #[prost(string, tag = "1")]
    Warnings(String),
    #[prost(message, tag = "2")]
    Series(TimeSeries),
    #[prost(message, tag = "3")]
    Stats(QueryStats),
    #[prost(message, tag = "4")]
    Batch(TimeSeriesBatch),
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::grpc) struct QueryStats {
    #[prost(int64, tag = "1")]
    pub(in crate::grpc) samples_total: i64,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) peak_samples: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct TimeSeriesBatch {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::grpc) series: Vec<TimeSeries>,
}

/// A request of `Exemplars/Exemplars`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct ExemplarsRequest {
    #[prost(string, tag = "1")]
    pub(in crate::grpc) query: String,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) start: i64,
    #[prost(int64, tag = "3")]
    pub(in crate::grpc) end: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct ExemplarsResponse {
    #[prost(message, optional, tag = "1")]
    pub(in crate::grpc) data: Option<ExemplarData>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct ExemplarData {
    #[prost(message, optional, tag = "1")]
    pub(in crate::grpc) series: Option<LabelSet>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::grpc) exemplars: Vec<ExemplarMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct ExemplarMessage {
    #[prost(message, optional, tag = "1")]
    pub(in crate::grpc) labels: Option<LabelSet>,
    #[prost(double, tag = "2")]
    pub(in crate::grpc) value: f64,
    #[prost(int64, tag = "3")]
    pub(in crate::grpc) timestamp: i64,
}
