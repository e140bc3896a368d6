//! Saves the original of a file that a repair rewrites: a second name, which is never reused.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::fs::{Fs, create_dir_durably};

/// Maximum originals with one name.
const ORIGINALS_MAX: u32 = 1000;

/// Links a file into a directory, which is created if necessary, as `name`, or as `name.1` and so
/// on if that is taken. Returns the path of the link. It survives a power cut.
///
/// # Errors
/// The first operation that fails.
pub fn save_original(fs: &dyn Fs, path: &Path, dir: &Path, name: &str) -> Result<PathBuf, Error> {
    create_dir_durably(fs, dir)?;
    let mut original = dir.join(name);
    for i in 1.. {
        match fs.hard_link(path, &original) {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::AlreadyExists && i < ORIGINALS_MAX => {
                original = dir.join(format!("{name}.{i}"));
            }
            Err(error) => return Err(Error::at("link", &original)(error)),
        }
    }
    fs.sync_dir(dir).map_err(Error::at("sync", dir))?;
    Ok(original)
}
