//! The segments of one kind that this process writes, and the frames on their way into them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SegmentKind;
use super::frame::{FRAME_HEADER_SIZE, HEADER_SIZE, begin_frame, file_header, finish_frame};
use super::payload::{Packer, is_worth_packing};
use crate::error::{Error, Result};
use crate::fs::{AppendFile, Fs};

/// Frames whose headers are still to be written.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Where each frame begins, and what its record is.
    starts: Vec<(usize, u8)>,
    packer: Packer,
    /// Memory for [`Frames::compress`].
    plain: (Vec<u8>, Vec<(usize, u8)>),
}

impl Frames {
    /// Begins a frame and returns the buffer to which its record is appended.
    pub(super) fn begin(&mut self, record: u8) -> &mut Vec<u8> {
        self.starts.push((begin_frame(&mut self.bytes), record));
        &mut self.bytes
    }

    /// Returns the buffer of the last frame if it is of this record and smaller than `size`, else of a new one.
    pub(super) fn open(&mut self, record: u8, size: usize) -> &mut Vec<u8> {
        match self.starts.last() {
            Some(&(start, last)) if last == record && self.bytes.len() - start < size => &mut self.bytes,
            _ => self.begin(record),
        }
    }

    /// Counts the bytes that wait.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Tells whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Moves the frames of `other` behind these.
    pub(super) fn take(&mut self, other: &mut Self) {
        if self.is_empty() {
            std::mem::swap(&mut self.bytes, &mut other.bytes);
            std::mem::swap(&mut self.starts, &mut other.starts);
            return;
        }
        let offset = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        self.starts.extend(other.starts.drain(..).map(|(start, record)| (start + offset, record)));
    }

    /// Writes the headers, numbered from `sequence`, and returns the number of the next frame.
    pub(super) fn seal(&mut self, salt: u64, mut sequence: u64) -> u64 {
        for (i, &(start, record)) in self.starts.iter().enumerate() {
            let end = self.starts.get(i + 1).map_or(self.bytes.len(), |next| next.0);
            finish_frame(&mut self.bytes[..end], start, salt, sequence, record);
            sequence += 1;
        }
        sequence
    }

    /// Compresses the payloads of large frames that are not compressed yet. The memory that it takes is kept as long as
    /// there are any: they come in floods.
    pub(super) fn compress(&mut self) {
        let large = |(i, &(start, record)): (usize, &(usize, u8))| {
            let end = self.starts.get(i + 1).map_or(self.bytes.len(), |next| next.0);
            is_worth_packing(record, end - start - FRAME_HEADER_SIZE)
        };
        if !self.starts.iter().enumerate().any(large) {
            (self.packer, self.plain) = Default::default();
            return;
        }
        let (mut bytes, mut starts) = std::mem::take(&mut self.plain);
        std::mem::swap(&mut self.bytes, &mut bytes);
        std::mem::swap(&mut self.starts, &mut starts);
        for (i, &(start, record)) in starts.iter().enumerate() {
            let end = starts.get(i + 1).map_or(bytes.len(), |next| next.0);
            self.add(record, &bytes[start + FRAME_HEADER_SIZE..end]);
        }
        bytes.clear();
        starts.clear();
        self.plain = (bytes, starts);
    }

    /// Appends a frame, compressed if that makes it smaller.
    pub(super) fn add(&mut self, record: u8, payload: &[u8]) {
        let start = begin_frame(&mut self.bytes);
        let record = self.packer.pack(record, payload, &mut self.bytes);
        self.starts.push((start, record));
    }

    /// Returns all that was sealed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Forgets all frames and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }
}

/// The segments of one kind that this process writes.
#[derive(Debug)]
pub(super) struct Stream {
    kind: SegmentKind,
    /// The number of the next segment.
    pub(super) next_number: u64,
    segment: Option<Segment>,
    /// Closed segments that wait for their last sync, in order.
    unsynced: Vec<Unsynced>,
    /// A segment was made since the last sync: the folder has to be synced as well.
    dir_dirty: bool,
    /// What is to be written next; after a failed write, what is still to be written.
    pub(super) frames: Frames,
}

/// A file to sync, with its number, and its path for the error.
#[derive(Debug)]
pub(super) struct Unsynced {
    number: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn AppendFile>,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    path: PathBuf,
    file: Arc<dyn AppendFile>,
    size: u64,
    salt: u64,
    next_sequence: u64,
    /// Not synced since the last write.
    dirty: bool,
}

/// Why frames were not written.
#[derive(Debug)]
pub(super) enum Refused {
    /// The file is as it was; the frames are kept and can be written later.
    Whole(Error),
    /// What was half written could not be cut off again.
    Half(String),
}

impl Stream {
    /// Starts without a segment; none is made before the first write.
    pub(super) fn new(kind: SegmentKind, next_number: u64) -> Self {
        Self { kind, next_number, segment: None, unsynced: Vec::new(), dir_dirty: false, frames: Frames::default() }
    }

    /// Writes all frames to the current segment, or to the next one if that is `size_max` large.
    pub(super) fn write(&mut self, fs: &dyn Fs, dir: &Path, size_max: u64) -> Result<(), Refused> {
        if self.frames.is_empty() {
            return Ok(());
        }
        if self.segment.as_ref().is_some_and(|segment| segment.size >= size_max) {
            self.close();
        }
        if self.segment.is_none() {
            self.segment = Some(self.create(fs, dir).map_err(Refused::Whole)?);
        }
        let segment = self.segment.as_mut().expect("one was created above");
        let next_sequence = self.frames.seal(segment.salt, segment.next_sequence);
        if let Err(refused) = segment.file.append(self.frames.bytes()) {
            let cut = segment.file.truncate(segment.size);
            cut.map_err(|e| Refused::Half(format!("cut {:?}: {e}", segment.path)))?;
            return Err(Refused::Whole(Error::io("write", &segment.path)(refused)));
        }
        segment.size += self.frames.size() as u64;
        segment.next_sequence = next_sequence;
        segment.dirty = true;
        self.frames.clear();
        Ok(())
    }

    /// Closes the segment. Its last sync comes with the next one of the log, in order: never before that of definitions.
    pub(super) fn close(&mut self) {
        let dirty = self.segment.take().filter(|segment| segment.dirty);
        self.unsynced.extend(dirty.map(|Segment { number, path, file, .. }| Unsynced { number, path, file }));
    }

    /// Moves what needs a sync to `unsynced` and tells whether the folder does. From now on it all counts as synced.
    pub(super) fn take_unsynced(&mut self, unsynced: &mut Vec<Unsynced>) -> bool {
        unsynced.append(&mut self.unsynced);
        if let Some(segment) = self.segment.as_mut().filter(|segment| segment.dirty) {
            segment.dirty = false;
            let (path, file) = (segment.path.clone(), Arc::clone(&segment.file));
            unsynced.push(Unsynced { number: segment.number, path, file });
        }
        std::mem::take(&mut self.dir_dirty)
    }

    /// Lets go of closed segments that no longer count.
    pub(super) fn forget_before(&mut self, number: u64) {
        self.unsynced.retain(|unsynced| unsynced.number >= number);
    }

    /// Creates the segment of the next number. What a full disk leaves of it is removed.
    fn create(&mut self, fs: &dyn Fs, dir: &Path) -> Result<Segment> {
        let number = self.next_number;
        let path = dir.join(self.kind.file_name(number));
        let salt = getrandom::u64().map_err(|e| Error::io("salt", &path)(e.into()))?;
        let file = fs.create(&path).map_err(Error::io("create", &path))?;
        if let Err(refused) = file.append(&file_header(self.kind, salt)) {
            if fs.remove(&path).is_err() {
                // The number is used up by a file that replay passes over.
                self.next_number += 1;
            }
            return Err(Error::io("write", &path)(refused));
        }
        self.next_number += 1;
        self.dir_dirty = true;
        Ok(Segment { number, path, file, size: HEADER_SIZE as u64, salt, next_sequence: 0, dirty: true })
    }
}
