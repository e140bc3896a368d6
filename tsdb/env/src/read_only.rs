//! A read-only view of a file system.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::fs::{AppendFile, Fs, Lock, ReadFile, list_if_exists};
use crate::volume::Volume;

/// Reads from another file system; writes, renames, truncations and removals have no effect, and no
/// lock is taken. For inspecting a data directory that may be in use: the code that reads it may do
/// everything it does at a start.
#[derive(Debug)]
pub struct ReadOnlyFs(pub Arc<dyn Fs>);

/// A file that discards its contents.
#[derive(Debug)]
struct Nowhere;

/// A lock that excludes nobody.
#[derive(Debug)]
struct NoLock;

impl Fs for ReadOnlyFs {
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// A missing directory counts as created and empty.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        list_if_exists(&*self.0, dir).map_err(|error| error.source)
    }

    fn read(&self, path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
        self.0.read(path, size_max)
    }

    fn create(&self, _path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        Ok(Arc::new(Nowhere))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.0.open(path)
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }

    fn hard_link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _path: &Path, _size: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn volume(&self, path: &Path) -> io::Result<Volume> {
        self.0.volume(path)
    }

    fn lock(&self, _path: &Path) -> io::Result<Box<dyn Lock>> {
        Ok(Box::new(NoLock))
    }
}

impl Lock for NoLock {}

impl AppendFile for Nowhere {
    fn append(&self, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
