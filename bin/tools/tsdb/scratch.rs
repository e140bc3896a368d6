//! A folder of our own, for what need not stay.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Folders of one process are told apart by this.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder that is removed on drop. After a kill it stays.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder inside of `root`, or of the folder for temporary files.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn create(root: Option<&Path>) -> Result<Self> {
        let root = root.map_or_else(std::env::temp_dir, Path::to_owned);
        let name = format!("varve-tsdb-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = root.join(name);
        std::fs::create_dir(&path).with_context(|| format!("create {path:?}"))?;
        Ok(Self(path))
    }

    /// Returns where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is only in the way if it stays.
        let _stays = std::fs::remove_dir_all(&self.0);
    }
}
