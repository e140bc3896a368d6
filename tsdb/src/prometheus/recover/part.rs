//! The chunks that a series consists of, wherever they lie.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fs::{AppendFile, Fs, ReadFile};
use crate::prometheus::chunk::{Chunk, Encoding};
use crate::prometheus::head_chunks::{HeadChunk, HeadChunkFiles};

/// A chunk of a series.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) min_ms: i64,
    pub(super) max_ms: i64,
    pub(super) n_samples: u32,
    pub(super) encoding: Encoding,
    pub(super) is_late: bool,
    pub(super) place: Place,
}

/// Where the bytes of a chunk are.
#[derive(Debug)]
pub(super) enum Place {
    Memory(Box<[u8]>),
    /// In the file of the shard.
    Spilled {
        offset: u64,
        size: u32,
    },
    /// In a file of head chunks, by the chunk's place in the list.
    Head(u32),
}

impl Part {
    pub(super) fn new(chunk: Chunk, is_late: bool) -> Self {
        let Chunk { encoding, min_ms, max_ms, n_samples, bytes } = chunk;
        let place = Place::Memory(bytes.into_boxed_slice());
        Self { min_ms, max_ms, n_samples: n_samples as u32, encoding, is_late, place }
    }

    pub(super) fn of_head(place: u32, chunk: &HeadChunk, is_late: bool) -> Self {
        let HeadChunk { min_ms, max_ms, n_samples, encoding, .. } = *chunk;
        Self { min_ms, max_ms, n_samples, encoding, is_late, place: Place::Head(place) }
    }

    /// Returns the bytes in memory.
    pub(super) fn size(&self) -> usize {
        match &self.place {
            Place::Memory(bytes) => bytes.len(),
            Place::Spilled { .. } | Place::Head(_) => 0,
        }
    }
}

/// The folder of what does not fit in memory.
#[derive(Debug)]
pub(super) struct Scratch {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
}

impl Scratch {
    /// Makes the folder, empty.
    pub(super) fn create(fs: &Arc<dyn Fs>, dir: &Path) -> Result<Self> {
        fs.create_dir(dir).map_err(Error::io("create", dir))?;
        let scratch = Self { fs: Arc::clone(fs), dir: dir.to_owned() };
        scratch.clear()?;
        Ok(scratch)
    }

    /// Names the file of a shard; it is made when something goes to it.
    pub(super) fn file(&self, shard: usize) -> SpillFile {
        let path = self.dir.join(format!("shard-{shard:03}"));
        SpillFile { fs: Arc::clone(&self.fs), path, file: None, size: 0, buffer: Vec::new() }
    }

    /// Removes the folder.
    pub(super) fn remove(self) -> Result<()> {
        self.clear()?;
        self.fs.remove_dir(&self.dir).map_err(Error::io("remove", &self.dir))
    }

    fn clear(&self) -> Result<()> {
        for name in self.fs.list(&self.dir).map_err(Error::io("list", &self.dir))? {
            let path = self.dir.join(name);
            self.fs.remove(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }
}

/// Chunks of a shard that did not fit in memory, one behind the other.
#[derive(Debug)]
pub(super) struct SpillFile {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    file: Option<(Arc<dyn AppendFile>, Arc<dyn ReadFile>)>,
    size: u64,
    buffer: Vec<u8>,
}

/// Bytes that are gathered before they go to the file.
const BUFFER_SIZE: usize = 1 << 20;

impl SpillFile {
    /// Moves a chunk from memory to the file; it can be read after [`SpillFile::flush`].
    pub(super) fn spill(&mut self, part: &mut Part) -> Result<()> {
        if let Place::Memory(bytes) = &part.place {
            let offset = self.size + self.buffer.len() as u64;
            self.buffer.extend_from_slice(bytes);
            part.place = Place::Spilled { offset, size: bytes.len() as u32 };
            if self.buffer.len() >= BUFFER_SIZE {
                self.flush()?;
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let path = &self.path;
        let (writer, _) = match &mut self.file {
            Some(file) => file,
            none => none.insert((
                self.fs.create(path).map_err(Error::io("create", path))?,
                self.fs.open(path).map_err(Error::io("open", path))?,
            )),
        };
        writer.append(&self.buffer).map_err(Error::io("write", path))?;
        self.size += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Reads the bytes of a chunk into `dst` unless they are in memory; returns them.
    pub(super) fn read<'a>(
        &self,
        part: &'a Part,
        head: (&HeadChunkFiles, &[HeadChunk]),
        dst: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        match &part.place {
            Place::Memory(bytes) => return Ok(bytes),
            Place::Spilled { offset, size } => {
                dst.resize(*size as usize, 0);
                let (_, reader) = self.file.as_ref().expect("what was spilled is in the file");
                reader.read_at(dst, *offset).map_err(Error::io("read", &self.path))?;
            }
            Place::Head(place) => head.0.read(&head.1[*place as usize], dst)?,
        }
        Ok(dst)
    }
}
