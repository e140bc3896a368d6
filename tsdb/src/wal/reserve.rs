//! A file that holds room on the disk, so that a full one still takes a flush.
//!
//! A flush makes more room than it needs, as segments go when its parts are there; but it cannot begin on a disk without
//! any. So some room is kept in `<data>/wal/reserve` and given up when a write is refused. It is taken again when the
//! flush has cut the log.
//!
//! Threads: the one that flushes. Crash: a reserve that was not written whole is completed by the next [`Reserve::fill`].

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fs::{Fs, size_of_file};

/// How much room is kept: parts of a flush are written one after the other, and each frees what it covers only at the end.
pub(crate) const RESERVE_SIZE: u64 = 8 << 20;
const PIECE_SIZE: usize = 1 << 20;

/// The room that is kept.
#[derive(Debug)]
pub(crate) struct Reserve {
    fs: Arc<dyn Fs>,
    path: PathBuf,
}

impl Reserve {
    /// Names the file; it is neither read nor made.
    pub(crate) fn new(fs: Arc<dyn Fs>, wal_dir: &Path) -> Self {
        Self { fs, path: wal_dir.join("reserve") }
    }

    /// Takes the room, unless it is held already.
    ///
    /// # Errors
    /// [`Error::Io`]: the disk is too full; nothing is held then.
    pub(crate) fn fill(&self) -> Result<()> {
        if self.size() == RESERVE_SIZE {
            return Ok(());
        }
        self.release()?;
        self.write().inspect_err(|_| {
            // If this is refused as well, the next call tries again.
            let _refused = self.release();
        })
    }

    /// Gives the room up. Nothing held is no error.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn release(&self) -> Result<()> {
        match self.fs.remove(&self.path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove", &self.path)(e)),
            _ => Ok(()),
        }
    }

    /// Returns how much room is held.
    pub(crate) fn size(&self) -> u64 {
        size_of_file(&*self.fs, &self.path)
    }

    fn write(&self) -> Result<()> {
        // Random, so that a file system that compresses gives the room as well.
        let mut piece = vec![0; PIECE_SIZE];
        getrandom::fill(&mut piece).map_err(|e| Error::io("fill", &self.path)(e.into()))?;
        let file = self.fs.create(&self.path).map_err(Error::io("create", &self.path))?;
        for _ in 0..RESERVE_SIZE / PIECE_SIZE as u64 {
            file.append(&piece).map_err(Error::io("write", &self.path))?;
        }
        file.sync().map_err(Error::io("sync", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::FaultFs;

    #[test]
    fn room_is_taken_whole_or_not_at_all_and_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let fs = FaultFs::with_room(RESERVE_SIZE - 1);
        let reserve = Reserve::new(Arc::new(fs.clone()), dir.path());
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
        std::fs::write(dir.path().join("reserve"), "half").unwrap();
        reserve.fill().unwrap();
        assert_eq!(reserve.size(), RESERVE_SIZE);
    }
}
