//! The directory for damaged bytes that a replay skipped. Nothing is deleted because it is damaged.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use varve_env::{Fs, create_dir_durably, remove_if_exists, replace_file};

use super::reader::{GAP_MAX, WINDOW_SIZE};
use crate::error::{Error, Result};

/// Copies a range of a log file to the quarantine. The name of the copy contains the file and the
/// offset. If the range is larger than [`GAP_MAX`], for example in an extended sparse file, links
/// the file instead.
///
/// # Errors
/// [`Error::Io`]. Succeeds if an earlier start has copied the range.
pub(crate) fn copy_range(
    fs: &dyn Fs,
    quarantine: &Path,
    path: &Path,
    range: Range<u64>,
) -> Result<()> {
    if range.end - range.start > GAP_MAX {
        return link_file(fs, quarantine, path);
    }
    create_dir_durably(fs, quarantine)?;
    let copy = quarantine.join(format!("{}.at-{}", qualified_name(path), range.start));
    // A copy gets its name only when it is complete.
    if fs.open(&copy).is_ok() {
        return fs
            .sync_dir(quarantine)
            .map_err(Error::io("sync", quarantine));
    }
    let unfinished = copy.with_added_extension("tmp");
    remove_if_exists(fs, &unfinished)?;
    let file = fs
        .create(&unfinished)
        .map_err(Error::io("create", &unfinished))?;
    let src = fs.open(path).map_err(Error::io("open", path))?;
    let mut buffer = vec![0; WINDOW_SIZE];
    let mut offset = range.start;
    while offset < range.end {
        let size =
            usize::try_from(range.end - offset).map_or(WINDOW_SIZE, |left| left.min(WINDOW_SIZE));
        src.read_at(&mut buffer[..size], offset)
            .map_err(Error::io("read", path))?;
        file.append(&buffer[..size])
            .map_err(Error::io("write", &unfinished))?;
        offset += size as u64;
    }
    file.sync().map_err(Error::io("sync", &unfinished))?;
    Ok(replace_file(fs, &unfinished, &copy)?)
}

/// Links a whole log file into the quarantine, so that it outlives the log.
///
/// # Errors
/// [`Error::Io`]. Succeeds if an earlier start has linked the file.
pub(crate) fn link_file(fs: &dyn Fs, quarantine: &Path, path: &Path) -> Result<()> {
    create_dir_durably(fs, quarantine)?;
    let link = quarantine.join(qualified_name(path));
    match fs.hard_link(path, &link) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        linked => linked.map_err(Error::io("link", &link))?,
    }
    fs.sync_dir(quarantine)
        .map_err(Error::io("sync", quarantine))
}

/// Returns `<epoch>.<log>.<file>`.
pub(super) fn qualified_name(path: &Path) -> String {
    let mut parts: Vec<_> = path
        .iter()
        .rev()
        .take(3)
        .map(|part| part.to_string_lossy())
        .collect();
    parts.reverse();
    parts.join(".")
}
