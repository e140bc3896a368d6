//! A temporary directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use varve_tsdb::{Db, Options, WalSync};

/// Distinguishes the directories of one process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory that is removed on drop. It remains after SIGKILL.
#[derive(Debug)]
pub(super) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Creates a directory in `root`, or in the system's temporary directory.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn create(root: Option<&Path>) -> Result<Self> {
        let root = root.map_or_else(std::env::temp_dir, Path::to_owned);
        let name = format!(
            "varve-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = root.join(name);
        std::fs::create_dir(&path).with_context(|| format!("create {path:?}"))?;
        Ok(Self(path))
    }

    /// Opens a store in it, for samples of any time that need not survive.
    ///
    /// # Errors
    /// If the store cannot be created.
    pub(super) fn open_store(&self, name: &str) -> varve_tsdb::Result<Db> {
        let options = Options {
            wal_sync: WalSync::Never,
            in_order_max_age_ms: i64::MAX / 2,
            ahead_max_ms: i64::MAX / 2,
            background: false,
            ..Options::default()
        };
        Db::open(&self.0.join(name), options)
    }

    /// Returns its path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A leftover directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
