//! `pkg/metadata/metadatapb/rpc.proto`, `pkg/targets/targetspb/rpc.proto` and
//! `pkg/status/statuspb/rpc.proto`.

use std::collections::HashMap;

use crate::protobuf::messages;

use crate::prometheus::types::LabelMatcher;

messages! {
    /// A request of `Metadata/MetricMetadata`.
    MetadataRequest {
        /// Empty: all.
        metric: String = [string, tag = 1],
        /// Number of families; negative: no limit.
        limit: i32 = [int32, tag = 2],
    }

    MetadataResponse {
        metadata: Option<MetricMetadata> = [message, optional, tag = 1],
    }

    MetricMetadata {
        families: HashMap<String, MetadataEntry> = [map = "string, message", tag = 1],
    }

    MetadataEntry {
        entries: Vec<FamilyMetadata> = [message, repeated, tag = 2],
    }

    FamilyMetadata {
        kind: String = [string, tag = 1],
        help: String = [string, tag = 2],
        unit: String = [string, tag = 3],
    }

    /// A request of `Targets/Targets`.
    TargetsRequest {}

    /// A request of `Status/TSDBStatistics`.
    StatisticsRequest {
        /// Empty: all.
        tenant: String = [string, tag = 1],
        limit: i32 = [int32, tag = 2],
        matchers: Vec<LabelMatcher> = [message, repeated, tag = 4],
    }

    StatisticsResponse {
        statistics: Option<Statistics> = [message, optional, tag = 1],
    }

    /// Statistics by tenant.
    Statistics {
        tenants: HashMap<String, TenantStatistics> = [map = "string, message", tag = 1],
    }

    TenantStatistics {
        head: Option<HeadStatistics> = [message, optional, tag = 1],
        series_by_metric: Vec<Statistic> = [message, repeated, tag = 2],
        values_by_label: Vec<Statistic> = [message, repeated, tag = 3],
        bytes_by_label: Vec<Statistic> = [message, repeated, tag = 4],
        series_by_pair: Vec<Statistic> = [message, repeated, tag = 5],
    }

    HeadStatistics {
        n_series: u64 = [uint64, tag = 1],
        n_label_pairs: i64 = [int64, tag = 2],
        n_chunks: i64 = [int64, tag = 3],
        min_time: i64 = [int64, tag = 4],
        max_time: i64 = [int64, tag = 5],
    }

    Statistic {
        name: String = [string, tag = 1],
        value: u64 = [uint64, tag = 2],
    }
}
