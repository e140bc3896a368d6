//! Originals of files that a repair writes anew: each is kept under a second name, which is never taken twice.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::fs::Fs;

/// Most originals of one name that are kept.
const ORIGINALS_MAX: u32 = 1000;

/// Gives a file a second name in a folder, which is made if need be: `name`, or with a number behind it if an earlier
/// original has that. Returns where it is; it survives a power cut.
///
/// # Errors
/// [`Error::Io`].
pub fn keep(fs: &dyn Fs, path: &Path, folder: &Path, name: &str) -> Result<PathBuf> {
    fs.create_dir(folder).map_err(Error::io("create", folder))?;
    let mut original = folder.join(name);
    for i in 1.. {
        match fs.hard_link(path, &original) {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::AlreadyExists && i < ORIGINALS_MAX => {
                original = folder.join(format!("{name}.{i}"));
            }
            Err(error) => return Err(Error::io("link", &original)(error)),
        }
    }
    fs.sync_dir(folder).map_err(Error::io("sync", folder))?;
    Ok(original)
}

/// Puts `new` in the place of a file, for good.
///
/// # Errors
/// [`Error::Io`].
pub fn replace(fs: &dyn Fs, new: &Path, path: &Path) -> Result<()> {
    fs.rename(new, path).map_err(Error::io("rename", new))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    fs.sync_dir(dir).map_err(Error::io("sync", dir))
}
