//! A disk in memory that fails on command and forgets at a power cut all that a disk may forget.
//!
//! Used by the crash tests of the store. [`MemFs::crash`] gives the disk as it is found after a power cut and leaves the
//! old one alone, so that one history can be continued with many outcomes. What it takes for possible is what POSIX
//! leaves open, which is more than any one file system does:
//!
//! 1. *Contents.* Of what was written to a file since its last sync any number of writes may be there, the last of them
//!    in part; whole pieces of 512 or 4,096 bytes may be zero or as they were before. Cutting a file is a write. Files
//!    are independent of each other: a later write to one may be there while an earlier one to another is not.
//! 2. *Entries.* Of the creates, renames, links and unlinks in a folder since it was last synced each may have happened
//!    or not, whatever became of the others; only changes of the same name keep their order. The entry of a folder is an
//!    entry like others: without it all that is below is gone. To sync a file does not sync its entry.
//! 3. *Renames* are atomic: both names are as before or both as after, also across folders, where the sync of either
//!    makes the rename last.
//! 4. *A sync that failed* has used up what it was to write: a later sync that succeeds does not bring it to the disk.
//!    What a failed sync of a folder was to cover waits for the next one.
//!
//! Without faults and power cuts it does what [`RealFs`](super::RealFs) does, as a test shows. It knows no `.` and `..`,
//! no symbolic links and no permissions; relative paths begin at the root, which is there from the start.
//!
//! Threads: one lock around everything.

mod contents;
mod crash;
mod disk;
mod faults;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{AppendFile, Fs, Lock, ReadFile};
pub use crash::PowerCut;
use disk::{Disk, NodeId};
pub use faults::Fault;

/// A disk in memory. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct MemFs {
    disk: Arc<Mutex<Disk>>,
}

impl MemFs {
    /// Makes an empty disk with boundless room.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Disk::new())
    }

    /// Sets the number of bytes that can still be written. Cutting a file, and removing one that nobody has open, makes
    /// room again.
    pub fn set_room(&self, size: u64) {
        self.disk().faults.room = size;
    }

    /// Makes every sync of files and folders fail, or none.
    pub fn set_sync_fails(&self, fails: bool) {
        self.disk().faults.sync_fails = fails;
    }

    /// Makes the operation of a number fail. Operations are creates, appends, truncates, syncs, renames, links and
    /// removes of files, creates, syncs and removes of folders, counted together from 0 since the disk was made.
    /// [`Fs::truncate`] is two of them, a truncate and a sync; [`Fs::create_dir`] one for each folder that it makes.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.disk().faults.at.insert(operation, fault);
    }

    /// Returns the number of operations so far, which is the number of the next one.
    #[must_use]
    pub fn n_operations(&self) -> u64 {
        self.disk().faults.n_operations
    }

    /// Returns what the last operation was that [`MemFs::fail_at`] made fail, for the messages of tests.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.disk().faults.failed.clone()
    }

    /// Returns the disk as it is found after a power cut now: all that is there lasts, nothing is open or locked,
    /// room is boundless and no fault is set; bad sectors stay.
    #[must_use]
    pub fn crash(&self, cut: PowerCut) -> Self {
        Self::with(self.disk().crash(cut))
    }

    /// Makes reads of a range of bytes of a file fail from now on.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn set_bad_sector(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        let mut disk = self.disk();
        let node = disk.find(path)?;
        disk.contents_mut(node)?.set_bad(range);
        Ok(())
    }

    /// Changes a file behind the back of whoever has it open, as a failing disk or an administrator does. No operation
    /// is counted; the result lasts.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut disk = self.disk();
        let node = disk.find(path)?;
        disk.contents_mut(node)?.edit(edit);
        Ok(())
    }

    fn with(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    fn handle(&self, node: NodeId, path: &Path) -> Arc<MemFile> {
        Arc::new(MemFile { disk: Arc::clone(&self.disk), node, path: path.to_owned() })
    }
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new()
    }
}

impl Fs for MemFs {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk().create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk().list(dir)
    }

    fn read(&self, path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
        self.disk().read(path, size_max)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        let node = self.disk().create(path)?;
        Ok(self.handle(node, path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let node = self.disk().open(path)?;
        Ok(self.handle(node, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk().rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk().hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk().remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk().remove_dir(path)
    }

    fn truncate(&self, path: &Path, size: u64) -> io::Result<()> {
        let mut disk = self.disk();
        let node = disk.find(path)?;
        disk.truncate(node, path, size)?;
        disk.sync(node, path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk().sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let node = self.disk().lock(path)?;
        Ok(Box::new(MemLock { disk: Arc::clone(&self.disk), node }))
    }
}

/// An open file.
#[derive(Debug)]
struct MemFile {
    disk: Arc<Mutex<Disk>>,
    node: NodeId,
    /// The name under which it was opened.
    path: PathBuf,
}

impl AppendFile for MemFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        lock(&self.disk).append(self.node, &self.path, bytes)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        lock(&self.disk).truncate(self.node, &self.path, size)
    }

    fn sync(&self) -> io::Result<()> {
        lock(&self.disk).sync(self.node, &self.path)
    }
}

impl ReadFile for MemFile {
    fn size(&self) -> io::Result<u64> {
        lock(&self.disk).size(self.node)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        lock(&self.disk).read_at(self.node, buf, offset)
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        lock(&self.disk).close(self.node);
    }
}

#[derive(Debug)]
struct MemLock {
    disk: Arc<Mutex<Disk>>,
    node: NodeId,
}

impl Lock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        lock(&self.disk).unlock(self.node);
    }
}

/// A test that failed while it held the lock says so itself; the disk is as whole as its last operation left it.
fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a broken disk reports.
fn broken() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}

#[cfg(test)]
mod tests;
