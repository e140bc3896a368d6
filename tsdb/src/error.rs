//! Errors, by what the caller can do about them.

use std::io;
use std::path::{Path, PathBuf};

use crate::context::Interrupt;

/// The result of an operation of the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the store refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused; the caller may try again once the cause is gone.
    #[error("{op} {path:?}: {source}")]
    Io {
        /// What was tried, as a verb: `open`, `write`, `sync`.
        op: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file does not hold what it should; nothing was changed.
    #[error("{path:?} is damaged at byte {offset}: {reason}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What was found.
        reason: String,
    },
    /// A file is of a format that this program does not read.
    #[error(
        "{path:?} has format version {found}, this program reads version {supported}; nothing was changed: open it with the program that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The version that this program reads.
        supported: u32,
    },
    /// Another process has the data directory open.
    #[error("data directory {path:?} is in use by another process")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A bound was hit; asking for less helps.
    #[error("{what}: {used} exceeds the limit of {limit}")]
    Limit {
        /// The bound's name.
        what: &'static str,
        /// What would have been used.
        used: u64,
        /// The bound.
        limit: u64,
    },
    /// The request's deadline passed or it was canceled.
    #[error(transparent)]
    Interrupted(#[from] Interrupt),
    /// An earlier write to the disk failed for good; reads go on, writes wait for a restart.
    #[error("log {log} accepts no writes until a restart: {reason}")]
    Poisoned {
        /// The number of the log.
        log: usize,
        /// The failure that poisoned it.
        reason: String,
    },
    /// The request's time was over before the range that it asks for was replayed; later it will be.
    #[error("the time range that is asked for is not replayed yet: {progress}")]
    Replaying {
        /// How far the replay is.
        progress: String,
    },
    /// The log could not be replayed after the store was opened: it is neither read nor written any more.
    #[error("the log could not be replayed: {reason}")]
    ReplayFailed {
        /// What stopped the replay.
        reason: String,
    },
    /// An option is out of its bounds.
    #[error("{0}")]
    Options(String),
}

impl Error {
    /// Returns what turns an I/O error of an operation on a file into [`Error::Io`].
    pub fn io(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { op, path: path.to_owned(), source }
    }
}
