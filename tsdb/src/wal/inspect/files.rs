//! The files of the WAL of a data directory.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::fs::{Fs, list_if_exists, size_of_file};
use crate::wal::checkpoint;
use crate::wal::epoch::Epoch;
use crate::wal::file_name::{SegmentKind, is_closed};
use crate::wal::reader::LargeFrameLock;

/// A file of the WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// The path.
    pub path: PathBuf,
    /// The kind of the file.
    pub kind: SegmentKind,
    /// Number of its epoch.
    pub epoch: u32,
    /// Index of its log in the epoch.
    pub log: usize,
    /// Number in the file name.
    pub number: u64,
    /// What a replay does with it.
    pub role: Role,
    /// The segment was completely written, as the next one exists.
    pub is_closed: bool,
}

impl LogFile {
    /// Returns its size in bytes; 0 if it cannot be opened.
    pub fn size(&self, fs: &dyn Fs) -> u64 {
        size_of_file(fs, &self.path)
    }
}

/// What a replay does with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads the file.
    Live,
    /// Ignores it: a checkpoint has superseded the file, and the server will remove it.
    Superseded,
    /// Ignores it: the file is a damaged checkpoint. The replay uses an older checkpoint or none.
    Damaged,
}

/// Returns `true` if a directory is a data directory of Varve: it contains a WAL epoch or a block.
#[must_use]
pub fn is_varve_directory(fs: &dyn Fs, dir: &Path) -> bool {
    let has = |subdirectory: &str, is_ours: fn(&str) -> bool| {
        fs.list(&dir.join(subdirectory)).is_ok_and(|names| names.iter().any(|name| is_ours(name)))
    };
    has("wal", |name| Epoch::parse(name).is_some()) || has("blocks", |name| name.ends_with(".block"))
}

/// Lists the files of the WAL of a data directory by epoch, log, kind (checkpoint, series, samples) and number.
///
/// # Errors
/// [`Error::Io`] if a directory cannot be listed. A checkpoint that cannot be read gets [`Role::Damaged`]
/// instead.
pub fn list(fs: &dyn Fs, dir: &Path) -> Result<Vec<LogFile>> {
    let wal_dir = dir.join("wal");
    let mut files = Vec::new();
    for epoch in Epoch::list(fs, &wal_dir)? {
        for log in 0..epoch.logs {
            files.extend(log_files(fs, &wal_dir, epoch, log)?);
        }
    }
    Ok(files)
}

fn log_files(fs: &dyn Fs, wal_dir: &Path, epoch: Epoch, log: usize) -> Result<Vec<LogFile>> {
    let dir = epoch.log_dir(wal_dir, log);
    let names = list_if_exists(fs, &dir).map_err(Error::io("list", &dir))?;
    let mut files = Vec::new();
    for kind in SegmentKind::ALL {
        let numbers = kind.numbers(&names);
        files.extend(numbers.iter().map(|&number| {
            let is_closed = kind != SegmentKind::Checkpoint && is_closed(&numbers, number);
            let path = dir.join(kind.file_name(number));
            LogFile { path, kind, epoch: epoch.number, log, number, role: Role::Live, is_closed }
        }));
    }
    assign_roles(fs, &mut files);
    Ok(files)
}

/// Sets the roles of the files of one log, choosing the checkpoint as a replay does.
fn assign_roles(fs: &dyn Fs, files: &mut [LogFile]) {
    let (large, mut chosen, mut started) = (LargeFrameLock::default(), None, None);
    for file in files.iter_mut().rev().filter(|file| file.kind == SegmentKind::Checkpoint) {
        if chosen.is_some() {
            file.role = Role::Superseded;
            continue;
        }
        match checkpoint::examine(fs, &file.path, &large) {
            Ok(None) => chosen = Some(file.number),
            found => {
                file.role = Role::Damaged;
                let begins = found.is_ok_and(|damage| damage.is_some_and(|damage| damage.begins));
                started = started.or(begins.then_some(file.number));
            }
        }
    }
    // If no checkpoint is valid, the replay uses the valid frames of the newest. That checkpoint supersedes segments if
    // its first frame is valid.
    let newest = files.iter().rev().find(|file| file.kind == SegmentKind::Checkpoint).map(|file| file.number);
    if let (None, Some(instead)) = (chosen, started.or(newest)) {
        let is_instead = |file: &&mut LogFile| file.kind == SegmentKind::Checkpoint && file.number == instead;
        files.iter_mut().filter(is_instead).for_each(|file| file.role = Role::Live);
    }
    let chosen = chosen.or(started).unwrap_or(0);
    let is_superseded = |file: &&mut LogFile| file.kind != SegmentKind::Checkpoint && file.number < chosen;
    files.iter_mut().filter(is_superseded).for_each(|file| file.role = Role::Superseded);
}
