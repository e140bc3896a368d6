//! The remote-write protocol: a snappy block around a protobuf message.
//!
//! Version 1.0, `prometheus.WriteRequest`: <https://prometheus.io/docs/specs/prw/remote_write_spec/>. Version 2.0,
//! `io.prometheus.write.v2.Request`: <https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>.

pub(crate) mod histogram;
#[cfg(test)]
pub(crate) mod message;
pub(crate) mod snappy;
pub(crate) mod v1;
pub(crate) mod v2;
pub(crate) mod wire;

use crate::batch::Span;
use crate::error::WriteError;
use crate::limits::Limits;

pub use crate::batch::{DecodedBatch, RouteHasher, Version};

/// Label names and values in the order in which they were sent, in either version.
#[derive(Debug)]
pub(crate) enum LabelPairs<'a> {
    V1(v1::LabelPairs<'a>),
    V2(v2::LabelPairs<'a>),
}

/// Iterates over the label pairs in `labels`, of a series or an exemplar, as they were sent.
pub(crate) fn label_pairs<'a>(batch: &'a DecodedBatch, message: &'a [u8], labels: Span) -> LabelPairs<'a> {
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

/// Decodes a decompressed `prometheus.WriteRequest` in place, replacing what `batch` held.
///
/// Fields may come in any order, unknown ones are skipped. The inside of label entries is not looked at here: a label
/// set that the route cache knows was well-formed when it came first, and the others are checked before anything is
/// stored.
///
/// # Errors
/// [`WriteError::Malformed`] if the message is none, [`WriteError::TooLarge`] if it has more series, samples or metadata
/// entries than `limits` allows. The batch is of no use then.
pub fn decode_v1(
    message: &[u8],
    hasher: &RouteHasher,
    limits: &Limits,
    batch: &mut DecodedBatch,
) -> Result<(), WriteError> {
    v1::decode(message, hasher, limits, batch)
}

/// Decodes a decompressed `io.prometheus.write.v2.Request` in place, replacing what `batch` held.
///
/// Fields may come in any order, unknown ones are skipped. Each reference to a symbol is checked; that symbols are UTF-8
/// and label sets such as Prometheus takes is checked where a series is not known yet.
///
/// # Errors
/// As [`decode_v1`]; besides, [`WriteError::Malformed`] if a reference leads nowhere and [`WriteError::TooLarge`] if there
/// are too many symbols, or the label sets with their symbols in place are too large.
pub fn decode_v2(
    message: &[u8],
    hasher: &RouteHasher,
    limits: &Limits,
    batch: &mut DecodedBatch,
) -> Result<(), WriteError> {
    v2::decode(message, hasher, limits, batch)
}
