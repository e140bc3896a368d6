//! Compression of records.

use std::borrow::Cow;
use std::io::Read;

/// Maximum size of a record, compressed and decompressed. Prometheus' records are far smaller: one
/// scrape or one write request each.
pub const RECORD_SIZE_MAX: usize = 128 << 20;
/// More than the maximum compression ratio of snappy, which encodes 64 bytes in three.
const SNAPPY_GAIN_MAX: usize = 22;

/// Compression of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WalCompression {
    /// Not compressed.
    #[default]
    None,
    /// Snappy block format.
    Snappy,
    /// zstd frame.
    Zstd,
}

impl WalCompression {
    /// Returns the name in Prometheus' `--storage.tsdb.wal-compression-type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the maximum decompressed size of a record: what its header claims, or
    /// [`RECORD_SIZE_MAX`].
    #[must_use]
    pub fn decoded_size(self, bytes: &[u8]) -> usize {
        let size = match self {
            Self::None => Some(bytes.len()),
            Self::Snappy => snap::raw::decompress_len(bytes)
                .ok()
                .filter(|size| size / SNAPPY_GAIN_MAX <= bytes.len()),
            Self::Zstd => {
                let size = zstd::zstd_safe::get_frame_content_size(bytes)
                    .ok()
                    .flatten();
                Some(
                    size.and_then(|size| usize::try_from(size).ok())
                        .unwrap_or(RECORD_SIZE_MAX),
                )
            }
        };
        // Decompression rejects a corrupt record before it allocates.
        size.unwrap_or(0).min(RECORD_SIZE_MAX)
    }

    /// Decompresses a record. Returns `None` if it is corrupt or larger than [`RECORD_SIZE_MAX`].
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
        if self == Self::None {
            return Some(Cow::Borrowed(bytes));
        }
        let mut decoded = Vec::new();
        self.decode_into(bytes, &mut decoded)
            .map(|()| Cow::Owned(decoded))
    }

    /// Decompresses a record into `dst`, whose content is overwritten.
    pub(crate) fn decode_into(self, bytes: &[u8], dst: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::None => {
                dst.clear();
                dst.extend_from_slice(bytes);
            }
            Self::Snappy => {
                let size = snap::raw::decompress_len(bytes).ok()?;
                (size <= RECORD_SIZE_MAX && size / SNAPPY_GAIN_MAX <= bytes.len()).then_some(())?;
                // Avoids zeroing memory that has been used before.
                dst.resize(size, 0);
                let written = snap::raw::Decoder::new().decompress(bytes, dst).ok()?;
                dst.truncate(written);
            }
            Self::Zstd => {
                dst.clear();
                let decoder = zstd::Decoder::with_buffer(bytes).ok()?;
                decoder
                    .take(RECORD_SIZE_MAX as u64 + 1)
                    .read_to_end(dst)
                    .ok()?;
                (dst.len() <= RECORD_SIZE_MAX).then_some(())?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let record = b"samples samples samples samples".repeat(20);
        let snappy = snap::raw::Encoder::new().compress_vec(&record).unwrap();
        let zstd = zstd::encode_all(&record[..], 1).unwrap();
        for (compression, bytes) in [
            (WalCompression::None, &record),
            (WalCompression::Snappy, &snappy),
            (WalCompression::Zstd, &zstd),
        ] {
            assert_eq!(
                compression.decode(bytes).as_deref(),
                Some(&record[..]),
                "{}",
                compression.name()
            );
        }
    }

    #[test]
    fn records_over_the_size_limit_are_rejected() {
        // A snappy block that claims to decompress three bytes to 100 MB.
        assert_eq!(
            WalCompression::Snappy.decode(&[0x80, 0xc2, 0xd7, 0x2f, 0]),
            None
        );
        let bomb =
            zstd::encode_all(std::io::repeat(0).take(RECORD_SIZE_MAX as u64 + 1), 1).unwrap();
        assert!(bomb.len() < 1 << 20);
        assert_eq!(WalCompression::Zstd.decode(&bomb), None);
        assert_eq!(WalCompression::Zstd.decode(b"no frame"), None);
    }
}
