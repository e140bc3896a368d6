//! The log of a snapshot.
//!
//! The blocks of a snapshot contain its series and samples. Its log is in the first epoch of the
//! data directory, and consists of a checkpoint with metadata and exemplars but no series.

use std::path::Path;

use varve_env::Fs;
use varve_model::metadata::Metadata;

use super::checkpoint;
use super::epoch::Epoch;
use super::file_name::CheckpointPosition;
use crate::batch::NumberedExemplars;
use crate::error::{Error, Result};

/// Writes the log of a snapshot below `wal_dir`. Syncs everything except the directory entry of
/// `wal_dir`. `next_ref` is the next free series ref.
///
/// # Errors
/// [`Error::Io`], [`Error::Limit`] if a label set is larger than any the store accepts.
pub(crate) fn write_snapshot_log<'a>(
    fs: &dyn Fs,
    wal_dir: &Path,
    next_ref: u64,
    metadata: impl Iterator<Item = (&'a str, &'a Metadata)>,
    exemplars: &[NumberedExemplars],
) -> Result<()> {
    let epoch = Epoch { number: 0, logs: 1 };
    let log_dir = epoch.log_dir(wal_dir, 0);
    fs.create_dir(&log_dir)
        .map_err(Error::io("create", &log_dir))?;
    checkpoint::write(
        fs,
        &log_dir,
        CheckpointPosition(1),
        next_ref,
        metadata,
        |_| Ok(()),
        exemplars,
    )?;
    for dir in [&epoch.dir(wal_dir), wal_dir] {
        fs.sync_dir(dir).map_err(Error::io("sync", dir))?;
    }
    Ok(())
}
