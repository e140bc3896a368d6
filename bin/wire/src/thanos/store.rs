//! `pkg/store/storepb/rpc.proto` and `types.proto`. Responses of `Series` are encoded without
//! messages, in `store/encode.rs`.

use crate::protobuf::messages;

use crate::prometheus::types::LabelMatcher;

messages! {
    /// A request of `Store/Series`. Hints are ignored.
    SeriesRequest {
        min_time: i64 = [int64, tag = 1],
        max_time: i64 = [int64, tag = 2],
        matchers: Vec<LabelMatcher> = [message, repeated, tag = 3],
        skip_chunks: bool = [bool, tag = 8],
        shard_info: Option<ShardInfo> = [message, optional, tag = 13],
        without_replica_labels: Vec<String> = [string, repeated, tag = 14],
        limit: i64 = [int64, tag = 15],
        response_batch_size: i64 = [int64, tag = 16],
    }

    /// One of several shards of a selection: by the hash of `labels`, or of all other labels.
    ShardInfo {
        shard_index: i64 = [int64, tag = 1],
        total_shards: i64 = [int64, tag = 2],
        by: bool = [bool, tag = 3],
        labels: Vec<String> = [string, repeated, tag = 4],
    }

    /// A request of `Store/LabelNames`.
    LabelNamesRequest {
        start: i64 = [int64, tag = 3],
        end: i64 = [int64, tag = 4],
        matchers: Vec<LabelMatcher> = [message, repeated, tag = 6],
        without_replica_labels: Vec<String> = [string, repeated, tag = 7],
        limit: i64 = [int64, tag = 8],
    }

    /// A request of `Store/LabelValues`.
    LabelValuesRequest {
        label: String = [string, tag = 1],
        start: i64 = [int64, tag = 4],
        end: i64 = [int64, tag = 5],
        matchers: Vec<LabelMatcher> = [message, repeated, tag = 7],
        without_replica_labels: Vec<String> = [string, repeated, tag = 8],
        limit: i64 = [int64, tag = 9],
    }

    /// The response to either request for labels.
    LabelTexts {
        texts: Vec<String> = [string, repeated, tag = 1],
        warnings: Vec<String> = [string, repeated, tag = 2],
    }
}
