//! Decompression of snappy's framing format, with which Thanos' routers compress: blocks of at most
//! 64 KiB, each with a checksum. <https://github.com/google/snappy/blob/main/framing_format.txt>
//!
//! snap's reader allocates and clears 140 KB for each message, and copies it twice. This
//! decompresses from the message into a buffer of its size.

use std::io;

use snap::raw::{Decoder, decompress_len};

/// The first chunk of a stream.
const STREAM_IDENTIFIER: &[u8] = b"\xff\x06\x00\x00sNaPpY";

/// Returns `true` if bytes begin a stream of framed blocks. No single block begins so: its first
/// copy would refer to bytes before the block.
#[must_use]
pub fn is_framed(bytes: &[u8]) -> bool {
    bytes.starts_with(STREAM_IDENTIFIER)
}

/// Returns the decompressed size that the blocks declare.
///
/// # Errors
/// If the bytes are not a sequence of chunks.
pub fn declared_size(framed: &[u8]) -> io::Result<usize> {
    Blocks::new(framed).try_fold(0, |size, block| Ok(size + block?.size))
}

/// Decompresses all blocks into `out`, whose size [`declared_size`] returned.
///
/// # Errors
/// If a block is damaged, or `out` has another size.
pub fn decompress(framed: &[u8], out: &mut [u8]) -> io::Result<()> {
    let mut rest = out;
    for block in Blocks::new(framed) {
        let Block {
            checksum,
            bytes,
            is_compressed,
            size,
        } = block?;
        let (out, after) = rest
            .split_at_mut_checked(size)
            .ok_or_else(|| broken("more bytes than declared"))?;
        if is_compressed {
            Decoder::new().decompress(bytes, out)?;
        } else {
            out.copy_from_slice(bytes);
        }
        if masked(crc32c::crc32c(out)) != checksum {
            return Err(broken("checksum mismatch"));
        }
        rest = after;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(broken("fewer bytes than declared"))
    }
}

/// The blocks of a message.
struct Blocks<'a> {
    rest: &'a [u8],
    /// Whether the stream identifier was read. It comes first, and may be repeated.
    is_identified: bool,
}

struct Block<'a> {
    /// Of the decompressed bytes.
    checksum: u32,
    bytes: &'a [u8],
    is_compressed: bool,
    /// Size of the decompressed bytes.
    size: usize,
}

impl<'a> Blocks<'a> {
    fn new(rest: &'a [u8]) -> Self {
        Self {
            rest,
            is_identified: false,
        }
    }

    /// Returns the next block, or `None` at the end.
    fn take(&mut self) -> io::Result<Option<Block<'a>>> {
        while let Some(([kind, size @ ..], rest)) = self.rest.split_first_chunk::<4>() {
            let [a, b, c] = size.map(usize::from);
            let (chunk, rest) = rest
                .split_at_checked(a | b << 8 | c << 16)
                .ok_or_else(|| broken("truncated chunk"))?;
            self.rest = rest;
            self.is_identified |= *kind == IDENTIFIER;
            match *kind {
                _ if !self.is_identified => return Err(broken("no stream identifier")),
                IDENTIFIER if chunk == b"sNaPpY" => {}
                COMPRESSED | PLAIN => return Block::new(*kind == COMPRESSED, chunk).map(Some),
                // Padding, and chunks that a reader may skip.
                0x80..IDENTIFIER => {}
                _ => return Err(broken("unsupported chunk")),
            }
        }
        if self.rest.is_empty() {
            Ok(None)
        } else {
            Err(broken("truncated chunk"))
        }
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = io::Result<Block<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take().transpose()
    }
}

impl<'a> Block<'a> {
    fn new(is_compressed: bool, chunk: &'a [u8]) -> io::Result<Self> {
        let (checksum, bytes) = chunk
            .split_first_chunk()
            .ok_or_else(|| broken("truncated chunk"))?;
        let size = if is_compressed {
            decompress_len(bytes)?
        } else {
            bytes.len()
        };
        if size > BLOCK_SIZE_MAX {
            return Err(broken("block exceeds 64 KiB"));
        }
        Ok(Self {
            checksum: u32::from_le_bytes(*checksum),
            bytes,
            is_compressed,
            size,
        })
    }
}

/// Returns a checksum as it is stored.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn broken(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Types of chunks.
const COMPRESSED: u8 = 0;
const PLAIN: u8 = 1;
const IDENTIFIER: u8 = 0xff;
const BLOCK_SIZE_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use proptest::prelude::*;

    use super::*;

    fn unpack(framed: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = vec![0; declared_size(framed)?];
        decompress(framed, &mut out)?;
        Ok(out)
    }

    /// The twin: snap's reader.
    fn read(framed: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        snap::read::FrameDecoder::new(framed)
            .read_to_end(&mut out)
            .map(|_| out)
    }

    fn pack(message: &[u8]) -> Vec<u8> {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(message).unwrap();
        encoder.into_inner().unwrap()
    }

    #[test]
    fn messages_of_all_sizes_survive() {
        let mut noise = 1_u32;
        let mut byte = || {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        };
        // Bytes that compress, and those that are stored plain.
        let message: Vec<u8> = (0..200_000)
            .map(|i| if i < 100_000 { i as u8 } else { byte() })
            .collect();
        for size in [0, 1, 65_535, 65_536, 65_537, 200_000] {
            assert!(
                unpack(&pack(&message[..size])).unwrap() == message[..size],
                "{size}"
            );
        }
        let packed = pack(&message);
        // A repeated identifier, padding, and a chunk that may be skipped.
        let chunks = [
            &packed[..],
            b"\xff\x06\0\0sNaPpY\xfe\x02\0\0ab\x80\0\0\0",
            &packed[10..],
        ]
        .concat();
        assert!(unpack(&chunks).unwrap() == message.repeat(2));
    }

    #[test]
    fn damaged_messages_are_rejected() {
        let packed = pack(b"hello, hello, hello");
        let mut checksum = packed.clone();
        checksum[14] ^= 1;
        let huge = [&packed[..10], b"\0\x08\0\0abcd\xff\xff\x7f\0"].concat();
        for (framed, expect) in [
            (&packed[..packed.len() - 1], "truncated chunk"),
            (&packed[10..], "no stream identifier"),
            (&checksum, "checksum mismatch"),
            (&huge, "block exceeds 64 KiB"),
            (b"\xff\x06\0\0sNaPpy", "unsupported chunk"),
            (
                &[&packed[..10], b"\x02\0\0\0"].concat(),
                "unsupported chunk",
            ),
        ] {
            assert_eq!(unpack(framed).unwrap_err().to_string(), expect);
            assert!(read(framed).is_err());
        }
        assert!(
            decompress(&packed, &mut [0; 20]).is_err()
                && decompress(&packed, &mut [0; 18]).is_err()
        );
    }

    proptest! {
        #[test]
        fn damage_is_found_as_by_the_twin(damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..3)) {
            let mut framed = pack(&b"some text, some text".repeat(20));
            for (at, byte) in damage {
                let at = usize::from(at) % framed.len();
                framed[at] = byte;
            }
            prop_assert_eq!(unpack(&framed).ok(), read(&framed).ok());
        }
    }
}
