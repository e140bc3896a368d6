//! The folder for damaged bytes that replay passed over: nothing that cannot be trusted is thrown away.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::reader::WINDOW_SIZE;
use crate::error::{Error, Result};
use crate::fs::Fs;

/// Copies a range of a file of the log aside, piece by piece, under a name that says where it was.
///
/// # Errors
/// [`Error::Io`]. A range that an earlier start has kept is no error.
pub(super) fn keep(fs: &dyn Fs, quarantine: &Path, path: &Path, range: Range<u64>) -> Result<()> {
    fs.create_dir(quarantine).map_err(Error::io("create", quarantine))?;
    let copy = copy_path(quarantine, path, range.start);
    let file = match fs.create(&copy) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(()),
        file => file.map_err(Error::io("create", &copy))?,
    };
    let src = fs.open(path).map_err(Error::io("open", path))?;
    let mut piece = vec![0; WINDOW_SIZE];
    let mut at = range.start;
    while at < range.end {
        let size = usize::try_from(range.end - at).map_or(WINDOW_SIZE, |left| left.min(WINDOW_SIZE));
        src.read_at(&mut piece[..size], at).map_err(Error::io("read", path))?;
        file.append(&piece[..size]).map_err(Error::io("write", &copy))?;
        at += size as u64;
    }
    file.sync().map_err(Error::io("sync", &copy))?;
    fs.sync_dir(quarantine).map_err(Error::io("sync", quarantine))
}

/// Gives a whole file of the log a second name in the folder, so that it outlives the log.
///
/// # Errors
/// [`Error::Io`]. A file that an earlier start has kept is no error.
pub(super) fn keep_whole(fs: &dyn Fs, quarantine: &Path, path: &Path) -> Result<()> {
    fs.create_dir(quarantine).map_err(Error::io("create", quarantine))?;
    let kept = quarantine.join(place_of(path));
    match fs.hard_link(path, &kept) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        linked => {
            linked.map_err(Error::io("link", &kept))?;
            fs.sync_dir(quarantine).map_err(Error::io("sync", quarantine))
        }
    }
}

fn copy_path(quarantine: &Path, path: &Path, offset: u64) -> PathBuf {
    quarantine.join(format!("{}.at-{offset}", place_of(path)))
}

/// Returns `<epoch>.<shard>.<file>`.
fn place_of(path: &Path) -> String {
    let mut parts: Vec<_> = path.iter().rev().take(3).map(|part| part.to_string_lossy()).collect();
    parts.reverse();
    parts.join(".")
}
