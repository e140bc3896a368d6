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
mod encoding;
mod error;
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
pub use encoder::Encoder;
pub use encoding::{Chunk, Encoding, SAMPLES_PER_CHUNK, n_samples};
pub use error::{ChunkError, VALUES_MAX};
pub(crate) use open_chunks::{OpenChunk, OpenChunks};
pub use start_timestamps::StartTimestamps;
