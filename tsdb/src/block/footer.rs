//! Header, footer and trailer of a block. They identify the file, and contain the position where
//! reading begins.
//!
//! ```text
//! header                                    trailer, at the end of the file
//! 0   4  magic    "VBLK"                    0   8  offset of the footer page, u64
//! 4   1  version  1                         8   4  its size, u32
//! 5   7  zero     0                         12  4  zero     0
//! 12  4  crc      CRC-32C of bytes 0..12    16  4  crc      CRC-32C of bytes 0..16
//! 16  -  pages                              20  4  magic    "KLBV"
//! ```
//! The footer page is directly before the trailer, so that a truncated or extended file is
//! recognized immediately. Its payload is a byte of flags (0; if a bit is set, a later version
//! wrote the block), and varints (times are zigzag-encoded):
//! ```text
//! id of the block; window: start, end; level; flushes: first, last; number of sources, their ids;
//! id of the last tombstone applied; samples: oldest time, newest time, number of series, number of samples;
//! bytes of rows, of timestamp columns, of the index; the directory's pages of groups: number, references; its pages of
//! timestamp columns: number, references; reference of the index's root
//! ```

use std::path::Path;

use varve_codec::varint::{put_i64, put_u64, take_byte, take_i64, take_u64};
use varve_env::ReadFile;
use varve_model::TimeRange;

use super::meta::{BlockId, BlockMeta, BlockOrigin, NUMBER_MAX};
use super::page::{PageRef, corrupt};
use super::version::{Unreadable, VERSION, take_flags};
use crate::error::{Damaged, Error, Result};

/// Bytes before the first page.
pub(crate) const HEADER_SIZE: usize = 16;
/// Bytes after the last page.
pub(crate) const TRAILER_SIZE: usize = 24;

const MAGIC: [u8; 4] = *b"VBLK";
const VERSION_OFFSET: usize = 4;
const HEADER_CRC_OFFSET: usize = 12;

const FOOTER_SIZE_OFFSET: usize = 8;
const TRAILER_CRC_OFFSET: usize = 16;
const TRAILER_MAGIC_OFFSET: usize = 20;
const TRAILER_MAGIC: [u8; 4] = *b"KLBV";

/// Returns the header of a block.
pub(crate) fn header() -> Vec<u8> {
    with_crc(&[
        &MAGIC,
        &[VERSION],
        &[0; HEADER_CRC_OFFSET - VERSION_OFFSET - 1],
    ])
}

/// Returns the trailer of a block whose footer is at this position.
pub(crate) fn trailer(PageRef { offset, size }: PageRef) -> Vec<u8> {
    let mut trailer = with_crc(&[&offset.to_le_bytes(), &size.to_le_bytes(), &[0; 4]]);
    trailer.extend_from_slice(&TRAILER_MAGIC);
    trailer
}

/// Returns the concatenation of fields, followed by its CRC-32C.
pub(crate) fn with_crc(fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = fields.concat();
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Checks header and trailer of a file and returns the position of the footer. `path` is for
/// errors.
///
/// # Errors
/// - [`Error::Corrupt`] if the file is not a complete block.
/// - [`Error::Version`] if a later version wrote it.
/// - [`Error::Io`].
pub(crate) fn find_footer(path: &Path, file: &dyn ReadFile) -> Result<PageRef> {
    let size = file.size().map_err(Error::io("read the size of", path))?;
    let Some(trailer_offset) = size
        .checked_sub(TRAILER_SIZE as u64)
        .filter(|&offset| offset >= HEADER_SIZE as u64)
    else {
        let reason = format!(
            "{size} bytes are too few for a block: the file was truncated or is not a block"
        );
        return Err(corrupt(path, 0, reason));
    };
    let mut header = [0; HEADER_SIZE];
    file.read_at(&mut header, 0)
        .map_err(Error::io("read the header of", path))?;
    check_header(path, &header)?;
    let mut trailer = [0; TRAILER_SIZE];
    file.read_at(&mut trailer, trailer_offset)
        .map_err(Error::io("read the trailer of", path))?;
    let footer = parse_trailer(&trailer).ok_or_else(|| {
        corrupt(
            path,
            trailer_offset,
            "the trailer is missing: the file was truncated",
        )
    })?;
    if footer.offset < HEADER_SIZE as u64
        || footer.offset.checked_add(footer.size.into()) != Some(trailer_offset)
    {
        return Err(corrupt(
            path,
            trailer_offset,
            "the footer does not end at the trailer",
        ));
    }
    Ok(footer)
}

fn check_header(path: &Path, header: &[u8; HEADER_SIZE]) -> Result<()> {
    let (fields, crc) = header.split_at(HEADER_CRC_OFFSET);
    let reason = match fields[VERSION_OFFSET] {
        _ if fields[..VERSION_OFFSET] != MAGIC => "the file is not a block",
        _ if crc != crc32c::crc32c(fields).to_le_bytes() => "the checksum of the header is wrong",
        VERSION if fields[VERSION_OFFSET + 1..].iter().all(|&zero| zero == 0) => return Ok(()),
        VERSION => "reserved bits of the header are set",
        0 => "version 0 was never written",
        later => {
            return Err(Error::Version {
                path: path.to_owned(),
                found: later.into(),
                supported: VERSION.into(),
            });
        }
    };
    Err(corrupt(path, 0, reason))
}

fn parse_trailer(trailer: &[u8; TRAILER_SIZE]) -> Option<PageRef> {
    let (fields, rest) = trailer.split_at(TRAILER_CRC_OFFSET);
    let (crc, magic) = rest.split_at(TRAILER_MAGIC_OFFSET - TRAILER_CRC_OFFSET);
    if magic != TRAILER_MAGIC || crc != crc32c::crc32c(fields).to_le_bytes() {
        return None;
    }
    let offset = u64::from_le_bytes(fields[..FOOTER_SIZE_OFFSET].try_into().ok()?);
    let size = u32::from_le_bytes(fields[FOOTER_SIZE_OFFSET..12].try_into().ok()?);
    fields[12..]
        .iter()
        .all(|&zero| zero == 0)
        .then_some(PageRef { offset, size })
}

/// The contents of the footer page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// The footer does not contain `size`, which is the size of the file.
    pub(crate) meta: BlockMeta,
    pub(crate) groups: Vec<PageRef>,
    pub(crate) timestamp_columns: Vec<PageRef>,
    pub(crate) index: PageRef,
}

impl Footer {
    /// Returns the payload of the footer page.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let BlockMeta {
            origin,
            range,
            n_series,
            n_samples,
            values_size,
            timestamps_size,
            index_size,
            ..
        } = &self.meta;
        let mut dst = vec![0];
        encode_origin(origin, &mut dst);
        put_i64(&mut dst, range.start_ms);
        put_i64(&mut dst, range.end_ms);
        for number in [
            n_series,
            n_samples,
            values_size,
            timestamps_size,
            index_size,
        ] {
            put_u64(&mut dst, *number);
        }
        PageRef::encode_list(&self.groups, &mut dst);
        PageRef::encode_list(&self.timestamp_columns, &mut dst);
        self.index.encode(&mut dst);
        dst
    }

    /// Decodes the payload of the footer page of a file of `size` bytes.
    pub(crate) fn decode(mut payload: &[u8], size: u64) -> Result<Self, Unreadable> {
        take_flags(&mut payload, 0)?;
        let footer = Self::take(&mut payload, size).ok_or(Damaged)?;
        if !payload.is_empty() {
            return Err(Damaged.into());
        }
        Ok(footer)
    }

    fn take(src: &mut &[u8], size: u64) -> Option<Self> {
        let meta = BlockMeta {
            origin: take_origin(src)?,
            range: take_range(src)?,
            n_series: take_u64(src)?,
            n_samples: take_u64(src)?,
            size,
            values_size: take_u64(src)?,
            timestamps_size: take_u64(src)?,
            index_size: take_u64(src)?,
        };
        let groups = PageRef::decode_list(src)?;
        let timestamp_columns = PageRef::decode_list(src)?;
        let footer = Self {
            meta,
            groups,
            timestamp_columns,
            index: PageRef::decode(src)?,
        };
        footer
            .meta
            .origin
            .window
            .covers(footer.meta.range)
            .then_some(footer)
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
    for source in &origin.sources {
        put_u64(dst, source.0);
    }
    put_u64(dst, origin.deletions);
}

fn take_origin(src: &mut &[u8]) -> Option<BlockOrigin> {
    let id = BlockId(take_u64(src)?);
    let window = take_range(src)?;
    let level = take_byte(src)?;
    let flushes = (take_u64(src)?, take_u64(src)?);
    // Nothing is reserved in advance: the number is not trusted.
    let sources = (0..take_u64(src)?)
        .map(|_| take_u64(src).map(BlockId))
        .collect::<Option<_>>()?;
    let deletions = take_u64(src)?;
    let are_possible = flushes.0 <= flushes.1 && flushes.1 <= NUMBER_MAX && deletions <= NUMBER_MAX;
    are_possible.then_some(BlockOrigin {
        id,
        window,
        level,
        flushes,
        sources,
        deletions,
    })
}

fn take_range(src: &mut &[u8]) -> Option<TimeRange> {
    let range = TimeRange {
        start_ms: take_i64(src)?,
        end_ms: take_i64(src)?,
    };
    (range.start_ms <= range.end_ms).then_some(range)
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
        let range = TimeRange {
            start_ms: -5,
            end_ms: 70_000,
        };
        let window = TimeRange {
            start_ms: i64::MIN,
            end_ms: i64::MAX,
        };
        let sources = vec![BlockId(1), BlockId(u64::MAX)];
        let origin = BlockOrigin {
            id: BlockId(9),
            window,
            level: 3,
            flushes: (4, 4),
            sources,
            deletions: 1 << 40,
        };
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
        let footer = Footer {
            meta,
            groups: vec![page(16), page(116)],
            timestamp_columns: vec![],
            index: page(1 << 40),
        };
        let payload = footer.encode();
        assert_eq!(Footer::decode(&payload, 4096), Ok(footer));
        for end in 0..payload.len() {
            assert_eq!(
                Footer::decode(&payload[..end], 4096),
                Err(Unreadable::Damaged),
                "truncated to {end}"
            );
        }
        assert_eq!(
            Footer::decode(&[&payload[..], &[0]].concat(), 4096),
            Err(Unreadable::Damaged),
            "longer"
        );
        assert_eq!(
            Footer::decode(&[&[4], &payload[1..]].concat(), 4096),
            Err(Unreadable::Newer),
            "flags"
        );
        let check_rejected = |why: &str, change: &dyn Fn(&mut BlockMeta)| {
            let mut footer = Footer::decode(&payload, 4096).unwrap();
            change(&mut footer.meta);
            assert_eq!(
                Footer::decode(&footer.encode(), 4096),
                Err(Unreadable::Damaged),
                "{why}"
            );
        };
        check_rejected("flushes descend", &|meta| meta.origin.flushes = (5, 4));
        check_rejected("no flush can follow", &|meta| {
            meta.origin.flushes = (4, NUMBER_MAX + 1)
        });
        check_rejected("no tombstone can follow", &|meta| {
            meta.origin.deletions = u64::MAX
        });
        check_rejected("samples before the window", &|meta| {
            meta.origin.window.start_ms = -4
        });
        check_rejected("samples after the window", &|meta| {
            meta.origin.window.end_ms = 69_999
        });
        check_rejected("the range ends before it starts", &|meta| {
            meta.range.end_ms = -6
        });
    }
}
