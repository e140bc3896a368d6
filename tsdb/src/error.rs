//! Errors of the store, grouped by what the caller can do about them.

use std::io;
use std::path::{Path, PathBuf};

use varve_context::{Interrupt, Limit};
use varve_env::is_out_of_files;

/// Bytes that do not decode. Who knows their place makes an [`Error::Corrupt`] of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

/// The result of an operation of the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error. The caller may retry once the cause is fixed.
    #[error("{op} {path:?}: {source}{}", open_files_hint(.source))]
    Io {
        /// The operation as a verb: `open`, `write`, `sync`.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file has invalid contents. Nothing was changed.
    #[error("{path:?} is damaged at byte {offset}: {reason}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Position of the damage in the file, in bytes.
        offset: u64,
        /// Description of the damage.
        reason: String,
    },
    /// A file has a format that this program cannot read.
    #[error(
        "{path:?} has format version {found}, this program reads version {supported}; nothing was changed: open it with the program that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Format version of the file.
        found: u32,
        /// The version that this program reads.
        supported: u32,
    },
    /// Another process has the data directory open.
    #[error("the data directory is in use by another process, which has locked {path:?}")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// A limit was exceeded. A smaller request may succeed.
    #[error("{what}: {used} exceeds the limit of {limit}")]
    Limit {
        /// The limit.
        what: Limit,
        /// The quantity that the request would have used.
        used: u64,
        /// Maximum of the quantity.
        limit: u64,
    },
    /// The request's deadline passed or it was canceled.
    #[error(transparent)]
    Interrupted(#[from] Interrupt),
    /// An earlier write to the disk failed permanently. Reads continue to work; writes need a
    /// restart.
    #[error("log {log} accepts no writes until a restart: {reason}")]
    Poisoned {
        /// Index of the log.
        log: usize,
        /// The failure that poisoned the log.
        reason: String,
    },
    /// The request's deadline passed before the requested time range was replayed. The request may
    /// succeed later.
    #[error("the requested time range is not replayed yet: {progress}")]
    Replaying {
        /// The progress of the replay.
        progress: String,
    },
    /// The replay of the log failed after the store was opened: the log can be neither read nor
    /// written.
    #[error("replay of the WAL failed: {reason}")]
    ReplayFailed {
        /// What stopped the replay.
        reason: String,
    },
    /// An option is out of bounds.
    #[error("{0}")]
    Options(String),
}

impl Error {
    /// Returns a function that converts an I/O error of the operation `op` on the file `path` to
    /// [`Error::Io`].
    pub fn io(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            op,
            path: path.to_owned(),
            source,
        }
    }

    /// Returns a function that converts an I/O error of the attempt to lock the file `path` of a
    /// data directory. [`Error::Locked`] if another process holds the lock.
    pub(crate) fn lock(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| match error.kind() {
            io::ErrorKind::WouldBlock => Self::Locked {
                path: path.to_owned(),
            },
            _ => Self::io("lock", path)(error),
        }
    }

    /// Returns `true` if a file could not be opened because the process or the system has too many
    /// open files. Such an error says nothing about the file.
    pub(crate) fn is_out_of_files(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_out_of_files(source))
    }

    /// Returns [`Error::Limit`] if `used` exceeds `limit`.
    pub(crate) fn check_limit(what: impl Into<Limit>, used: usize, limit: usize) -> Result<()> {
        if used > limit {
            Err(Self::Limit {
                what: what.into(),
                used: used as u64,
                limit: limit as u64,
            })
        } else {
            Ok(())
        }
    }
}

impl From<varve_env::Error> for Error {
    fn from(failed: varve_env::Error) -> Self {
        let varve_env::Error { op, path, source } = failed;
        Self::Io { op, path, source }
    }
}

impl From<varve_context::Error> for Error {
    fn from(error: varve_context::Error) -> Self {
        match error {
            varve_context::Error::Limit { what, used, limit } => Self::Limit { what, used, limit },
            varve_context::Error::Interrupted(interrupt) => Self::Interrupted(interrupt),
        }
    }
}

/// Returns what to do about an error if it is a shortage of open files, otherwise an empty string.
fn open_files_hint(error: &io::Error) -> &'static str {
    if !is_out_of_files(error) {
        return "";
    }
    "; raise the limit of open files (LimitNOFILE of the systemd unit, `ulimit -n`, or sysctl fs.file-max)"
}
