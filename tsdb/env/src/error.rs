//! Failed operations on files.
//!
//! The traits return the [`io::Error`] of the operating system: their callers decide by its kind,
//! and know the file. All functions above the traits return an [`Error`], because they do more than
//! one operation.

use std::io;
use std::path::{Path, PathBuf};

/// A failed operation on a file or directory.
#[derive(Debug, thiserror::Error)]
#[error("{op} {path:?}: {source}")]
pub struct Error {
    /// The operation as a verb: `open`, `write`, `sync`.
    pub op: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    pub source: io::Error,
}

impl Error {
    /// Returns a function that adds the operation `op` and the file `path` to an I/O error.
    pub(crate) fn at(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self {
            op,
            path: path.to_owned(),
            source,
        }
    }
}

/// The error code of a system that has too many open files.
const ENFILE: i32 = 23;
/// The error code of a process that has too many open files.
pub(crate) const EMFILE: i32 = 24;

/// Returns `true` if a file could not be opened because the process or the system has too many open
/// files.
#[must_use]
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}
