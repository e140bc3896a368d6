//! Messages of Thanos' protocols, as a client sees them.

use varve_model::SampleColumns;
use varve_prometheus::chunk::{Encoding, decode};

use crate::harness::{Call, Label, TimeSeries, messages};

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

    Matcher {
        kind: i32 = [int32, tag = 1],
        name: String = [string, tag = 2],
        value: String = [string, tag = 3],
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

impl Matcher {
    pub(super) fn equal(name: &str, value: &str) -> Self {
        Self {
            kind: 0,
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }

    pub(super) fn matching(name: &str, value: &str) -> Self {
        Self {
            kind: 2,
            ..Self::equal(name, value)
        }
    }
}

/// Returns the series of a call, in order, whether in batches or not.
pub(super) fn series_of(call: &Call) -> Vec<SeriesMessage> {
    let mut all = Vec::new();
    for (_, message) in &call.messages {
        let response: SeriesResponse =
            prost::Message::decode(&**message).expect("a SeriesResponse");
        assert_eq!(response.warning, None);
        all.extend(response.series);
        all.extend(response.batch.into_iter().flat_map(|batch| batch.series));
    }
    all
}

impl SeriesMessage {
    pub(super) fn labels(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        self.labels
            .iter()
            .map(|label| (text(&label.name), text(&label.value)))
            .collect()
    }

    /// Returns all samples, and checks the bounds of the chunks.
    pub(super) fn samples(&self) -> SampleColumns {
        let mut columns = SampleColumns::default();
        for chunk in &self.chunks {
            let (raw, before) = (chunk.raw.as_ref().expect("a raw chunk"), columns.len());
            let encoding = Encoding::from_code(u8::try_from(raw.kind).expect("a kind") + 1)
                .expect("an encoding");
            decode(encoding, &raw.data, &mut columns).expect("a valid chunk");
            let times = &columns.timestamps_ms[before..];
            assert_eq!(
                times.first().zip(times.last()),
                Some((&chunk.min_time, &chunk.max_time))
            );
            assert!(times.len() <= 120, "{} samples", times.len());
        }
        columns
    }
}
