//! Reads a log file: frames, and the bytes between them that are not valid frames.
//!
//! A [`Reader`] holds [`WINDOW_SIZE`] bytes of the file. A larger frame is read completely, by one
//! reader at a time ([`LargeFrameLock`]).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use varve_env::{Fs, ReadFile};

use super::checkpoint::record::END;
use super::file_name::SegmentKind;
use super::frame::{
    self, BadHeader, COMPRESSED, FRAME_HEADER_SIZE, Framing, HEADER_SIZE, MARKER, parse_file_header,
};
use crate::error::{Error, Result};

/// Bytes of a file that are read at once.
pub(super) const WINDOW_SIZE: usize = 1 << 20;
/// Maximum number of bytes between two valid frames: more than a power cut can lose of a segment,
/// which is closed after the write that reaches the size of the options, at most 1 GiB. A longer
/// gap is the end of the file, so that a reader does not read an extended sparse file to its end.
pub(super) const GAP_MAX: u64 = if cfg!(test) { 64 << 20 } else { 2 << 30 };

/// Held by the one reader that reads a frame larger than [`WINDOW_SIZE`]. The holder waits for
/// nothing else.
#[derive(Debug, Default)]
pub(crate) struct LargeFrameLock(Mutex<()>);

/// A valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Size in the file, header included.
    pub(crate) size: u64,
    /// Sequence number.
    pub(crate) sequence: u64,
    /// Frames missing before it, according to the sequence numbers.
    pub(crate) n_missing: u64,
    /// The record byte.
    pub(crate) record: u8,
    /// The payload, possibly compressed.
    pub(crate) payload: &'a [u8],
}

impl Frame<'_> {
    /// Returns the error for a frame of `path` whose record does not decode.
    pub(crate) fn unknown_record(&self, path: &Path) -> Error {
        let reason = format!(
            "frame {} holds no record that this program knows; open it with the program that wrote it, or move the file \
             away to continue without it",
            self.sequence
        );
        Error::Corrupt {
            path: path.to_owned(),
            offset: self.offset,
            reason,
        }
    }
}

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A valid frame.
    Frame(Frame<'a>),
    /// Bytes that are not a valid frame, followed by one.
    Damaged(Range<u64>),
    /// All bytes up to the end of the file, if they begin with an incomplete write or a gap of
    /// [`GAP_MAX`], or follow the end of a checkpoint.
    Torn(Range<u64>),
}

impl Item<'_> {
    /// Returns the size of the part in the file.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Item::Frame(frame) => frame.size,
            Item::Damaged(range) | Item::Torn(range) => range.end - range.start,
        }
    }
}

/// The result of opening a file.
#[derive(Debug)]
pub(crate) enum Opened<'a> {
    /// The header is valid.
    Valid(Reader<'a>),
    /// The file is shorter than a header. Contains its size.
    Empty(u64),
    /// The header is damaged, so the salt is unknown and no frame can be verified. Contains the
    /// size of the file.
    Damaged(u64),
}

/// Iterates over the parts of a file.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    path: PathBuf,
    window: Window<'a>,
    framing: Framing,
    kind: SegmentKind,
    offset: u64,
    next_sequence: u64,
    /// The last frame of a checkpoint has been read.
    is_complete: bool,
}

/// Like [`Item`], without the payload.
enum Step {
    Frame {
        offset: u64,
        size: usize,
        sequence: u64,
        n_missing: u64,
        record: u8,
    },
    Damaged(Range<u64>),
    Torn(Range<u64>),
}

/// The part of a file that is in memory.
#[derive(Debug)]
struct Window<'a> {
    file: Arc<dyn ReadFile>,
    file_size: u64,
    bytes: Vec<u8>,
    /// Offset of `bytes` in the file.
    start: u64,
    large_frames: &'a LargeFrameLock,
    holds_large: Option<MutexGuard<'a, ()>>,
}

/// Checks only the format version in the header of a file.
///
/// # Errors
/// [`Error::Io`]; [`Error::Version`] if the format version is not supported.
pub(crate) fn check_version(fs: &dyn Fs, path: &Path, kind: SegmentKind) -> Result<()> {
    let file = fs.open(path).map_err(Error::io("open", path))?;
    let file_size = file.size().map_err(Error::io("read", path))?;
    let mut header = [0; HEADER_SIZE];
    if file_size < HEADER_SIZE as u64 {
        return Ok(());
    }
    file.read_at(&mut header, 0)
        .map_err(Error::io("read", path))?;
    match parse_file_header(&header, kind) {
        Err(BadHeader::Version(found)) => Err(unsupported(path, found)),
        _ => Ok(()),
    }
}

fn unsupported(path: &Path, found: u8) -> Error {
    Error::Version {
        path: path.to_owned(),
        found: found.into(),
        supported: frame::VERSION.into(),
    }
}

impl<'a> Reader<'a> {
    /// Opens a log file.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Version`] if the format version is not supported.
    pub(crate) fn open(
        fs: &dyn Fs,
        path: &Path,
        kind: SegmentKind,
        large: &'a LargeFrameLock,
    ) -> Result<Opened<'a>> {
        let mut window = Window::open(fs, path, large)?;
        let file_size = window.file_size;
        let header = window
            .get(0, HEADER_SIZE)
            .map_err(Error::io("read", path))?;
        match parse_file_header(header, kind) {
            Ok(framing) => Ok(Opened::Valid(Reader::new(path, kind, window, framing))),
            Err(BadHeader::Version(found)) => Err(unsupported(path, found)),
            Err(BadHeader::Damaged) if file_size < HEADER_SIZE as u64 => {
                Ok(Opened::Empty(file_size))
            }
            Err(BadHeader::Damaged) => Ok(Opened::Damaged(file_size)),
        }
    }

    /// Opens a file whose header is damaged, with the salt of `framing`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn open_as(
        fs: &dyn Fs,
        path: &Path,
        kind: SegmentKind,
        framing: Framing,
        large_frames: &'a LargeFrameLock,
    ) -> Result<Self> {
        Ok(Self::new(
            path,
            kind,
            Window::open(fs, path, large_frames)?,
            framing,
        ))
    }

    fn new(path: &Path, kind: SegmentKind, window: Window<'a>, framing: Framing) -> Self {
        let path = path.to_owned();
        let offset = HEADER_SIZE as u64;
        Self {
            path,
            window,
            framing,
            kind,
            offset,
            next_sequence: 0,
            is_complete: false,
        }
    }

    /// Returns the framing, which verifies the frames of the file.
    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the next part, or `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn next(&mut self) -> Result<Option<Item<'_>>> {
        let step = match self.step() {
            Ok(step) => step,
            Err(e) => return Err(Error::io("read", &self.path)(e)),
        };
        Ok(step.map(|step| match step {
            Step::Frame {
                offset,
                size,
                sequence,
                n_missing,
                record,
            } => {
                let start = (offset - self.window.start) as usize;
                let payload = &self.window.bytes[start..start + size][FRAME_HEADER_SIZE..];
                Item::Frame(Frame {
                    offset,
                    size: size as u64,
                    sequence,
                    n_missing,
                    record,
                    payload,
                })
            }
            Step::Damaged(range) => Item::Damaged(range),
            Step::Torn(range) => Item::Torn(range),
        }))
    }

    /// Advances past the next part. If it is a frame, the whole frame is in the window.
    fn step(&mut self) -> std::io::Result<Option<Step>> {
        let start = self.offset;
        if start >= self.window.file_size {
            return Ok(None);
        }
        if self.is_complete {
            self.offset = self.window.file_size;
            return Ok(Some(Step::Torn(start..self.offset)));
        }
        if let Some((size, sequence, record)) = self.frame_at(start, 0)? {
            let expected = std::mem::replace(&mut self.next_sequence, sequence.saturating_add(1));
            self.offset += size as u64;
            self.is_complete = self.kind == SegmentKind::Checkpoint && record & !COMPRESSED == END;
            let n_missing = sequence.saturating_sub(expected);
            return Ok(Some(Step::Frame {
                offset: start,
                size,
                sequence,
                n_missing,
                record,
            }));
        }
        let next = self.next_frame(start)?;
        self.offset = next.unwrap_or(self.window.file_size);
        Ok(Some(if next.is_some() {
            Step::Damaged(start..self.offset)
        } else {
            Step::Torn(start..self.offset)
        }))
    }

    /// Returns size, sequence number and record of the frame at `offset` if it is valid. The `gap`
    /// bytes before it are not valid frames.
    fn frame_at(&mut self, offset: u64, gap: u64) -> std::io::Result<Option<(usize, u64, u8)>> {
        let header = self.window.get(offset, FRAME_HEADER_SIZE)?;
        let Some(size) = self
            .framing
            .frame_size(header)
            .filter(|&size| size as u64 <= self.window.file_size - offset)
        else {
            return Ok(None);
        };
        let frame = self.window.get(offset, size)?;
        let checked = self.framing.check_frame(frame, self.next_sequence, gap);
        Ok(checked.map(|(sequence, record)| (size, sequence, record)))
    }

    /// Returns the offset of the first valid frame within [`GAP_MAX`] after `start`. The size in a
    /// damaged header is not trusted.
    fn next_frame(&mut self, start: u64) -> std::io::Result<Option<u64>> {
        let mut offset = start + 1;
        while offset < self.window.file_size.min(start.saturating_add(GAP_MAX)) {
            let bytes = self.window.rest(offset)?;
            match bytes.iter().position(|&b| b == MARKER) {
                None => offset += bytes.len() as u64,
                Some(found) => {
                    offset += found as u64;
                    if self.frame_at(offset, offset - start)?.is_some() {
                        return Ok(Some(offset));
                    }
                    offset += 1;
                }
            }
        }
        Ok(None)
    }
}

impl<'a> Window<'a> {
    fn open(fs: &dyn Fs, path: &Path, large_frames: &'a LargeFrameLock) -> Result<Self> {
        let file = fs.open(path).map_err(Error::io("open", path))?;
        let file_size = file.size().map_err(Error::io("read", path))?;
        Ok(Self {
            file,
            file_size,
            bytes: Vec::new(),
            start: 0,
            large_frames,
            holds_large: None,
        })
    }

    /// Returns the `size` bytes of the file from `offset` on, fewer at its end.
    fn get(&mut self, offset: u64, size: usize) -> std::io::Result<&[u8]> {
        let size =
            size.min(usize::try_from(self.file_size.saturating_sub(offset)).unwrap_or(usize::MAX));
        if offset < self.start || offset + size as u64 > self.start + self.bytes.len() as u64 {
            self.load(offset, size)?;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..from + size])
    }

    /// Returns the bytes in memory from `offset` on, at least one. `offset` must be inside the
    /// file.
    fn rest(&mut self, offset: u64) -> std::io::Result<&[u8]> {
        self.get(offset, 1)?;
        Ok(&self.bytes[(offset - self.start) as usize..])
    }

    /// Reads `size` bytes, at least a window. Bytes that are in memory already are not read again.
    fn load(&mut self, offset: u64, size: usize) -> std::io::Result<()> {
        let fits = usize::try_from(self.file_size - offset).unwrap_or(usize::MAX);
        let size = size.max(WINDOW_SIZE).min(fits);
        let kept = offset
            .checked_sub(self.start)
            .and_then(|passed| usize::try_from(passed).ok());
        match kept {
            Some(passed) if passed <= self.bytes.len() => drop(self.bytes.drain(..passed)),
            _ => self.bytes.clear(),
        }
        self.start = offset;
        if size <= WINDOW_SIZE {
            self.bytes.truncate(size);
            self.bytes.shrink_to(WINDOW_SIZE);
            self.holds_large = None;
        } else if self.holds_large.is_none() {
            self.holds_large = Some(self.large_frames.0.lock());
        }
        let have = self.bytes.len().min(size);
        self.bytes.reserve_exact(size - have);
        self.bytes.resize(size, 0);
        if let Err(e) = self
            .file
            .read_at(&mut self.bytes[have..], offset + have as u64)
        {
            self.bytes.clear();
            return Err(e);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
