//! The encodings of blocks, for `benches/encoding.rs` and fuzz targets only.

use super::timestamps::{decode_timestamps, encode_timestamps};
use super::values::{ValueEncoder, decode_values};

/// Encodes and decodes rows of values and columns of timestamps as blocks do.
#[derive(Debug, Default)]
pub struct RowCodec {
    encoder: ValueEncoder,
}

impl RowCodec {
    /// Appends a row of 1 to 960 values.
    ///
    /// # Panics
    /// If there are no values, or more than 960.
    pub fn encode(&mut self, values: &[f64], dst: &mut Vec<u8>) {
        self.encoder.encode(values, dst);
    }

    /// Decodes a row of `n` values from the front of `src` and appends them. If the row is damaged, returns `false` and
    /// appends nothing.
    #[must_use]
    pub fn decode(src: &mut &[u8], n: usize, dst: &mut Vec<f64>) -> bool {
        decode_values(src, n, dst).is_ok()
    }

    /// Appends a column of one or more timestamps.
    ///
    /// # Panics
    /// If there are no timestamps.
    pub fn encode_timestamps(times_ms: &[i64], dst: &mut Vec<u8>) {
        encode_timestamps(times_ms, dst);
    }

    /// Decodes a column of `n` timestamps from the front of `src` and appends them. If the column is damaged, returns
    /// `false` and appends nothing.
    #[must_use]
    pub fn decode_timestamps(src: &mut &[u8], n: usize, dst: &mut Vec<i64>) -> bool {
        decode_timestamps(src, n, dst).is_ok()
    }
}
