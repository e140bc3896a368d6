//! Records as they lie in the log, and as they were before.

use std::borrow::Cow;
use std::io::Read;

/// Most bytes of a record, as it lies in the log and as it is when decompressed. Prometheus' records are far smaller: a
/// record is what one scrape or one request appended.
pub const RECORD_SIZE_MAX: usize = 128 << 20;
/// More than snappy can gain: three bytes become 64 at most.
const SNAPPY_GAIN_MAX: usize = 22;

/// How a record is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// As a block of snappy.
    Snappy,
    /// As a frame of zstd.
    Zstd,
}

impl Compression {
    /// Returns the name that Prometheus' option gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the bytes that decompressing a record takes at most: what it says itself, or else [`RECORD_SIZE_MAX`].
    #[must_use]
    pub fn decoded_size(self, bytes: &[u8]) -> usize {
        let size = match self {
            Self::None => Some(bytes.len()),
            Self::Snappy => snap::raw::decompress_len(bytes).ok().filter(|size| size / SNAPPY_GAIN_MAX <= bytes.len()),
            Self::Zstd => {
                let size = zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten();
                Some(size.and_then(|size| usize::try_from(size).ok()).unwrap_or(RECORD_SIZE_MAX))
            }
        };
        // A damaged record takes nothing: it is refused before.
        size.unwrap_or(0).min(RECORD_SIZE_MAX)
    }

    /// Decompresses a record; `None` if it is damaged or larger than [`RECORD_SIZE_MAX`].
    #[must_use]
    pub fn decode(self, bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
        if self == Self::None {
            return Some(Cow::Borrowed(bytes));
        }
        let mut decoded = Vec::new();
        self.decode_into(bytes, &mut decoded).map(|()| Cow::Owned(decoded))
    }

    /// As [`Compression::decode`], with the record in `dst`, whose memory is used and whose bytes are lost.
    pub(crate) fn decode_into(self, bytes: &[u8], dst: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::None => {
                dst.clear();
                dst.extend_from_slice(bytes);
            }
            Self::Snappy => {
                let size = snap::raw::decompress_len(bytes).ok()?;
                (size <= RECORD_SIZE_MAX && size / SNAPPY_GAIN_MAX <= bytes.len()).then_some(())?;
                // What is there already is not made zero again.
                dst.resize(size, 0);
                let written = snap::raw::Decoder::new().decompress(bytes, dst).ok()?;
                dst.truncate(written);
            }
            Self::Zstd => {
                dst.clear();
                let decoder = zstd::Decoder::with_buffer(bytes).ok()?;
                decoder.take(RECORD_SIZE_MAX as u64 + 1).read_to_end(dst).ok()?;
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
    fn records_come_back() {
        let record = b"samples samples samples samples".repeat(20);
        let snappy = snap::raw::Encoder::new().compress_vec(&record).unwrap();
        let zstd = zstd::encode_all(&record[..], 1).unwrap();
        for (compression, bytes) in
            [(Compression::None, &record), (Compression::Snappy, &snappy), (Compression::Zstd, &zstd)]
        {
            assert_eq!(compression.decode(bytes).as_deref(), Some(&record[..]), "{}", compression.name());
        }
    }

    #[test]
    fn more_than_a_record_may_have_is_refused() {
        // A snappy block that claims 100 MB of three bytes.
        assert_eq!(Compression::Snappy.decode(&[0x80, 0xc2, 0xd7, 0x2f, 0]), None);
        let bomb = zstd::encode_all(std::io::repeat(0).take(RECORD_SIZE_MAX as u64 + 1), 1).unwrap();
        assert!(bomb.len() < 1 << 20);
        assert_eq!(Compression::Zstd.decode(&bomb), None);
        assert_eq!(Compression::Zstd.decode(b"no frame"), None);
    }
}
