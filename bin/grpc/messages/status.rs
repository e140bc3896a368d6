//! `pkg/metadata/metadatapb/rpc.proto`, `pkg/targets/targetspb/rpc.proto` and `pkg/status/statuspb/rpc.proto`.

use std::collections::HashMap;

use prost::Message;

use super::store::LabelMatcher;

/// A request of `Metadata/MetricMetadata`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct MetadataRequest {
    /// Empty: all.
    #[prost(string, tag = "1")]
    pub(in crate::grpc) metric: String,
    /// Number of families; negative: no limit.
    #[prost(int32, tag = "2")]
    pub(in crate::grpc) limit: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct MetadataResponse {
    #[prost(message, optional, tag = "1")]
    pub(in crate::grpc) metadata: Option<MetricMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct MetricMetadata {
    #[prost(map = "string, message", tag = "1")]
    pub(in crate::grpc) families: HashMap<String, MetadataEntry>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct MetadataEntry {
    #[prost(message, repeated, tag = "2")]
    pub(in crate::grpc) entries: Vec<FamilyMetadata>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct FamilyMetadata {
    #[prost(string, tag = "1")]
    pub(in crate::grpc) kind: String,
    #[prost(string, tag = "2")]
    pub(in crate::grpc) help: String,
    #[prost(string, tag = "3")]
    pub(in crate::grpc) unit: String,
}

/// A request of `Targets/Targets`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::grpc) struct TargetsRequest {}

/// A request of `Status/TSDBStatistics`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct StatisticsRequest {
    /// Empty: all.
    #[prost(string, tag = "1")]
    pub(in crate::grpc) tenant: String,
    #[prost(int32, tag = "2")]
    pub(in crate::grpc) limit: i32,
    #[prost(message, repeated, tag = "4")]
    pub(in crate::grpc) matchers: Vec<LabelMatcher>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct StatisticsResponse {
    #[prost(message, optional, tag = "1")]
    pub(in crate::grpc) statistics: Option<Statistics>,
}

/// Statistics by tenant.
#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct Statistics {
    #[prost(map = "string, message", tag = "1")]
    pub(in crate::grpc) tenants: HashMap<String, TenantStatistics>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::grpc) struct TenantStatistics {
    #[prost(message, optional, tag = "1")]
    pub(in crate::grpc) head: Option<HeadStatistics>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::grpc) series_by_metric: Vec<Statistic>,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::grpc) values_by_label: Vec<Statistic>,
    #[prost(message, repeated, tag = "4")]
    pub(in crate::grpc) bytes_by_label: Vec<Statistic>,
    #[prost(message, repeated, tag = "5")]
    pub(in crate::grpc) series_by_pair: Vec<Statistic>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::grpc) struct HeadStatistics {
    #[prost(uint64, tag = "1")]
    pub(in crate::grpc) n_series: u64,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) n_label_pairs: i64,
    #[prost(int64, tag = "3")]
    pub(in crate::grpc) n_chunks: i64,
    #[prost(int64, tag = "4")]
    pub(in crate::grpc) min_time: i64,
    #[prost(int64, tag = "5")]
    pub(in crate::grpc) max_time: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct Statistic {
    #[prost(string, tag = "1")]
    pub(in crate::grpc) name: String,
    #[prost(uint64, tag = "2")]
    pub(in crate::grpc) value: u64,
}
