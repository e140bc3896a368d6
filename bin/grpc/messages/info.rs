//! `pkg/info/infopb/rpc.proto`.

use prost::Message;

use super::LabelSet;

/// The services that an endpoint has. The presence of a part announces its service.
#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct InfoResponse {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::grpc) label_sets: Vec<LabelSet>,
    #[prost(string, tag = "2")]
    pub(in crate::grpc) component_type: String,
    #[prost(message, optional, tag = "3")]
    pub(in crate::grpc) store: Option<StoreInfo>,
    #[prost(message, optional, tag = "4")]
    pub(in crate::grpc) rules: Option<Announced>,
    #[prost(message, optional, tag = "5")]
    pub(in crate::grpc) metric_metadata: Option<Announced>,
    #[prost(message, optional, tag = "6")]
    pub(in crate::grpc) targets: Option<Announced>,
    #[prost(message, optional, tag = "7")]
    pub(in crate::grpc) exemplars: Option<Times>,
    #[prost(message, optional, tag = "8")]
    pub(in crate::grpc) query: Option<Announced>,
    #[prost(message, optional, tag = "9")]
    pub(in crate::grpc) status: Option<Announced>,
}

/// A part without fields.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::grpc) struct Announced {}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(in crate::grpc) struct Times {
    #[prost(int64, tag = "1")]
    pub(in crate::grpc) min_time: i64,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) max_time: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct StoreInfo {
    #[prost(int64, tag = "1")]
    pub(in crate::grpc) min_time: i64,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) max_time: i64,
    #[prost(bool, tag = "3")]
    pub(in crate::grpc) supports_sharding: bool,
    #[prost(bool, tag = "5")]
    pub(in crate::grpc) supports_without_replica_labels: bool,
    #[prost(message, repeated, tag = "6")]
    pub(in crate::grpc) tsdb_infos: Vec<TsdbInfo>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(in crate::grpc) struct TsdbInfo {
    #[prost(message, optional, tag = "1")]
    pub(in crate::grpc) labels: Option<LabelSet>,
    #[prost(int64, tag = "2")]
    pub(in crate::grpc) min_time: i64,
    #[prost(int64, tag = "3")]
    pub(in crate::grpc) max_time: i64,
}
