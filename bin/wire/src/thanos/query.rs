//! `pkg/api/query/querypb/query.proto` and `pkg/exemplars/exemplarspb/rpc.proto`.

use crate::protobuf::messages;
use prost::Oneof;

use super::LabelSet;
use super::store::ShardInfo;
use crate::prometheus::remote_read::TimeSeries;
use crate::prometheus::types::LabelMatcher;

messages! {
    /// A request of `Query/Query`. The query plan is ignored: the text says the same.
    QueryRequest {
        query: String = [string, tag = 1],
        time_seconds: i64 = [int64, tag = 2],
        timeout_seconds: i64 = [int64, tag = 3],
        replica_labels: Vec<String> = [string, repeated, tag = 5],
        store_matchers: Vec<StoreMatchers> = [message, repeated, tag = 6],
        enable_dedup: bool = [bool, tag = 7],
        shard_info: Option<ShardInfo> = [message, optional, tag = 11],
        lookback_delta_seconds: i64 = [int64, tag = 12],
        response_batch_size: i64 = [int64, tag = 15],
    }

    /// A request of `Query/QueryRange`.
    QueryRangeRequest {
        query: String = [string, tag = 1],
        start_time_seconds: i64 = [int64, tag = 2],
        end_time_seconds: i64 = [int64, tag = 3],
        interval_seconds: i64 = [int64, tag = 4],
        timeout_seconds: i64 = [int64, tag = 5],
        replica_labels: Vec<String> = [string, repeated, tag = 7],
        store_matchers: Vec<StoreMatchers> = [message, repeated, tag = 8],
        enable_dedup: bool = [bool, tag = 9],
        shard_info: Option<ShardInfo> = [message, optional, tag = 13],
        lookback_delta_seconds: i64 = [int64, tag = 14],
        response_batch_size: i64 = [int64, tag = 17],
    }

    StoreMatchers {
        matchers: Vec<LabelMatcher> = [message, repeated, tag = 1],
    }

    /// A part of the response to either request.
    QueryResponse {
        part: Option<QueryPart> = [oneof = "QueryPart", tags = "1, 2, 3, 4"],
    }
}

#[derive(Clone, PartialEq, Oneof)]
#[allow(
    missing_docs,
    reason = "the names are those of the protocol's description"
)]
pub enum QueryPart {
    #[prost(string, tag = "1")]
    Warnings(String),
    #[prost(message, tag = "2")]
    Series(TimeSeries),
    #[prost(message, tag = "3")]
    Stats(QueryStats),
    #[prost(message, tag = "4")]
    Batch(TimeSeriesBatch),
}

messages! {
    QueryStats {
        samples_total: i64 = [int64, tag = 1],
        peak_samples: i64 = [int64, tag = 2],
    }

    TimeSeriesBatch {
        series: Vec<TimeSeries> = [message, repeated, tag = 1],
    }

    /// A request of `Exemplars/Exemplars`.
    ExemplarsRequest {
        query: String = [string, tag = 1],
        start: i64 = [int64, tag = 2],
        end: i64 = [int64, tag = 3],
    }

    ExemplarsResponse {
        data: Option<ExemplarData> = [message, optional, tag = 1],
    }

    ExemplarData {
        series: Option<LabelSet> = [message, optional, tag = 1],
        exemplars: Vec<ExemplarMessage> = [message, repeated, tag = 2],
    }

    ExemplarMessage {
        labels: Option<LabelSet> = [message, optional, tag = 1],
        value: f64 = [double, tag = 2],
        timestamp: i64 = [int64, tag = 3],
    }
}
