//! The messages of remote read.

use super::remote_write::{Label, messages};

messages! {
    ReadRequest {
        queries: Vec<Query> = [message, repeated, tag = 1],
        accepted_response_types: Vec<i32> = [int32, repeated, tag = 2],
    }

    Query {
        start_timestamp_ms: i64 = [int64, tag = 1],
        end_timestamp_ms: i64 = [int64, tag = 2],
        matchers: Vec<Matcher> = [message, repeated, tag = 3],
        hints: Option<Hints> = [message, optional, tag = 4],
    }

    Hints {
        func: String = [string, tag = 2],
        start_ms: i64 = [int64, tag = 3],
        end_ms: i64 = [int64, tag = 4],
    }

    Matcher {
        kind: i32 = [int32, tag = 1],
        name: String = [string, tag = 2],
        value: String = [string, tag = 3],
    }

    Frame {
        series: Vec<ChunkedSeries> = [message, repeated, tag = 1],
        query_index: i64 = [int64, tag = 2],
    }

    ChunkedSeries {
        labels: Vec<Label> = [message, repeated, tag = 1],
        chunks: Vec<Chunk> = [message, repeated, tag = 2],
    }

    Chunk {
        min_time_ms: i64 = [int64, tag = 1],
        max_time_ms: i64 = [int64, tag = 2],
        encoding: i32 = [int32, tag = 3],
        data: Vec<u8> = [bytes = "vec", tag = 4],
    }
}

impl Matcher {
    pub(crate) fn equal(name: &str, value: &str) -> Self {
        Self {
            kind: 0,
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }

    pub(crate) fn matching(name: &str, value: &str) -> Self {
        Self {
            kind: 2,
            ..Self::equal(name, value)
        }
    }
}
