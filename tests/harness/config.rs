//! A configuration file that a test can replace.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A configuration file in a directory of its own, which is removed on drop.
#[derive(Debug)]
pub(crate) struct ConfigFile(TempDir);

impl ConfigFile {
    pub(crate) fn new(text: &str) -> Self {
        let config = Self(TempDir::new().expect("make a temporary directory"));
        config.write(text);
        config
    }

    pub(crate) fn write(&self, text: &str) {
        std::fs::write(self.path(), text).expect("write the configuration");
    }

    /// Replaces the file by a rename, so that no reader finds half of it.
    pub(crate) fn replace(&self, text: &str) {
        let new = self.dir().join("new.yml");
        std::fs::write(&new, text).expect("write the configuration");
        std::fs::rename(&new, self.path()).expect("put the configuration in place");
    }

    /// Returns the flag that names the file.
    pub(crate) fn flag(&self) -> String {
        format!("--config.file={}", self.path().display())
    }

    pub(crate) fn dir(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir().join("varve.yml")
    }
}
