//! Writes the segments of one kind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_env::{AppendFile, Fs, remove_if_exists};

use super::file_name::SegmentKind;
use super::frame::{HEADER_SIZE, file_header};
use super::frame_buffer::FrameBuffer;
use crate::error::{Error, Result};

/// The segments of one kind that this process writes.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    kind: SegmentKind,
    /// The number of the next segment.
    pub(super) next_number: u64,
    segment: Option<Segment>,
    /// Closed segments that were not synced since their last write, in order.
    unsynced: Vec<UnsyncedFile>,
    /// A segment was created since the last sync, so the directory must be synced as well.
    dir_dirty: bool,
    /// Frames of the next write, including the frames of a failed write.
    pub(super) frames: FrameBuffer,
}

/// A file to sync.
#[derive(Debug, Clone)]
pub(super) struct UnsyncedFile {
    number: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn AppendFile>,
}

#[derive(Debug)]
struct Segment {
    written: UnsyncedFile,
    size: u64,
    salt: u64,
    next_sequence: u64,
    /// Written since the last sync.
    dirty: bool,
}

/// Reason why frames were not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The file is unchanged; the frames are retained and can be written later.
    Retryable(Error),
    /// An incomplete write could not be truncated.
    Torn(String),
}

impl SegmentWriter {
    /// Creates a writer without a segment. The first write creates one.
    pub(super) fn new(kind: SegmentKind, next_number: u64) -> Self {
        Self {
            kind,
            next_number,
            segment: None,
            unsynced: Vec::new(),
            dir_dirty: false,
            frames: FrameBuffer::default(),
        }
    }

    /// Writes all frames to the current segment, or to the next segment if the current one has
    /// reached `size_max` bytes.
    pub(super) fn write(
        &mut self,
        fs: &dyn Fs,
        dir: &Path,
        size_max: u64,
    ) -> Result<(), WriteError> {
        if self.frames.is_empty() {
            return Ok(());
        }
        if self
            .segment
            .as_ref()
            .is_some_and(|segment| segment.size >= size_max)
        {
            self.close();
        }
        if self.segment.is_none() {
            self.segment = Some(self.create(fs, dir).map_err(WriteError::Retryable)?);
        }
        let segment = self.segment.as_mut().expect("one was created above");
        let next_sequence = self.frames.seal(segment.salt, segment.next_sequence);
        let UnsyncedFile { path, file, .. } = &segment.written;
        if let Err(failed) = file.append(self.frames.bytes()) {
            file.truncate(segment.size)
                .map_err(|e| WriteError::Torn(format!("truncate {path:?}: {e}")))?;
            return Err(WriteError::Retryable(Error::io("write", path)(failed)));
        }
        segment.size += self.frames.size() as u64;
        segment.next_sequence = next_sequence;
        segment.dirty = true;
        self.frames.clear();
        Ok(())
    }

    /// Closes the segment. The next sync of the log syncs it, samples never before definitions.
    pub(super) fn close(&mut self) {
        let dirty = self.segment.take().filter(|segment| segment.dirty);
        self.unsynced.extend(dirty.map(|segment| segment.written));
    }

    /// Moves all files that need a sync to `unsynced` and marks them as synced. Returns `true` if
    /// the directory needs a sync.
    pub(super) fn take_unsynced(&mut self, unsynced: &mut Vec<UnsyncedFile>) -> bool {
        unsynced.append(&mut self.unsynced);
        if let Some(segment) = self.segment.as_mut().filter(|segment| segment.dirty) {
            segment.dirty = false;
            unsynced.push(segment.written.clone());
        }
        std::mem::take(&mut self.dir_dirty)
    }

    /// Notes that the directory has a new file and needs a sync.
    pub(super) fn note_new_file(&mut self) {
        self.dir_dirty = true;
    }

    /// Discards closed segments with numbers below `number`, which a checkpoint has replaced.
    pub(super) fn discard_before(&mut self, number: u64) {
        self.unsynced.retain(|unsynced| unsynced.number >= number);
    }

    /// Creates the next segment. It gets its name with its header, so that a segment without a header
    /// is damage.
    fn create(&mut self, fs: &dyn Fs, dir: &Path) -> Result<Segment> {
        let number = self.next_number;
        let path = dir.join(self.kind.file_name(number));
        let salt = getrandom::u64().map_err(|e| Error::io("salt", &path)(e.into()))?;
        let tmp = dir.join(self.kind.tmp_name(number));
        // An earlier attempt may have left it.
        remove_if_exists(fs, &tmp)?;
        let file = fs.create(&tmp).map_err(Error::io("create", &tmp))?;
        let named = file
            .append(&file_header(self.kind, salt))
            .map_err(Error::io("write", &tmp))
            .and_then(|()| fs.rename(&tmp, &path).map_err(Error::io("rename", &tmp)));
        named.inspect_err(|_| {
            // If the removal fails as well, the next attempt retries it.
            let _failed = remove_if_exists(fs, &tmp);
        })?;
        self.next_number += 1;
        self.dir_dirty = true;
        let written = UnsyncedFile { number, path, file };
        Ok(Segment {
            written,
            size: HEADER_SIZE as u64,
            salt,
            next_sequence: 0,
            dirty: true,
        })
    }
}
