//! Reads a segment as a stream of records. Skips and reports damage, and continues with the next
//! fragment if it can be found, else with the next page.
//!
//! Invariants
//! 1. A record is returned only if all of its fragments are present, in order, with valid
//!    checksums.
//! 2. At most [`READ_SIZE`] bytes and one record are in memory.
//! 3. The file may grow while it is read. It is read up to its size when it was opened.

use std::path::PathBuf;
use std::sync::Arc;

use varve_env::damage::{DamageKind, DamageReport};
use varve_env::{Fs, ReadFile};
use varve_tsdb::{Error, Result};

use super::compression::{RECORD_SIZE_MAX, WalCompression};
use super::segment::Segment;

/// Size of a page.
pub const PAGE_SIZE: usize = 32 << 10;
/// Bytes per read.
const READ_SIZE: usize = 32 * PAGE_SIZE;
/// Size of the header of a fragment.
pub(crate) const HEADER_SIZE: usize = 7;
const TYPE_MASK: u8 = 0b111;
pub(super) const SNAPPY: u8 = 1 << 3;
pub(super) const ZSTD: u8 = 1 << 4;
pub(super) const FULL: u8 = 1;
pub(super) const FIRST: u8 = 2;
pub(super) const MIDDLE: u8 = 3;
pub(super) const LAST: u8 = 4;

/// A record as stored in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawRecord {
    /// Offset of its first fragment.
    pub offset: u64,
    /// Compression of `bytes`.
    pub compression: WalCompression,
    /// Data of all fragments.
    pub bytes: Vec<u8>,
}

/// Reuses the buffers of records: allocating them costs more than reading the records.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    pieces: Vec<Vec<u8>>,
    size: usize,
}

/// Maximum size of all pooled buffers, and of one of them. Larger ones are rare.
const SPARE_SIZE_MAX: usize = 4 << 20;
const PIECE_SIZE_MAX: usize = 64 << 10;

impl BufferPool {
    /// Returns a buffer with arbitrary content.
    pub(crate) fn get(&mut self) -> Vec<u8> {
        let piece = self.pieces.pop().unwrap_or_default();
        self.size -= piece.capacity();
        piece
    }

    /// Returns a buffer to the pool, unless that exceeds its limits.
    pub(crate) fn put(&mut self, piece: Vec<u8>) {
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
    /// Bytes that have been read, their offset in the file, and the position in them.
    buffer: Vec<u8>,
    buffer_offset: u64,
    position: usize,
    /// A record whose last fragment has not been read yet.
    open: Option<RawRecord>,
    /// The beginning of the current record is lost, which has been reported.
    is_lost: bool,
    /// Offset of the padding of the last page. Only the last page of a segment may be padded.
    zeros: Option<u64>,
}

/// The contents at a position of a page.
enum PagePart<'a> {
    Fragment {
        kind: u8,
        compression: WalCompression,
        data: &'a [u8],
    },
    /// Zeros up to the end of the page.
    Padding,
    /// The file ends in the middle of a fragment.
    Torn,
    Corrupt(&'static str),
}

impl SegmentReader {
    /// Opens a segment.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened.
    pub fn open(fs: &dyn Fs, segment: &Segment) -> Result<Self> {
        let file = fs
            .open(&segment.path)
            .map_err(Error::io("open", &segment.path))?;
        let size = file
            .size()
            .map_err(Error::io("read the size of", &segment.path))?;
        Ok(Self {
            file,
            path: segment.path.clone(),
            is_last: segment.is_last,
            size,
            buffer: Vec::new(),
            buffer_offset: 0,
            position: 0,
            open: None,
            is_lost: false,
            zeros: None,
        })
    }

    /// Returns the size of the file when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the offset in the file.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.buffer_offset + self.position as u64
    }

    /// Returns the next record, or `None` at the end. Reports damage, including bad sectors.
    pub fn next(&mut self, damage: &mut DamageReport) -> Option<RawRecord> {
        self.next_in(&mut BufferPool::default(), damage)
    }

    /// Returns the next record in a buffer of the pool.
    pub(crate) fn next_in(
        &mut self,
        spare: &mut BufferPool,
        damage: &mut DamageReport,
    ) -> Option<RawRecord> {
        loop {
            if self.position == self.buffer.len() && !self.fill(damage) {
                self.end(damage);
                return None;
            }
            let offset = self.position();
            if let Some(zeros) = self.zeros.take_if(|_| self.buffer[self.position] != 0) {
                self.lose(zeros, DamageKind::Corrupt, "zeros between records", damage);
            }
            let page = self.page();
            match piece(page, self.is_end_of_file(page)) {
                PagePart::Fragment {
                    kind,
                    compression,
                    data,
                } => {
                    let mut bytes = spare.get();
                    bytes.clear();
                    bytes.extend_from_slice(data);
                    self.position += HEADER_SIZE + bytes.len();
                    if let Some(record) = self.take(offset, kind, compression, bytes, spare, damage)
                    {
                        return Some(record);
                    }
                }
                PagePart::Padding => {
                    // A shorter remainder has no room for a fragment.
                    if page.len() >= HEADER_SIZE {
                        self.zeros = self.zeros.or(Some(offset));
                    }
                    self.position += self.page().len();
                }
                PagePart::Torn => {
                    let kind = if self.is_last {
                        DamageKind::TornTail
                    } else {
                        DamageKind::Corrupt
                    };
                    let len = page.len();
                    self.lose(
                        offset,
                        kind,
                        "file ends in the middle of a fragment",
                        damage,
                    );
                    self.position += len;
                }
                PagePart::Corrupt(reason) => {
                    let skipped = valid_after(page).unwrap_or(page.len());
                    self.lose(offset, DamageKind::Corrupt, reason, damage);
                    self.position += skipped;
                }
            }
        }
    }

    /// Returns the rest of the current page.
    fn page(&self) -> &[u8] {
        let left_in_page = PAGE_SIZE - (self.position() % PAGE_SIZE as u64) as usize;
        let rest = &self.buffer[self.position..];
        &rest[..left_in_page.min(rest.len())]
    }

    fn is_end_of_file(&self, page: &[u8]) -> bool {
        self.position() + page.len() as u64 == self.size
    }

    /// Appends a fragment to its record. Returns the record if it is complete.
    fn take(
        &mut self,
        offset: u64,
        kind: u8,
        compression: WalCompression,
        data: Vec<u8>,
        spare: &mut BufferPool,
        damage: &mut DamageReport,
    ) -> Option<RawRecord> {
        if matches!(kind, FULL | FIRST) {
            if let Some(open) = self.open.take() {
                damage.push(
                    &self.path,
                    open.offset,
                    DamageKind::Corrupt,
                    "record without its last fragment",
                );
            }
            self.is_lost = false;
            let record = RawRecord {
                offset,
                compression,
                bytes: data,
            };
            if kind == FULL {
                return Some(record);
            }
            self.open = Some(record);
            return None;
        }
        let Some(open) = &mut self.open else {
            if !self.is_lost {
                damage.push(
                    &self.path,
                    offset,
                    DamageKind::Corrupt,
                    "fragment without the beginning of its record",
                );
                self.is_lost = true;
            }
            return None;
        };
        if open.bytes.len() + data.len() > RECORD_SIZE_MAX {
            self.lose(
                offset,
                DamageKind::Corrupt,
                "record exceeds 128 MiB",
                damage,
            );
            return None;
        }
        open.bytes.extend_from_slice(&data);
        spare.put(data);
        open.compression = compression;
        if kind == LAST { self.open.take() } else { None }
    }

    /// Reports damage and drops the current record.
    fn lose(&mut self, offset: u64, kind: DamageKind, reason: &str, damage: &mut DamageReport) {
        let begun = self.open.take().map(|open| {
            format!(
                "{reason}; this also loses the record at byte {}",
                open.offset
            )
        });
        damage.push(
            &self.path,
            offset,
            kind,
            begun.unwrap_or_else(|| reason.to_owned()),
        );
        self.is_lost = true;
    }

    fn end(&mut self, damage: &mut DamageReport) {
        let kind = if self.is_last {
            DamageKind::TornTail
        } else {
            DamageKind::Corrupt
        };
        // The last page is padded if the segment ended normally. Otherwise it ends after a record.
        if let Some(zeros) = self
            .zeros
            .take()
            .filter(|zeros| zeros.next_multiple_of(PAGE_SIZE as u64) != self.size)
        {
            self.lose(zeros, kind, "file ends with zeros", damage);
        }
        if let Some(open) = self.open.take() {
            damage.push(
                &self.path,
                open.offset,
                kind,
                "record without its last fragment",
            );
        }
    }

    /// Reads more bytes. Returns `false` at the end of the file.
    fn fill(&mut self, damage: &mut DamageReport) -> bool {
        loop {
            self.buffer_offset += self.buffer.len() as u64;
            self.position = 0;
            let left = self.size.saturating_sub(self.buffer_offset);
            if left == 0 {
                self.buffer.clear();
                return false;
            }
            if self
                .read(READ_SIZE.min(usize::try_from(left).unwrap_or(READ_SIZE)))
                .is_ok()
            {
                return true;
            }
            // A bad sector loses its page, not the neighboring pages.
            match self.read(PAGE_SIZE.min(usize::try_from(left).unwrap_or(PAGE_SIZE))) {
                Ok(()) => return true,
                Err(error) => {
                    let offset = self.buffer_offset;
                    self.lose(
                        offset,
                        DamageKind::Corrupt,
                        &format!("cannot read page: {error}"),
                        damage,
                    );
                }
            }
        }
    }

    fn read(&mut self, size: usize) -> std::io::Result<()> {
        self.buffer.resize(size, 0);
        self.file.read_at(&mut self.buffer, self.buffer_offset)
    }
}

/// Parses the start of the rest of a page.
fn piece(page: &[u8], is_end_of_file: bool) -> PagePart<'_> {
    // What a fragment is that does not end in the page.
    let cut = if is_end_of_file {
        PagePart::Torn
    } else {
        PagePart::Corrupt("fragment exceeds its page")
    };
    let first = page[0];
    let kind = first & TYPE_MASK;
    if kind == 0 {
        let is_padding = page.iter().all(|&byte| byte == 0);
        return if is_padding {
            PagePart::Padding
        } else {
            PagePart::Corrupt("bytes after the end of a page")
        };
    }
    if kind > LAST || first & !(TYPE_MASK | SNAPPY | ZSTD) != 0 {
        return PagePart::Corrupt("unknown fragment type");
    }
    let Some((&[_, high, low, c0, c1, c2, c3], rest)) = page.split_first_chunk::<HEADER_SIZE>()
    else {
        return cut;
    };
    let Some(data) = rest.get(..usize::from(u16::from_be_bytes([high, low]))) else {
        return cut;
    };
    if crc32c::crc32c(data) != u32::from_be_bytes([c0, c1, c2, c3]) {
        return PagePart::Corrupt("checksum mismatch of a fragment");
    }
    let compression = match first & (SNAPPY | ZSTD) {
        0 => WalCompression::None,
        SNAPPY => WalCompression::Snappy,
        ZSTD => WalCompression::Zstd,
        _ => return PagePart::Corrupt("fragment with two compression flags"),
    };
    debug_assert!(
        matches!(kind, FULL | FIRST | MIDDLE | LAST),
        "checked above"
    );
    PagePart::Fragment {
        kind,
        compression,
        data,
    }
}

/// Returns the size of a damaged fragment if a valid fragment follows it in the page: only then its
/// size can be trusted.
fn valid_after(page: &[u8]) -> Option<usize> {
    let (&[_, high, low, ..], _) = page.split_first_chunk::<HEADER_SIZE>()?;
    let size = HEADER_SIZE + usize::from(u16::from_be_bytes([high, low]));
    let next = page.get(size..).filter(|next| !next.is_empty())?;
    let is_sound =
        matches!(piece(next, false), PagePart::Fragment { data, .. } if !data.is_empty());
    is_sound.then_some(size)
}
