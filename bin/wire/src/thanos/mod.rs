//! Messages of Thanos' protocols, written by hand: `protoc` cannot compile Thanos' files together,
//! because two of them define `thanos.UNKNOWN`. The field numbers are those of Thanos 0.42.

pub mod info;
pub mod query;
pub mod rules;
pub mod status;
pub mod store;

use crate::protobuf::messages;
use varve_model::Labels;

use crate::prometheus::types::Label;

/// The path of the only method of Thanos that writes.
pub const REMOTE_WRITE_PATH: &str = "/thanos.WriteableStore/RemoteWrite";

messages! {
    /// A label set, sorted by name.
    LabelSet {
        labels: Vec<Label> = [message, repeated, tag = 1],
    }

    /// A point in time, as in `google.protobuf.Timestamp`.
    Timestamp {
        seconds: i64 = [int64, tag = 1],
        nanos: i32 = [int32, tag = 2],
    }
}

impl LabelSet {
    /// Creates a label set from sorted pairs.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self {
            labels: pairs.into_iter().map(Label::from).collect(),
        }
    }
}

impl From<&Labels> for LabelSet {
    fn from(labels: &Labels) -> Self {
        Self::of(labels)
    }
}
