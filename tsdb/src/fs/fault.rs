//! The real disk with little room and syncs that fail, for tests that look at real files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{AppendFile, Fs, Lock, ReadFile, RealFs};

/// The real disk with room for a given number of bytes, whose syncs can be made to fail.
#[derive(Debug, Clone)]
pub struct FaultFs {
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct Faults {
    room: AtomicU64,
    sync_fails: AtomicBool,
}

impl FaultFs {
    /// Makes a disk with room for `size` bytes more.
    #[must_use]
    pub fn with_room(size: u64) -> Self {
        Self { faults: Arc::new(Faults { room: AtomicU64::new(size), sync_fails: AtomicBool::new(false) }) }
    }

    /// Sets the number of bytes that can still be written.
    pub fn set_room(&self, size: u64) {
        self.faults.room.store(size, Ordering::SeqCst);
    }

    /// Makes every sync fail, or none.
    pub fn set_sync_fails(&self, fails: bool) {
        self.faults.sync_fails.store(fails, Ordering::SeqCst);
    }
}

impl Fs for FaultFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealFs.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }

    fn read(&self, path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
        RealFs.read(path, size_max)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(FaultFile { file: RealFs.create(path)?, faults: Arc::clone(&self.faults) }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        RealFs.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealFs.remove_dir(path)
    }

    fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        RealFs.truncate(path, size)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealFs.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        RealFs.lock(path)
    }
}

#[derive(Debug)]
struct FaultFile {
    file: Arc<dyn AppendFile>,
    faults: Arc<Faults>,
}

impl AppendFile for FaultFile {
    /// Writes what there is room for, as a full disk does.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let room = self.faults.room.load(Ordering::SeqCst);
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.file.append(&bytes[..fits])?;
        self.faults.room.store(room - fits as u64, Ordering::SeqCst);
        if fits < bytes.len() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size)
    }

    fn sync(&self) -> io::Result<()> {
        if self.faults.sync_fails.load(Ordering::SeqCst) {
            return Err(io::Error::other("input/output error"));
        }
        self.file.sync()
    }
}
