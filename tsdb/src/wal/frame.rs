//! File headers and frames. A reader can find and verify each frame independently of the others.
//!
//! ```text
//! file header                                  frame
//! 0   4  magic    "VWAL"                       0   1  marker   F5: no UTF-8 text holds this byte
//! 4   1  version  3                            1   1  check    lowest byte of CRC-32C of salt, bytes 2..8
//! 5   1  kind     0 samples, 1 series,         2   1  record   what the payload is; bit 7: compressed
//!                 2 checkpoint                 3   3  size     of the payload, u24
//! 6   2  zero                                  6   2  sequence number in the file, lowest 16 bits
//! 8   8  salt     random, u64                  8   4  crc      CRC-32C of salt, whole sequence number (u64),
//! 16  4  zero                                                  bytes 2..8, payload
//! 20  4  crc      CRC-32C of bytes 0..20       12  -  payload
//! 24  -  frames
//! ```
//! The salt is part of every checksum. So a frame inside a label or value, or one that an earlier
//! file left in a reused disk block, is not mistaken for a frame of this file. The check byte
//! rejects most bytes that only look like a frame header, without computing a checksum over the
//! size that the header claims.

use super::file_name::SegmentKind;

/// Size of the file header in bytes.
pub(crate) const HEADER_SIZE: usize = 24;
/// Size of the frame header in bytes.
pub(super) const FRAME_HEADER_SIZE: usize = 12;
/// Maximum bytes of a payload, before and after compression. Writers close frames below 3 MiB: see
/// `writer`, `record::histograms`, `checkpoint`.
pub(super) const PAYLOAD_SIZE_MAX: usize = 8 << 20;
/// The version of the format.
pub(super) const VERSION: u8 = 3;
/// Set in the record byte if the payload is compressed: its plain size as a varint, then one zstd
/// frame.
pub(super) const COMPRESSED: u8 = 0x80;

const MAGIC: [u8; 4] = *b"VWAL";
/// First byte of every frame.
pub(super) const MARKER: u8 = 0xf5;

const SALT_OFFSET: usize = 8;
const HEADER_CRC_OFFSET: usize = 20;
const CHECK_OFFSET: usize = 1;
const RECORD_OFFSET: usize = 2;
const SIZE_OFFSET: usize = 3;
const SEQUENCE_OFFSET: usize = 6;
const CRC_OFFSET: usize = 8;

/// Returns the header of a new file.
pub(crate) fn file_header(kind: SegmentKind, salt: u64) -> [u8; HEADER_SIZE] {
    let mut header = [0; HEADER_SIZE];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = VERSION;
    header[5] = kind_byte(kind);
    header[SALT_OFFSET..SALT_OFFSET + 8].copy_from_slice(&salt.to_le_bytes());
    let crc = crc32c::crc32c(&header[..HEADER_CRC_OFFSET]);
    header[HEADER_CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Reason why a file header is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// Incomplete or damaged.
    Damaged,
    /// A valid header of another format version.
    Version(u8),
}

/// Checks the header of a file.
pub(super) fn parse_file_header(bytes: &[u8], kind: SegmentKind) -> Result<Framing, BadHeader> {
    let header = bytes.get(..HEADER_SIZE).ok_or(BadHeader::Damaged)?;
    let crc = crc32c::crc32c(&header[..HEADER_CRC_OFFSET]);
    if header[..4] != MAGIC || read_u32(header, HEADER_CRC_OFFSET) != crc {
        return Err(BadHeader::Damaged);
    }
    if header[4] != VERSION {
        return Err(BadHeader::Version(header[4]));
    }
    if header[5] != kind_byte(kind) || header[6..8] != [0; 2] || header[16..20] != [0; 4] {
        return Err(BadHeader::Damaged);
    }
    Ok(Framing {
        salt: read_u64(header, SALT_OFFSET),
    })
}

fn kind_byte(kind: SegmentKind) -> u8 {
    match kind {
        SegmentKind::Samples => 0,
        SegmentKind::Series => 1,
        SegmentKind::Checkpoint => 2,
    }
}

/// The salt of a file. Verifies the frames of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Framing {
    salt: u64,
}

impl Framing {
    /// Returns candidates for the salt of a file with a damaged header: from every valid header
    /// that differs in one bit, and the stored salt. The caller chooses the candidate that verifies
    /// frames.
    pub(super) fn guesses(header: &[u8; HEADER_SIZE], kind: SegmentKind) -> Vec<Self> {
        let flipped = (0..HEADER_SIZE * 8).filter_map(|bit| {
            let mut header = *header;
            header[bit / 8] ^= 1 << (bit % 8);
            parse_file_header(&header, kind).ok()
        });
        flipped
            .chain([Self {
                salt: read_u64(header, SALT_OFFSET),
            }])
            .collect()
    }

    /// Returns the salt.
    pub(super) fn salt(self) -> u64 {
        self.salt
    }

    /// Returns the size of the frame at the start of `bytes`, header included. Returns `None` if
    /// there is no frame.
    pub(super) fn frame_size(self, bytes: &[u8]) -> Option<usize> {
        let header = bytes.get(..FRAME_HEADER_SIZE)?;
        let size = read_u24(header, SIZE_OFFSET) as usize;
        let sound = header[0] == MARKER && header[CHECK_OFFSET] == check_byte(header, self.salt);
        (sound && size <= PAYLOAD_SIZE_MAX).then_some(FRAME_HEADER_SIZE + size)
    }

    /// Returns the sequence number and the record byte of a whole frame, or `None` if its checksum
    /// is wrong.
    ///
    /// The header has only the lowest 16 bits of the sequence number. The checksum covers all of
    /// it. So this function tries the numbers with these bits from `expected` on. It accepts the
    /// next 65,536 numbers, and one more for each frame that fits in the `gap` bytes before this
    /// frame, which are not valid frames.
    pub(super) fn check_frame(self, frame: &[u8], expected: u64, gap: u64) -> Option<(u64, u8)> {
        let low = read_u16(frame, SEQUENCE_OFFSET);
        let first = expected + u64::from(low.wrapping_sub(expected as u16));
        let last = expected + u64::from(u16::MAX) + gap / FRAME_HEADER_SIZE as u64;
        let crc = read_u32(frame, CRC_OFFSET);
        let found = (first..=last)
            .step_by(1 << 16)
            .find(|&sequence| crc == frame_crc(frame, self.salt, sequence))?;
        Some((found, frame[RECORD_OFFSET]))
    }
}

/// Reserves space for a frame header. The caller then appends the payload and calls
/// [`finish_frame`].
pub(crate) fn begin_frame(dst: &mut Vec<u8>) -> usize {
    let offset = dst.len();
    dst.resize(offset + FRAME_HEADER_SIZE, 0);
    offset
}

/// Writes the header of the frame that starts at `offset` and ends with `dst`.
pub(crate) fn finish_frame(dst: &mut [u8], offset: usize, salt: u64, sequence: u64, record: u8) {
    let frame = &mut dst[offset..];
    let size = frame.len() - FRAME_HEADER_SIZE;
    assert!(
        size <= PAYLOAD_SIZE_MAX,
        "records are split below PAYLOAD_SIZE_MAX"
    );
    frame[0] = MARKER;
    frame[RECORD_OFFSET] = record;
    frame[SIZE_OFFSET..SEQUENCE_OFFSET].copy_from_slice(&(size as u32).to_le_bytes()[..3]);
    frame[SEQUENCE_OFFSET..CRC_OFFSET].copy_from_slice(&(sequence as u16).to_le_bytes());
    frame[CHECK_OFFSET] = check_byte(frame, salt);
    let crc = frame_crc(frame, salt, sequence);
    frame[CRC_OFFSET..FRAME_HEADER_SIZE].copy_from_slice(&crc.to_le_bytes());
}

fn check_byte(frame: &[u8], salt: u64) -> u8 {
    crc32c::crc32c_append(
        crc32c::crc32c(&salt.to_le_bytes()),
        &frame[RECORD_OFFSET..CRC_OFFSET],
    ) as u8
}

fn frame_crc(frame: &[u8], salt: u64, sequence: u64) -> u32 {
    let mut head = [0; 16 + CRC_OFFSET - RECORD_OFFSET];
    head[..8].copy_from_slice(&salt.to_le_bytes());
    head[8..16].copy_from_slice(&sequence.to_le_bytes());
    head[16..].copy_from_slice(&frame[RECORD_OFFSET..CRC_OFFSET]);
    crc32c::crc32c_append(crc32c::crc32c(&head), &frame[FRAME_HEADER_SIZE..])
}

fn read_u16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

fn read_u24(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], 0])
}

fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

fn read_u64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use varve_env::testing::assert_shown;

    use super::*;
    use crate::batch::SeriesRef;
    use crate::wal::record::{
        self, SampleColumn, Scratch, decode_samples, encode_samples, encode_series,
    };
    use varve_model::{Labels, Sample};

    const SALT: u64 = 0x0123_4567_89ab_cdef;
    const FRAMING: Framing = Framing { salt: SALT };

    fn frame(payload: &[u8], sequence: u64, record: u8) -> Vec<u8> {
        let mut dst = Vec::new();
        let at = begin_frame(&mut dst);
        dst.extend_from_slice(payload);
        finish_frame(&mut dst, at, SALT, sequence, record);
        dst
    }

    fn parse(bytes: &[u8], expected: u64, gap: u64) -> Option<(u64, u8)> {
        let size = FRAMING.frame_size(bytes)?;
        FRAMING.check_frame(bytes.get(..size)?, expected, gap)
    }

    /// A file with one frame.
    fn file(kind: SegmentKind, record: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = file_header(kind, SALT).to_vec();
        bytes.extend(frame(payload, 0, record));
        bytes
    }

    #[test]
    fn the_examples_in_the_format_page_match() {
        let page = include_str!("../../../docs/format/wal.md");
        let mut payload = Vec::new();
        for (series, job) in [(7, "a"), (8, "b"), (9, "c")] {
            let labels = Labels::from_pairs([("__name__", "up"), ("job", job)]).unwrap();
            encode_series(&mut payload, SeriesRef(series), &labels);
        }
        assert_shown(page, &file(SegmentKind::Series, record::SERIES, &payload));

        let mut payload = Vec::new();
        let mut decoded = SampleColumn::default();
        let refs = [SeriesRef(7), SeriesRef(8), SeriesRef(9)];
        let samples = [1.0, 0.25, 12.0].map(|value| Sample {
            timestamp_ms: 1_763_683_200_000,
            value,
        });
        encode_samples(&mut payload, &refs, &samples, &mut Scratch::default());
        assert_shown(page, &file(SegmentKind::Samples, record::SAMPLES, &payload));
        assert!(decode_samples(&payload, &mut decoded).is_some());
        let pairs = |samples: &[Sample]| {
            samples
                .iter()
                .map(|sample| (sample.timestamp_ms, sample.value))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (&decoded.refs[..], pairs(&decoded.samples)),
            (&refs[..], pairs(&samples))
        );
    }

    #[test]
    fn a_frame_round_trips_and_every_flipped_bit_is_detected() {
        let good = frame(b"payload", 9, 3);
        assert_eq!(parse(&good, 9, 0), Some((9, 3)));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&bad, 9, 0), None, "bit {bit}");
        }
        for size in 0..good.len() {
            assert_eq!(parse(&good[..size], 9, 0), None, "cut to {size}");
        }
    }

    #[test]
    fn sequence_numbers_are_found_after_a_gap_and_lower_ones_are_rejected() {
        for (sequence, expected, gap, found) in [
            (9, 0, 0, true),
            (65_545, 10, 0, true),
            (9, 10, 1 << 20, false),
            (200_000, 0, 0, false),
            (200_000, 0, 12 * 200_000, true),
            (u64::from(u32::MAX), u64::from(u32::MAX) - 1, 0, true),
        ] {
            let parsed = parse(&frame(b"x", sequence, 3), expected, gap);
            assert_eq!(
                parsed,
                found.then_some((sequence, 3)),
                "{sequence} after {expected}"
            );
        }
    }

    #[test]
    fn a_frame_of_another_file_is_rejected() {
        let other = Framing { salt: SALT + 1 };
        let bytes = frame(b"x", 0, 3);
        assert_eq!(other.check_frame(&bytes, 0, 0), None);
    }

    #[test]
    fn a_damaged_header_is_reconstructed() {
        for kind in [
            SegmentKind::Samples,
            SegmentKind::Series,
            SegmentKind::Checkpoint,
        ] {
            let good = file_header(kind, SALT);
            assert_eq!(parse_file_header(&good, kind), Ok(FRAMING));
            for bit in 0..good.len() * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(Framing::guesses(&bad, kind).contains(&FRAMING), "bit {bit}");
            }
            let mut bad = good;
            bad[..8].fill(0);
            assert!(Framing::guesses(&bad, kind).contains(&FRAMING));
        }
    }

    #[test]
    fn headers_are_checked() {
        let good = file_header(SegmentKind::Series, SALT);
        assert_eq!(parse_file_header(&good, SegmentKind::Series), Ok(FRAMING));
        assert_eq!(
            parse_file_header(&good, SegmentKind::Samples),
            Err(BadHeader::Damaged)
        );
        assert_eq!(
            parse_file_header(&good[..23], SegmentKind::Series),
            Err(BadHeader::Damaged)
        );
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(
                parse_file_header(&bad, SegmentKind::Series).is_err(),
                "bit {bit}"
            );
        }
        for version in (0..VERSION).chain([VERSION + 1]) {
            let mut other = good;
            other[4] = version;
            let crc = crc32c::crc32c(&other[..HEADER_CRC_OFFSET]);
            other[HEADER_CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(
                parse_file_header(&other, SegmentKind::Series),
                Err(BadHeader::Version(version))
            );
        }
    }
}
