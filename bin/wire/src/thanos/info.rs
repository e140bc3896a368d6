//! `pkg/info/infopb/rpc.proto`.

use crate::protobuf::messages;

use super::LabelSet;

messages! {
    /// The services that an endpoint has. The presence of a part announces its service.
    InfoResponse {
        label_sets: Vec<LabelSet> = [message, repeated, tag = 1],
        component_type: String = [string, tag = 2],
        store: Option<StoreInfo> = [message, optional, tag = 3],
        rules: Option<Announced> = [message, optional, tag = 4],
        metric_metadata: Option<Announced> = [message, optional, tag = 5],
        targets: Option<Announced> = [message, optional, tag = 6],
        exemplars: Option<Times> = [message, optional, tag = 7],
        query: Option<Announced> = [message, optional, tag = 8],
        status: Option<Announced> = [message, optional, tag = 9],
    }

    /// A part without fields.
    Announced {}

    Times {
        min_time: i64 = [int64, tag = 1],
        max_time: i64 = [int64, tag = 2],
    }

    StoreInfo {
        min_time: i64 = [int64, tag = 1],
        max_time: i64 = [int64, tag = 2],
        supports_sharding: bool = [bool, tag = 3],
        supports_without_replica_labels: bool = [bool, tag = 5],
        tsdb_infos: Vec<TsdbInfo> = [message, repeated, tag = 6],
    }

    TsdbInfo {
        labels: Option<LabelSet> = [message, optional, tag = 1],
        min_time: i64 = [int64, tag = 2],
        max_time: i64 = [int64, tag = 3],
    }
}
