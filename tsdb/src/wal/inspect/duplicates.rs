//! Samples of the WAL with a timestamp that their series has already.
//!
//! Almost all samples of a series are newer than the one before, so only the others are remembered:
//! those may repeat one. A second pass over the segments finds how often each of them occurs.

use hashbrown::HashMap;
use varve_env::Fs;
use varve_env::damage::DamageReport;
use xxhash_rust::xxh3::xxh3_64;

use super::content::Content;
use super::files::{Role, WalFile};
use super::read::read_file;
use crate::error::Result;
use crate::wal::file_name::SegmentKind;

/// Maximum number of samples that are remembered at once, about 200 MiB. More are counted in several
/// passes.
const REMEMBERED_MAX: u64 = 1 << 22;

/// The newest timestamp of each series.
#[derive(Debug, Default)]
pub(super) struct Newest(HashMap<u64, i64>);

impl Newest {
    /// Adds a sample. Returns `true` if it is newer than all samples of its series before it.
    pub(super) fn is_newer(&mut self, series: u64, timestamp_ms: i64) -> bool {
        match self.0.get_mut(&series) {
            Some(newest_ms) if *newest_ms >= timestamp_ms => false,
            Some(newest_ms) => {
                *newest_ms = timestamp_ms;
                true
            }
            None => {
                self.0.insert(series, timestamp_ms);
                true
            }
        }
    }
}

/// Returns the number of samples of known series that repeat a timestamp. `n_not_newer` samples are
/// not newer than the ones before.
///
/// # Errors
/// Those of [`read_file`].
pub(super) fn count(
    fs: &dyn Fs,
    files: &[WalFile],
    n_not_newer: u64,
    is_known: &dyn Fn(&WalFile, u64) -> bool,
) -> Result<u64> {
    let n_parts = n_not_newer.div_ceil(REMEMBERED_MAX);
    let mut n_duplicates = 0;
    for part in 0..n_parts {
        let mut newest = Newest::default();
        let mut remembered: HashMap<(u64, i64), u64> = HashMap::new();
        for_each_sample(fs, files, |file, series, timestamp_ms| {
            if is_known(file, series)
                && !newest.is_newer(series, timestamp_ms)
                && part_of(series, timestamp_ms, n_parts) == part
            {
                remembered.insert((series, timestamp_ms), 0);
            }
        })?;
        for_each_sample(fs, files, |file, series, timestamp_ms| {
            if let Some(n_samples) = remembered.get_mut(&(series, timestamp_ms))
                && is_known(file, series)
            {
                *n_samples += 1;
            }
        })?;
        let n_more = remembered
            .values()
            .map(|n_samples| n_samples.saturating_sub(1));
        n_duplicates += n_more.sum::<u64>();
    }
    Ok(n_duplicates)
}

/// Returns the pass that counts a sample.
fn part_of(series: u64, timestamp_ms: i64, n_parts: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&series.to_le_bytes());
    bytes[8..].copy_from_slice(&timestamp_ms.to_le_bytes());
    xxh3_64(&bytes) % n_parts
}

/// Calls `each` with file, series and timestamp of the samples that a replay reads.
fn for_each_sample(
    fs: &dyn Fs,
    files: &[WalFile],
    mut each: impl FnMut(&WalFile, u64, i64),
) -> Result<()> {
    for file in files {
        if file.kind != SegmentKind::Samples || file.role != Role::Live {
            continue;
        }
        // The first pass reported it.
        let mut damage = DamageReport::default();
        read_file(fs, file, &mut damage, |frame| {
            match &frame.content {
                Content::Samples(samples, _) => {
                    for logged in *samples {
                        each(file, logged.series, logged.sample.timestamp_ms);
                    }
                }
                Content::Histograms(found) => {
                    for &(series, timestamp_ms, _) in found {
                        each(file, series, timestamp_ms);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(())
}
