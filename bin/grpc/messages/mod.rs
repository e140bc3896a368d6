//! Messages of Thanos' protocols, by hand: `protoc` rejects its files together, because two of them define
//! `thanos.UNKNOWN`. The field numbers are those of Thanos 0.42.

pub(super) mod info;
pub(super) mod query;
pub(super) mod rules;
pub(super) mod status;
pub(super) mod store;

use prost::Message;
use varve_tsdb::Labels;

/// A label.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Label {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// A label set, sorted by name.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LabelSet {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
}

impl LabelSet {
    /// Creates a label set from sorted pairs.
    pub(super) fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let label = |(name, value): (&str, &str)| Label { name: name.to_owned(), value: value.to_owned() };
        Self { labels: pairs.into_iter().map(label).collect() }
    }
}

impl From<&Labels> for LabelSet {
    fn from(labels: &Labels) -> Self {
        Self::of(labels)
    }
}

/// A point in time, as in `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}
