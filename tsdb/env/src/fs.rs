//! The file system: what a store may ask of it, and steps of several operations.

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use crate::error::Error;
use crate::volume::Volume;

/// The file system operations that the store uses.
pub trait Fs: Debug + Send + Sync {
    /// Creates a directory and its missing parents; an existing one is left alone.
    ///
    /// # Errors
    /// As reported by the operating system; likewise below.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a directory, sorted.
    ///
    /// # Errors
    /// `NotFound` if the directory does not exist.
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
    /// `NotFound` if the file does not exist.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Renames a file, replacing an existing one. Survives a power cut after [`Fs::sync_dir`].
    ///
    /// # Errors
    /// As reported by the operating system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates a hard link to a file.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As reported by the operating system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `DirectoryNotEmpty` if it is not empty.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Truncates a file to `size` bytes and syncs it.
    ///
    /// # Errors
    /// As reported by the operating system.
    fn truncate(&self, path: &Path, size: u64) -> io::Result<()>;

    /// Syncs the entries of a directory.
    ///
    /// # Errors
    /// As reported by the operating system.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Returns the space of the volume of a file or directory.
    ///
    /// # Errors
    /// `NotFound` if there is no such file or directory; `Unsupported` if the file system does not
    /// know its size.
    fn volume(&self, path: &Path) -> io::Result<Volume>;

    /// Locks a file, which is created if it does not exist, until the returned value is dropped or
    /// the process ends. The file of a real file system has the id of the process then.
    ///
    /// # Errors
    /// `WouldBlock` if this or another process holds the lock.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
}

/// A held lock; released on drop.
pub trait Lock: Debug + Send + Sync {}

/// An append-only file. One thread at a time appends and truncates; any may sync.
pub trait AppendFile: Debug + Send + Sync {
    /// Writes all of `bytes` to the operating system. On an error some of them may have been
    /// written.
    ///
    /// # Errors
    /// `StorageFull` and others as reported by the operating system.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Truncates the file to `size` bytes.
    ///
    /// # Errors
    /// As reported by the operating system.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Syncs the appended bytes.
    ///
    /// # Errors
    /// As reported by the operating system. Appended bytes may then be lost, whatever a later sync
    /// returns.
    fn sync(&self) -> io::Result<()>;
}

/// A file for positional reads by any number of threads.
pub trait ReadFile: Debug + Send + Sync {
    /// Returns the present size in bytes.
    ///
    /// # Errors
    /// As reported by the operating system.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before; others, such as bad sectors, as reported by the
    /// operating system.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

/// Returns the size of a file in bytes; 0 if it cannot be opened.
pub fn size_of_file(fs: &dyn Fs, path: &Path) -> u64 {
    fs.open(path).and_then(|file| file.size()).unwrap_or(0)
}

/// Returns the size of the files in a directory in bytes; 0 if it cannot be listed.
pub fn size_of_files(fs: &dyn Fs, dir: &Path) -> u64 {
    fs.list(dir)
        .unwrap_or_default()
        .iter()
        .map(|name| size_of_file(fs, &dir.join(name)))
        .sum()
}

/// Returns the names in a directory, sorted. A missing directory has none.
///
/// # Errors
/// If the operating system cannot list it.
pub fn list_if_exists(fs: &dyn Fs, dir: &Path) -> Result<Vec<String>, Error> {
    match fs.list(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(Error::at("list", dir)),
    }
}

/// Creates a directory and its missing parents, durably.
///
/// # Errors
/// The first operation that fails.
pub fn create_dir_durably(fs: &dyn Fs, path: &Path) -> Result<(), Error> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && fs.list(dir).is_err();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    fs.create_dir(path).map_err(Error::at("create", path))?;
    for dir in missing {
        let parent = dir
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        fs.sync_dir(parent).map_err(Error::at("sync", parent))?;
    }
    Ok(())
}

/// Replaces a file by `new`, durably.
///
/// # Errors
/// The first operation that fails.
pub fn replace_file(fs: &dyn Fs, new: &Path, path: &Path) -> Result<(), Error> {
    fs.rename(new, path).map_err(Error::at("rename", new))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    fs.sync_dir(dir).map_err(Error::at("sync", dir))
}

/// Removes a file, if it exists.
///
/// # Errors
/// If the operating system cannot remove it.
pub fn remove_if_exists(fs: &dyn Fs, path: &Path) -> Result<(), Error> {
    match fs.remove(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(Error::at("remove", path)),
    }
}
