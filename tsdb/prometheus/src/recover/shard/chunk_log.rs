//! The finished chunks of a shard in one append-only log, whose older part may be spilled to a
//! file.
//!
//! Each chunk contains the position of the previous chunk of the same series. So a series stores
//! only the position of its last chunk ([`ChunkRef`]).
//!
//! ```text
//! varint  position of the chunk before it plus 1; 0 if there is none
//! varint  timestamp of the first sample; varint duration in milliseconds
//! varint  number of samples
//! u8      encoding; bit 7: out-of-order, bit 6: split by a spill, bit 5: head chunk
//! varint  size, followed by the bytes; or the index in the list of head chunks
//! ```
//!
//! Invariants
//! 1. A chunk is contiguous, in one buffer or in the file. The positions in the file precede the
//!    positions in memory.
//! 2. Data from the file is checked like data from any other file.

use varve_codec::varint::{put_i64, put_u64};
use varve_tsdb::{Error, Result};

use super::spill::SpillFile;
use crate::chunk::{Chunk, Encoding};
use crate::cursor::Cursor;

/// Size of a buffer. A larger chunk has a buffer of its own.
const PIECE_SIZE: usize = 1 << 18;
/// Maximum size of the fields before the bytes of a chunk: four varints of ten, an encoding, and a
/// varint of five.
const HEADER_SIZE_MAX: usize = 4 * 10 + 1 + 5;
/// Bytes read at once from the file: most chunks are smaller.
const READ_SIZE: u64 = 1024 + HEADER_SIZE_MAX as u64;
const OUT_OF_ORDER: u8 = 1 << 7;
const SPLIT: u8 = 1 << 6;
const IN_HEAD: u8 = 1 << 5;

/// Position of a chunk plus 1, or 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkRef(u64);

impl ChunkRef {
    pub(crate) const NONE: Self = Self(0);
}

/// A chunk of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeriesChunk<B> {
    pub(crate) chunk: Chunk<B>,
    /// `true` for out-of-order samples.
    pub(crate) is_out_of_order: bool,
    /// A spill ended it: the next chunk continues it.
    pub(crate) is_split: bool,
}

/// The bytes of a chunk, or where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkBytes<'a> {
    Inline(&'a [u8]),
    /// In a head chunk file: its index in the list of head chunks.
    Head(u32),
}

/// Returns an encoded chunk as a chunk of a series.
pub(super) fn series_chunk(
    chunk: &Chunk,
    is_out_of_order: bool,
    is_split: bool,
) -> SeriesChunk<ChunkBytes<'_>> {
    SeriesChunk {
        chunk: chunk.with(ChunkBytes::Inline(&chunk.bytes)),
        is_out_of_order,
        is_split,
    }
}

/// Append-only log of chunks.
#[derive(Debug)]
pub(crate) struct ChunkLog {
    file: SpillFile,
    /// Buffers that are not in the file, with their positions.
    pieces: Vec<(u64, Vec<u8>)>,
    size: u64,
}

impl ChunkLog {
    pub(crate) fn new(file: SpillFile) -> Self {
        Self {
            file,
            pieces: Vec::new(),
            size: 0,
        }
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.capacity()).sum()
    }

    /// Returns the number of bytes in the file.
    pub(crate) fn spilled_size(&self) -> u64 {
        self.file.size()
    }

    /// Appends a chunk of a series and updates `last`, the ref of its last chunk.
    pub(crate) fn append(&mut self, last: &mut ChunkRef, part: &SeriesChunk<ChunkBytes<'_>>) {
        let &SeriesChunk {
            chunk:
                Chunk {
                    encoding,
                    min_ms,
                    max_ms,
                    n_samples,
                    bytes,
                },
            is_out_of_order,
            is_split,
        } = part;
        let (in_head, number, inline) = match bytes {
            ChunkBytes::Inline(bytes) => (false, bytes.len() as u64, bytes),
            ChunkBytes::Head(index) => (true, u64::from(index), &[][..]),
        };
        let room = HEADER_SIZE_MAX + inline.len();
        if self
            .pieces
            .last()
            .is_none_or(|(_, piece)| piece.capacity() - piece.len() < room)
        {
            self.pieces
                .push((self.size, Vec::with_capacity(room.max(PIECE_SIZE))));
        }
        let (start, piece) = self.pieces.last_mut().expect("created above");
        let position = self.size;
        put_u64(piece, last.0);
        put_i64(piece, min_ms);
        put_u64(piece, max_ms.wrapping_sub(min_ms).cast_unsigned());
        put_u64(piece, u64::from(n_samples));
        let flags = [
            (is_out_of_order, OUT_OF_ORDER),
            (is_split, SPLIT),
            (in_head, IN_HEAD),
        ];
        piece.push(
            encoding.code()
                | flags
                    .iter()
                    .map(|&(is_set, flag)| u8::from(is_set) * flag)
                    .sum::<u8>(),
        );
        put_u64(piece, number);
        piece.extend_from_slice(inline);
        self.size = *start + piece.len() as u64;
        *last = ChunkRef(position + 1);
    }

    /// Writes full buffers to the file, or all of them.
    pub(crate) fn spill(&mut self, all: bool) -> Result<()> {
        let n_kept = usize::from(!all);
        let n_spilled = self.pieces.len().saturating_sub(n_kept);
        for (_, piece) in self.pieces.drain(..n_spilled) {
            self.file.append(&piece)?;
        }
        Ok(())
    }

    /// Returns a chunk and the ref of the one before it. `scratch` is the buffer for reads.
    pub(crate) fn get<'a>(
        &'a self,
        chunk: ChunkRef,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Option<(SeriesChunk<ChunkBytes<'a>>, ChunkRef)>> {
        let Some(position) = chunk.0.checked_sub(1) else {
            return Ok(None);
        };
        let bytes = if position < self.file.size() {
            self.read(position, scratch)?
        } else {
            self.in_memory(position)
        };
        match take(bytes) {
            Some((part, before)) if before.0 < chunk.0 => Ok(Some((part, before))),
            _ => Err(self.corrupt(position)),
        }
    }

    /// Returns the first byte of a chunk in memory, or 0 if it is in the file, for
    /// [`prefetch`](varve_collections::prefetch()).
    pub(crate) fn first_byte(&self, chunk: ChunkRef) -> u64 {
        match chunk.0.checked_sub(1) {
            Some(position) if position >= self.file.size() => {
                u64::from(self.in_memory(position)[0])
            }
            _ => 0,
        }
    }

    fn in_memory(&self, position: u64) -> &[u8] {
        let piece = self.pieces.partition_point(|(start, _)| *start <= position) - 1;
        let (start, bytes) = &self.pieces[piece];
        // Positions in memory start at the end of the file, and a buffer is smaller than memory.
        &bytes[(position - start) as usize..]
    }

    /// Reads a chunk, and what follows it, from the file.
    fn read<'a>(&self, position: u64, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let left = self.file.size() - position;
        let first = left.min(READ_SIZE) as usize;
        scratch.resize(first, 0);
        self.file.read(position, scratch)?;
        let needed = size(scratch)
            .filter(|&needed| needed <= left)
            .ok_or_else(|| self.corrupt(position))?;
        if needed > first as u64 {
            scratch.resize(
                usize::try_from(needed).map_err(|_| self.corrupt(position))?,
                0,
            );
            self.file.read(position, scratch)?;
        }
        Ok(scratch)
    }

    fn corrupt(&self, offset: u64) -> Error {
        Error::Corrupt {
            path: self.file.path().to_owned(),
            offset,
            reason: "not a spilled chunk".to_owned(),
        }
    }
}

/// Reads the fields before the bytes of a chunk: the entry without bytes, the chunk before it, and
/// the last field.
fn take_header<'a>(src: &mut Cursor<'a>) -> Option<(SeriesChunk<ChunkBytes<'a>>, ChunkRef, u64)> {
    let before = ChunkRef(src.uvarint()?);
    let min_ms = src.varint()?;
    let max_ms = min_ms.wrapping_add_unsigned(src.uvarint()?);
    let n_samples = u32::try_from(src.uvarint()?).ok()?;
    let code = src.u8()?;
    let encoding = Encoding::from_code(code & !(OUT_OF_ORDER | SPLIT | IN_HEAD))?;
    let number = src.uvarint()?;
    let bytes = match code & IN_HEAD {
        0 => ChunkBytes::Inline(&[]),
        _ => ChunkBytes::Head(u32::try_from(number).ok()?),
    };
    let is_out_of_order = code & OUT_OF_ORDER != 0;
    let is_split = code & SPLIT != 0;
    let chunk = Chunk {
        encoding,
        min_ms,
        max_ms,
        n_samples,
        bytes,
    };
    Some((
        SeriesChunk {
            chunk,
            is_out_of_order,
            is_split,
        },
        before,
        number,
    ))
}

/// Returns the size of the chunk whose fields are in `bytes`.
fn size(bytes: &[u8]) -> Option<u64> {
    let mut src = Cursor::new(bytes);
    let (part, _, number) = take_header(&mut src)?;
    let header_size = (bytes.len() - src.len()) as u64;
    match part.chunk.bytes {
        ChunkBytes::Inline(_) => header_size.checked_add(number),
        ChunkBytes::Head(_) => Some(header_size),
    }
}

fn take(bytes: &[u8]) -> Option<(SeriesChunk<ChunkBytes<'_>>, ChunkRef)> {
    let mut src = Cursor::new(bytes);
    let (mut part, before, number) = take_header(&mut src)?;
    if let ChunkBytes::Inline(bytes) = &mut part.chunk.bytes {
        *bytes = src.bytes(usize::try_from(number).ok()?)?;
    }
    Some((part, before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recover::shard::spill::SpillDir;
    use crate::testing::fs;

    fn part(i: usize, bytes: &[u8]) -> SeriesChunk<ChunkBytes<'_>> {
        let bytes = if i % 7 == 3 {
            ChunkBytes::Head(i as u32)
        } else {
            ChunkBytes::Inline(bytes)
        };
        let min_ms = if i == 5 { i64::MIN } else { i as i64 * 1000 };
        let max_ms = if i == 5 { i64::MAX } else { min_ms + 7 };
        let encoding = [Encoding::Xor, Encoding::FloatHistogramSt][i % 2];
        let chunk = Chunk {
            encoding,
            min_ms,
            max_ms,
            n_samples: i as u32,
            bytes,
        };
        SeriesChunk {
            chunk,
            is_out_of_order: i.is_multiple_of(3),
            is_split: i.is_multiple_of(5),
        }
    }

    fn walk(log: &ChunkLog, last: ChunkRef, mut each: impl FnMut(&SeriesChunk<ChunkBytes<'_>>)) {
        let mut at = last;
        let mut scratch = Vec::new();
        while let Some((part, before)) = log.get(at, &mut scratch).unwrap() {
            each(&part);
            at = before;
        }
    }

    #[test]
    fn chunks_are_read_from_memory_and_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = SpillDir::create(&fs(), &dir.path().join("scratch")).unwrap();
        let mut log = ChunkLog::new(scratch.file(0));
        let bytes: Vec<Vec<u8>> = (0..400)
            .map(|i: usize| vec![i as u8; i * i % 5000 + i / 399 * PIECE_SIZE])
            .collect();
        let mut last = [ChunkRef::NONE; 2];
        for (i, bytes) in bytes.iter().enumerate() {
            log.append(&mut last[i % 2], &part(i, bytes));
            match i {
                100 => log.spill(false).unwrap(),
                200 | 201 => log.spill(true).unwrap(),
                _ => {}
            }
        }
        assert!(log.spilled_size() > 100_000 && log.memory() > 0);
        for (odd, &last) in last.iter().enumerate() {
            let mut expected = (0..400).rev().filter(|i| i % 2 == odd);
            walk(&log, last, |found| {
                let i = expected.next().unwrap();
                assert_eq!(*found, part(i, &bytes[i]), "{i}");
            });
            assert_eq!(expected.next(), None);
        }
        scratch.remove().unwrap();
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = SpillDir::create(&fs(), dir.path()).unwrap();
        let mut log = ChunkLog::new(scratch.file(0));
        let mut last = ChunkRef::NONE;
        (0..3).for_each(|i| log.append(&mut last, &part(i, b"bytes")));
        log.spill(true).unwrap();
        let path = log.file.path().to_owned();
        let size = std::fs::metadata(&path).unwrap().len() as usize;
        std::fs::write(&path, vec![0xff; size]).unwrap();
        assert!(matches!(
            log.get(last, &mut Vec::new()),
            Err(Error::Corrupt { .. })
        ));
        std::fs::write(&path, vec![0; size / 2]).unwrap();
        assert!(log.get(last, &mut Vec::new()).is_err());
    }
}
