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

use self::v2::Symbol;
use crate::batch::{DecodedBatch, Span};
use crate::error::WriteError;
use crate::limits::Limits;
use crate::route::RouteHasher;

/// A version of the protocol, by the message that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// `prometheus.WriteRequest`.
    #[default]
    V1,
    /// `io.prometheus.write.v2.Request`.
    V2,
}

/// Label names and values in the order in which they were sent, in either version.
#[derive(Debug)]
pub(crate) enum LabelPairs<'a> {
    V1(v1::LabelPairs<'a>),
    V2(v2::LabelPairs<'a>),
}

impl<'a> LabelPairs<'a> {
    pub(crate) fn new(version: Version, message: &'a [u8], symbols: &'a [Symbol], labels: Span) -> Self {
        match version {
            Version::V1 => Self::V1(v1::label_pairs(message, labels)),
            Version::V2 => Self::V2(v2::LabelPairs::new(message, symbols, labels)),
        }
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
