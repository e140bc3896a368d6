//! Why a chunk cannot be decoded.

/// Maximum number of values in a decoded chunk: all fields and buckets of all histograms.
pub const VALUES_MAX: usize = 1 << 22;

/// Reason why a chunk cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The bytes end in the middle of a sample.
    #[error("chunk ends in the middle of a sample")]
    Truncated,
    /// No encoder produces these bits.
    #[error("chunk has invalid bits")]
    Invalid,
    /// Timestamps do not ascend.
    #[error("timestamps of a chunk do not ascend")]
    OutOfOrder,
    /// The schema (resolution) of a histogram is unknown.
    #[error("unknown histogram schema {0}")]
    Schema(i64),
    /// More than [`VALUES_MAX`] values.
    #[error("chunk has more than {VALUES_MAX} values")]
    TooLarge,
}
