//! A file that reserves disk space, so that a flush can start on a full disk.
//!
//! A flush frees more space than it needs, because segments are removed once its parts are written.
//! But it cannot start without free space. So `<data>/wal/reserve` is removed when a flush fails
//! because the disk is full, and written again when the flush has rotated the logs.
//!
//! Threads: only the flushing thread. Crash: the next [`Reserve::fill`] replaces an incomplete
//! file.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_env::{Fs, is_out_of_files, remove_if_exists, size_of_file};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, Result};

/// Size of the file in bytes. A flush writes its parts in sequence, and frees space only at its
/// end.
pub(crate) const RESERVE_SIZE: u64 = 8 << 20;
/// Small, because the flushing thread then sleeps: the allocator keeps what it freed last.
const BUFFER_SIZE: usize = 64 << 10;

/// The reserved disk space.
#[derive(Debug)]
pub(crate) struct Reserve {
    fs: Arc<dyn Fs>,
    path: PathBuf,
}

impl Reserve {
    /// Creates the handle. Does not access the file.
    pub(crate) fn new(fs: Arc<dyn Fs>, wal_dir: &Path) -> Self {
        Self {
            fs,
            path: wal_dir.join("reserve"),
        }
    }

    /// Makes sure that the path is free or a file: removes an empty directory at that path.
    ///
    /// # Errors
    /// [`Error::Io`] if anything else is there: it is not removed, because it may be useful.
    pub(crate) fn ensure_usable(&self) -> Result<()> {
        match self.fs.open(&self.path) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) if is_out_of_files(&error) => Err(Error::io("open", &self.path)(error)),
            Err(error) => self.fs.remove_dir(&self.path).map_err(|_| {
                let reason =
                    format!("{error}; it must be a file that Varve may open, or be missing: it reserves disk space");
                Error::io("open", &self.path)(io::Error::new(error.kind(), reason))
            }),
        }
    }

    /// Writes the file unless it is complete.
    ///
    /// # Errors
    /// [`Error::Io`], for example if the disk is full. Then the file is removed.
    pub(crate) fn fill(&self) -> Result<()> {
        if self.size() == RESERVE_SIZE {
            return Ok(());
        }
        self.release()?;
        self.write().inspect_err(|_| {
            // If the removal fails as well, the next call retries it.
            let _failed = self.release();
        })
    }

    /// Removes the file, if it exists.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn release(&self) -> Result<()> {
        Ok(remove_if_exists(&*self.fs, &self.path)?)
    }

    /// Returns the size of the file.
    pub(crate) fn size(&self) -> u64 {
        size_of_file(&*self.fs, &self.path)
    }

    fn write(&self) -> Result<()> {
        let mut buffer = vec![0; BUFFER_SIZE];
        let seed = getrandom::u64().map_err(|e| Error::io("seed", &self.path)(e.into()))?;
        let file = self
            .fs
            .create(&self.path)
            .map_err(Error::io("create", &self.path))?;
        let mut hashes = (0_u64..).map(|n| xxh3_64_with_seed(&n.to_le_bytes(), seed));
        for _ in 0..RESERVE_SIZE / BUFFER_SIZE as u64 {
            // Bytes that do not repeat, because the file system may compress.
            for (word, hash) in buffer.as_chunks_mut().0.iter_mut().zip(&mut hashes) {
                *word = hash.to_le_bytes();
            }
            file.append(&buffer)
                .map_err(Error::io("write", &self.path))?;
        }
        file.sync().map_err(Error::io("sync", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::RealFs;
    use varve_env::testing::MemFs;

    #[test]
    fn the_file_is_written_completely_or_not_at_all_and_removed() {
        let fs = MemFs::new();
        fs.set_room(RESERVE_SIZE - 1);
        let reserve = Reserve::new(Arc::new(fs.clone()), Path::new("/"));
        assert!(reserve.fill().is_err());
        assert_eq!(reserve.size(), 0);
        fs.set_room(2 * RESERVE_SIZE);
        for _ in 0..2 {
            reserve.fill().unwrap();
            assert_eq!(reserve.size(), RESERVE_SIZE);
        }
        reserve.release().unwrap();
        reserve.release().unwrap();
        assert_eq!(reserve.size(), 0);
        fs.create(Path::new("/reserve"))
            .unwrap()
            .append(b"half")
            .unwrap();
        reserve.fill().unwrap();
        assert_eq!(reserve.size(), RESERVE_SIZE);
    }
    /// A directory used to fail each flush, although the flush had succeeded.
    #[test]
    fn an_empty_directory_is_replaced_and_anything_else_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reserve");
        let reserve = Reserve::new(Arc::new(RealFs), dir.path());
        reserve.ensure_usable().unwrap();
        std::fs::create_dir_all(path.join("mine")).unwrap();
        let error = reserve.ensure_usable().unwrap_err().to_string();
        assert!(
            error.contains("reserve") && error.contains("not a file but a directory"),
            "{error}"
        );
        assert!(error.contains("it must be a file"), "{error}");
        std::fs::remove_dir(path.join("mine")).unwrap();
        reserve.ensure_usable().unwrap();
        reserve.fill().unwrap();
        reserve.ensure_usable().unwrap();
        assert_eq!(reserve.size(), RESERVE_SIZE);
    }
}
