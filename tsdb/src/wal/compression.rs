//! Compressed payloads: the size of the plain payload as a varint, then one zstd frame.

use std::{fmt, io};

use varve_codec::varint::{put_u64, take_u64};
use zstd::bulk;

use super::frame::{COMPRESSED, PAYLOAD_SIZE_MAX};

/// Minimum payload bytes to compress; smaller payloads do not shrink.
const COMPRESSED_SIZE_MIN: usize = 256;
const COMPRESSION_LEVEL: i32 = 1;

/// Compresses payloads. Reuses its buffers.
#[derive(Default)]
pub(super) struct Compressor {
    zstd: Option<bulk::Compressor<'static>>,
    compressed: Vec<u8>,
}

impl Compressor {
    /// Appends a payload, compressed if this makes it smaller. Returns the record byte, with
    /// [`COMPRESSED`] set if the payload is compressed.
    pub(super) fn compress(&mut self, record: u8, payload: &[u8], dst: &mut Vec<u8>) -> u8 {
        let start = dst.len();
        if is_compressible(record, payload.len()) {
            put_u64(dst, payload.len() as u64);
            // An error means that zstd is out of memory. Then the plain payload is written.
            if self.run(payload).is_ok()
                && dst.len() - start + self.compressed.len() < payload.len()
            {
                dst.extend_from_slice(&self.compressed);
                return record | COMPRESSED;
            }
            dst.truncate(start);
        }
        dst.extend_from_slice(payload);
        record
    }

    fn run(&mut self, payload: &[u8]) -> io::Result<()> {
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(bulk::Compressor::new(COMPRESSION_LEVEL)?),
        };
        self.compressed.clear();
        self.compressed
            .reserve(zstd::zstd_safe::compress_bound(payload.len()));
        zstd.compress_to_buffer(payload, &mut self.compressed)
            .map(|_| ())
    }
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compressor")
    }
}

/// Returns `true` if [`Compressor::compress`] would try to make a payload smaller.
pub(super) fn is_compressible(record: u8, size: usize) -> bool {
    record & COMPRESSED == 0 && size >= COMPRESSED_SIZE_MIN
}

/// Decompresses payloads. Reuses its buffers.
#[derive(Default)]
pub(crate) struct Decompressor {
    zstd: Option<bulk::Decompressor<'static>>,
    plain: Vec<u8>,
}

impl Decompressor {
    /// Returns the record number and the plain payload. Returns `None` if the payload is damaged.
    pub(crate) fn decompress<'a>(
        &'a mut self,
        record: u8,
        mut payload: &'a [u8],
    ) -> Option<(u8, &'a [u8])> {
        if record & COMPRESSED == 0 {
            return Some((record, payload));
        }
        let size = usize::try_from(take_u64(&mut payload)?)
            .ok()
            .filter(|&size| size <= PAYLOAD_SIZE_MAX)?;
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(bulk::Decompressor::new().ok()?),
        };
        self.plain.clear();
        self.plain.reserve_exact(size);
        let written = zstd.decompress_to_buffer(payload, &mut self.plain).ok()?;
        (written == size).then_some((record & !COMPRESSED, &self.plain))
    }
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decompressor")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn payloads_round_trip_and_arbitrary_bytes_are_rejected_or_have_their_size(
            payload in proptest::collection::vec(prop_oneof![0..3_u8, any::<u8>()], 0..2_000),
            at: usize, byte: u8, bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut compressor = Compressor::default();
            let mut decompressor = Decompressor::default();
            let mut compressed = Vec::new();
            let record = compressor.compress(1, &payload, &mut compressed);
            prop_assert_eq!(decompressor.decompress(record, &compressed), Some((1, &payload[..])));
            if record & COMPRESSED != 0 {
                prop_assert_eq!(decompressor.decompress(record, &compressed[..at % compressed.len()]), None);
                let at = at % compressed.len();
                compressed[at] = byte;
            }
            for bytes in [&compressed, &bytes] {
                let size = take_u64(&mut &bytes[..]);
                if let Some((record, plain)) = decompressor.decompress(1 | COMPRESSED, bytes) {
                    prop_assert_eq!((record, Some(plain.len() as u64)), (1, size));
                }
            }
        }
    }

    #[test]
    fn payloads_round_trip_and_wrong_sizes_are_rejected() {
        let mut compressor = Compressor::default();
        let mut decompressor = Decompressor::default();
        for payload in [
            vec![],
            vec![1; 255],
            vec![1; 256],
            (0..=255).collect(),
            vec![7; 100_000],
        ] {
            let mut compressed = Vec::new();
            let record = compressor.compress(3, &payload, &mut compressed);
            assert_eq!(record & COMPRESSED != 0, compressed.len() < payload.len());
            assert_eq!(
                decompressor.decompress(record, &compressed),
                Some((3, &payload[..]))
            );
            if record & COMPRESSED != 0 {
                compressed[0] ^= 1;
                assert_eq!(decompressor.decompress(record, &compressed), None);
                let mut large = Vec::new();
                put_u64(&mut large, u64::MAX);
                assert_eq!(decompressor.decompress(record, &large), None);
            }
        }
    }
}
