//! A file that is removed on drop unless it was published.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use varve_env::{AppendFile, Fs, remove_if_exists};

use crate::error::{Error, Result};

/// A new file: an unfinished block, or a spill file of its index.
#[derive(Debug)]
pub(crate) struct TemporaryFile {
    fs: Arc<dyn Fs>,
    /// `None` after it was published.
    path: Option<PathBuf>,
}

impl TemporaryFile {
    /// Creates a file, which must not exist.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn create(fs: Arc<dyn Fs>, path: PathBuf) -> Result<(Self, Arc<dyn AppendFile>)> {
        let file = fs.create(&path).map_err(Error::io("create", &path))?;
        Ok((
            Self {
                fs,
                path: Some(path),
            },
            file,
        ))
    }

    /// Returns the file system and the path.
    ///
    /// # Panics
    /// If the file was published.
    pub(crate) fn location(&self) -> (&dyn Fs, &Path) {
        (
            &*self.fs,
            self.path
                .as_deref()
                .expect("a published file is not used any more"),
        )
    }

    /// Gives the file its final name in `dir`, durably. An error removes the file, whatever its
    /// name is then.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// # Panics
    /// If the file was published.
    pub(crate) fn publish(mut self, dir: &Path, name: &str) -> Result<()> {
        let (fs, path_tmp) = self.location();
        let path = dir.join(name);
        fs.rename(path_tmp, &path).map_err(|error| {
            // The file may have its final name nevertheless. The next start would add it to the
            // blocks.
            let removed = remove_if_exists(fs, &path).map_err(Error::from);
            let synced = removed.and_then(|_| fs.sync_dir(dir).map_err(Error::io("sync", dir)));
            if let Err(error) = synced {
                tracing::error!(?path, %error, "cannot remove an unused file; remove it before the next start");
            }
            Error::io("rename", path_tmp)(error)
        })?;
        self.path = Some(path);
        self.fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
        self.path = None;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = remove_if_exists(&*self.fs, path)
        {
            tracing::warn!(?path, %error, "cannot remove an unfinished or unused file");
        }
    }
}
