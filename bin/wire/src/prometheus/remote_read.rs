//! The messages of remote read: Prometheus' `prompb/remote.proto` and `prompb/types.proto`.

use std::collections::BTreeMap;

use crate::protobuf::messages;
use varve_model::histogram::{Histogram, HistogramCounts};
use varve_model::{Labels, Matcher, SampleColumns, TimeRange};

use crate::prometheus::types::{Label, LabelMatcher, SpanMessage};

messages! {
    /// A request.
    ReadRequest {
        queries: Vec<Query> = [message, repeated, tag = 1],
        accepted_response_types: Vec<i32> = [int32, repeated, tag = 2],
    }

    Query {
        start_timestamp_ms: i64 = [int64, tag = 1],
        end_timestamp_ms: i64 = [int64, tag = 2],
        matchers: Vec<LabelMatcher> = [message, repeated, tag = 3],
        hints: Option<ReadHints> = [message, optional, tag = 4],
    }

    /// Hints about the evaluation by the querying Prometheus. Most fields are unused.
    ReadHints {
        func: String = [string, tag = 2],
        start_ms: i64 = [int64, tag = 3],
        end_ms: i64 = [int64, tag = 4],
    }
}

impl Query {
    /// Returns the time range of the hints, as in Prometheus, or else of the query.
    pub fn range(&self) -> TimeRange {
        let own = (self.start_timestamp_ms, self.end_timestamp_ms);
        let (start_ms, end_ms) = self
            .hints
            .as_ref()
            .map_or(own, |hints| (hints.start_ms, hints.end_ms));
        TimeRange { start_ms, end_ms }
    }

    /// Returns `true` if the query wants the labels of series, not their samples.
    pub fn wants_labels_only(&self) -> bool {
        self.hints
            .as_ref()
            .is_some_and(|hints| hints.func == "series")
    }

    /// Returns the matchers.
    ///
    /// # Errors
    /// If a type is unknown, or a regex does not parse.
    pub fn parsed_matchers(&self) -> Result<Vec<Matcher>, String> {
        self.matchers.iter().map(LabelMatcher::parse).collect()
    }
}

/// Returns the labels of a series and the missing external ones, sorted by name.
pub fn labels(labels: &Labels, external: &BTreeMap<String, String>) -> Vec<Label> {
    let missing = external
        .iter()
        .filter(|(name, _)| labels.get(name).is_none());
    let missing = missing.map(|(name, value)| (name.as_str(), value.as_str()));
    let mut all: Vec<_> = labels.iter().chain(missing).map(Label::from).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

messages! {
    /// A series with its samples.
    TimeSeries {
        labels: Vec<Label> = [message, repeated, tag = 1],
        samples: Vec<SampleMessage> = [message, repeated, tag = 2],
        histograms: Vec<HistogramMessage> = [message, repeated, tag = 4],
    }

    SampleMessage {
        /// Optional, so that -0, which equals the default, is encoded too.
        value: Option<f64> = [double, optional, tag = 1],
        timestamp: i64 = [int64, tag = 2],
    }

    HistogramMessage {
        count_int: Option<u64> = [uint64, optional, tag = 1],
        count_float: Option<f64> = [double, optional, tag = 2],
        sum: f64 = [double, tag = 3],
        schema: i32 = [sint32, tag = 4],
        zero_threshold: f64 = [double, tag = 5],
        zero_count_int: Option<u64> = [uint64, optional, tag = 6],
        zero_count_float: Option<f64> = [double, optional, tag = 7],
        negative_spans: Vec<SpanMessage> = [message, repeated, tag = 8],
        negative_deltas: Vec<i64> = [sint64, repeated, tag = 9],
        negative_counts: Vec<f64> = [double, repeated, tag = 10],
        positive_spans: Vec<SpanMessage> = [message, repeated, tag = 11],
        positive_deltas: Vec<i64> = [sint64, repeated, tag = 12],
        positive_counts: Vec<f64> = [double, repeated, tag = 13],
        reset_hint: i32 = [int32, tag = 14],
        timestamp: i64 = [int64, tag = 15],
        custom_values: Vec<f64> = [double, repeated, tag = 16],
    }
}

impl TimeSeries {
    /// Returns the series with these samples.
    pub fn new(labels: Vec<Label>, columns: &SampleColumns) -> Self {
        let mut series = Self {
            labels,
            ..Self::default()
        };
        for (idx, (&timestamp, &value)) in columns
            .timestamps_ms
            .iter()
            .zip(&columns.values)
            .enumerate()
        {
            match columns.histogram(idx) {
                None => series.samples.push(SampleMessage {
                    value: Some(value),
                    timestamp,
                }),
                Some(histogram) => series
                    .histograms
                    .push(HistogramMessage::new(timestamp, histogram)),
            }
        }
        series
    }
}

impl HistogramMessage {
    fn new(timestamp: i64, histogram: &Histogram) -> Self {
        let mut message = Self {
            sum: histogram.sum,
            schema: i32::from(histogram.schema),
            zero_threshold: histogram.zero_threshold,
            negative_spans: SpanMessage::list(&histogram.negative_spans),
            positive_spans: SpanMessage::list(&histogram.positive_spans),
            reset_hint: histogram.reset_hint.code().into(),
            timestamp,
            custom_values: histogram.custom_bounds.clone(),
            ..Self::default()
        };
        match &histogram.counts {
            HistogramCounts::Integer {
                count,
                zero_count,
                positive,
                negative,
            } => {
                (message.count_int, message.zero_count_int) = (Some(*count), Some(*zero_count));
                (message.positive_deltas, message.negative_deltas) =
                    (deltas(positive), deltas(negative));
            }
            HistogramCounts::Float {
                count,
                zero_count,
                positive,
                negative,
            } => {
                (message.count_float, message.zero_count_float) = (Some(*count), Some(*zero_count));
                (message.positive_counts, message.negative_counts) =
                    (positive.clone(), negative.clone());
            }
        }
        message
    }
}

/// Returns the difference of each count from the previous one.
fn deltas(counts: &[u64]) -> Vec<i64> {
    let before = std::iter::once(&0).chain(counts);
    // Differences wrap, as in Prometheus. The sums of the reader wrap back.
    counts
        .iter()
        .zip(before)
        .map(|(count, before)| count.wrapping_sub(*before).cast_signed())
        .collect()
}

messages! {
    /// A frame of the streamed response.
    ChunkedReadResponse {
        chunked_series: Vec<ChunkedSeries> = [message, repeated, tag = 1],
        query_index: i64 = [int64, tag = 2],
    }

    ChunkedSeries {
        labels: Vec<Label> = [message, repeated, tag = 1],
        chunks: Vec<ChunkMessage> = [message, repeated, tag = 2],
    }

    ChunkMessage {
        min_time_ms: i64 = [int64, tag = 1],
        max_time_ms: i64 = [int64, tag = 2],
        encoding: i32 = [int32, tag = 3],
        data: Vec<u8> = [bytes = "vec", tag = 4],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_labels_are_sorted_and_overridden() {
        let external = [("a", "ext"), ("job", "ext")]
            .map(|(n, v)| (n.to_owned(), v.to_owned()))
            .into();
        let own = Labels::from_pairs([("__name__", "up"), ("job", "own")]).unwrap();
        let all: Vec<_> = labels(&own, &external)
            .into_iter()
            .map(|label| label.name + "=" + &label.value)
            .collect();
        assert_eq!(all, ["__name__=up", "a=ext", "job=own"]);
    }

    #[test]
    fn a_matcher_of_an_unknown_type_is_invalid() {
        let query = Query {
            matchers: vec![LabelMatcher {
                kind: 7,
                name: "cluster".into(),
                value: String::new(),
            }],
            ..Query::default()
        };
        assert_eq!(
            query.parsed_matchers().unwrap_err(),
            "invalid matcher type 7"
        );
    }

    #[test]
    fn counts_are_encoded_as_deltas() {
        assert_eq!(deltas(&[3, 1, 1]), [3, -2, 0]);
        assert!(deltas(&[]).is_empty());
    }
}
