//! The files of the WAL of a data directory.

use std::path::{Path, PathBuf};

use varve_env::{Fs, list_if_exists, size_of_file};

use crate::error::Result;
use crate::wal::checkpoint;
use crate::wal::epoch::Epoch;
use crate::wal::file_name::{SegmentKind, is_closed};
use crate::wal::reader::LargeFrameLock;

/// A file of the WAL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalFile {
    /// The path.
    pub path: PathBuf,
    /// The kind of the file.
    pub kind: SegmentKind,
    /// Number of its epoch.
    pub epoch: u32,
    /// Number of logs of its epoch.
    pub n_logs: usize,
    /// Index of its log in the epoch.
    pub log: usize,
    /// Number in the file name.
    pub number: u64,
    /// What a replay does with it.
    pub role: Role,
    /// The segment was completely written, as the next one exists.
    pub is_closed: bool,
}

impl WalFile {
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
        fs.list(&dir.join(subdirectory))
            .is_ok_and(|names| names.iter().any(|name| is_ours(name)))
    };
    has("wal", |name| Epoch::parse(name).is_some())
        || has("blocks", |name| name.ends_with(".block"))
}

/// Lists the files of the WAL of a data directory by epoch, log, kind (checkpoint, series, samples)
/// and number.
///
/// # Errors
/// [`Error::Io`] if a directory cannot be listed or a checkpoint cannot be read; [`Error::Version`]
/// if the format of a checkpoint is not supported.
pub fn list(fs: &dyn Fs, dir: &Path) -> Result<Vec<WalFile>> {
    let wal_dir = dir.join("wal");
    let mut files = Vec::new();
    for epoch in Epoch::list(fs, &wal_dir)? {
        for log in 0..epoch.logs {
            files.extend(log_files(fs, &wal_dir, epoch, log)?);
        }
    }
    Ok(files)
}

fn log_files(fs: &dyn Fs, wal_dir: &Path, epoch: Epoch, log: usize) -> Result<Vec<WalFile>> {
    let dir = epoch.log_dir(wal_dir, log);
    let names = list_if_exists(fs, &dir)?;
    let mut files = Vec::new();
    for kind in SegmentKind::ALL {
        let numbers = kind.numbers(&names);
        files.extend(numbers.iter().map(|&number| {
            let is_closed = kind != SegmentKind::Checkpoint && is_closed(&numbers, number);
            let path = dir.join(kind.file_name(number));
            WalFile {
                path,
                kind,
                epoch: epoch.number,
                n_logs: epoch.logs,
                log,
                number,
                role: Role::Live,
                is_closed,
            }
        }));
    }
    assign_roles(fs, &mut files)?;
    Ok(files)
}

/// Sets the roles of the files of one log, choosing the checkpoint as a replay does.
fn assign_roles(fs: &dyn Fs, files: &mut [WalFile]) -> Result<()> {
    let checkpoints: Vec<_> = files
        .iter()
        .filter(|file| file.kind == SegmentKind::Checkpoint)
        .cloned()
        .collect();
    let numbers: Vec<_> = checkpoints.iter().map(|file| file.number).collect();
    let large = LargeFrameLock::default();
    let mut damaged = Vec::new();
    let start = checkpoint::choose(&numbers, |number| {
        let file = checkpoints
            .iter()
            .find(|file| file.number == number)
            .expect("numbers are those of checkpoints");
        let damage = checkpoint::examine(fs, &file.path, &large)?;
        damaged.extend(damage.is_some().then_some(number));
        Ok(damage.map_or(checkpoint::State::Valid, |damage| damage.state()))
    })?;
    for file in files {
        let is_checkpoint = file.kind == SegmentKind::Checkpoint;
        file.role = match file.number {
            number if is_checkpoint && Some(number) == start.checkpoint => Role::Live,
            number if is_checkpoint && damaged.contains(&number) => Role::Damaged,
            number if is_checkpoint || number < start.first_segment => Role::Superseded,
            _ => Role::Live,
        };
    }
    Ok(())
}
