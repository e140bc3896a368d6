//! The messages of remote read: Prometheus' `prompb/remote.proto` and `prompb/types.proto`.

use std::collections::BTreeMap;

use prost::Message;
use varve_tsdb::histogram::{Histogram, HistogramCounts, ResetHint};
use varve_tsdb::{Labels, MatchOp, Matcher, SampleColumns, TimeRange};

/// A request.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) queries: Vec<Query>,
    #[prost(int32, repeated, tag = "2")]
    pub(super) accepted_response_types: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Query {
    #[prost(int64, tag = "1")]
    start_timestamp_ms: i64,
    #[prost(int64, tag = "2")]
    end_timestamp_ms: i64,
    #[prost(message, repeated, tag = "3")]
    matchers: Vec<LabelMatcher>,
    #[prost(message, optional, tag = "4")]
    hints: Option<ReadHints>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelMatcher {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    value: String,
}

/// Hints about the evaluation by the querying Prometheus. Most fields are unused.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReadHints {
    #[prost(string, tag = "2")]
    func: String,
    #[prost(int64, tag = "3")]
    start_ms: i64,
    #[prost(int64, tag = "4")]
    end_ms: i64,
}

impl Query {
    /// Returns the time range of the hints, as in Prometheus, or else of the query.
    pub(super) fn range(&self) -> TimeRange {
        let own = (self.start_timestamp_ms, self.end_timestamp_ms);
        let (start_ms, end_ms) = self.hints.as_ref().map_or(own, |hints| (hints.start_ms, hints.end_ms));
        TimeRange { start_ms, end_ms }
    }

    /// Returns `true` if the query wants series without samples.
    pub(super) fn wants_labels_only(&self) -> bool {
        self.hints.as_ref().is_some_and(|hints| hints.func == "series")
    }

    /// Returns the matchers. A matcher for the value of an external label selects series without that label, because
    /// responses add it.
    ///
    /// # Errors
    /// If a type is unknown, or a regex does not parse.
    pub(super) fn matchers(&self, external: &BTreeMap<String, String>) -> Result<Vec<Matcher>, String> {
        let of = |LabelMatcher { kind, name, value }: &LabelMatcher| {
            let op = match kind {
                0 => MatchOp::Equal,
                1 => MatchOp::NotEqual,
                2 => MatchOp::Regexp,
                3 => MatchOp::NotRegexp,
                _ => return Err("invalid matcher type".to_owned()),
            };
            if op == MatchOp::Equal && external.get(name) == Some(value) {
                return Ok(Matcher::equal(name, ""));
            }
            Matcher::new(op, name, value).map_err(|refused| refused.to_string())
        };
        self.matchers.iter().map(of).collect()
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Label {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// Returns the labels of a series and the missing external ones, sorted by name.
pub(crate) fn labels(labels: &Labels, external: &BTreeMap<String, String>) -> Vec<Label> {
    let missing = external.iter().filter(|(name, _)| labels.get(name).is_none());
    let missing = missing.map(|(name, value)| (name.as_str(), value.as_str()));
    let label = |(name, value): (&str, &str)| Label { name: name.to_owned(), value: value.to_owned() };
    let mut all: Vec<_> = labels.iter().chain(missing).map(label).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// A series with its samples.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<SampleMessage>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) histograms: Vec<HistogramMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SampleMessage {
    /// Optional, so that -0, which equals the default, is encoded too.
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HistogramMessage {
    #[prost(uint64, optional, tag = "1")]
    count_int: Option<u64>,
    #[prost(double, optional, tag = "2")]
    count_float: Option<f64>,
    #[prost(double, tag = "3")]
    sum: f64,
    #[prost(sint32, tag = "4")]
    schema: i32,
    #[prost(double, tag = "5")]
    zero_threshold: f64,
    #[prost(uint64, optional, tag = "6")]
    zero_count_int: Option<u64>,
    #[prost(double, optional, tag = "7")]
    zero_count_float: Option<f64>,
    #[prost(message, repeated, tag = "8")]
    negative_spans: Vec<SpanMessage>,
    #[prost(sint64, repeated, tag = "9")]
    negative_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "10")]
    negative_counts: Vec<f64>,
    #[prost(message, repeated, tag = "11")]
    positive_spans: Vec<SpanMessage>,
    #[prost(sint64, repeated, tag = "12")]
    positive_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "13")]
    positive_counts: Vec<f64>,
    #[prost(int32, tag = "14")]
    reset_hint: i32,
    #[prost(int64, tag = "15")]
    timestamp: i64,
    #[prost(double, repeated, tag = "16")]
    custom_values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SpanMessage {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

impl TimeSeries {
    /// Returns the series with these samples.
    pub(crate) fn new(labels: Vec<Label>, columns: &SampleColumns) -> Self {
        let mut series = Self { labels, ..Self::default() };
        for (idx, (&timestamp, &value)) in columns.timestamps_ms.iter().zip(&columns.values).enumerate() {
            match columns.histogram(idx) {
                None => series.samples.push(SampleMessage { value: Some(value), timestamp }),
                Some(histogram) => series.histograms.push(HistogramMessage::new(timestamp, histogram)),
            }
        }
        series
    }
}

impl HistogramMessage {
    fn new(timestamp: i64, histogram: &Histogram) -> Self {
        let spans = |spans: &[varve_tsdb::histogram::BucketSpan]| {
            spans.iter().map(|span| SpanMessage { offset: span.offset, length: span.length }).collect()
        };
        let mut message = Self {
            sum: histogram.sum,
            schema: i32::from(histogram.schema),
            zero_threshold: histogram.zero_threshold,
            negative_spans: spans(&histogram.negative_spans),
            positive_spans: spans(&histogram.positive_spans),
            reset_hint: match histogram.reset_hint {
                ResetHint::Unknown => 0,
                ResetHint::Reset => 1,
                ResetHint::NoReset => 2,
                ResetHint::Gauge => 3,
            },
            timestamp,
            custom_values: histogram.custom_bounds.clone(),
            ..Self::default()
        };
        match &histogram.counts {
            HistogramCounts::Integer { count, zero_count, positive, negative } => {
                (message.count_int, message.zero_count_int) = (Some(*count), Some(*zero_count));
                (message.positive_deltas, message.negative_deltas) = (deltas(positive), deltas(negative));
            }
            HistogramCounts::Float { count, zero_count, positive, negative } => {
                (message.count_float, message.zero_count_float) = (Some(*count), Some(*zero_count));
                (message.positive_counts, message.negative_counts) = (positive.clone(), negative.clone());
            }
        }
        message
    }
}

/// Returns the difference of each count from the previous one.
fn deltas(counts: &[u64]) -> Vec<i64> {
    let before = std::iter::once(&0).chain(counts);
    // Differences wrap, as in Prometheus. The sums of the reader wrap back.
    counts.iter().zip(before).map(|(count, before)| count.wrapping_sub(*before).cast_signed()).collect()
}

/// A frame of the streamed response.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ChunkedReadResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) chunked_series: Vec<ChunkedSeries>,
    #[prost(int64, tag = "2")]
    pub(super) query_index: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChunkedSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(super) chunks: Vec<ChunkMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChunkMessage {
    #[prost(int64, tag = "1")]
    pub(super) min_time_ms: i64,
    #[prost(int64, tag = "2")]
    pub(super) max_time_ms: i64,
    #[prost(int32, tag = "3")]
    pub(super) encoding: i32,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) data: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_labels_are_sorted_and_overridden() {
        let external = [("a", "ext"), ("job", "ext")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        let own = Labels::from_pairs([("__name__", "up"), ("job", "own")]).unwrap();
        let all: Vec<_> = labels(&own, &external).into_iter().map(|label| label.name + "=" + &label.value).collect();
        assert_eq!(all, ["__name__=up", "a=ext", "job=own"]);
    }

    #[test]
    fn a_matcher_for_an_external_label_selects_its_absence() {
        let external = [("cluster".to_owned(), "c1".to_owned())].into();
        let matcher = |kind, value: &str| LabelMatcher { kind, name: "cluster".into(), value: value.into() };
        let query = Query { matchers: vec![matcher(0, "c1"), matcher(0, "c2"), matcher(1, "c1")], ..Query::default() };
        let texts: Vec<_> = query.matchers(&external).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(texts, [r#"cluster="""#, r#"cluster="c2""#, r#"cluster!="c1""#]);
        let unknown = Query { matchers: vec![matcher(7, "")], ..Query::default() };
        assert_eq!(unknown.matchers(&external).unwrap_err(), "invalid matcher type");
    }

    #[test]
    fn counts_are_encoded_as_deltas() {
        assert_eq!(deltas(&[3, 1, 1]), [3, -2, 0]);
        assert!(deltas(&[]).is_empty());
    }
}
