//! Segment headers and frames: how records lie in a file so that each can be found and trusted by itself.
//!
//! ```text
//! segment header                               frame
//! 0   4  magic    "VWAL"                       0   4  marker   E9 56 52 46
//! 4   1  version  1                            4   4  size     of the payload, u32
//! 5   1  kind     0 samples, 1 series          8   8  sequence number in the file, u64
//! 6   2  zero                                  16  1  record   what the payload is
//! 8   8  salt     random, u64                  17  3  zero
//! 16  4  zero                                  20  4  crc      CRC-32C of salt, bytes 4..20, payload
//! 20  4  crc      CRC-32C of bytes 0..20       24  -  payload
//! 24  -  frames
//! ```
//! The salt is part of every checksum. A frame that was copied into a label, or that an earlier file left in a reused
//! block of the disk, is therefore not taken for one of this file.

use super::SegmentKind;

/// Bytes before the first frame.
pub(super) const SEGMENT_HEADER_SIZE: usize = 24;
/// Bytes of a frame before its payload.
pub(super) const FRAME_HEADER_SIZE: usize = 24;
/// The largest payload; a writer splits records below it.
pub(super) const PAYLOAD_SIZE_MAX: usize = 16 << 20;
/// The newest version of the format.
pub(super) const VERSION: u8 = 1;

const MAGIC: [u8; 4] = *b"VWAL";
/// Not UTF-8, so that text cannot hold it.
const MARKER: [u8; 4] = [0xe9, b'V', b'R', b'F'];

const SIZE_OFFSET: usize = 4;
const SEQUENCE_OFFSET: usize = 8;
const RECORD_OFFSET: usize = 16;
const ZERO_OFFSET: usize = 17;
const CRC_OFFSET: usize = 20;

/// Returns the header of a new segment.
pub(super) fn segment_header(kind: SegmentKind, salt: u64) -> [u8; SEGMENT_HEADER_SIZE] {
    let mut header = [0; SEGMENT_HEADER_SIZE];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = VERSION;
    header[5] = kind_byte(kind);
    header[8..16].copy_from_slice(&salt.to_le_bytes());
    let crc = crc32c::crc32c(&header[..CRC_OFFSET]);
    header[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Why the head of a segment was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// Not a whole, sound header.
    Damaged,
    /// Of a version that this program does not read.
    Version(u8),
}

/// Checks the header of a segment and returns its salt.
pub(super) fn parse_segment_header(bytes: &[u8], kind: SegmentKind) -> Result<u64, BadHeader> {
    let header = bytes.get(..SEGMENT_HEADER_SIZE).ok_or(BadHeader::Damaged)?;
    if header[..4] != MAGIC || read_u32(header, CRC_OFFSET) != crc32c::crc32c(&header[..CRC_OFFSET]) {
        return Err(BadHeader::Damaged);
    }
    if header[4] != VERSION {
        return Err(BadHeader::Version(header[4]));
    }
    if header[5] != kind_byte(kind) || header[6..8] != [0; 2] || header[16..20] != [0; 4] {
        return Err(BadHeader::Damaged);
    }
    Ok(read_u64(header, 8))
}

fn kind_byte(kind: SegmentKind) -> u8 {
    match kind {
        SegmentKind::Samples => 0,
        SegmentKind::Series => 1,
    }
}

/// A frame whose checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Counts up by one from 0 in a file.
    pub(super) sequence: u64,
    /// What the payload is.
    pub(super) record: u8,
    /// The record.
    pub(super) payload: &'a [u8],
}

impl Frame<'_> {
    /// Returns how many bytes the frame takes in the file.
    pub(super) fn size(&self) -> usize {
        FRAME_HEADER_SIZE + self.payload.len()
    }
}

/// Reserves room for a frame's header; the payload is appended next, then [`finish_frame`] is called.
pub(super) fn begin_frame(dst: &mut Vec<u8>) -> usize {
    let at = dst.len();
    dst.resize(at + FRAME_HEADER_SIZE, 0);
    at
}

/// Writes the header of the frame that begins at `at` and ends with `dst`.
pub(super) fn finish_frame(dst: &mut [u8], at: usize, salt: u64, sequence: u64, record: u8) {
    let frame = &mut dst[at..];
    let size = u32::try_from(frame.len() - FRAME_HEADER_SIZE).expect("records are split below PAYLOAD_SIZE_MAX");
    frame[..4].copy_from_slice(&MARKER);
    frame[SIZE_OFFSET..SEQUENCE_OFFSET].copy_from_slice(&size.to_le_bytes());
    frame[SEQUENCE_OFFSET..RECORD_OFFSET].copy_from_slice(&sequence.to_le_bytes());
    frame[RECORD_OFFSET] = record;
    let crc = frame_crc(frame, salt);
    frame[CRC_OFFSET..FRAME_HEADER_SIZE].copy_from_slice(&crc.to_le_bytes());
}

/// Returns the frame at the front of `bytes`, if there is a whole and sound one.
pub(super) fn parse_frame(bytes: &[u8], salt: u64) -> Option<Frame<'_>> {
    if bytes.len() < FRAME_HEADER_SIZE || bytes[..4] != MARKER || bytes[ZERO_OFFSET..CRC_OFFSET] != [0; 3] {
        return None;
    }
    let size = read_u32(bytes, SIZE_OFFSET) as usize;
    let frame = bytes.get(..FRAME_HEADER_SIZE + size).filter(|_| size <= PAYLOAD_SIZE_MAX)?;
    if read_u32(frame, CRC_OFFSET) != frame_crc(frame, salt) {
        return None;
    }
    Some(Frame {
        sequence: read_u64(frame, SEQUENCE_OFFSET),
        record: frame[RECORD_OFFSET],
        payload: &frame[FRAME_HEADER_SIZE..],
    })
}

/// Returns where the next marker stands in `bytes`.
pub(super) fn find_marker(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = bytes[from..].iter().position(|&b| b == MARKER[0]) {
        from += found;
        if bytes[from..].starts_with(&MARKER) {
            return Some(from);
        }
        from += 1;
    }
    None
}

fn frame_crc(frame: &[u8], salt: u64) -> u32 {
    let crc = crc32c::crc32c(&salt.to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &frame[SIZE_OFFSET..CRC_OFFSET]);
    crc32c::crc32c_append(crc, &frame[FRAME_HEADER_SIZE..])
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u64 = 0x0123_4567_89ab_cdef;

    fn frame(payload: &[u8], sequence: u64) -> Vec<u8> {
        let mut dst = Vec::new();
        let at = begin_frame(&mut dst);
        dst.extend_from_slice(payload);
        finish_frame(&mut dst, at, SALT, sequence, 3);
        dst
    }

    #[test]
    fn a_frame_comes_back_and_every_flipped_bit_is_seen() {
        let good = frame(b"payload", 9);
        let parsed = parse_frame(&good, SALT).unwrap();
        assert_eq!((parsed.sequence, parsed.record, parsed.payload), (9, 3, &b"payload"[..]));
        assert_eq!(parsed.size(), good.len());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse_frame(&bad, SALT), None, "bit {bit}");
        }
        for size in 0..good.len() {
            assert_eq!(parse_frame(&good[..size], SALT), None, "cut to {size}");
        }
    }

    #[test]
    fn a_frame_of_another_file_is_refused() {
        assert_eq!(parse_frame(&frame(b"x", 0), SALT + 1), None);
    }

    #[test]
    fn headers_are_checked() {
        let good = segment_header(SegmentKind::Series, SALT);
        assert_eq!(parse_segment_header(&good, SegmentKind::Series), Ok(SALT));
        assert_eq!(parse_segment_header(&good, SegmentKind::Samples), Err(BadHeader::Damaged));
        assert_eq!(parse_segment_header(&good[..23], SegmentKind::Series), Err(BadHeader::Damaged));
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(parse_segment_header(&bad, SegmentKind::Series).is_err(), "bit {bit}");
        }
        let mut newer = good;
        newer[4] = 2;
        let crc = crc32c::crc32c(&newer[..CRC_OFFSET]);
        newer[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(parse_segment_header(&newer, SegmentKind::Series), Err(BadHeader::Version(2)));
    }

    #[test]
    fn markers_are_found() {
        assert_eq!(find_marker(b"\xe9\xe9VRF"), Some(1));
        assert_eq!(find_marker(b"\xe9VR"), None);
    }
}
