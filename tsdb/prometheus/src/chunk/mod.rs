//! Chunks: runs of samples of one series, bit for bit as Prometheus encodes them (`tsdb/chunkenc`).
//!
//! Used by blocks, head chunks and the out-of-order log, and by remote read. [`decode`] appends the samples of a chunk to
//! columns; [`Encoder`] cuts samples into chunks; `growing` is the same for a million series side by side.
//!
//! ```text
//! u16   samples (of encodings 5 and 6 the lower 14 bits; the upper two are the reset header)
//! u8    of histograms (2, 3): the reset header in the upper two bits;
//!       of encodings with start timestamps (4, 5, 6): where these are, see `starts`
//! bits  the samples, highest bit first
//! ```
//!
//! Invariants
//! 1. A chunk of the same samples, cut at the same places, has the same bytes as one of Prometheus.
//! 2. Decoding reserves no more than [`CELLS_MAX`] numbers, and nothing that the chunk's bytes do not hold.

mod bits;
mod buckets;
mod cell;
mod decode;
mod encoder;
mod growing;
mod histogram;
mod layout;
mod run;
mod starts;
#[cfg(test)]
mod tests;
mod xor;
mod xor2;

pub(crate) use decode::check_floats;
pub use decode::decode;
pub use encoder::{Encoder, SAMPLES_PER_CHUNK, StartTimes};
pub(crate) use growing::{GrowingChunk, GrowingChunks};

/// Most numbers, all fields of all histograms, that a chunk is decoded into.
pub const CELLS_MAX: usize = 1 << 22;

/// How the samples of a chunk are encoded; the numbers are those of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Floats.
    Xor = 1,
    /// Histograms with integer counts.
    Histogram = 2,
    /// Histograms with float counts.
    FloatHistogram = 3,
    /// Floats, with start timestamps where there are any.
    Xor2 = 4,
    /// Histograms with integer counts and start timestamps.
    HistogramSt = 5,
    /// Histograms with float counts and start timestamps.
    FloatHistogramSt = 6,
}

impl Encoding {
    /// Returns the encoding of a number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        let all =
            [Self::Xor, Self::Histogram, Self::FloatHistogram, Self::Xor2, Self::HistogramSt, Self::FloatHistogramSt];
        all.into_iter().find(|encoding| encoding.code() == code)
    }

    /// Returns the number of the encoding.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Tells whether chunks of the encoding have start timestamps.
    fn has_starts(self) -> bool {
        matches!(self, Self::Xor2 | Self::HistogramSt | Self::FloatHistogramSt)
    }
}

/// A chunk, and the times of its first and its last sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// How `bytes` are to be read.
    pub encoding: Encoding,
    /// Of the first sample.
    pub min_ms: i64,
    /// Of the last sample.
    pub max_ms: i64,
    /// Samples.
    pub n_samples: usize,
    /// The encoded samples with their header, without a checksum.
    pub bytes: Vec<u8>,
}

/// Why a chunk cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The bytes end in the middle of a sample.
    #[error("chunk ends in the middle of a sample")]
    Cut,
    /// Bits that no encoder writes.
    #[error("chunk has bits that mean nothing")]
    Invalid,
    /// Times do not ascend.
    #[error("samples of a chunk do not ascend in time")]
    Order,
    /// A histogram's resolution is none that this program knows.
    #[error("histogram schema {0} is not known")]
    Schema(i64),
    /// More numbers than [`CELLS_MAX`].
    #[error("chunk has more than {CELLS_MAX} numbers")]
    TooLarge,
}

/// Counts the samples of a chunk, by its header.
///
/// # Errors
/// [`ChunkError::Cut`] if there is no whole header.
pub fn n_samples(encoding: Encoding, bytes: &[u8]) -> Result<usize, ChunkError> {
    let count = bytes.first_chunk().map(|count| u16::from_be_bytes(*count)).ok_or(ChunkError::Cut)?;
    Ok(match encoding {
        Encoding::HistogramSt | Encoding::FloatHistogramSt => usize::from(count & starts::COUNT_MASK),
        _ => usize::from(count),
    })
}
