//! The chunks of a shard's series that are ended, one behind the other; the older ones in a file if memory is short.
//!
//! A chunk names the one before it of the same series, so that of a series only the place of its last chunk is kept
//! ([`ChunkRef`]), however many there are.
//!
//! ```text
//! varint  place of the chunk before it, plus 1; 0: there is none
//! varint  time of the first sample; varint milliseconds from there to the last one
//! varint  samples
//! u8      encoding; bit 7: late samples, bit 6: cut by a spill, bit 5: in a file of head chunks
//! varint  bytes, then these; or the chunk's place in the list of head chunks
//! ```
//!
//! Invariants
//! 1. A chunk lies within one piece of memory, or in the file: what is in the file lies before what is in memory.
//! 2. What is read back from the file is checked, as all files are.

use varve_tsdb::varint::{put_i64, put_u64};
use varve_tsdb::{Error, Result};

use super::scratch::ScratchFile;
use crate::chunk::Encoding;
use crate::cursor::Cursor;

/// Bytes of a piece of memory; a chunk that is larger has one of its own.
const PIECE_SIZE: usize = 1 << 18;
/// Most bytes in front of a chunk's own: four varints of ten, an encoding, and a varint of five.
const HEADER_SIZE_MAX: usize = 4 * 10 + 1 + 5;
/// Bytes that are read at once from the file: most chunks have fewer.
const READ_SIZE: u64 = 1024 + HEADER_SIZE_MAX as u64;
const LATE: u8 = 1 << 7;
const CUT: u8 = 1 << 6;
const IN_HEAD: u8 = 1 << 5;

/// The place of a chunk, plus 1; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkRef(u64);

impl ChunkRef {
    pub(super) const NONE: Self = Self(0);
}

/// A chunk of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) min_ms: i64,
    pub(super) max_ms: i64,
    pub(super) n_samples: u32,
    pub(super) encoding: Encoding,
    /// Its samples came late.
    pub(super) is_late: bool,
    /// It was ended because memory was short: what comes behind it belongs to the same chunk.
    pub(super) is_cut: bool,
    pub(super) bytes: PartBytes<'a>,
}

/// Where the bytes of a chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartBytes<'a> {
    Here(&'a [u8]),
    /// In a file of head chunks, by the chunk's place in the list.
    Head(u32),
}

/// Chunks, one behind the other.
#[derive(Debug)]
pub(super) struct ChunkLog {
    file: ScratchFile,
    /// What is not in the file, and where each piece begins.
    pieces: Vec<(u64, Vec<u8>)>,
    size: u64,
}

impl ChunkLog {
    pub(super) fn new(file: ScratchFile) -> Self {
        Self { file, pieces: Vec::new(), size: 0 }
    }

    /// Returns the bytes in memory.
    pub(super) fn memory(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.capacity()).sum()
    }

    /// Returns the bytes in the file.
    pub(super) fn spilled_size(&self) -> u64 {
        self.file.size()
    }

    /// Appends a chunk of a series behind its last one, of which it takes the place.
    pub(super) fn append(&mut self, last: &mut ChunkRef, part: &Part<'_>) {
        let size = match part.bytes {
            PartBytes::Here(bytes) => bytes.len(),
            PartBytes::Head(_) => 0,
        };
        let room = HEADER_SIZE_MAX + size;
        if self.pieces.last().is_none_or(|(_, piece)| piece.capacity() - piece.len() < room) {
            self.pieces.push((self.size, Vec::with_capacity(room.max(PIECE_SIZE))));
        }
        let (start, piece) = self.pieces.last_mut().expect("made above");
        let place = self.size;
        put_u64(piece, last.0);
        put_i64(piece, part.min_ms);
        put_u64(piece, part.max_ms.wrapping_sub(part.min_ms).cast_unsigned());
        put_u64(piece, u64::from(part.n_samples));
        let flags = [(part.is_late, LATE), (part.is_cut, CUT), (matches!(part.bytes, PartBytes::Head(_)), IN_HEAD)];
        piece
            .push(flags.iter().filter(|(is_set, _)| *is_set).fold(part.encoding.code(), |code, (_, flag)| code | flag));
        match part.bytes {
            PartBytes::Here(bytes) => {
                put_u64(piece, bytes.len() as u64);
                piece.extend_from_slice(bytes);
            }
            PartBytes::Head(place) => put_u64(piece, u64::from(place)),
        }
        self.size = *start + piece.len() as u64;
        *last = ChunkRef(place + 1);
    }

    /// Moves to the file what fills pieces of memory, or all of it.
    pub(super) fn spill(&mut self, all: bool) -> Result<()> {
        let n_kept = usize::from(!all);
        let n_spilled = self.pieces.len().saturating_sub(n_kept);
        for (_, piece) in self.pieces.drain(..n_spilled) {
            self.file.append(&piece)?;
        }
        Ok(())
    }

    /// Returns a chunk, and the one before it of the same series; `scratch` takes what has to be read.
    pub(super) fn get<'a>(&'a self, at: ChunkRef, scratch: &'a mut Vec<u8>) -> Result<Option<(Part<'a>, ChunkRef)>> {
        let Some(place) = at.0.checked_sub(1) else { return Ok(None) };
        let bytes = if place < self.file.size() { self.read(place, scratch)? } else { self.in_memory(place) };
        match take(bytes) {
            Some((part, before)) if before.0 < at.0 => Ok(Some((part, before))),
            _ => Err(self.corrupt(place)),
        }
    }

    /// Reads something of a chunk that is in memory; returns what means nothing.
    pub(super) fn touch(&self, at: ChunkRef) -> u64 {
        match at.0.checked_sub(1).filter(|&place| place >= self.file.size()) {
            Some(place) => u64::from(self.in_memory(place)[0]),
            None => 0,
        }
    }

    fn in_memory(&self, place: u64) -> &[u8] {
        let piece = self.pieces.partition_point(|(start, _)| *start <= place) - 1;
        let (start, bytes) = &self.pieces[piece];
        // What is in memory begins where the file ends, and a piece has fewer bytes than there are of memory.
        &bytes[(place - start) as usize..]
    }

    /// Reads a chunk and what comes behind it from the file.
    fn read<'a>(&self, place: u64, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
        let left = self.file.size() - place;
        let first = left.min(READ_SIZE) as usize;
        scratch.resize(first, 0);
        self.file.read(place, scratch)?;
        let needed = size(scratch).filter(|&needed| needed <= left).ok_or_else(|| self.corrupt(place))?;
        if needed > first as u64 {
            scratch.resize(usize::try_from(needed).map_err(|_| self.corrupt(place))?, 0);
            self.file.read(place, scratch)?;
        }
        Ok(scratch)
    }

    fn corrupt(&self, offset: u64) -> Error {
        Error::Corrupt { path: self.file.path().to_owned(), offset, reason: "no chunk that was moved there".to_owned() }
    }
}

/// What stands in front of a chunk's bytes: the part without them, the chunk before it, and the number at the end.
fn take_header<'a>(src: &mut Cursor<'a>) -> Option<(Part<'a>, ChunkRef, u64)> {
    let before = ChunkRef(src.uvarint()?);
    let min_ms = src.varint()?;
    let max_ms = min_ms.wrapping_add_unsigned(src.uvarint()?);
    let n_samples = u32::try_from(src.uvarint()?).ok()?;
    let code = src.u8()?;
    let encoding = Encoding::from_code(code & !(LATE | CUT | IN_HEAD))?;
    let number = src.uvarint()?;
    let bytes = match code & IN_HEAD {
        0 => PartBytes::Here(&[]),
        _ => PartBytes::Head(u32::try_from(number).ok()?),
    };
    let (is_late, is_cut) = (code & LATE != 0, code & CUT != 0);
    Some((Part { min_ms, max_ms, n_samples, encoding, is_late, is_cut, bytes }, before, number))
}

/// Returns the bytes that a chunk takes whose header is there.
fn size(bytes: &[u8]) -> Option<u64> {
    let mut src = Cursor::new(bytes);
    let (part, _, number) = take_header(&mut src)?;
    let header_size = (bytes.len() - src.len()) as u64;
    match part.bytes {
        PartBytes::Here(_) => header_size.checked_add(number),
        PartBytes::Head(_) => Some(header_size),
    }
}

fn take(bytes: &[u8]) -> Option<(Part<'_>, ChunkRef)> {
    let mut src = Cursor::new(bytes);
    let (mut part, before, number) = take_header(&mut src)?;
    if let PartBytes::Here(bytes) = &mut part.bytes {
        *bytes = src.bytes(usize::try_from(number).ok()?)?;
    }
    Some((part, before))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::recover::scratch::Scratch;
    use varve_tsdb::fs::{Fs, RealFs};

    fn part(i: usize, bytes: &[u8]) -> Part<'_> {
        let bytes = if i % 7 == 3 { PartBytes::Head(i as u32) } else { PartBytes::Here(bytes) };
        let min_ms = if i == 5 { i64::MIN } else { i as i64 * 1000 };
        let max_ms = if i == 5 { i64::MAX } else { min_ms + 7 };
        let encoding = [Encoding::Xor, Encoding::FloatHistogramSt][i % 2];
        Part {
            min_ms,
            max_ms,
            n_samples: i as u32,
            encoding,
            is_late: i.is_multiple_of(3),
            is_cut: i.is_multiple_of(5),
            bytes,
        }
    }

    fn walk(log: &ChunkLog, last: ChunkRef, mut each: impl FnMut(&Part<'_>)) {
        let (mut at, mut scratch) = (last, Vec::new());
        while let Some((part, before)) = log.get(at, &mut scratch).unwrap() {
            each(&part);
            at = before;
        }
    }

    #[test]
    fn chunks_come_back_from_memory_and_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let scratch = Scratch::create(&fs, &dir.path().join("scratch")).unwrap();
        let mut log = ChunkLog::new(scratch.file(0));
        let bytes: Vec<Vec<u8>> = (0..400).map(|i: usize| vec![i as u8; i * i % 5000 + i / 399 * PIECE_SIZE]).collect();
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
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let scratch = Scratch::create(&fs, dir.path()).unwrap();
        let mut log = ChunkLog::new(scratch.file(0));
        let mut last = ChunkRef::NONE;
        (0..3).for_each(|i| log.append(&mut last, &part(i, b"bytes")));
        log.spill(true).unwrap();
        let path = log.file.path().to_owned();
        let size = std::fs::metadata(&path).unwrap().len() as usize;
        std::fs::write(&path, vec![0xff; size]).unwrap();
        assert!(matches!(log.get(last, &mut Vec::new()), Err(Error::Corrupt { .. })));
        std::fs::write(&path, vec![0; size / 2]).unwrap();
        assert!(log.get(last, &mut Vec::new()).is_err());
    }
}
