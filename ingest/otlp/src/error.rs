//! Errors of whole requests.

/// A request that is not translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The protobuf message is malformed.
    #[error("protobuf: {0}")]
    Protobuf(#[from] varve_protobuf::Error),
    /// An inner message is malformed.
    #[error("protobuf: {reason}, in the message at byte {offset}")]
    Message {
        /// Byte offset of the inner message in the request.
        offset: usize,
        /// The error.
        reason: String,
    },
    /// The bytes are not the JSON of a request.
    #[error("json: {0}")]
    Json(String),
    /// A part of the request exceeds a fixed limit.
    #[error("{what} of {size} exceeds the limit of {limit}")]
    TooLarge {
        /// The quantity that is too large, with its unit.
        what: &'static str,
        /// The quantity.
        size: u64,
        /// The limit.
        limit: u64,
    },
}
