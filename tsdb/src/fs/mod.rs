//! The only door to the disk and to the clock, so that tests can make both misbehave.

mod clock;
#[cfg(any(test, feature = "testing"))]
mod fault;
mod real;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub use clock::{Clock, SystemClock};
#[cfg(any(test, feature = "testing"))]
pub use fault::{FaultFs, ManualClock};
pub use real::RealFs;

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

    /// Removes a file.
    ///
    /// # Errors
    /// As the operating system reports them.
    fn remove(&self, path: &Path) -> io::Result<()>;

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
}

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
