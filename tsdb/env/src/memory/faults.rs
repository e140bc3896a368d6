//! Injected faults.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It has no effect and returns this error.
    Fails(io::ErrorKind),
    /// It has no effect, because the process has too many open files.
    OutOfFiles,
    /// An append writes the first half of its bytes, any other operation completes; then it returns
    /// an I/O error.
    Cut,
    /// The process dies: an append may still write the first half of its bytes; nothing else
    /// happens, and every later operation and read fails as well.
    Dies,
}

/// The faults to inject, and the last one injected.
#[derive(Debug)]
pub(super) struct Faults {
    /// Free space in bytes.
    pub(super) room: u64,
    pub(super) sync_fails: bool,
    /// Reads of files whose names begin with this block.
    pub(super) blocked_files: Option<String>,
    /// Opens of files whose names begin with this fail, because the process has too many open
    /// files.
    pub(super) unopened_files: Option<String>,
    /// By index of the operation.
    pub(super) at: BTreeMap<u64, Fault>,
    pub(super) n_operations: u64,
    pub(super) failed: Option<String>,
    dead: bool,
}

impl Faults {
    pub(super) fn new() -> Self {
        Self {
            room: u64::MAX,
            sync_fails: false,
            blocked_files: None,
            unopened_files: None,
            at: BTreeMap::new(),
            n_operations: 0,
            failed: None,
            dead: false,
        }
    }

    /// Fails if the process has died.
    pub(super) fn check_alive(&self) -> io::Result<()> {
        if self.dead {
            Err(io::Error::other("the process has died"))
        } else {
            Ok(())
        }
    }

    /// Counts an operation and returns its fault.
    pub(super) fn count(
        &mut self,
        operation: &'static str,
        path: &Path,
    ) -> io::Result<Option<Fault>> {
        self.check_alive()?;
        let fault = self.at.remove(&self.n_operations);
        if let Some(fault) = fault {
            self.failed = Some(format!(
                "operation {}, {operation} {}: {fault:?}",
                self.n_operations,
                path.display()
            ));
            self.dead = fault == Fault::Dies;
        }
        self.n_operations += 1;
        Ok(fault)
    }

    /// Returns `true` if a read up to the byte `end` of a file blocks.
    pub(super) fn is_blocked(&self, path: &Path, end: u64) -> bool {
        end > HEADER_SIZE_MAX && begins_with(path, self.blocked_files.as_deref())
    }

    /// Fails if the file cannot be opened.
    pub(super) fn check_open(&self, path: &Path) -> io::Result<()> {
        self.check_alive()?;
        if begins_with(path, self.unopened_files.as_deref()) {
            Err(Fault::OutOfFiles.error())
        } else {
            Ok(())
        }
    }

    /// Allocates space for as many of `size` bytes as fit.
    pub(super) fn take_room(&mut self, size: usize) -> usize {
        let fits = size.min(usize::try_from(self.room).unwrap_or(usize::MAX));
        if self.room != u64::MAX {
            self.room -= fits as u64;
        }
        fits
    }

    pub(super) fn give_room(&mut self, size: u64) {
        self.room = self.room.saturating_add(size);
    }
}

impl Fault {
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::Fails(kind) => io::Error::from(kind),
            Self::OutOfFiles => io::Error::from_raw_os_error(crate::error::EMFILE),
            Self::Cut => broken(),
            Self::Dies => io::Error::other("the process has died"),
        }
    }
}

/// Returns `true` if there is a prefix, and the name of a file begins with it.
fn begins_with(path: &Path, prefix: Option<&str>) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    prefix.is_some_and(|prefix| name.starts_with(prefix))
}

/// Reads of the first bytes of a file do not block.
const HEADER_SIZE_MAX: u64 = 24;

/// The error of a broken disk.
pub(super) fn broken() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}
