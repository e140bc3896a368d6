//! A file of frames that one thread writes from start to end: a checkpoint, or a repaired file.

use std::path::Path;
use std::sync::Arc;

use varve_env::{AppendFile, Fs};

use super::file_name::SegmentKind;
use super::frame::file_header;
use super::frame_buffer::FrameBuffer;
use crate::error::{Error, Result};

/// Buffered bytes at which frames are written to the file.
const WRITE_SIZE: usize = 1 << 20;

/// A file that is being written. Frames are numbered from 0.
#[derive(Debug)]
pub(super) struct FrameFile<'a> {
    file: Arc<dyn AppendFile>,
    path: &'a Path,
    salt: u64,
    next_sequence: u64,
    frames: FrameBuffer,
    /// The payload of the next frame.
    pub(super) payload: Vec<u8>,
}

impl<'a> FrameFile<'a> {
    /// Creates the file and writes its header.
    pub(super) fn create(
        fs: &dyn Fs,
        path: &'a Path,
        kind: SegmentKind,
        salt: u64,
    ) -> Result<Self> {
        let file = fs.create(path).map_err(Error::io("create", path))?;
        file.append(&file_header(kind, salt))
            .map_err(Error::io("write", path))?;
        Ok(Self {
            file,
            path,
            salt,
            next_sequence: 0,
            frames: FrameBuffer::default(),
            payload: Vec::new(),
        })
    }

    /// Appends a frame with `payload`, unless it is empty, and clears it.
    pub(super) fn frame(&mut self, record: u8) -> Result<()> {
        if self.payload.is_empty() {
            return Ok(());
        }
        self.frames.add(record, &self.payload);
        self.payload.clear();
        self.write_if(WRITE_SIZE)
    }

    /// Appends a frame with another payload.
    pub(super) fn put(&mut self, record: u8, payload: &[u8]) -> Result<()> {
        self.frames.add(record, payload);
        self.write_if(WRITE_SIZE)
    }

    /// Writes all frames and syncs the file.
    pub(super) fn finish(mut self) -> Result<()> {
        self.write_if(0)?;
        self.file.sync().map_err(Error::io("sync", self.path))
    }

    fn write_if(&mut self, size_min: usize) -> Result<()> {
        if self.frames.size() >= size_min {
            self.next_sequence = self.frames.seal(self.salt, self.next_sequence);
            self.file
                .append(self.frames.bytes())
                .map_err(Error::io("write", self.path))?;
            self.frames.clear();
        }
        Ok(())
    }
}
