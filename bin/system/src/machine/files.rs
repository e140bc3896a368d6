//! Reads small files, removes directories, checks the lock of a data directory.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Reads a text file.
///
/// # Errors
/// If it has more than `size_max` bytes, cannot be read, or is not UTF-8. The message names the
/// file.
pub fn read_text(path: &Path, size_max: u64) -> Result<String> {
    let size = fs::metadata(path)
        .with_context(|| format!("read {path:?}"))?
        .len();
    ensure!(
        size <= size_max,
        "{path:?} has {size} bytes, more than {size_max}"
    );
    fs::read_to_string(path).with_context(|| format!("read {path:?}"))
}

/// Removes a directory and what it holds, if it exists.
///
/// # Errors
/// If it cannot be removed. The message names it.
pub fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {dir:?}"))
        }
        _ => Ok(()),
    }
}

/// Returns `true` if a server has the data directory open.
pub fn is_locked(data_dir: &Path) -> bool {
    let lock = File::open(data_dir.join("lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}
