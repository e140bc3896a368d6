//! The only door to the disk and to the clock, so that tests can make both misbehave.
//!
//! [`RealFs`] is the operating system's file system, [`ReadOnlyFs`] one that stays as it is. [`FaultFs`] is the same with
//! little room, syncs that fail and reads that wait. [`MemFs`] is a disk in memory that fails at any chosen operation and
//! forgets at a power cut all that a disk may. [`StateFile`] is a kind of small file that is replaced as a whole.

mod clock;
#[cfg(any(test, feature = "testing"))]
mod fault;
#[cfg(any(test, feature = "testing"))]
mod manual_clock;
#[cfg(any(test, feature = "testing"))]
mod memory;
mod read_only;
mod real;
mod state_file;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use clock::{Clock, SystemClock};
#[cfg(any(test, feature = "testing"))]
pub use fault::FaultFs;
#[cfg(any(test, feature = "testing"))]
pub use manual_clock::ManualClock;
#[cfg(any(test, feature = "testing"))]
pub use memory::{Fault, MemFs, PowerCut};
pub use read_only::ReadOnlyFs;
pub use real::RealFs;
pub use state_file::{StateFile, StateFileError};

/// Returns the bytes of a file; 0 if it cannot be opened, as one that is gone takes nothing.
pub fn size_of_file(fs: &dyn Fs, path: &Path) -> u64 {
    fs.open(path).and_then(|file| file.size()).unwrap_or(0)
}

/// Returns the bytes of the files of a folder; 0 if it cannot be listed.
pub fn size_of_files(fs: &dyn Fs, dir: &Path) -> u64 {
    fs.list(dir).unwrap_or_default().iter().map(|name| size_of_file(fs, &dir.join(name))).sum()
}

/// The disk, as far as the store uses it.
pub trait Fs: Debug + Send + Sync {
    /// Creates a folder and those above it; one that exists is left alone.
    ///
    /// # Errors
    /// As the operating system reports them; likewise below.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a folder, in ascending order.
    ///
    /// # Errors
    /// `NotFound` if there is no such folder.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Reads a whole file of at most `size_max` bytes.
    ///
    /// # Errors
    /// `FileTooLarge` if the file is larger.
    fn read(&self, path: &Path, size_max: u64) -> io::Result<Vec<u8>>;

    /// Creates a new file for appending.
    ///
    /// # Errors
    /// `AlreadyExists` if the file exists.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>>;

    /// Opens a file for reading by position.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Gives a file another name and replaces what had that name. Survives a power cut after [`Fs::sync_dir`].
    ///
    /// # Errors
    /// As the operating system reports them.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As the operating system reports them.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    ///
    /// # Errors
    /// `DirectoryNotEmpty` if something is in it.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Cuts a file to `size` bytes and syncs it.
    ///
    /// # Errors
    /// As the operating system reports them.
    fn truncate(&self, path: &Path, size: u64) -> io::Result<()>;

    /// Makes the entries of a folder survive a power cut.
    ///
    /// # Errors
    /// As the operating system reports them.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Takes the lock of a file, which is made if need be, until the returned value is dropped or the process ends.
    ///
    /// # Errors
    /// `WouldBlock` if it is taken, by this process or another one.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
}

/// A lock that is held; dropping it gives it back.
pub trait Lock: Debug + Send + Sync {}

/// A file that only grows. One thread at a time appends and truncates; any may sync.
pub trait AppendFile: Debug + Send + Sync {
    /// Hands all of `bytes` to the operating system. On an error some of them may have been written.
    ///
    /// # Errors
    /// `StorageFull` and others as the operating system reports them.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file to `size` bytes.
    ///
    /// # Errors
    /// As the operating system reports them.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Makes what was appended survive a power cut.
    ///
    /// # Errors
    /// As the operating system reports them. What was appended may be lost then, whatever a later sync says.
    fn sync(&self) -> io::Result<()>;
}

/// A file that is read by position, by any number of threads.
pub trait ReadFile: Debug + Send + Sync {
    /// Returns the size in bytes now.
    ///
    /// # Errors
    /// As the operating system reports them.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before; others, bad sectors among them, as the operating system reports them.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}
