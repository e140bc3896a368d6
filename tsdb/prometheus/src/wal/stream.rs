//! A segment as a stream of records. What is damaged is reported and left out; the stream goes on with the next fragment
//! where that can still be found, else with the next page.
//!
//! Invariants
//! 1. A record comes out only if all of its fragments are there, in order, with the right checksums.
//! 2. No more than one read of [`READ_SIZE`] and one record are in memory.
//! 3. The file may grow meanwhile: it is read as far as it went when it was opened.

use std::path::PathBuf;
use std::sync::Arc;

use varve_tsdb::fs::damage::{DamageKind, DamageReport};
use varve_tsdb::fs::{Fs, ReadFile};
use varve_tsdb::{Error, Result};

use super::compression::{Compression, RECORD_SIZE_MAX};
use super::segments::Segment;

/// Bytes of a page.
pub const PAGE_SIZE: usize = 32 << 10;
/// Bytes that are read at once.
const READ_SIZE: usize = 32 * PAGE_SIZE;
/// Bytes in front of the data of a fragment.
const HEADER_SIZE: usize = 7;
const TYPE_MASK: u8 = 0b111;
const SNAPPY: u8 = 1 << 3;
const ZSTD: u8 = 1 << 4;
const FULL: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// A record as it lies in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRecord {
    /// Where its first fragment begins.
    pub offset: u64,
    /// How `bytes` are compressed.
    pub compression: Compression,
    /// The data of its fragments.
    pub bytes: Vec<u8>,
}

/// Memory of records that are done with, for others: to give it back and ask for it again costs more than to read them.
#[derive(Debug, Default)]
pub(crate) struct SpareMemory {
    pieces: Vec<Vec<u8>>,
    size: usize,
}

/// Most bytes of memory that is kept, and of a piece of it: larger ones are rare.
const SPARE_SIZE_MAX: usize = 4 << 20;
const PIECE_SIZE_MAX: usize = 64 << 10;

impl SpareMemory {
    /// Returns memory, whatever bytes are in it.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let piece = self.pieces.pop().unwrap_or_default();
        self.size -= piece.capacity();
        piece
    }

    /// Keeps memory, unless that would be too much.
    pub(crate) fn give(&mut self, piece: Vec<u8>) {
        let size = piece.capacity();
        if (1..=PIECE_SIZE_MAX).contains(&size) && self.size + size <= SPARE_SIZE_MAX {
            self.size += size;
            self.pieces.push(piece);
        }
    }
}

/// Reads the records of a segment.
#[derive(Debug)]
pub struct SegmentReader {
    file: Arc<dyn ReadFile>,
    path: PathBuf,
    is_last: bool,
    size: u64,
    /// Bytes that were read, where they begin in the file, and the next one of them that was not looked at.
    buffer: Vec<u8>,
    buffer_offset: u64,
    at: usize,
    /// The record whose last fragment did not come yet.
    open: Option<RawRecord>,
    /// Fragments belong to a record whose beginning was lost and reported.
    is_lost: bool,
    /// Where zeros began that fill a page up: only the last page of a segment that has records may end so.
    zeros: Option<u64>,
}

/// What stands at a place of a page.
enum Piece<'a> {
    Fragment {
        kind: u8,
        compression: Compression,
        data: &'a [u8],
    },
    /// Zeros up to the end of the page.
    End,
    /// The file ends in the middle of a fragment.
    Torn,
    Bad(&'static str),
}

impl SegmentReader {
    /// Opens a segment.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened.
    pub fn open(fs: &dyn Fs, segment: &Segment) -> Result<Self> {
        let file = fs.open(&segment.path).map_err(Error::io("open", &segment.path))?;
        let size = file.size().map_err(Error::io("read the size of", &segment.path))?;
        Ok(Self {
            file,
            path: segment.path.clone(),
            is_last: segment.is_last,
            size,
            buffer: Vec::new(),
            buffer_offset: 0,
            at: 0,
            open: None,
            is_lost: false,
            zeros: None,
        })
    }

    /// Returns the bytes of the file when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns how far the file was read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.buffer_offset + self.at as u64
    }

    /// Takes the next record.
    ///
    /// What cannot be read, bad sectors included, is noted in `damage`; `None` is the end.
    pub fn next(&mut self, damage: &mut DamageReport) -> Option<RawRecord> {
        self.next_in(&mut SpareMemory::default(), damage)
    }

    /// As [`SegmentReader::next`], in memory that is there already.
    pub(crate) fn next_in(&mut self, spare: &mut SpareMemory, damage: &mut DamageReport) -> Option<RawRecord> {
        loop {
            if self.at == self.buffer.len() && !self.fill(damage) {
                self.end(damage);
                return None;
            }
            let offset = self.position();
            if let Some(zeros) = self.zeros.take_if(|_| self.buffer[self.at] != 0) {
                self.lose(zeros, DamageKind::Corrupt, "zeros stand in front of more records", damage);
            }
            let page = self.page();
            match piece(page, self.is_end_of_file(page)) {
                Piece::Fragment { kind, compression, data } => {
                    let mut bytes = spare.take();
                    bytes.clear();
                    bytes.extend_from_slice(data);
                    self.at += HEADER_SIZE + bytes.len();
                    if let Some(record) = self.take(offset, kind, compression, bytes, spare, damage) {
                        return Some(record);
                    }
                }
                Piece::End => {
                    // What is shorter has no room for a fragment.
                    if page.len() >= HEADER_SIZE {
                        self.zeros = self.zeros.or(Some(offset));
                    }
                    self.at += self.page().len();
                }
                Piece::Torn => {
                    let kind = if self.is_last { DamageKind::TornTail } else { DamageKind::Corrupt };
                    let len = page.len();
                    self.lose(offset, kind, "the file ends in the middle of a fragment", damage);
                    self.at += len;
                }
                Piece::Bad(reason) => {
                    let skipped = sound_after(page).unwrap_or(page.len());
                    self.lose(offset, DamageKind::Corrupt, reason, damage);
                    self.at += skipped;
                }
            }
        }
    }

    /// What was not looked at of the page that comes next.
    fn page(&self) -> &[u8] {
        let left_in_page = PAGE_SIZE - (self.position() % PAGE_SIZE as u64) as usize;
        let rest = &self.buffer[self.at..];
        &rest[..left_in_page.min(rest.len())]
    }

    fn is_end_of_file(&self, page: &[u8]) -> bool {
        self.position() + page.len() as u64 == self.size
    }

    /// Adds a fragment to the record that it belongs to; returns the record if it is whole.
    fn take(
        &mut self,
        offset: u64,
        kind: u8,
        compression: Compression,
        data: Vec<u8>,
        spare: &mut SpareMemory,
        damage: &mut DamageReport,
    ) -> Option<RawRecord> {
        if matches!(kind, FULL | FIRST) {
            if let Some(open) = self.open.take() {
                damage.push(&self.path, open.offset, DamageKind::Corrupt, "a record without its last fragment");
            }
            self.is_lost = false;
            let record = RawRecord { offset, compression, bytes: data };
            if kind == FULL {
                return Some(record);
            }
            self.open = Some(record);
            return None;
        }
        let Some(open) = &mut self.open else {
            if !self.is_lost {
                damage.push(&self.path, offset, DamageKind::Corrupt, "a fragment of a record that has no beginning");
                self.is_lost = true;
            }
            return None;
        };
        if open.bytes.len() + data.len() > RECORD_SIZE_MAX {
            self.lose(offset, DamageKind::Corrupt, "a record is larger than any that Prometheus writes", damage);
            return None;
        }
        open.bytes.extend_from_slice(&data);
        spare.give(data);
        open.compression = compression;
        if kind == LAST { self.open.take() } else { None }
    }

    /// Notes damage, which costs the record that is under way.
    fn lose(&mut self, offset: u64, kind: DamageKind, reason: &str, damage: &mut DamageReport) {
        let begun =
            self.open.take().map(|open| format!("{reason}; lost with it: the record from byte {}", open.offset));
        damage.push(&self.path, offset, kind, begun.unwrap_or_else(|| reason.to_owned()));
        self.is_lost = true;
    }

    fn end(&mut self, damage: &mut DamageReport) {
        let kind = if self.is_last { DamageKind::TornTail } else { DamageKind::Corrupt };
        // The last page is filled up if a segment ends as it should, else it ends with its records.
        if let Some(zeros) = self.zeros.take().filter(|zeros| zeros.next_multiple_of(PAGE_SIZE as u64) != self.size) {
            self.lose(zeros, kind, "the file ends with zeros that are no records", damage);
        }
        if let Some(open) = self.open.take() {
            damage.push(&self.path, open.offset, kind, "a record without its last fragment");
        }
    }

    /// Reads on; `false` at the end of the file.
    fn fill(&mut self, damage: &mut DamageReport) -> bool {
        loop {
            self.buffer_offset += self.buffer.len() as u64;
            self.at = 0;
            let left = self.size.saturating_sub(self.buffer_offset);
            if left == 0 {
                self.buffer.clear();
                return false;
            }
            if self.read(READ_SIZE.min(usize::try_from(left).unwrap_or(READ_SIZE))).is_ok() {
                return true;
            }
            // A bad sector costs its page, not the pages around it.
            match self.read(PAGE_SIZE.min(usize::try_from(left).unwrap_or(PAGE_SIZE))) {
                Ok(()) => return true,
                Err(error) => {
                    let offset = self.buffer_offset;
                    self.lose(offset, DamageKind::Corrupt, &format!("the page cannot be read: {error}"), damage);
                }
            }
        }
    }

    fn read(&mut self, size: usize) -> std::io::Result<()> {
        self.buffer.resize(size, 0);
        self.file.read_at(&mut self.buffer, self.buffer_offset)
    }
}

/// Looks at the front of what is left of a page.
fn piece(page: &[u8], is_end_of_file: bool) -> Piece<'_> {
    let cut = || {
        if is_end_of_file { Piece::Torn } else { Piece::Bad("a fragment goes beyond its page") }
    };
    let first = page[0];
    let kind = first & TYPE_MASK;
    if kind == 0 {
        let is_padding = page.iter().all(|&byte| byte == 0);
        return if is_padding { Piece::End } else { Piece::Bad("a page has bytes behind its end") };
    }
    if kind > LAST || first & !(TYPE_MASK | SNAPPY | ZSTD) != 0 {
        return Piece::Bad("a fragment is of no known type");
    }
    let Some((&[_, high, low, c0, c1, c2, c3], rest)) = page.split_first_chunk::<HEADER_SIZE>() else { return cut() };
    let Some(data) = rest.get(..usize::from(u16::from_be_bytes([high, low]))) else { return cut() };
    if crc32c::crc32c(data) != u32::from_be_bytes([c0, c1, c2, c3]) {
        return Piece::Bad("the checksum of a fragment is wrong");
    }
    let compression = match first & (SNAPPY | ZSTD) {
        0 => Compression::None,
        SNAPPY => Compression::Snappy,
        ZSTD => Compression::Zstd,
        _ => return Piece::Bad("a fragment has two compressions"),
    };
    debug_assert!(matches!(kind, FULL | FIRST | MIDDLE | LAST), "checked above");
    Piece::Fragment { kind, compression, data }
}

/// Returns the size of a damaged fragment if the one behind it, which is not the end of the page, is sound: only then is
/// its size to be believed.
fn sound_after(page: &[u8]) -> Option<usize> {
    let (&[_, high, low, ..], _) = page.split_first_chunk::<HEADER_SIZE>()?;
    let size = HEADER_SIZE + usize::from(u16::from_be_bytes([high, low]));
    let next = page.get(size..).filter(|next| !next.is_empty())?;
    let is_sound = matches!(piece(next, false), Piece::Fragment { data, .. } if !data.is_empty());
    is_sound.then_some(size)
}
