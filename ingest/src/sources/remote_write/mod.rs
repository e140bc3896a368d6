//! The remote-write protocol: a snappy block around a protobuf message.
//!
//! Version 1.0, `prometheus.WriteRequest`:
//! <https://prometheus.io/docs/specs/prw/remote_write_spec/>. Version 2.0,
//! `io.prometheus.write.v2.Request`: <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.

pub(crate) mod histogram;
#[cfg(test)]
#[path = "../../../../tests/harness/messages/remote_write.rs"]
#[allow(dead_code, unused_imports, reason = "unit tests do not use all of it")]
pub(crate) mod message;
mod receive;
pub(crate) mod snappy;
pub(crate) mod v1;
pub(crate) mod v2;

pub use crate::batch::{DecodedBatch, RouteHasher, Version};
pub use v1::decode as decode_v1;
pub use v2::decode as decode_v2;
use varve_protobuf::Span;

/// Label names and values of either version, in the order of the message.
#[derive(Debug)]
pub(crate) enum LabelPairs<'a> {
    V1(v1::LabelPairs<'a>),
    V2(v2::LabelPairs<'a>),
}

/// Iterates over the label pairs in `labels`, of a series or an exemplar.
pub(crate) fn label_pairs<'a>(
    batch: &'a DecodedBatch,
    message: &'a [u8],
    labels: Span,
) -> LabelPairs<'a> {
    match batch.version {
        Version::V1 => LabelPairs::V1(v1::label_pairs(message, labels)),
        Version::V2 => LabelPairs::V2(v2::LabelPairs::new(message, &batch.symbols, labels)),
    }
}

impl<'a> Iterator for LabelPairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::V1(pairs) => pairs.next(),
            Self::V2(pairs) => pairs.next(),
        }
    }
}
