//! Header, footer and trailer of a block: they identify the file and contain the position where reading begins.
//!
//! ```text
//! header                                    trailer, at the end of the file
//! 0   4  magic    "VBLK"                    0   8  offset of the footer page, u64
//! 4   1  version  1                         8   4  its size, u32
//! 5   7  zero     0                         12  4  zero     0
//! 12  4  crc      CRC-32C of bytes 0..12    16  4  crc      CRC-32C of bytes 0..16
//! 16  -  pages                              20  4  magic    "KLBV"
//! ```
//! The footer page lies right before the trailer, so that a file that was truncated or extended is recognized at once.
//! Its payload: a byte of flags (0; any bit set: a later version), then varints (times zigzag-encoded):
//! ```text
//! id of the block; window: start, end; level; flushes: first, last; number of sources, their ids;
//! id of the last delete rule applied; samples: oldest time, newest time, number of series, number of samples;
//! bytes of rows, of timestamp columns, of the index; the directory's pages of groups: number, references; its pages of
//! timestamp columns: number, references; reference of the index's root
//! ```

use std::path::Path;

use super::meta::{BlockId, BlockMeta, BlockOrigin, NUMBER_MAX};
use super::page::{PageRef, corrupt};
use super::{Damaged, Unreadable, VERSION};
use crate::chunk::varint::{put_i64, put_u64, take_i64, take_u64};
use crate::error::{Error, Result};
use crate::fs::ReadFile;
use crate::sample::TimeRange;

/// Bytes before the first page.
pub(in crate::block) const HEADER_SIZE: usize = 16;
/// Bytes after the last page.
pub(in crate::block) const TRAILER_SIZE: usize = 24;

const MAGIC: [u8; 4] = *b"VBLK";
const VERSION_OFFSET: usize = 4;
const HEADER_CRC_OFFSET: usize = 12;

const FOOTER_SIZE_OFFSET: usize = 8;
const TRAILER_CRC_OFFSET: usize = 16;
const TRAILER_MAGIC_OFFSET: usize = 20;
const TRAILER_MAGIC: [u8; 4] = *b"KLBV";

/// Returns the header of a block.
pub(in crate::block) fn header() -> [u8; HEADER_SIZE] {
    let mut header = [0; HEADER_SIZE];
    header[..4].copy_from_slice(&MAGIC);
    header[VERSION_OFFSET] = VERSION;
    let crc = crc32c::crc32c(&header[..HEADER_CRC_OFFSET]);
    header[HEADER_CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Returns the trailer of a block with a footer at this position.
pub(in crate::block) fn trailer(footer: PageRef) -> [u8; TRAILER_SIZE] {
    let mut trailer = [0; TRAILER_SIZE];
    trailer[..FOOTER_SIZE_OFFSET].copy_from_slice(&footer.offset.to_le_bytes());
    trailer[FOOTER_SIZE_OFFSET..12].copy_from_slice(&footer.size.to_le_bytes());
    let crc = crc32c::crc32c(&trailer[..TRAILER_CRC_OFFSET]);
    trailer[TRAILER_CRC_OFFSET..TRAILER_MAGIC_OFFSET].copy_from_slice(&crc.to_le_bytes());
    trailer[TRAILER_MAGIC_OFFSET..].copy_from_slice(&TRAILER_MAGIC);
    trailer
}

/// Checks header and trailer of a file and returns the position of the footer; `path` is for errors.
///
/// # Errors
/// [`Error::Corrupt`] if it is not a complete block; [`Error::Version`] if a later version wrote it; [`Error::Io`].
pub(in crate::block) fn find_footer(path: &Path, file: &dyn ReadFile) -> Result<PageRef> {
    let size = file.size().map_err(Error::io("read the size of", path))?;
    let Some(trailer_offset) = size.checked_sub(TRAILER_SIZE as u64).filter(|&at| at >= HEADER_SIZE as u64) else {
        return Err(corrupt(
            path,
            0,
            format!("{size} bytes are too few for a block: the file was truncated or is not a block"),
        ));
    };
    let mut header = [0; HEADER_SIZE];
    file.read_at(&mut header, 0).map_err(Error::io("read the header of", path))?;
    check_header(path, &header)?;
    let mut trailer = [0; TRAILER_SIZE];
    file.read_at(&mut trailer, trailer_offset).map_err(Error::io("read the trailer of", path))?;
    let footer = parse_trailer(&trailer)
        .ok_or_else(|| corrupt(path, trailer_offset, "the trailer is missing: the file was truncated"))?;
    if footer.offset < HEADER_SIZE as u64 || footer.offset.checked_add(footer.size.into()) != Some(trailer_offset) {
        return Err(corrupt(path, trailer_offset, "the footer does not end at the trailer"));
    }
    Ok(footer)
}

fn check_header(path: &Path, header: &[u8; HEADER_SIZE]) -> Result<()> {
    if header[..4] != MAGIC {
        return Err(corrupt(path, 0, "the file is not a block"));
    }
    if header[HEADER_CRC_OFFSET..] != crc32c::crc32c(&header[..HEADER_CRC_OFFSET]).to_le_bytes() {
        return Err(corrupt(path, 0, "the checksum of the header is wrong"));
    }
    match header[VERSION_OFFSET] {
        VERSION if header[VERSION_OFFSET + 1..HEADER_CRC_OFFSET].iter().all(|&zero| zero == 0) => Ok(()),
        0 => Err(corrupt(path, 0, "version 0 was never written")),
        VERSION => Err(corrupt(path, 0, "reserved bits of the header are set")),
        later => Err(Error::Version { path: path.to_owned(), found: later.into(), supported: VERSION.into() }),
    }
}

fn parse_trailer(trailer: &[u8; TRAILER_SIZE]) -> Option<PageRef> {
    let (fields, rest) = trailer.split_at(TRAILER_CRC_OFFSET);
    let (crc, magic) = rest.split_at(TRAILER_MAGIC_OFFSET - TRAILER_CRC_OFFSET);
    if magic != TRAILER_MAGIC || crc != crc32c::crc32c(fields).to_le_bytes() {
        return None;
    }
    let offset = u64::from_le_bytes(fields[..FOOTER_SIZE_OFFSET].try_into().ok()?);
    let size = u32::from_le_bytes(fields[FOOTER_SIZE_OFFSET..12].try_into().ok()?);
    fields[12..].iter().all(|&zero| zero == 0).then_some(PageRef { offset, size })
}

/// The contents of the footer page.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::block) struct Footer {
    /// `size` is that of the file; the footer does not repeat it.
    pub(in crate::block) meta: BlockMeta,
    pub(in crate::block) groups: Vec<PageRef>,
    pub(in crate::block) timestamp_columns: Vec<PageRef>,
    pub(in crate::block) index: PageRef,
}

impl Footer {
    /// Returns the payload of the footer page.
    pub(in crate::block) fn encode(&self) -> Vec<u8> {
        let BlockMeta { origin, range, n_series, n_samples, values_size, timestamps_size, index_size, .. } = &self.meta;
        let mut dst = vec![0];
        encode_origin(origin, &mut dst);
        put_i64(&mut dst, range.start_ms);
        put_i64(&mut dst, range.end_ms);
        for figure in [n_series, n_samples, values_size, timestamps_size, index_size] {
            put_u64(&mut dst, *figure);
        }
        for pages in [&self.groups, &self.timestamp_columns] {
            put_u64(&mut dst, pages.len() as u64);
            pages.iter().for_each(|page| page.encode(&mut dst));
        }
        self.index.encode(&mut dst);
        dst
    }

    /// Decodes the payload of the footer page of a file of `size` bytes.
    pub(in crate::block) fn decode(payload: &[u8], size: u64) -> Result<Self, Unreadable> {
        let (&flags, mut src) = payload.split_first().ok_or(Damaged)?;
        if flags != 0 {
            return Err(Unreadable::Newer);
        }
        let footer = Self::take(&mut src, size).ok_or(Damaged)?;
        if src.is_empty() { Ok(footer) } else { Err(Unreadable::Damaged) }
    }

    fn take(src: &mut &[u8], size: u64) -> Option<Self> {
        let origin = take_origin(src)?;
        let range = take_range(src)?;
        let is_inside = origin.window.start_ms <= range.start_ms && range.end_ms <= origin.window.end_ms;
        let meta = BlockMeta {
            origin,
            range,
            n_series: take_u64(src)?,
            n_samples: take_u64(src)?,
            size,
            values_size: take_u64(src)?,
            timestamps_size: take_u64(src)?,
            index_size: take_u64(src)?,
        };
        let (groups, timestamp_columns) = (take_list(src, PageRef::decode)?, take_list(src, PageRef::decode)?);
        let footer = Self { meta, groups, timestamp_columns, index: PageRef::decode(src)? };
        is_inside.then_some(footer)
    }
}

fn encode_origin(origin: &BlockOrigin, dst: &mut Vec<u8>) {
    put_u64(dst, origin.id.0);
    put_i64(dst, origin.window.start_ms);
    put_i64(dst, origin.window.end_ms);
    dst.push(origin.level);
    put_u64(dst, origin.flushes.0);
    put_u64(dst, origin.flushes.1);
    put_u64(dst, origin.sources.len() as u64);
    origin.sources.iter().for_each(|source| put_u64(dst, source.0));
    put_u64(dst, origin.deletions);
}

fn take_origin(src: &mut &[u8]) -> Option<BlockOrigin> {
    let id = BlockId(take_u64(src)?);
    let window = take_range(src)?;
    let (&level, rest) = src.split_first()?;
    *src = rest;
    let flushes = (take_u64(src)?, take_u64(src)?);
    let sources = take_list(src, |src| take_u64(src).map(BlockId))?;
    let deletions = take_u64(src)?;
    let are_possible = flushes.0 <= flushes.1 && flushes.1 <= NUMBER_MAX && deletions <= NUMBER_MAX;
    are_possible.then_some(BlockOrigin { id, window, level, flushes, sources, deletions })
}

fn take_range(src: &mut &[u8]) -> Option<TimeRange> {
    let range = TimeRange { start_ms: take_i64(src)?, end_ms: take_i64(src)? };
    (range.start_ms <= range.end_ms).then_some(range)
}

/// Decodes a list preceded by its length. Memory grows with the actual elements, whatever the length says.
fn take_list<T>(src: &mut &[u8], take: impl Fn(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let n = take_u64(src)?;
    (0..n).map(|_| take(src)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_rejected_or_decode_to_a_footer(
            bytes in proptest::collection::vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..60),
        ) {
            if let Ok(footer) = Footer::decode(&[&[0], &bytes[..]].concat(), 7) {
                prop_assert_eq!(Footer::decode(&footer.encode(), 7), Ok(footer));
            }
        }
    }

    #[test]
    fn footers_round_trip_and_other_payloads_are_rejected() {
        let range = TimeRange { start_ms: -5, end_ms: 70_000 };
        let window = TimeRange { start_ms: i64::MIN, end_ms: i64::MAX };
        let sources = vec![BlockId(1), BlockId(u64::MAX)];
        let origin = BlockOrigin { id: BlockId(9), window, level: 3, flushes: (4, 4), sources, deletions: 1 << 40 };
        let meta = BlockMeta {
            origin,
            range,
            n_series: 2,
            n_samples: 300,
            size: 4096,
            values_size: 11,
            timestamps_size: 12,
            index_size: 13,
        };
        let page = |offset| PageRef { offset, size: 100 };
        let footer =
            Footer { meta, groups: vec![page(16), page(116)], timestamp_columns: vec![], index: page(1 << 40) };
        let payload = footer.encode();
        assert_eq!(Footer::decode(&payload, 4096), Ok(footer));
        for end in 0..payload.len() {
            assert_eq!(Footer::decode(&payload[..end], 4096), Err(Unreadable::Damaged), "cut at {end}");
        }
        assert_eq!(Footer::decode(&[&payload[..], &[0]].concat(), 4096), Err(Unreadable::Damaged), "longer");
        assert_eq!(Footer::decode(&[&[4], &payload[1..]].concat(), 4096), Err(Unreadable::Newer), "flags");
        let footer = || Footer::decode(&payload, 4096).unwrap();
        let refused = |why: &str, change: &dyn Fn(&mut BlockMeta)| {
            let mut footer = footer();
            change(&mut footer.meta);
            assert_eq!(Footer::decode(&footer.encode(), 4096), Err(Unreadable::Damaged), "{why}");
        };
        refused("flushes descend", &|meta| meta.origin.flushes = (5, 4));
        refused("no flush can follow", &|meta| meta.origin.flushes = (4, NUMBER_MAX + 1));
        refused("no rule can follow", &|meta| meta.origin.deletions = u64::MAX);
        refused("samples before the window", &|meta| meta.origin.window.start_ms = -4);
        refused("samples behind the window", &|meta| meta.origin.window.end_ms = 69_999);
        refused("the range ends before it begins", &|meta| meta.range.end_ms = -6);
    }
}
