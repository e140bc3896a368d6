//! Which files the log of a data directory consists of.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::fs::{Fs, size_of_file};
use crate::wal::reader::LargeFrames;
use crate::wal::{Epoch, SegmentKind, checkpoint};

/// A file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it holds.
    pub kind: SegmentKind,
    /// The number of its epoch: which choice of the number of logs it is from.
    pub epoch: u32,
    /// The number of its log.
    pub log: usize,
    /// The number in its name.
    pub number: u64,
    /// Whether a replay reads it.
    pub role: Role,
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
    /// It reads it.
    Counts,
    /// A checkpoint stands in its place: the file is only still to be removed.
    Replaced,
    /// It is a damaged checkpoint; an older one, or no checkpoint, takes its place.
    Unsound,
}

/// Tells whether a folder is a data directory of Varve: there is a log of its form, or a block.
#[must_use]
pub fn is_varve_directory(fs: &dyn Fs, dir: &Path) -> bool {
    let has = |folder: &str, is_ours: fn(&str) -> bool| {
        fs.list(&dir.join(folder)).is_ok_and(|names| names.iter().any(|name| is_ours(name)))
    };
    has("wal", |name| Epoch::parse(name).is_some()) || has("blocks", |name| name.ends_with(".block"))
}

/// Lists the files of a data directory's log in the order of epochs, logs, kinds (checkpoint, series, samples) and numbers.
///
/// # Errors
/// [`Error::Io`] if a folder cannot be listed. A checkpoint that cannot be read is [`Role::Unsound`].
pub fn list(fs: &dyn Fs, dir: &Path) -> Result<Vec<LogFile>> {
    let wal_dir = dir.join("wal");
    let names = names(fs, &wal_dir)?;
    let mut epochs: Vec<Epoch> = names.iter().filter_map(|name| Epoch::parse(name)).collect();
    epochs.sort_unstable();
    let mut files = Vec::new();
    for epoch in epochs {
        for log in 0..epoch.logs {
            files.extend(of_log(fs, &wal_dir, epoch, log)?);
        }
    }
    Ok(files)
}

fn of_log(fs: &dyn Fs, wal_dir: &Path, epoch: Epoch, log: usize) -> Result<Vec<LogFile>> {
    let dir = epoch.log_dir(wal_dir, log);
    let names = names(fs, &dir)?;
    let mut files = Vec::new();
    for kind in [SegmentKind::Checkpoint, SegmentKind::Series, SegmentKind::Samples] {
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| kind.parse(name)).collect();
        numbers.sort_unstable();
        files.extend(numbers.into_iter().map(|number| {
            let path = dir.join(kind.file_name(number));
            LogFile { path, kind, epoch: epoch.number, log, number, role: Role::Counts }
        }));
    }
    choose(fs, &mut files);
    Ok(files)
}

/// Says of the files of one log which of them count, as a replay chooses its checkpoint.
fn choose(fs: &dyn Fs, files: &mut [LogFile]) {
    let (large, mut cut, mut begun) = (LargeFrames::default(), None, None);
    for file in files.iter_mut().rev().filter(|file| file.kind == SegmentKind::Checkpoint) {
        if cut.is_some() {
            file.role = Role::Replaced;
            continue;
        }
        match checkpoint::examine(fs, &file.path, &large) {
            Ok(None) => cut = Some(file.number),
            found => {
                file.role = Role::Unsound;
                let begins = found.is_ok_and(|damage| damage.is_some_and(|damage| damage.begins));
                begun = begun.or(begins.then_some(file.number));
            }
        }
    }
    // Without a sound one, what is sound of the newest counts, and makes segments go if its beginning is there.
    let newest = files.iter().rev().find(|file| file.kind == SegmentKind::Checkpoint).map(|file| file.number);
    if let (None, Some(instead)) = (cut, begun.or(newest)) {
        let is_instead = |file: &&mut LogFile| file.kind == SegmentKind::Checkpoint && file.number == instead;
        files.iter_mut().filter(is_instead).for_each(|file| file.role = Role::Counts);
    }
    let cut = cut.or(begun).unwrap_or(0);
    let is_replaced = |file: &&mut LogFile| file.kind != SegmentKind::Checkpoint && file.number < cut;
    files.iter_mut().filter(is_replaced).for_each(|file| file.role = Role::Replaced);
}

/// The names in a folder; none if it does not exist.
fn names(fs: &dyn Fs, dir: &Path) -> Result<Vec<String>> {
    match fs.list(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(Error::io("list", dir)),
    }
}
