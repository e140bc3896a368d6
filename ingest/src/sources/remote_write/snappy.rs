//! Decompression of snappy blocks with bounded memory.
//!
//! A block starts with its decompressed length as a varint:
//! <https://github.com/google/snappy/blob/main/format_description.txt>. The length is checked before
//! allocation, against the limit and against the maximum for a block of this size.

use varve_protobuf::Reader;

use crate::error::{Malformed, WriteError};
use crate::limits::Limits;

/// Returns the decompressed size that a block declares.
///
/// # Errors
/// [`WriteError::TooLarge`] over the limit; [`WriteError::Malformed`] if the length is missing, or
/// impossible for a block of this size.
pub(crate) fn declared_size(block: &[u8], limits: &Limits) -> Result<usize, WriteError> {
    let mut reader = Reader::new(block);
    let declared = reader
        .varint()
        .map_err(|_| malformed("the block has no valid length"))?;
    limits.check_decompressed(declared)?;
    // The densest element encodes 64 bytes in 3.
    let size_max = (block.len() - reader.at()) as u64 * 64 / 3;
    if declared > size_max {
        return Err(malformed("the block is too short for the length that it declares").into());
    }
    Ok(usize::try_from(declared).expect("the checked limit fits a usize"))
}

/// Decompresses a block of the size that [`declared_size`] returned, into a reused buffer.
///
/// # Errors
/// [`Malformed::Snappy`].
pub(crate) fn decompress<'a>(
    block: &[u8],
    size: usize,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8], Malformed> {
    // The buffer keeps its length, so that it is zeroed only once.
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
    let message = &mut buffer[..size];
    match snap::raw::Decoder::new().decompress(block, message) {
        Ok(n) if n == size => Ok(message),
        Ok(_) => Err(malformed("the block is shorter than it declares")),
        // The error names the format, too.
        Err(error) => Err(malformed(error.to_string().trim_start_matches("snappy: "))),
    }
}

fn malformed(reason: &str) -> Malformed {
    Malformed::Snappy(reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpack(block: &[u8], limits: &Limits) -> Result<Vec<u8>, WriteError> {
        let size = declared_size(block, limits)?;
        Ok(decompress(block, size, &mut Vec::new())?.to_vec())
    }

    fn pack(message: &[u8]) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(message).unwrap()
    }

    #[test]
    fn a_declared_length_over_the_limit_is_refused_before_allocation() {
        let limits = Limits {
            decompressed_size_max: 1000,
            ..Limits::for_tests()
        };
        for declared in ["\u{7f}\u{7f}", "\u{7f}"] {
            assert!(matches!(
                declared_size(declared.as_bytes(), &limits),
                Err(WriteError::Malformed(_))
            ));
        }
        for (block, size) in [
            (&b"\xe9\x07"[..], 1001),
            (b"\xff\xff\xff\xff\x0f", u64::from(u32::MAX)),
            (b"\x80\x80\x80\x80\x10", 1 << 32),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", u64::MAX),
        ] {
            let refused = declared_size(block, &limits).unwrap_err();
            assert!(
                matches!(refused, WriteError::TooLarge { size: s, limit: 1000, .. } if s == size),
                "{refused}"
            );
        }
        let boundless = Limits {
            decompressed_size_max: usize::MAX,
            ..limits
        };
        assert!(matches!(
            declared_size(b"\x80\x80\x80\x80\x10", &boundless),
            Err(WriteError::TooLarge { .. })
        ));
    }

    #[test]
    fn broken_blocks_are_malformed() {
        for block in [
            &b""[..],
            b"\xff",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
            b"\xff\xff\xff\x0f\x00abc",
            b"\x05\x10hell",
            b"\x03\x10hello",
            b"\x04\x01\x00",
            b"not snappy at all",
        ] {
            let refused = unpack(block, &Limits::for_tests()).unwrap_err();
            let WriteError::Malformed(error @ Malformed::Snappy(_)) = refused else {
                panic!("{block:?}: {refused}")
            };
            assert_eq!(error.to_string().matches("snappy: ").count(), 1, "{error}");
        }
    }

    #[test]
    fn the_most_compressible_block_is_accepted() {
        for len in [0, 1, 64, 65, 1 << 16, 1 << 22] {
            let message = vec![0; len];
            assert_eq!(
                unpack(&pack(&message), &Limits::for_tests()).unwrap(),
                message
            );
        }
    }

    proptest! {
        #[test]
        fn any_message_round_trips(message in proptest::collection::vec(0..4u8, 0..5000)) {
            prop_assert_eq!(unpack(&pack(&message), &Limits::for_tests()).unwrap(), message);
        }

        #[test]
        fn random_bytes_never_panic(block in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = unpack(&block, &Limits { decompressed_size_max: 1 << 20, ..Limits::for_tests() });
        }
    }
}
