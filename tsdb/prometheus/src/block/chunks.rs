//! Chunk segment files of a block, `chunks/000001` and so on.
//!
//! ```text
//! u32     magic 0x85bd40dd
//! u8      version 1; then three zeros
//! chunks  varint size of the data, u8 encoding, data, u32 CRC-32C of encoding and data
//! ```
//! The index refers to a chunk by the index of its file in the upper 32 bits and its offset in the
//! lower.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_codec::varint::put_u64;
use varve_env::Fs;
use varve_tsdb::{Error, Result};

use super::buffered_file::BufferedFile;
use crate::chunk::Encoding;
use crate::cursor::Cursor;

/// Size at which chunks continue in the next file.
pub const CHUNK_SEGMENT_SIZE_MAX: u64 = 512 << 20;
pub(super) const MAGIC: u32 = 0x85bd_40dd;
pub(super) const VERSION: u8 = 1;
pub(super) const HEADER_SIZE: u64 = 8;

/// Writes chunk segment files.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    segment_size_max: u64,
    open: Option<BufferedFile>,
    /// Size and hash of finished files.
    finished: Vec<(u64, u128)>,
    /// Size of the largest chunk.
    chunk_size_max: u64,
}

impl ChunkWriter {
    pub(super) fn create(fs: &Arc<dyn Fs>, dir: &Path, segment_size_max: u64) -> Result<Self> {
        fs.create_dir(dir).map_err(Error::io("create", dir))?;
        Ok(Self {
            fs: Arc::clone(fs),
            dir: dir.to_owned(),
            segment_size_max,
            open: None,
            finished: Vec::new(),
            chunk_size_max: 0,
        })
    }

    /// Appends framed chunks that end at `ends`. Calls `each` with the index and the ref of each.
    pub(super) fn add(
        &mut self,
        bytes: &[u8],
        ends: &[usize],
        mut each: impl FnMut(usize, u64),
    ) -> Result<()> {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let sizes = starts
            .clone()
            .zip(ends)
            .map(|(start, end)| (end - start) as u64);
        self.chunk_size_max = sizes.fold(self.chunk_size_max, u64::max);
        // Fast path: all of them fit the same file.
        if bytes.len() as u64 <= self.room() {
            let first = if bytes.is_empty() {
                0
            } else {
                self.append(bytes)?
            };
            for (start, i) in starts.zip(0..ends.len()) {
                each(i, first + start as u64);
            }
            return Ok(());
        }
        for (i, (start, &end)) in starts.zip(ends).enumerate() {
            each(i, self.append(&bytes[start..end])?);
        }
        Ok(())
    }

    /// Returns the number of bytes that fit the open file.
    fn room(&self) -> u64 {
        let position = self
            .open
            .as_ref()
            .map_or(HEADER_SIZE, BufferedFile::position);
        self.segment_size_max.saturating_sub(position)
    }

    /// Appends bytes to the open file, or to the next one if they do not fit.
    fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        let size = bytes.len() as u64;
        let full = self.open.take_if(|open| {
            open.position() > HEADER_SIZE && open.position() + size > self.segment_size_max
        });
        if let Some(full) = full {
            self.finished.push(full.finish()?);
        }
        if self.open.is_none() {
            self.open = Some(self.next()?);
        }
        let open = self.open.as_mut().expect("created above");
        let chunk_ref = (self.finished.len() as u64) << 32 | open.position();
        open.write(bytes)?;
        Ok(chunk_ref)
    }

    /// Returns the size of the largest chunk so far.
    pub(super) fn chunk_size_max(&self) -> u64 {
        self.chunk_size_max
    }

    /// Returns path in the block, size and hash of each file.
    pub(super) fn finish(mut self) -> Result<Vec<(String, u64, u128)>> {
        if let Some(open) = self.open.take() {
            self.finished.push(open.finish()?);
        }
        self.fs
            .sync_dir(&self.dir)
            .map_err(Error::io("sync", &self.dir))?;
        let mut files = Vec::new();
        for (i, (size, hash)) in self.finished.into_iter().enumerate() {
            files.push((format!("chunks/{:06}", i + 1), size, hash));
        }
        Ok(files)
    }

    fn next(&self) -> Result<BufferedFile> {
        let path = self.dir.join(format!("{:06}", self.finished.len() + 1));
        let mut file = BufferedFile::create(&*self.fs, &path)?;
        file.write(&MAGIC.to_be_bytes())?;
        file.write(&[VERSION, 0, 0, 0])?;
        Ok(file)
    }
}

/// Returns the encoding and the bytes of a chunk from [`frame`].
pub(super) fn unframe(framed: &[u8]) -> Option<(Encoding, &[u8])> {
    let mut src = Cursor::new(framed);
    let size = src.n_items()?;
    let encoding = Encoding::from_code(src.u8()?)?;
    Some((encoding, src.bytes(size)?))
}

/// Appends a chunk with the fields around it in a file.
pub(super) fn frame(encoding: Encoding, bytes: &[u8], dst: &mut Vec<u8>) {
    put_u64(dst, bytes.len() as u64);
    let start = dst.len();
    dst.push(encoding.code());
    dst.extend_from_slice(bytes);
    let checksum = crc32c::crc32c(&dst[start..]);
    dst.extend_from_slice(&checksum.to_be_bytes());
}
