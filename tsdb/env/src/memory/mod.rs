//! A disk in memory that fails or blocks on command and loses in a power cut everything a disk may
//! lose.
//!
//! Used by the crash tests of the store. [`MemFs::crash`] returns the disk after a power cut and
//! leaves the original unchanged, so that one history can be continued with many outcomes. The
//! possible outcomes are all that POSIX allows, which is more than any real file system does:
//!
//! 1. *Contents.* Of the writes to a file since its last sync any number may have happened, the
//!    last of them in part; whole pieces of 512 or 4,096 bytes may be zero or unchanged. Truncating
//!    a file is a write. Files are independent: a later write to one may survive while an earlier
//!    one to another is lost.
//! 2. *Entries.* Each create, rename, link and unlink in a directory since its last sync may have
//!    happened or not, independently; only changes of the same name keep their order. The entry of
//!    a directory is an entry like others: without it everything below is lost. Syncing a file does
//!    not sync its entry.
//! 3. *Renames* are atomic: both names are as before or both as after, also across directories,
//!    where the sync of either makes the rename durable.
//! 4. *A failed sync* drops what it was to write: a later successful sync does not bring it to the
//!    disk. What a failed sync of a directory was to cover waits for the next one.
//!
//! Without faults and power cuts it behaves as [`RealFs`](super::RealFs), as a test verifies. It
//! has no `.` and `..`, no symbolic links and no permissions; relative paths begin at the root,
//! which always exists.
//!
//! Threads: one lock around everything.

mod contents;
mod crash;
mod disk;
mod faults;
mod files;
mod power_cut;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::fs::{AppendFile, Fs, Lock, ReadFile};
use crate::volume::Volume;

use disk::{Disk, NodeId};
pub use faults::Fault;
pub use power_cut::PowerCut;

/// A disk in memory. Clones share it.
#[derive(Debug, Clone)]
pub struct MemFs {
    disk: Arc<Mutex<Disk>>,
    /// Notified when the blocked files change.
    unblocked: Arc<Condvar>,
}

impl MemFs {
    /// Creates an empty disk with unlimited space.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Disk::new())
    }

    /// Sets the free space in bytes. Truncating a file, or removing one that is not open, frees
    /// space.
    pub fn set_room(&self, size: u64) {
        self.disk.lock().faults.room = size;
    }

    /// Makes every sync of files and directories fail, or none.
    pub fn set_sync_fails(&self, fails: bool) {
        self.disk.lock().faults.sync_fails = fails;
    }

    /// Makes positional reads of files whose names begin with `prefix` block until this is called
    /// again; with `None`, none block. Opening such a file, and reading its size or header, does
    /// not block.
    pub fn set_blocked_files(&self, prefix: Option<&str>) {
        self.disk.lock().faults.blocked_files = prefix.map(str::to_owned);
        self.unblocked.notify_all();
    }

    /// Makes opens for reading of files whose names begin with `prefix` fail, because the process
    /// has too many open files, until this is called again; with `None`, none fail.
    pub fn set_out_of_files(&self, prefix: Option<&str>) {
        self.disk.lock().faults.unopened_files = prefix.map(str::to_owned);
    }

    /// Makes the operation with an index fail. Operations are creates, appends, truncates, syncs,
    /// renames, links and removes of files, creates, syncs and removes of directories, counted
    /// together from 0. [`Fs::truncate`] counts as two, a truncate and a sync; [`Fs::create_dir`]
    /// as one per created directory.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.disk.lock().faults.at.insert(operation, fault);
    }

    /// Returns the number of operations so far, which is the index of the next one.
    #[must_use]
    pub fn n_operations(&self) -> u64 {
        self.disk.lock().faults.n_operations
    }

    /// Returns the last operation that [`MemFs::fail_at`] made fail, for messages of tests.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.disk.lock().faults.failed.clone()
    }

    /// Returns the disk after a power cut now: its contents are durable, nothing is open or locked,
    /// space is unlimited and no fault is set; bad sectors remain.
    #[must_use]
    pub fn crash(&self, cut: PowerCut) -> Self {
        Self::with(self.disk.lock().crash(cut))
    }

    /// Makes reads of a byte range of a file fail from now on.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist.
    pub fn set_bad_sector(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let node = disk.find(path)?;
        disk.contents_mut(node)?.set_bad(range);
        Ok(())
    }

    /// Changes a file that may be open, as a failing disk or an administrator does. No operation is
    /// counted; the result is durable.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let node = disk.find(path)?;
        disk.contents_mut(node)?.edit(edit);
        Ok(())
    }

    fn with(disk: Disk) -> Self {
        Self {
            disk: Arc::new(Mutex::new(disk)),
            unblocked: Arc::default(),
        }
    }

    fn handle(&self, node: NodeId, path: &Path) -> Arc<MemFile> {
        Arc::new(MemFile {
            fs: self.clone(),
            node,
            path: path.to_owned(),
        })
    }
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new()
    }
}

impl Fs for MemFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.lock().create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.lock().list(dir)
    }

    fn read(&self, path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
        self.disk.lock().read(path, size_max)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let node = self.disk.lock().create(path)?;
        Ok(self.handle(node, path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let node = self.disk.lock().open(path)?;
        Ok(self.handle(node, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.lock().rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.lock().hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.lock().remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.lock().remove_dir(path)
    }

    fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        let node = disk.find(path)?;
        disk.truncate(node, path, size)?;
        disk.sync(node, path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.lock().sync_dir(path)
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        let disk = self.disk.lock();
        disk.find(path)?;
        // Like a file system in user space that does not know its size.
        if disk.faults.room == u64::MAX {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(Volume {
            size: disk.used().saturating_add(disk.faults.room),
            free: disk.faults.room,
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let node = self.disk.lock().lock(path)?;
        Ok(Box::new(MemLock {
            fs: self.clone(),
            node,
        }))
    }
}

/// An open file.
#[derive(Debug)]
struct MemFile {
    fs: MemFs,
    node: NodeId,
    /// The path that was opened.
    path: PathBuf,
}

impl AppendFile for MemFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.fs.disk.lock().append(self.node, &self.path, bytes)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.fs.disk.lock().truncate(self.node, &self.path, size)
    }

    fn sync(&self) -> io::Result<()> {
        self.fs.disk.lock().sync(self.node, &self.path)
    }
}

impl ReadFile for MemFile {
    fn size(&self) -> io::Result<u64> {
        self.fs.disk.lock().size(self.node)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut disk = self.fs.disk.lock();
        let size = offset.saturating_add(buf.len() as u64);
        self.fs
            .unblocked
            .wait_while(&mut disk, |disk| disk.faults.is_blocked(&self.path, size));
        disk.read_at(self.node, buf, offset)
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.fs.disk.lock().close(self.node);
    }
}

#[derive(Debug)]
struct MemLock {
    fs: MemFs,
    node: NodeId,
}

impl Lock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.fs.disk.lock().unlock(self.node);
    }
}

#[cfg(test)]
mod tests;
