//! `pkg/store/storepb/rpc.proto` and `types.proto`. Responses of `Series` are encoded without messages, in
//! `store/encode.rs`.

use prost::Message;

/// A request of `Store/Series`. Hints are ignored.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct SeriesRequest {
    #[prost(int64, tag = "1")]
    pub(in crate::grpc) min_time: i64,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) max_time: i64,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::grpc) matchers: Vec<LabelMatcher>,
    #[prost(bool, tag = "8")]
    pub(in crate::grpc) skip_chunks: bool,
    #[prost(message, optional, tag = "13")]
    pub(in crate::grpc) shard_info: Option<ShardInfo>,
    #[prost(string, repeated, tag = "14")]
    pub(in crate::grpc) without_replica_labels: Vec<String>,
    #[prost(int64, tag = "15")]
    pub(in crate::grpc) limit: i64,
    #[prost(int64, tag = "16")]
    pub(in crate::grpc) response_batch_size: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct LabelMatcher {
    #[prost(int32, tag = "1")]
    pub(in crate::grpc) kind: i32,
    #[prost(string, tag = "2")]
    pub(in crate::grpc) name: String,
    #[prost(string, tag = "3")]
    pub(in crate::grpc) value: String,
}

/// One of several shards of a selection: by the hash of `labels`, or of all other labels.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct ShardInfo {
    #[prost(int64, tag = "1")]
    pub(in crate::grpc) shard_index: i64,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) total_shards: i64,
    #[prost(bool, tag = "3")]
    pub(in crate::grpc) by: bool,
    #[prost(string, repeated, tag = "4")]
    pub(in crate::grpc) labels: Vec<String>,
}

/// A request of `Store/LabelNames`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct LabelNamesRequest {
    #[prost(int64, tag = "3")]
    pub(in crate::grpc) start: i64,
    #[prost(int64, tag = "4")]
    pub(in crate::grpc) end: i64,
    #[prost(message, repeated, tag = "6")]
    pub(in crate::grpc) matchers: Vec<LabelMatcher>,
    #[prost(string, repeated, tag = "7")]
    pub(in crate::grpc) without_replica_labels: Vec<String>,
    #[prost(int64, tag = "8")]
    pub(in crate::grpc) limit: i64,
}

/// A request of `Store/LabelValues`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct LabelValuesRequest {
    #[prost(string, tag = "1")]
    pub(in crate::grpc) label: String,
    #[prost(int64, tag = "4")]
    pub(in crate::grpc) start: i64,
    #[prost(int64, tag = "5")]
    pub(in crate::grpc) end: i64,
    #[prost(message, repeated, tag = "7")]
    pub(in crate::grpc) matchers: Vec<LabelMatcher>,
    #[prost(string, repeated, tag = "8")]
    pub(in crate::grpc) without_replica_labels: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(in crate::grpc) limit: i64,
}

/// The response to either request for labels.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct LabelTexts {
    #[prost(string, repeated, tag = "1")]
    pub(in crate::grpc) texts: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(in crate::grpc) warnings: Vec<String>,
}
