//! Epochs: generations of logs, each with its own number of logs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use varve_env::{Fs, list_if_exists};
use varve_model::Labels;
use xxhash_rust::xxh3::xxh3_64;

use super::file_name::SegmentKind;
use crate::error::{Error, Result};
use crate::limits::SHARDS_MAX;

/// Returns the log of a series. The mapping must never change: a replay expects the series of a log
/// in its files.
pub(crate) fn log_of(labels: &Labels, n_logs: usize) -> usize {
    debug_assert!(n_logs.is_power_of_two(), "options are checked");
    xxh3_64(labels.as_packed().as_bytes()) as usize & (n_logs - 1)
}

/// The highest epoch number: directory names have six digits for it.
const NUMBER_MAX: u32 = 999_999;

/// An epoch: a directory `<number>-<logs>` with one subdirectory per log.
///
/// When a store is opened with another number of logs, the next epoch begins. Earlier epochs are
/// only read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch {
    /// Number of the epoch, from 0.
    pub(crate) number: u32,
    /// Number of logs.
    pub(crate) logs: usize,
}

impl Epoch {
    /// Parses the name of an epoch directory. Returns `None` if it is not one.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (number, logs) = name.split_once('-')?;
        let epoch = Self {
            number: number.parse().ok()?,
            logs: logs.parse().ok()?,
        };
        // A reader looks for every log of an epoch, so accept only a number of logs that a store
        // can have written.
        let is_possible = epoch.number <= NUMBER_MAX && (1..=SHARDS_MAX).contains(&epoch.logs);
        (is_possible && epoch.name() == name).then_some(epoch)
    }

    /// Lists the epochs, oldest first.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn list(fs: &dyn Fs, wal_dir: &Path) -> Result<Vec<Self>> {
        let names = list_if_exists(fs, wal_dir)?;
        let mut epochs: Vec<Self> = names.iter().filter_map(|name| Self::parse(name)).collect();
        epochs.sort_unstable();
        Ok(epochs)
    }

    /// Returns the next epoch, with `logs` logs.
    ///
    /// # Errors
    /// [`Error::Limit`] after epoch [`NUMBER_MAX`].
    pub(crate) fn next(self, logs: usize) -> Result<Self> {
        if self.number == NUMBER_MAX {
            let limit = NUMBER_MAX.into();
            return Err(Error::Limit {
                what: varve_context::Limit::Other("changes of the number of WAL logs"),
                used: limit + 1,
                limit,
            });
        }
        Ok(Self {
            number: self.number + 1,
            logs,
        })
    }

    fn name(self) -> String {
        format!("{:06}-{:03}", self.number, self.logs)
    }

    /// Returns the directory of the epoch.
    pub(crate) fn dir(self, wal_dir: &Path) -> PathBuf {
        wal_dir.join(self.name())
    }

    /// Returns the directory of a log.
    pub(crate) fn log_dir(self, wal_dir: &Path, log: usize) -> PathBuf {
        self.dir(wal_dir).join(format!("{log:03}"))
    }
}

/// Removes the epochs before `current`, oldest first, so that the logs that remain after a crash
/// can be replayed. Called when every log of `current` has written a checkpoint after its replay,
/// and all samples of earlier epochs are durable in blocks or in logs of `current`. Keeps foreign
/// files and their directories.
///
/// # Errors
/// [`Error::Io`]; the caller may retry.
pub(crate) fn remove_epochs_before(fs: &dyn Fs, wal_dir: &Path, current: Epoch) -> Result<()> {
    for epoch in Epoch::list(fs, wal_dir)?
        .into_iter()
        .filter(|epoch| *epoch < current)
    {
        for log in 0..epoch.logs {
            remove_log(fs, &epoch.log_dir(wal_dir, log))?;
        }
        remove_dir(fs, &epoch.dir(wal_dir))?;
    }
    fs.sync_dir(wal_dir).map_err(Error::io("sync", wal_dir))
}

/// Removes the directory of a log, samples before definitions.
fn remove_log(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let names = match fs.list(dir) {
        // An earlier attempt was interrupted.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        names => names.map_err(Error::io("list", dir))?,
    };
    for kind in SegmentKind::ALL.into_iter().rev() {
        for name in names
            .iter()
            .filter(|name| kind.parse(name).or_else(|| kind.parse_tmp(name)).is_some())
        {
            let path = dir.join(name);
            fs.remove(&path).map_err(Error::io("remove", &path))?;
        }
    }
    remove_dir(fs, dir)
}

/// Removes a directory unless it contains foreign files.
fn remove_dir(fs: &dyn Fs, dir: &Path) -> Result<()> {
    match fs.remove_dir(dir) {
        Err(e) if e.kind() != ErrorKind::DirectoryNotEmpty => Err(Error::io("remove", dir)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::RealFs;

    #[test]
    fn names_round_trip_and_others_are_rejected() {
        assert_eq!(
            Epoch::parse("000003-016"),
            Some(Epoch {
                number: 3,
                logs: 16
            })
        );
        for bad in [
            "3-16",
            "000003",
            "000003-016.tmp",
            "x-y",
            "000003-000",
            "000003-257",
            "000003-99999999999",
            "4294967295-001",
        ] {
            assert_eq!(Epoch::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn epoch_numbers_are_bounded() {
        let epoch = |number| Epoch { number, logs: 1 };
        assert_eq!(epoch(7).next(4).unwrap(), Epoch { number: 8, logs: 4 });
        assert!(matches!(
            epoch(NUMBER_MAX).next(4),
            Err(Error::Limit { .. })
        ));
    }

    #[test]
    fn only_earlier_epochs_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let epochs = [(0, 2), (1, 4), (2, 2)].map(|(number, logs)| Epoch { number, logs });
        for epoch in epochs {
            for log in 0..epoch.logs {
                let dir = epoch.log_dir(dir.path(), log);
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(dir.join("samples-00000000"), "x").unwrap();
                std::fs::write(dir.join("series-00000000"), "x").unwrap();
            }
        }
        std::fs::write(dir.path().join("reserve"), "x").unwrap();
        for _ in 0..2 {
            remove_epochs_before(&RealFs, dir.path(), epochs[2]).unwrap();
            assert_eq!(RealFs.list(dir.path()).unwrap(), ["000002-002", "reserve"]);
            assert_eq!(
                RealFs
                    .list(&epochs[2].log_dir(dir.path(), 1))
                    .unwrap()
                    .len(),
                2
            );
        }
        let foreign = epochs[0].log_dir(dir.path(), 0).join("notes");
        std::fs::create_dir_all(foreign.parent().unwrap()).unwrap();
        std::fs::write(&foreign, "x").unwrap();
        remove_epochs_before(&RealFs, dir.path(), epochs[2]).unwrap();
        assert!(foreign.exists());
    }
}
