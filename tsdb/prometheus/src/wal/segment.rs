//! A segment of a WAL.

use std::path::PathBuf;

use varve_env::{Fs, size_of_file};

/// A segment of a WAL or of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Path of the file.
    pub path: PathBuf,
    /// Number in the file name.
    pub number: u64,
    /// The last segment, which may end in the middle of a record.
    pub is_last: bool,
    /// `true` if it belongs to a checkpoint.
    pub is_checkpoint: bool,
}

impl Segment {
    /// Returns the size in bytes, or 0 if the file cannot be opened.
    pub fn size(&self, fs: &dyn Fs) -> u64 {
        size_of_file(fs, &self.path)
    }
}
