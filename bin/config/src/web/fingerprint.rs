//! Detects changes of files.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file as it was at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    path: PathBuf,
    /// Time of the last change and size; `None` if the file does not exist.
    modified: Option<(SystemTime, u64)>,
}

impl Fingerprint {
    /// Returns the fingerprint of a file. Call this before the file is read: a change during the
    /// read is then seen by the next check.
    pub(super) fn new(path: &Path) -> Self {
        let metadata = std::fs::metadata(path).ok();
        let modified =
            metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len())));
        Self {
            path: path.to_owned(),
            modified,
        }
    }

    /// Returns the fingerprint that the file has now.
    #[must_use]
    pub fn refreshed(&self) -> Self {
        Self::new(&self.path)
    }

    #[cfg(test)]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
