//! A file that is written sequentially through a buffer, and hashed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_env::{AppendFile, Fs};
use varve_tsdb::{Error, Result};
use xxhash_rust::xxh3::Xxh3;

/// Size of the buffer.
const BUFFER_SIZE: usize = 1 << 20;

/// An open file.
pub(crate) struct BufferedFile {
    path: PathBuf,
    file: Arc<dyn AppendFile>,
    buffer: Vec<u8>,
    flushed: u64,
    hasher: Box<Xxh3>,
}

impl fmt::Debug for BufferedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferedFile")
            .field("path", &self.path)
            .field("position", &self.position())
            .finish()
    }
}

impl BufferedFile {
    pub(crate) fn create(fs: &dyn Fs, path: &Path) -> Result<Self> {
        let file = fs.create(path).map_err(Error::io("create", path))?;
        let buffer = Vec::with_capacity(BUFFER_SIZE);
        Ok(Self {
            path: path.to_owned(),
            file,
            buffer,
            flushed: 0,
            hasher: Box::new(Xxh3::new()),
        })
    }

    /// Returns the current offset.
    pub(crate) fn position(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_SIZE {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Pads with zeros up to a multiple of `align`.
    pub(crate) fn pad(&mut self, align: u64) -> Result<()> {
        let zeros = [0; 16];
        let size = (align - self.position() % align) % align;
        self.write(&zeros[..size as usize])
    }

    /// Syncs the file. Returns its size and hash.
    pub(crate) fn finish(mut self) -> Result<(u64, u128)> {
        self.flush()?;
        self.file.sync().map_err(Error::io("sync", &self.path))?;
        Ok((self.flushed, self.hasher.digest128()))
    }

    fn flush(&mut self) -> Result<()> {
        self.file
            .append(&self.buffer)
            .map_err(Error::io("write", &self.path))?;
        self.hasher.update(&self.buffer);
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
