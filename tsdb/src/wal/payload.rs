//! Compressed payloads: the size of the plain one as a varint, then one zstd frame.

use std::{fmt, io};

use zstd::bulk::{Compressor, Decompressor};

use super::frame::{COMPRESSED, PAYLOAD_SIZE_MAX};
use crate::chunk::varint::{put_u64, take_u64};

/// Payloads below this size are not compressed: there is nothing to gain.
const COMPRESSED_SIZE_MIN: usize = 256;
const COMPRESSION_LEVEL: i32 = 1;

/// Compresses payloads, and keeps the memory that it takes for the next one.
#[derive(Default)]
pub(super) struct Packer {
    compressor: Option<Compressor<'static>>,
    compressed: Vec<u8>,
}

impl Packer {
    /// Appends a record's payload, compressed if that makes it smaller, and returns the record's byte that says so.
    pub(super) fn pack(&mut self, record: u8, payload: &[u8], dst: &mut Vec<u8>) -> u8 {
        let at = dst.len();
        if is_worth_packing(record, payload.len()) {
            put_u64(dst, payload.len() as u64);
            // An error would mean that zstd has no memory; the payload is written plain then.
            if self.compress(payload).is_ok() && dst.len() - at + self.compressed.len() < payload.len() {
                dst.extend_from_slice(&self.compressed);
                return record | COMPRESSED;
            }
            dst.truncate(at);
        }
        dst.extend_from_slice(payload);
        record
    }

    fn compress(&mut self, payload: &[u8]) -> io::Result<()> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(COMPRESSION_LEVEL)?),
        };
        self.compressed.clear();
        self.compressed.reserve(zstd::zstd_safe::compress_bound(payload.len()));
        compressor.compress_to_buffer(payload, &mut self.compressed).map(|_| ())
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Packer")
    }
}

/// Tells whether [`Packer::pack`] would try to make a payload smaller.
pub(super) fn is_worth_packing(record: u8, size: usize) -> bool {
    record & COMPRESSED == 0 && size >= COMPRESSED_SIZE_MIN
}

/// Undoes [`Packer::pack`], and keeps the memory that it takes for the next payload.
#[derive(Default)]
pub(super) struct Unpacker {
    decompressor: Option<Decompressor<'static>>,
    plain: Vec<u8>,
}

impl Unpacker {
    /// Returns the record and its plain payload; `None` if it is damaged.
    pub(super) fn unpack<'a>(&'a mut self, record: u8, mut payload: &'a [u8]) -> Option<(u8, &'a [u8])> {
        if record & COMPRESSED == 0 {
            return Some((record, payload));
        }
        let size = usize::try_from(take_u64(&mut payload)?).ok().filter(|&size| size <= PAYLOAD_SIZE_MAX)?;
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().ok()?),
        };
        self.plain.clear();
        self.plain.reserve_exact(size);
        let written = decompressor.decompress_to_buffer(payload, &mut self.plain).ok()?;
        (written == size).then_some((record & !COMPRESSED, &self.plain))
    }
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unpacker")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_payload_comes_back_and_any_bytes_are_refused_or_of_their_size(
            payload in proptest::collection::vec(prop_oneof![0..3_u8, any::<u8>()], 0..2_000),
            at: usize, byte: u8, bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let (mut packer, mut unpacker, mut packed) = (Packer::default(), Unpacker::default(), Vec::new());
            let record = packer.pack(1, &payload, &mut packed);
            prop_assert_eq!(unpacker.unpack(record, &packed), Some((1, &payload[..])));
            if record & COMPRESSED != 0 {
                prop_assert_eq!(unpacker.unpack(record, &packed[..at % packed.len()]), None);
                let at = at % packed.len();
                packed[at] = byte;
            }
            for bytes in [&packed, &bytes] {
                let size = take_u64(&mut &bytes[..]);
                if let Some((record, plain)) = unpacker.unpack(1 | COMPRESSED, bytes) {
                    prop_assert_eq!((record, Some(plain.len() as u64)), (1, size));
                }
            }
        }
    }

    #[test]
    fn payloads_come_back_and_wrong_sizes_are_refused() {
        let (mut packer, mut unpacker) = (Packer::default(), Unpacker::default());
        for payload in [vec![], vec![1; 255], vec![1; 256], (0..=255).collect(), vec![7; 100_000]] {
            let mut packed = Vec::new();
            let record = packer.pack(3, &payload, &mut packed);
            assert_eq!(record & COMPRESSED != 0, packed.len() < payload.len());
            assert_eq!(unpacker.unpack(record, &packed), Some((3, &payload[..])));
            if record & COMPRESSED != 0 {
                packed[0] ^= 1;
                assert_eq!(unpacker.unpack(record, &packed), None);
                let mut large = Vec::new();
                put_u64(&mut large, u64::MAX);
                assert_eq!(unpacker.unpack(record, &large), None);
            }
        }
    }
}
