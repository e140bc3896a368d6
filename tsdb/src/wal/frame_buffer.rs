//! Frames in memory, before they are written to a file.

use super::compression::{Compressor, is_compressible};
use super::frame::{FRAME_HEADER_SIZE, begin_frame, finish_frame};

/// Frames whose headers are not written yet.
#[derive(Debug, Default)]
pub(super) struct FrameBuffer {
    bytes: Vec<u8>,
    /// Start offset in `bytes` and record of each frame.
    frames: Vec<(usize, u8)>,
    compressor: Compressor,
    /// Input buffers of [`FrameBuffer::compress`], kept for reuse.
    plain: (Vec<u8>, Vec<(usize, u8)>),
}

impl FrameBuffer {
    /// Begins a frame and returns the buffer to which its payload is appended.
    pub(super) fn begin(&mut self, record: u8) -> &mut Vec<u8> {
        self.frames.push((begin_frame(&mut self.bytes), record));
        &mut self.bytes
    }

    /// Returns the buffer of the last frame if it has record `record` and fewer than `size` bytes.
    /// Otherwise begins a frame.
    pub(super) fn open(&mut self, record: u8, size: usize) -> &mut Vec<u8> {
        match self.frames.last() {
            Some(&(start, last)) if last == record && self.bytes.len() - start < size => {
                &mut self.bytes
            }
            _ => self.begin(record),
        }
    }

    /// Appends a frame, compressed if this makes it smaller.
    pub(super) fn add(&mut self, record: u8, payload: &[u8]) {
        let start = begin_frame(&mut self.bytes);
        let record = self.compressor.compress(record, payload, &mut self.bytes);
        self.frames.push((start, record));
    }

    /// Moves the frames of `other` to the end of this buffer.
    pub(super) fn append(&mut self, other: &mut Self) {
        if self.is_empty() {
            std::mem::swap(&mut self.bytes, &mut other.bytes);
            std::mem::swap(&mut self.frames, &mut other.frames);
            return;
        }
        let offset = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        self.frames.extend(
            other
                .frames
                .drain(..)
                .map(|(start, record)| (start + offset, record)),
        );
    }

    /// Compresses the payloads of large uncompressed frames. Keeps the memory for this only while
    /// there are such frames.
    pub(super) fn compress(&mut self) {
        let has_large = (0..self.frames.len()).any(|i| {
            let (start, record) = self.frames[i];
            is_compressible(record, self.end(i) - start - FRAME_HEADER_SIZE)
        });
        if !has_large {
            self.compressor = Default::default();
            self.plain = Default::default();
            return;
        }
        let (mut bytes, mut frames) = std::mem::take(&mut self.plain);
        std::mem::swap(&mut self.bytes, &mut bytes);
        std::mem::swap(&mut self.frames, &mut frames);
        for (i, &(start, record)) in frames.iter().enumerate() {
            let end = frames.get(i + 1).map_or(bytes.len(), |next| next.0);
            self.add(record, &bytes[start + FRAME_HEADER_SIZE..end]);
        }
        bytes.clear();
        frames.clear();
        self.plain = (bytes, frames);
    }

    /// Writes the frame headers, with sequence numbers from `sequence`. Returns the sequence number
    /// of the next frame.
    pub(super) fn seal(&mut self, salt: u64, sequence: u64) -> u64 {
        for i in 0..self.frames.len() {
            let (start, record) = self.frames[i];
            let end = self.end(i);
            finish_frame(
                &mut self.bytes[..end],
                start,
                salt,
                sequence + i as u64,
                record,
            );
        }
        sequence + self.frames.len() as u64
    }

    /// Returns the size of all frames in bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Returns `true` if there are no frames.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the sealed frames.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all frames and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }

    fn end(&self, i: usize) -> usize {
        self.frames
            .get(i + 1)
            .map_or(self.bytes.len(), |next| next.0)
    }
}
