//! Chunks: samples of one series in Prometheus' encodings (`tsdb/chunkenc`), byte for byte.
//!
//! Used by blocks, head chunks, recovery and remote read. [`decode`] appends the samples of a chunk
//! to columns; [`Encoder`] cuts the samples of one series into chunks. `open_chunks` does so for a
//! million series at once.
//!
//! ```text
//! u16   number of samples (of encodings 5 and 6 the lower 14 bits; the upper two are the counter reset header)
//! u8    of histograms (2, 3): the counter reset header in the upper two bits;
//!       of encodings with start timestamps (4, 5, 6): where these are, see `start_timestamps`
//! bits  the samples, highest bit first
//! ```
//!
//! Invariants
//! 1. A chunk has the same bytes as Prometheus' chunk of the same samples.
//! 2. Decoding allocates at most [`VALUES_MAX`] numbers, and never more than the bytes of the chunk
//!    can hold.

mod bstream;
mod decode;
mod encoder;
mod histogram;
mod histogram_appender;
mod histogram_layout;
mod open_chunks;
mod spans;
mod start_timestamps;
#[cfg(test)]
mod tests;
mod value_codec;
mod xor;
mod xor2;

pub use decode::decode;
pub(crate) use decode::float_time_range;
pub use encoder::{Encoder, SAMPLES_PER_CHUNK, StartTimestamps};
pub(crate) use open_chunks::{OpenChunk, OpenChunks};

/// Maximum number of values in a decoded chunk: all fields and buckets of all histograms.
pub const VALUES_MAX: usize = 1 << 22;

/// Encoding of the samples of a chunk. The discriminants are the codes of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Floats.
    Xor = 1,
    /// Histograms with integer counts.
    Histogram = 2,
    /// Histograms with float counts.
    FloatHistogram = 3,
    /// Floats with optional start timestamps.
    Xor2 = 4,
    /// Histograms with integer counts and start timestamps.
    HistogramSt = 5,
    /// Histograms with float counts and start timestamps.
    FloatHistogramSt = 6,
}

impl Encoding {
    /// Returns the encoding with this code, or `None` if it is unknown.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        let all = [
            Self::Xor,
            Self::Histogram,
            Self::FloatHistogram,
            Self::Xor2,
            Self::HistogramSt,
            Self::FloatHistogramSt,
        ];
        all.into_iter().find(|encoding| encoding.code() == code)
    }

    /// Returns the code of the encoding.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns `true` for floats.
    #[must_use]
    pub fn is_float(self) -> bool {
        matches!(self, Self::Xor | Self::Xor2)
    }

    /// Returns `true` if chunks of this encoding can have start timestamps.
    fn has_starts(self) -> bool {
        matches!(
            self,
            Self::Xor2 | Self::HistogramSt | Self::FloatHistogramSt
        )
    }
}

/// An encoded chunk with its time range. `B` is its bytes, or their location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<B = Vec<u8>> {
    /// Encoding of `bytes`.
    pub encoding: Encoding,
    /// Timestamp of the first sample.
    pub min_ms: i64,
    /// Timestamp of the last sample.
    pub max_ms: i64,
    /// Number of samples.
    pub n_samples: u32,
    /// Header and samples, without a checksum.
    pub bytes: B,
}

impl<B> Chunk<B> {
    /// Returns the same chunk with its bytes elsewhere.
    pub(crate) fn with<C>(&self, bytes: C) -> Chunk<C> {
        let &Self {
            encoding,
            min_ms,
            max_ms,
            n_samples,
            ..
        } = self;
        Chunk {
            encoding,
            min_ms,
            max_ms,
            n_samples,
            bytes,
        }
    }
}

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

/// Returns the number of samples according to the header of a chunk.
///
/// # Errors
/// [`ChunkError::Truncated`] if the header is incomplete.
pub fn n_samples(encoding: Encoding, bytes: &[u8]) -> Result<u32, ChunkError> {
    let count = bytes
        .first_chunk()
        .map(|count| u16::from_be_bytes(*count))
        .ok_or(ChunkError::Truncated)?;
    Ok(match encoding {
        Encoding::HistogramSt | Encoding::FloatHistogramSt => {
            u32::from(count & start_timestamps::COUNT_MASK)
        }
        _ => u32::from(count),
    })
}
