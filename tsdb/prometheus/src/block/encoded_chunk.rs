//! A chunk as the writer of a block receives it.

use crate::chunk::{Chunk, Encoding};

/// A chunk to write.
#[derive(Debug, Clone, Copy)]
pub struct EncodedChunk<'a> {
    /// Encoding of `bytes`.
    pub encoding: Encoding,
    /// Timestamp of the first sample.
    pub min_ms: i64,
    /// Timestamp of the last sample.
    pub max_ms: i64,
    /// Number of samples.
    pub n_samples: u64,
    /// The chunk as [`super::super::chunk`] encodes it.
    pub bytes: &'a [u8],
}

impl<'a> EncodedChunk<'a> {
    /// Returns a chunk to write.
    #[must_use]
    pub fn of(chunk: &'a Chunk) -> Self {
        let &Chunk { encoding, min_ms, max_ms, n_samples, ref bytes } = chunk;
        Self { encoding, min_ms, max_ms, n_samples: n_samples as u64, bytes }
    }
}
