//! The directory for chunks that do not fit in memory, and its files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_env::{AppendFile, Fs, ReadFile};
use varve_tsdb::{Error, Result};

/// The directory inside the target for chunks that do not fit in memory, removed at the end.
pub const SPILL_DIR: &str = "varve-recover.tmp";

/// The directory for spilled chunks.
#[derive(Debug)]
pub(crate) struct SpillDir {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
}

impl SpillDir {
    /// Creates an empty directory.
    pub(crate) fn create(fs: &Arc<dyn Fs>, dir: &Path) -> Result<Self> {
        fs.create_dir(dir).map_err(Error::io("create", dir))?;
        let scratch = Self {
            fs: Arc::clone(fs),
            dir: dir.to_owned(),
        };
        scratch.clear()?;
        Ok(scratch)
    }

    /// Returns the file of a shard. It is created by the first write.
    pub(crate) fn file(&self, shard: usize) -> SpillFile {
        let path = self.dir.join(format!("shard-{shard:03}"));
        SpillFile {
            fs: Arc::clone(&self.fs),
            path,
            open: None,
            size: 0,
        }
    }

    /// Removes the directory.
    pub(crate) fn remove(self) -> Result<()> {
        self.clear()?;
        self.fs
            .remove_dir(&self.dir)
            .map_err(Error::io("remove", &self.dir))
    }

    fn clear(&self) -> Result<()> {
        for name in self
            .fs
            .list(&self.dir)
            .map_err(Error::io("list", &self.dir))?
        {
            let path = self.dir.join(name);
            self.fs.remove(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }
}

/// A file that is appended to and read at any offset.
#[derive(Debug)]
pub(crate) struct SpillFile {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    open: Option<(Arc<dyn AppendFile>, Arc<dyn ReadFile>)>,
    size: u64,
}

impl SpillFile {
    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
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

    /// Fills `dst` with the bytes at `offset`, which have been appended.
    pub(crate) fn read(&self, offset: u64, dst: &mut [u8]) -> Result<()> {
        let (_, reader) = self.open.as_ref().expect("a read follows an append");
        reader
            .read_at(dst, offset)
            .map_err(Error::io("read", &self.path))
    }
}
