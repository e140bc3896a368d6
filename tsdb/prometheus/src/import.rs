//! From Prometheus' blocks to blocks of the store.
//!
//! Each window of two hours of a block becomes a block in the folder `import` of a data directory, from where
//! [`Db::import`](varve_tsdb::Db::import) takes all of them in at once. Nobody waits for that: it is built outside of the heads.
//!
//! Memory: the index of the block that is read, and the samples of one series.
//!
//! Crash: a block that is not finished has another name, and is written anew; finished ones are not.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use varve_tsdb::fs::Fs;
use varve_tsdb::fs::damage::DamageReport;
use varve_tsdb::{Error, ImportWriter, Result, SampleColumns, TimeRange};

use super::block::BlockReader;
use super::recover::{WINDOW_MS, WINDOWS_MAX, range_of};

/// What was made of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Blocks that were written.
    pub n_blocks: u64,
    /// Samples in them.
    pub n_samples: u64,
}

/// Writes the samples of a block of Prometheus as blocks of the store into the folder `import_dir`; the first gets the
/// number `first_number`, those behind it the next ones. What is damaged is noted and left out.
///
/// Of two samples at one time, in blocks that are imported one after the other, the one with the lower number stands.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] and [`Error::Version`] if nothing of the block can be read; [`Error::Limit`] if its times need
/// more than [`WINDOWS_MAX`] blocks.
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
    // Damage is noted once, not in each window.
    let mut noted = DamageReport::default();
    for (i, window) in windows.iter().enumerate() {
        let of_window = if i == 0 { &mut *damage } else { &mut noted };
        let number = first_number + imported.n_blocks;
        let window = range_of(*window);
        let n_samples = import_window(fs, &block, import_dir, number, window, of_window)?;
        imported.n_samples += n_samples;
        imported.n_blocks += u64::from(n_samples > 0);
    }
    Ok(imported)
}

/// Returns the windows that the chunks of a block lie in.
fn windows(block: &BlockReader, damage: &mut DamageReport) -> Result<BTreeSet<i64>> {
    let mut windows = BTreeSet::new();
    block.for_each(damage, |series| {
        for range in series.chunk_ranges() {
            let (first, last) = (range.start_ms.div_euclid(WINDOW_MS), range.end_ms.div_euclid(WINDOW_MS));
            if last.abs_diff(first) >= WINDOWS_MAX as u64 || windows.len() > WINDOWS_MAX {
                let what = "blocks of two hours that the times of a block need";
                return Err(Error::Limit { what, used: last.abs_diff(first), limit: WINDOWS_MAX as u64 });
            }
            windows.extend(first..=last);
        }
        Ok(())
    })?;
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
    let mut labels = BTreeSet::new();
    let mut unnoted = DamageReport::default();
    block.for_each(&mut unnoted, |series| {
        if series.overlaps(window) {
            labels.extend(series.labels().iter().copied());
        }
        Ok(())
    })?;
    if labels.is_empty() {
        return Ok(0);
    }
    let mut writer = ImportWriter::create(fs, import_dir, number, window.start_ms, labels)?;
    let (mut columns, mut of_series) = (SampleColumns::default(), DamageReport::default());
    block.for_each(&mut unnoted, |series| {
        if !series.overlaps(window) {
            return Ok(());
        }
        columns.clear();
        series.read_range(window, &mut columns, &mut of_series);
        columns.retain(window);
        writer.add(series.labels(), &columns)
    })?;
    damage.append(of_series);
    writer.finish()
}
