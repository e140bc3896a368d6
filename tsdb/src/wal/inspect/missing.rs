//! Files that are missing according to the names of the others.

use std::path::Path;

use varve_env::Fs;

use super::files::{Role, WalFile, list};
use crate::error::Result;
use crate::wal::epoch::Epoch;
use crate::wal::file_name::SegmentKind;
use crate::wal::missing::{MissingFiles, missing_directories, missing_segments, n_replaced_epochs};

/// Returns the files that are missing from the WAL of a data directory with these files.
///
/// # Errors
/// Those of [`list`].
pub(super) fn missing(fs: &dyn Fs, dir: &Path, files: &[WalFile]) -> Result<Vec<MissingFiles>> {
    let found = missing_beside(fs, dir, files)?;
    if found.is_empty() {
        return Ok(found);
    }
    // A flush of a running server may have removed segments while their names were read.
    let again = missing_beside(fs, dir, &list(fs, dir)?)?;
    Ok(found.into_iter().filter(|it| again.contains(it)).collect())
}

fn missing_beside(fs: &dyn Fs, dir: &Path, files: &[WalFile]) -> Result<Vec<MissingFiles>> {
    let wal_dir = dir.join("wal");
    let epochs = Epoch::list(fs, &wal_dir)?;
    let n_replaced = n_replaced_epochs(fs, &wal_dir, &epochs)?;
    let mut missing = missing_directories(fs, &wal_dir, &epochs)?;
    for &epoch in &epochs[n_replaced..] {
        for log in 0..epoch.logs {
            let mut checkpoints = Vec::new();
            let mut series = Vec::new();
            let mut samples = Vec::new();
            for file in files {
                if file.epoch != epoch.number || file.log != log {
                    continue;
                }
                match file.kind {
                    SegmentKind::Checkpoint => checkpoints.push(file.number),
                    SegmentKind::Series if file.role == Role::Live => series.push(file.number),
                    SegmentKind::Samples if file.role == Role::Live => samples.push(file.number),
                    SegmentKind::Series | SegmentKind::Samples => {}
                }
            }
            let log_dir = epoch.log_dir(&wal_dir, log);
            for (kind, numbers) in [
                (SegmentKind::Series, series),
                (SegmentKind::Samples, samples),
            ] {
                missing.extend(missing_segments(&log_dir, kind, &numbers, &checkpoints));
            }
        }
    }
    Ok(missing)
}
