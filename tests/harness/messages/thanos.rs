//! The messages of Thanos' gRPC services, as a client sees them.

use super::remote_write::{Label, TimeSeries, messages};

pub(crate) use super::remote_read::Matcher;

messages! {
    SeriesRequest {
        min_time: i64 = [int64, tag = 1],
        max_time: i64 = [int64, tag = 2],
        matchers: Vec<Matcher> = [message, repeated, tag = 3],
        skip_chunks: bool = [bool, tag = 8],
        shard_info: Option<ShardInfo> = [message, optional, tag = 13],
        without_replica_labels: Vec<String> = [string, repeated, tag = 14],
        limit: i64 = [int64, tag = 15],
        response_batch_size: i64 = [int64, tag = 16],
    }

    ShardInfo {
        shard_index: i64 = [int64, tag = 1],
        total_shards: i64 = [int64, tag = 2],
        by: bool = [bool, tag = 3],
        labels: Vec<String> = [string, repeated, tag = 4],
    }

    SeriesResponse {
        series: Option<SeriesMessage> = [message, optional, tag = 1],
        warning: Option<String> = [string, optional, tag = 2],
        batch: Option<Batch> = [message, optional, tag = 4],
    }

    Batch {
        series: Vec<SeriesMessage> = [message, repeated, tag = 1],
    }

    SeriesMessage {
        labels: Vec<Label> = [message, repeated, tag = 1],
        chunks: Vec<AggrChunk> = [message, repeated, tag = 2],
    }

    AggrChunk {
        min_time: i64 = [int64, tag = 1],
        max_time: i64 = [int64, tag = 2],
        raw: Option<RawChunk> = [message, optional, tag = 3],
    }

    RawChunk {
        kind: i32 = [int32, tag = 1],
        data: Vec<u8> = [bytes = "vec", tag = 2],
    }

    /// A request of `LabelValues`.
    LabelValuesRequest {
        label: String = [string, tag = 1],
        start: i64 = [int64, tag = 4],
        end: i64 = [int64, tag = 5],
        matchers: Vec<Matcher> = [message, repeated, tag = 7],
        limit: i64 = [int64, tag = 9],
    }

    Texts {
        texts: Vec<String> = [string, repeated, tag = 1],
        warnings: Vec<String> = [string, repeated, tag = 2],
    }

    /// A request of `RemoteWrite`.
    RoutedWrite {
        timeseries: Vec<TimeSeries> = [message, repeated, tag = 1],
        tenant: String = [string, tag = 2],
        replica: i64 = [int64, tag = 3],
    }

    QueryRangeRequest {
        query: String = [string, tag = 1],
        start_time_seconds: i64 = [int64, tag = 2],
        end_time_seconds: i64 = [int64, tag = 3],
        interval_seconds: i64 = [int64, tag = 4],
    }

    /// A request of `Query/Query` or, with milliseconds, of `Exemplars`.
    QueryRequest {
        query: String = [string, tag = 1],
        start: i64 = [int64, tag = 2],
        end: i64 = [int64, tag = 3],
    }

    /// A request of `LabelNames`.
    LabelNamesRequest {
        start: i64 = [int64, tag = 3],
        end: i64 = [int64, tag = 4],
    }
}
