//! Imports Prometheus' blocks as blocks of the store.
//!
//! Writes one block per window of two hours to the directory `import` of a data directory, from where
//! [`Db::import`](varve_tsdb::Db::import) adds all of them atomically. The heads are not involved.
//!
//! Memory: the index of the source block, and the samples of one series.
//!
//! Crash: an unfinished block has a temporary name and is written again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use varve_tsdb::fs::Fs;
use varve_tsdb::fs::damage::DamageReport;
use varve_tsdb::{Error, ImportWriter, Result, SampleColumns, TimeRange};

use super::block::BlockReader;
use super::recover::{WINDOW_MS, WINDOWS_MAX, range_of};

/// Result of importing a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Number of blocks written.
    pub n_blocks: u64,
    /// Number of samples in them.
    pub n_samples: u64,
}

/// Writes the samples of a Prometheus block as blocks of the store to the directory `import_dir`, numbered from
/// `first_number`. Skips and reports damage.
///
/// Of two samples with the same timestamp, [`Db::import`](varve_tsdb::Db::import) keeps the one in the block with the
/// lower number.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] and [`Error::Version`] if the block cannot be opened; [`Error::Limit`] if it
/// spans more than [`WINDOWS_MAX`] windows.
pub fn import_block(
    fs: &Arc<dyn Fs>,
    block_dir: &Path,
    import_dir: &Path,
    first_number: u64,
    damage: &mut DamageReport,
) -> Result<Imported> {
    fs.create_dir(import_dir).map_err(Error::io("create", import_dir))?;
    let block = BlockReader::open(&**fs, block_dir, damage)?;
    let windows = windows(&block, damage)?;
    let mut imported = Imported::default();
    for (i, &window) in windows.iter().enumerate() {
        // Damage is reported once, not per window.
        let mut noted = DamageReport::default();
        let noted = if i == 0 { &mut *damage } else { &mut noted };
        let number = first_number + imported.n_blocks;
        let n_samples = import_window(fs, &block, import_dir, number, range_of(window), noted)?;
        imported.n_samples += n_samples;
        imported.n_blocks += u64::from(n_samples > 0);
    }
    Ok(imported)
}

/// Returns the windows that the chunks of a block overlap.
fn windows(block: &BlockReader, damage: &mut DamageReport) -> Result<BTreeSet<i64>> {
    let (mut windows, mut cursor) = (BTreeSet::new(), block.cursor());
    while let Some(series) = cursor.next(damage) {
        for range in series.chunk_ranges() {
            let (first, last) = (range.start_ms.div_euclid(WINDOW_MS), range.end_ms.div_euclid(WINDOW_MS));
            if last.abs_diff(first) >= WINDOWS_MAX as u64 || windows.len() > WINDOWS_MAX {
                let what = "blocks of two hours that the times of a block need";
                return Err(Error::Limit { what, used: last.abs_diff(first), limit: WINDOWS_MAX as u64 });
            }
            windows.extend(first..=last);
        }
    }
    Ok(windows)
}

fn import_window(
    fs: &Arc<dyn Fs>,
    block: &BlockReader,
    import_dir: &Path,
    number: u64,
    window: TimeRange,
    damage: &mut DamageReport,
) -> Result<u64> {
    let (mut labels, mut unnoted, mut cursor) = (BTreeSet::new(), DamageReport::default(), block.cursor());
    while let Some(series) = cursor.next(&mut unnoted) {
        if series.overlaps(window) {
            labels.extend(series.labels().iter().copied());
        }
    }
    if labels.is_empty() {
        return Ok(0);
    }
    let mut writer = ImportWriter::create(fs, import_dir, number, window.start_ms, labels)?;
    let (mut columns, mut cursor) = (SampleColumns::default(), block.cursor());
    while let Some(series) = cursor.next(&mut unnoted) {
        if series.overlaps(window) {
            columns.clear();
            series.read_range(window, &mut columns, damage);
            columns.retain(window);
            writer.add(series.labels(), &columns)?;
        }
    }
    writer.finish()
}
