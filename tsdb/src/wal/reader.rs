//! Reading a file of the log piece by piece: its frames, and what lies between them.
//!
//! A [`Reader`] holds [`WINDOW_SIZE`] bytes of the file. Only while it looks at a larger frame it holds all of that, and
//! only one reader at a time does ([`LargeFrames`]).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::SegmentKind;
use super::frame::{self, BadHeader, FRAME_HEADER_SIZE, Framing, HEADER_SIZE, MARKER, parse_file_header};
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile};

/// How much of a file is read at once.
pub(super) const WINDOW_SIZE: usize = 1 << 20;

/// Held by the one reader that looks at a frame larger than [`WINDOW_SIZE`]. Whoever holds it waits for nothing else.
#[derive(Debug, Default)]
pub(super) struct LargeFrames(Mutex<()>);

/// A frame whose checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Where it begins in the file.
    pub(super) offset: u64,
    /// How many bytes it takes there.
    pub(super) size: u64,
    /// Its number.
    pub(super) sequence: u64,
    /// How many frames are missing before it, going by its number.
    pub(super) n_missing: u64,
    /// What the payload is.
    pub(super) record: u8,
    /// The record.
    pub(super) payload: &'a [u8],
}

/// A piece of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// A sound frame.
    Frame(Frame<'a>),
    /// Bytes that are none; a sound frame follows.
    Damaged(Range<u64>),
    /// Bytes up to the end of the file that are none: what a crash left.
    Torn(Range<u64>),
}

impl Item<'_> {
    /// Returns how many bytes of the file it takes.
    pub(super) fn size(&self) -> u64 {
        match self {
            Item::Frame(frame) => frame.size,
            Item::Damaged(range) | Item::Torn(range) => range.end - range.start,
        }
    }
}

/// How a file begins.
#[derive(Debug)]
pub(super) enum Opened<'a> {
    /// With a sound header.
    Sound(Reader<'a>),
    /// With less than a header: nothing was written to it.
    Empty,
    /// With something else, in a file of so many bytes. No frame can be trusted, as the salt is not known.
    Damaged(u64),
}

/// Iterates over the pieces of a file.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    path: PathBuf,
    window: Window<'a>,
    framing: Framing,
    at: u64,
    next_sequence: u64,
}

/// As [`Item`], without the bytes.
enum Step {
    Frame { offset: u64, size: usize, sequence: u64, n_missing: u64, record: u8 },
    Damaged(Range<u64>),
    Torn(Range<u64>),
}

/// The part of a file that is in memory.
#[derive(Debug)]
struct Window<'a> {
    file: Arc<dyn ReadFile>,
    file_size: u64,
    bytes: Vec<u8>,
    /// Where `bytes` begin in the file.
    start: u64,
    large_frames: &'a LargeFrames,
    holds_large: Option<MutexGuard<'a, ()>>,
}

/// Looks at the header of a file only.
///
/// # Errors
/// [`Error::Io`], and [`Error::Version`] if its format version is not supported.
pub(super) fn check_version(fs: &dyn Fs, path: &Path, kind: SegmentKind) -> Result<()> {
    let file = fs.open(path).map_err(Error::io("open", path))?;
    let file_size = file.size().map_err(Error::io("read", path))?;
    let mut header = [0; HEADER_SIZE];
    if file_size < HEADER_SIZE as u64 {
        return Ok(());
    }
    file.read_at(&mut header, 0).map_err(Error::io("read", path))?;
    match parse_file_header(&header, kind) {
        Err(BadHeader::Version(found)) => Err(unsupported(path, found)),
        _ => Ok(()),
    }
}

fn unsupported(path: &Path, found: u8) -> Error {
    Error::Version { path: path.to_owned(), found: found.into(), supported: frame::VERSION.into() }
}

impl<'a> Reader<'a> {
    /// Opens a file of the log.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Version`] if its format version is not supported.
    pub(super) fn open(fs: &dyn Fs, path: &Path, kind: SegmentKind, large: &'a LargeFrames) -> Result<Opened<'a>> {
        let file = fs.open(path).map_err(Error::io("open", path))?;
        let file_size = file.size().map_err(Error::io("read", path))?;
        let mut window =
            Window { file, file_size, bytes: Vec::new(), start: 0, large_frames: large, holds_large: None };
        let header = window.get(0, HEADER_SIZE).map_err(Error::io("read", path))?;
        match parse_file_header(header, kind) {
            Ok(framing) => {
                let at = HEADER_SIZE as u64;
                Ok(Opened::Sound(Reader { path: path.to_owned(), window, framing, at, next_sequence: 0 }))
            }
            Err(BadHeader::Version(found)) => Err(unsupported(path, found)),
            Err(BadHeader::Damaged) if file_size < HEADER_SIZE as u64 => Ok(Opened::Empty),
            Err(BadHeader::Damaged) => Ok(Opened::Damaged(file_size)),
        }
    }

    /// Opens a file whose header is damaged, as if it had said this.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn open_as(fs: &dyn Fs, path: &Path, framing: Framing, large_frames: &'a LargeFrames) -> Result<Self> {
        let file = fs.open(path).map_err(Error::io("open", path))?;
        let file_size = file.size().map_err(Error::io("read", path))?;
        let window = Window { file, file_size, bytes: Vec::new(), start: 0, large_frames, holds_large: None };
        Ok(Reader { path: path.to_owned(), window, framing, at: HEADER_SIZE as u64, next_sequence: 0 })
    }

    /// Returns what the frames of the file look like.
    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn next(&mut self) -> Result<Option<Item<'_>>> {
        let step = match self.step() {
            Ok(step) => step,
            Err(e) => return Err(Error::io("read", &self.path)(e)),
        };
        Ok(step.map(|step| match step {
            Step::Frame { offset, size, sequence, n_missing, record } => {
                let start = (offset - self.window.start) as usize;
                let payload = &self.window.bytes[start..start + size][FRAME_HEADER_SIZE..];
                Item::Frame(Frame { offset, size: size as u64, sequence, n_missing, record, payload })
            }
            Step::Damaged(range) => Item::Damaged(range),
            Step::Torn(range) => Item::Torn(range),
        }))
    }

    /// Passes over the next piece. That of a frame is in the window then.
    fn step(&mut self) -> std::io::Result<Option<Step>> {
        let start = self.at;
        if start >= self.window.file_size {
            return Ok(None);
        }
        if let Some((size, sequence, record)) = self.frame_at(start, 0)? {
            let expected = std::mem::replace(&mut self.next_sequence, sequence.saturating_add(1));
            self.at += size as u64;
            let n_missing = sequence.saturating_sub(expected);
            return Ok(Some(Step::Frame { offset: start, size, sequence, n_missing, record }));
        }
        let next = self.next_frame(start)?;
        self.at = next.unwrap_or(self.window.file_size);
        Ok(Some(if next.is_some() { Step::Damaged(start..self.at) } else { Step::Torn(start..self.at) }))
    }

    /// Returns size, number and record of the sound frame at `at`, if there is one; `gap` bytes before it are not known.
    fn frame_at(&mut self, at: u64, gap: u64) -> std::io::Result<Option<(usize, u64, u8)>> {
        let header = self.window.get(at, FRAME_HEADER_SIZE)?;
        let Some(size) = self.framing.frame_size(header).filter(|&size| size as u64 <= self.window.file_size - at)
        else {
            return Ok(None);
        };
        let frame = self.window.get(at, size)?;
        let checked = self.framing.check_frame(frame, self.next_sequence, gap);
        Ok(checked.map(|(sequence, record)| (size, sequence, record)))
    }

    /// Returns where the first sound frame behind `start` begins. A length in a damaged header is not believed.
    fn next_frame(&mut self, start: u64) -> std::io::Result<Option<u64>> {
        let mut at = start + 1;
        while at < self.window.file_size {
            let bytes = self.window.rest(at)?;
            match bytes.iter().position(|&b| b == MARKER) {
                None => at += bytes.len() as u64,
                Some(found) => {
                    at += found as u64;
                    if self.frame_at(at, at - start)?.is_some() {
                        return Ok(Some(at));
                    }
                    at += 1;
                }
            }
        }
        Ok(None)
    }
}

impl<'a> Window<'a> {
    /// Returns the `size` bytes of the file from `at` on, fewer at its end.
    fn get(&mut self, at: u64, size: usize) -> std::io::Result<&[u8]> {
        let size = size.min(usize::try_from(self.file_size.saturating_sub(at)).unwrap_or(usize::MAX));
        if at < self.start || at + size as u64 > self.start + self.bytes.len() as u64 {
            self.load(at, size)?;
        }
        let from = (at - self.start) as usize;
        Ok(&self.bytes[from..from + size])
    }

    /// Returns what is in memory from `at` on, at least a byte; `at` lies inside the file.
    fn rest(&mut self, at: u64) -> std::io::Result<&[u8]> {
        self.get(at, 1)?;
        Ok(&self.bytes[(at - self.start) as usize..])
    }

    /// Reads `size` bytes or a window of them, whichever is more. What is there already is kept, not read again.
    fn load(&mut self, at: u64, size: usize) -> std::io::Result<()> {
        let fits = usize::try_from(self.file_size - at).unwrap_or(usize::MAX);
        let size = size.max(WINDOW_SIZE).min(fits);
        let kept = at.checked_sub(self.start).and_then(|passed| usize::try_from(passed).ok());
        match kept {
            Some(passed) if passed <= self.bytes.len() => drop(self.bytes.drain(..passed)),
            _ => self.bytes.clear(),
        }
        self.start = at;
        if size <= WINDOW_SIZE {
            self.bytes.truncate(size);
            self.bytes.shrink_to(WINDOW_SIZE);
            self.holds_large = None;
        } else if self.holds_large.is_none() {
            self.holds_large = Some(self.large_frames.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let have = self.bytes.len().min(size);
        self.bytes.reserve_exact(size - have);
        self.bytes.resize(size, 0);
        if let Err(e) = self.file.read_at(&mut self.bytes[have..], at + have as u64) {
            self.bytes.clear();
            return Err(e);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
