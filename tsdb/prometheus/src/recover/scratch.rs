//! The folder of what does not fit in memory, and the files in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_tsdb::fs::{AppendFile, Fs, ReadFile};
use varve_tsdb::{Error, Result};

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
    pub(super) fn file(&self, shard: usize) -> ScratchFile {
        let path = self.dir.join(format!("shard-{shard:03}"));
        ScratchFile { fs: Arc::clone(&self.fs), path, open: None, size: 0 }
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

/// A file that is written at its end and read anywhere.
#[derive(Debug)]
pub(super) struct ScratchFile {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    open: Option<(Arc<dyn AppendFile>, Arc<dyn ReadFile>)>,
    size: u64,
}

impl ScratchFile {
    /// Returns its bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let path = &self.path;
        let (writer, _) = match &mut self.open {
            Some(open) => open,
            none => none.insert((
                self.fs.create(path).map_err(Error::io("create", path))?,
                self.fs.open(path).map_err(Error::io("open", path))?,
            )),
        };
        writer.append(bytes).map_err(Error::io("write", path))?;
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// Fills `dst` with the bytes from `offset` on, which were appended.
    pub(super) fn read(&self, offset: u64, dst: &mut [u8]) -> Result<()> {
        let (_, reader) = self.open.as_ref().expect("who reads has appended");
        reader.read_at(dst, offset).map_err(Error::io("read", &self.path))
    }
}
