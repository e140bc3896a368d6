//! The remote-write protocol: a snappy block around a protobuf message.
//!
//! Version 1.0, `prometheus.WriteRequest`: <https://prometheus.io/docs/specs/prw/remote_write_spec/>.

pub(crate) mod histogram;
#[cfg(test)]
pub(crate) mod message;
pub(crate) mod snappy;
pub(crate) mod v1;
pub(crate) mod wire;

use crate::batch::DecodedBatch;
use crate::error::WriteError;
use crate::limits::Limits;
use crate::route::RouteHasher;

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
