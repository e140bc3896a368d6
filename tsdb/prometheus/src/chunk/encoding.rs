//! Encodings, and an encoded chunk with its number of samples.

use super::error::ChunkError;
use super::start_timestamps::COUNT_MASK;

/// Number of samples per chunk that Prometheus aims at.
pub const SAMPLES_PER_CHUNK: u32 = 120;

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
    pub(super) fn has_starts(self) -> bool {
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
        Encoding::HistogramSt | Encoding::FloatHistogramSt => u32::from(count & COUNT_MASK),
        _ => u32::from(count),
    })
}

/// Returns the number of samples as in the header of a chunk, which is full long before the
/// maximum.
pub(super) fn n_samples_header(n_samples: u32) -> [u8; 2] {
    u16::try_from(n_samples).unwrap_or(u16::MAX).to_be_bytes()
}
