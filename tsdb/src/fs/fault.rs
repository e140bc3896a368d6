//! The real file system with limited space, failing syncs and blocking reads, for tests with real files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use super::{AppendFile, Fs, Lock, ReadFile, RealFs};

/// The real file system with space for a given number of bytes, whose syncs can be made to fail and whose reads to
/// block.
#[derive(Debug, Clone)]
pub struct FaultFs {
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct Faults {
    room: AtomicU64,
    sync_fails: AtomicBool,
    /// Reads of files whose names begin with this block.
    slow_files: Mutex<Option<String>>,
    passable: Condvar,
}

/// Reads within these first bytes of a slow file do not block.
const QUICK_SIZE: u64 = 24;

impl FaultFs {
    /// Creates a file system with space for `size` more bytes.
    #[must_use]
    pub fn with_room(size: u64) -> Self {
        let faults = Faults {
            room: AtomicU64::new(size),
            sync_fails: AtomicBool::new(false),
            slow_files: Mutex::default(),
            passable: Condvar::new(),
        };
        Self { faults: Arc::new(faults) }
    }

    /// Sets the number of bytes that can still be written.
    pub fn set_room(&self, size: u64) {
        self.faults.room.store(size, Ordering::SeqCst);
    }

    /// Makes every sync fail, or none.
    pub fn set_sync_fails(&self, fails: bool) {
        self.faults.sync_fails.store(fails, Ordering::SeqCst);
    }

    /// Makes positional reads of files whose names begin with `prefix` block until this is called again; with `None`,
    /// none block. Opening such a file, and reading its size or header, does not block.
    pub fn set_slow_files(&self, prefix: Option<&str>) {
        *self.faults.slow_files.lock() = prefix.map(str::to_owned);
        self.faults.passable.notify_all();
    }
}

impl Faults {
    fn pass(&self, name: &str) {
        let waits = |prefix: &mut Option<String>| prefix.as_ref().is_some_and(|prefix| name.starts_with(prefix));
        self.passable.wait_while(&mut self.slow_files.lock(), waits);
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
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Arc::new(SlowFile { file: RealFs.open(path)?, name, faults: Arc::clone(&self.faults) }))
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
struct SlowFile {
    file: Arc<dyn ReadFile>,
    name: String,
    faults: Arc<Faults>,
}

impl ReadFile for SlowFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset + buf.len() as u64 > QUICK_SIZE {
            self.faults.pass(&self.name);
        }
        self.file.read_at(buf, offset)
    }
}

#[derive(Debug)]
struct FaultFile {
    file: Arc<dyn AppendFile>,
    faults: Arc<Faults>,
}

impl AppendFile for FaultFile {
    /// Writes the bytes that fit, as a full disk does.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let take = |room: u64| Some(room.saturating_sub(bytes.len() as u64));
        let room = self.faults.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).unwrap_or_else(|room| room);
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.file.append(&bytes[..fits])?;
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
