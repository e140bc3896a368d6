//! Files of the WAL that are missing, as far as the names of the others prove it.
//!
//! Used by `Db::open`, `replay` and `inspect`. Format: docs/format/wal.md, "Missing files".
//!
//! A process numbers the segments of a kind without gaps, and skips one number before its first. A
//! rotation continues at a multiple of [`ROTATION_STEP`], and a log continues at the number of its
//! checkpoint. Any other step proves that segments between are missing.

use std::path::{Path, PathBuf};

use varve_env::{Fs, list_if_exists};

use super::epoch::Epoch;
use super::file_name::{ROTATION_STEP, SegmentKind};
use crate::error::Result;

/// Files that are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingFiles {
    /// The directory in which they are missing, or the directory that is missing.
    pub(crate) path: PathBuf,
    /// What is missing, and what proves it.
    pub(crate) reason: String,
}

/// Returns the missing segments of a kind in the log `dir`. `numbers` are those of the segments that
/// a replay reads, `checkpoints` those of all checkpoints of the log. Both ascend.
pub(crate) fn missing_segments(
    dir: &Path,
    kind: SegmentKind,
    numbers: &[u64],
    checkpoints: &[u64],
) -> Vec<MissingFiles> {
    let mut missing = Vec::new();
    let mut previous: Option<u64> = None;
    for &number in numbers {
        let is_next = previous.is_some_and(|previous| number - previous <= 2);
        let is_rotation = number % ROTATION_STEP == 0 || checkpoints.contains(&number);
        if !is_next && !is_rotation {
            let name = kind.file_name(number);
            let reason = match previous {
                Some(previous) => {
                    let previous = kind.file_name(previous);
                    format!("segments between {previous} and {name} are missing")
                }
                None => format!("segments before {name} are missing"),
            };
            missing.push(MissingFiles {
                path: dir.to_owned(),
                reason,
            });
        }
        previous = Some(number);
    }
    missing
}

/// Returns the missing directories of logs and epochs. `epochs` ascend.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn missing_directories(
    fs: &dyn Fs,
    wal_dir: &Path,
    epochs: &[Epoch],
) -> Result<Vec<MissingFiles>> {
    let n_replaced = n_replaced_epochs(fs, wal_dir, epochs)?;
    let mut missing = Vec::new();
    let mut previous: Option<Epoch> = None;
    // A removed epoch leaves its directory if it has foreign files, which prove nothing.
    let mut has_earlier_files = false;
    for &epoch in &epochs[n_replaced..] {
        let contents = EpochContents::read(fs, wal_dir, epoch)?;
        if let Some(previous) = previous
            && has_earlier_files
            && epoch.number > previous.number + 1
        {
            let first = previous.number + 1;
            let last = epoch.number - 1;
            let reason = format!("epochs {first:06} to {last:06} are missing");
            let path = wal_dir.to_owned();
            missing.push(MissingFiles { path, reason });
        }
        previous = Some(epoch);
        // A process creates the directories of all logs before it writes to one of them.
        if contents.has_files {
            has_earlier_files = true;
            for log in contents.missing_logs {
                missing.push(MissingFiles {
                    path: epoch.log_dir(wal_dir, log),
                    reason: format!("one of the {} logs of the epoch is missing", epoch.logs),
                });
            }
        }
    }
    Ok(missing)
}

/// Returns the number of the oldest `epochs` that a flush may be removing: each log of a later epoch
/// has a checkpoint. Their files prove nothing.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn n_replaced_epochs(fs: &dyn Fs, wal_dir: &Path, epochs: &[Epoch]) -> Result<usize> {
    for (idx, &epoch) in epochs.iter().enumerate().skip(1).rev() {
        if EpochContents::read(fs, wal_dir, epoch)?.n_checkpointed == epoch.logs {
            return Ok(idx);
        }
    }
    Ok(0)
}

/// What the names in the directories of an epoch say.
#[derive(Debug, Default)]
struct EpochContents {
    missing_logs: Vec<usize>,
    /// Whether any log has a file.
    has_files: bool,
    /// Number of logs with a checkpoint.
    n_checkpointed: usize,
}

impl EpochContents {
    fn read(fs: &dyn Fs, wal_dir: &Path, epoch: Epoch) -> Result<Self> {
        let mut contents = Self::default();
        // Not from the logs themselves: a read-only view takes a missing directory for an empty one.
        let logs = list_if_exists(fs, &epoch.dir(wal_dir))?;
        for log in 0..epoch.logs {
            let dir = epoch.log_dir(wal_dir, log);
            let is_there = dir
                .file_name()
                .is_some_and(|dir_name| logs.iter().any(|name| dir_name == name.as_str()));
            if !is_there {
                contents.missing_logs.push(log);
                continue;
            }
            let names = list_if_exists(fs, &dir)?;
            for kind in SegmentKind::ALL {
                if names.iter().any(|name| kind.parse(name).is_some()) {
                    contents.has_files = true;
                    contents.n_checkpointed += usize::from(kind == SegmentKind::Checkpoint);
                }
            }
        }
        Ok(contents)
    }
}

#[cfg(test)]
mod tests {
    use varve_env::testing::MemFs;

    use super::*;

    /// Returns the reasons for which segments with these numbers are not all.
    fn reasons(numbers: &[u64], checkpoints: &[u64]) -> Vec<String> {
        let kind = SegmentKind::Samples;
        let missing = missing_segments(Path::new("log"), kind, numbers, checkpoints);
        missing.into_iter().map(|it| it.reason).collect()
    }

    #[test]
    fn steps_that_no_process_makes_prove_a_loss() {
        let sound: [(&[u64], &[u64]); 9] = [
            (&[], &[]),
            (&[0, 1, 2], &[]),
            // Three processes.
            (&[0, 1, 3, 5, 6], &[]),
            // A rotation whose checkpoint was not written.
            (&[0, 1, 16, 17], &[]),
            (&[32], &[]),
            (&[32, 33], &[32]),
            (&[], &[32]),
            // Programs before ROTATION_STEP.
            (&[6, 8, 10], &[6]),
            // The newer checkpoint is damaged.
            (&[6, 7, 13, 14], &[6, 13]),
        ];
        for (numbers, checkpoints) in sound {
            assert_eq!(reasons(numbers, checkpoints), [""; 0], "{numbers:?}");
        }
        let lost: [(&[u64], &[u64], &str); 5] = [
            (
                &[6, 10],
                &[6],
                "segments between samples-00000006 and samples-00000010 are missing",
            ),
            (
                &[0, 1, 4],
                &[],
                "segments between samples-00000001 and samples-00000004 are missing",
            ),
            (
                &[16, 17, 21],
                &[16],
                "segments between samples-00000017 and samples-00000021 are missing",
            ),
            (&[1, 2], &[], "segments before samples-00000001 are missing"),
            (
                &[8, 10],
                &[6],
                "segments before samples-00000008 are missing",
            ),
        ];
        for (numbers, checkpoints, reason) in lost {
            assert_eq!(reasons(numbers, checkpoints), [reason], "{numbers:?}");
        }
    }

    /// Checks which directories are missing in a WAL with these files.
    fn check_directories(files: &[&str], expect: &[&str]) {
        let fs = MemFs::new();
        let wal_dir = Path::new("/wal");
        for file in files {
            let path = wal_dir.join(file);
            if file.ends_with('/') {
                fs.create_dir(&path).unwrap();
            } else {
                fs.create_dir(path.parent().unwrap()).unwrap();
                fs.create(&path).unwrap();
            }
        }
        let epochs = Epoch::list(&fs, wal_dir).unwrap();
        let mut missing = Vec::new();
        for found in missing_directories(&fs, wal_dir, &epochs).unwrap() {
            missing.push(found.path);
        }
        let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
        assert_eq!(missing, expect, "{files:?}");
    }

    #[test]
    fn directories_are_missing_if_a_process_wrote_beside_or_after_them() {
        let first = "000000-002/000/samples-00000000";
        let second = [
            "000001-002/000/checkpoint-00000016",
            "000001-002/001/checkpoint-00000016",
        ];
        check_directories(&[], &[]);
        // The process ended while it created the directories.
        check_directories(&["000000-002/"], &[]);
        check_directories(&["000000-002/000/"], &[]);
        check_directories(&[first, "000000-002/001/"], &[]);
        // The flush removes the epoch before.
        check_directories(&[first, second[0], second[1]], &[]);
        // A removed epoch, with a foreign file.
        check_directories(
            &["000000-001/000/notes", "000002-001/000/samples-00000000"],
            &[],
        );

        check_directories(&[first], &["/wal/000000-002/001"]);
        check_directories(
            &[first, second[0]],
            &["/wal/000000-002/001", "/wal/000001-002/001"],
        );
        check_directories(
            &[
                "000000-001/000/samples-00000000",
                "000002-001/000/samples-00000000",
            ],
            &["/wal"],
        );
    }
}
