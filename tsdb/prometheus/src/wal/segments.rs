//! Lists the segments of a WAL.

use std::path::{Path, PathBuf};

use varve_env::damage::{DamageKind, DamageReport};
use varve_env::{Fs, list_if_exists, size_of_file};
use varve_tsdb::Result;

const CHECKPOINT: &str = "checkpoint.";

/// A segment of a WAL or of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Path of the file.
    pub path: PathBuf,
    /// Number in the file name.
    pub number: u64,
    /// The last segment, which may end in the middle of a record.
    pub is_last: bool,
    /// `true` if it belongs to a checkpoint.
    pub is_checkpoint: bool,
}

impl Segment {
    /// Returns the size in bytes, or 0 if the file cannot be opened.
    pub fn size(&self, fs: &dyn Fs) -> u64 {
        size_of_file(fs, &self.path)
    }
}

/// The segments of a WAL, in the order of replay.
#[derive(Debug, Clone, Default)]
pub struct WalFiles {
    /// Segments of the newest checkpoint, then those after it.
    pub segments: Vec<Segment>,
    /// Number of the newest checkpoint.
    pub checkpoint: Option<u64>,
}

impl WalFiles {
    /// Lists the segments in `dir`. A missing directory has none. Reports gaps in the numbers.
    /// Skips segments that the checkpoint replaces.
    ///
    /// # Errors
    /// [`Error::Io`] if a directory cannot be listed.
    pub fn list(fs: &dyn Fs, dir: &Path, damage: &mut DamageReport) -> Result<Self> {
        let names = list_if_exists(fs, dir)?;
        let newest = names
            .iter()
            .filter_map(|name| Some((number(name.strip_prefix(CHECKPOINT)?)?, name)))
            .max();
        let checkpoint = newest.map(|(number, _)| number);
        let segments = newest
            .map(|(_, name)| numbered(fs, &dir.join(name), true, damage))
            .transpose()?;
        let mut segments = segments.unwrap_or_default();
        let own = numbered(fs, dir, false, damage)?;
        segments.extend(
            own.into_iter()
                .filter(|segment| checkpoint.is_none_or(|covered| segment.number > covered)),
        );
        let first = segments
            .iter()
            .find(|segment| !segment.is_checkpoint)
            .map(|segment| segment.number);
        if let Some(covered) = checkpoint
            && let Some(first) = first
            && first > covered + 1
        {
            let reason = format!(
                "segments {} to {} are missing after the checkpoint",
                covered + 1,
                first - 1
            );
            damage.push(dir, 0, DamageKind::Missing, reason);
        }
        Ok(Self {
            segments,
            checkpoint,
        })
    }

    /// Lists the segments of the WAL and then of the WBL of the data directory `dir`.
    ///
    /// # Errors
    /// [`Error::Io`] if a directory cannot be listed.
    pub(crate) fn list_all(fs: &dyn Fs, dir: &Path, damage: &mut DamageReport) -> Result<Self> {
        let mut files = Self::list(fs, &dir.join("wal"), damage)?;
        files
            .segments
            .extend(Self::list(fs, &dir.join("wbl"), damage)?.segments);
        Ok(files)
    }
}

/// Returns the segments of a directory by number.
fn numbered(
    fs: &dyn Fs,
    dir: &Path,
    is_checkpoint: bool,
    damage: &mut DamageReport,
) -> Result<Vec<Segment>> {
    let mut files: Vec<(u64, String)> = list_if_exists(fs, dir)?
        .into_iter()
        .filter_map(|name| Some((number(&name)?, name)))
        .collect();
    files.sort_unstable();
    for pair in files.windows(2) {
        if pair[1].0 > pair[0].0 + 1 {
            let reason = format!(
                "segments {} to {} are missing",
                pair[0].0 + 1,
                pair[1].0 - 1
            );
            damage.push(dir, 0, DamageKind::Missing, reason);
        }
    }
    let last = files.last().map(|(number, _)| *number);
    let mut segments = Vec::new();
    for (number, name) in files {
        segments.push(Segment {
            path: dir.join(name),
            number,
            is_last: Some(number) == last && !is_checkpoint,
            is_checkpoint,
        });
    }
    Ok(segments)
}

/// Parses a numeric file name.
fn number(name: &str) -> Option<u64> {
    let digits =
        !name.is_empty() && name.len() <= 18 && name.bytes().all(|byte| byte.is_ascii_digit());
    if digits { name.parse().ok() } else { None }
}
