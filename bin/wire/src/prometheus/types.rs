//! The protobuf messages that the protocols of Prometheus and Thanos share.

use crate::protobuf::messages;
use varve_model::histogram::BucketSpan;
use varve_model::{MatchOp, Matcher};

messages! {
    /// A label.
    Label {
        name: String = [string, tag = 1],
        value: String = [string, tag = 2],
    }

    /// A label matcher.
    LabelMatcher {
        kind: i32 = [int32, tag = 1],
        name: String = [string, tag = 2],
        value: String = [string, tag = 3],
    }

    /// A span of buckets of a native histogram.
    SpanMessage {
        offset: i32 = [sint32, tag = 1],
        length: u32 = [uint32, tag = 2],
    }
}

impl From<(&str, &str)> for Label {
    fn from(pair: (&str, &str)) -> Self {
        let (name, value) = pair;
        Self {
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }
}

impl LabelMatcher {
    /// Returns the operator, or `None` if the type is unknown.
    pub fn op(&self) -> Option<MatchOp> {
        let kinds = [
            MatchOp::Equal,
            MatchOp::NotEqual,
            MatchOp::Regexp,
            MatchOp::NotRegexp,
        ];
        kinds.get(usize::try_from(self.kind).ok()?).copied()
    }

    /// Returns the matcher.
    ///
    /// # Errors
    /// If the type is unknown, or a regex does not parse.
    pub fn parse(&self) -> Result<Matcher, String> {
        let op = self
            .op()
            .ok_or_else(|| format!("invalid matcher type {}", self.kind))?;
        Matcher::new(op, &self.name, &self.value).map_err(|error| error.to_string())
    }
}

impl SpanMessage {
    /// Returns the messages of these spans.
    pub fn list(spans: &[BucketSpan]) -> Vec<Self> {
        spans
            .iter()
            .map(|span| Self {
                offset: span.offset,
                length: span.length,
            })
            .collect()
    }
}
