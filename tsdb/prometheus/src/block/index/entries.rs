//! Entries of series in an index: what its reader and its writer share.

use varve_codec::varint::{put_i64, put_u64};

pub(super) const MAGIC: u32 = 0xbaaa_d700;
pub(super) const VERSION: u8 = 2;
/// Series start at multiples of it.
pub(in crate::block) const SERIES_ALIGN: u64 = 16;

/// A chunk in the index.
#[derive(Debug, Clone, Copy)]
pub(in crate::block) struct IndexedChunk {
    pub(in crate::block) min_ms: i64,
    pub(in crate::block) max_ms: i64,
    pub(in crate::block) chunk_ref: u64,
}

/// Entries of an index, each at a multiple of [`SERIES_ALIGN`].
#[derive(Debug, Default)]
pub(crate) struct IndexEntries {
    pub(in crate::block) bytes: Vec<u8>,
    /// For each series, its offset in units of [`SERIES_ALIGN`].
    pub(in crate::block) starts: Vec<u32>,
}

/// Appends the entry of a series, whose labels are symbols in ascending order of names. `buffer` is
/// scratch memory.
pub(in crate::block) fn put_entry(
    dst: &mut Vec<u8>,
    buffer: &mut Vec<u8>,
    labels: impl ExactSizeIterator<Item = (u32, u32)>,
    chunks: &[IndexedChunk],
) {
    buffer.clear();
    put_u64(buffer, labels.len() as u64);
    for (name, value) in labels {
        put_u64(buffer, u64::from(name));
        put_u64(buffer, u64::from(value));
    }
    put_u64(buffer, chunks.len() as u64);
    let mut before: Option<IndexedChunk> = None;
    for chunk in chunks {
        match before {
            None => put_i64(buffer, chunk.min_ms),
            Some(before) => put_u64(
                buffer,
                chunk.min_ms.wrapping_sub(before.max_ms).cast_unsigned(),
            ),
        }
        put_u64(
            buffer,
            chunk.max_ms.wrapping_sub(chunk.min_ms).cast_unsigned(),
        );
        match before {
            None => put_u64(buffer, chunk.chunk_ref),
            Some(before) => put_i64(
                buffer,
                chunk.chunk_ref.wrapping_sub(before.chunk_ref).cast_signed(),
            ),
        }
        before = Some(*chunk);
    }
    put_u64(dst, buffer.len() as u64);
    dst.extend_from_slice(buffer);
    dst.extend_from_slice(&crc32c::crc32c(buffer).to_be_bytes());
}
