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

use varve_fs::Fs;
use varve_fs::damage::DamageReport;
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
    for window in windows {
        let number = first_number + imported.n_blocks;
        let n_samples = import_window(fs, &block, import_dir, number, range_of(window), damage)?;
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
            let n_of_chunk = last.abs_diff(first) + 1;
            if n_of_chunk <= WINDOWS_MAX as u64 {
                windows.extend(first..=last);
            }
            let used = n_of_chunk.max(windows.len() as u64);
            if used > WINDOWS_MAX as u64 {
                let what = "blocks of two hours that the times of a block need";
                return Err(Error::Limit { what, used, limit: WINDOWS_MAX as u64 });
            }
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
    // `windows` reported the damage of the index.
    let (mut labels, mut reported, mut cursor) = (BTreeSet::new(), DamageReport::default(), block.cursor());
    while let Some(series) = cursor.next(&mut reported) {
        if series.overlaps(window) {
            labels.extend(series.labels().iter().copied());
        }
    }
    if labels.is_empty() {
        return Ok(0);
    }
    let mut writer = ImportWriter::create(fs, import_dir, number, window.start_ms, labels)?;
    let (mut columns, mut cursor) = (SampleColumns::default(), block.cursor());
    while let Some(series) = cursor.next(&mut reported) {
        if series.overlaps(window) {
            columns.clear();
            series.read_window(window, &mut columns, damage);
            columns.retain(window);
            writer.add(series.labels(), &columns)?;
        }
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockWriter, Description};
    use crate::testing::encoded;
    use varve_fs::testing::MemFs;

    const HOUR_MS: i64 = 3_600_000;

    /// Writes a block with a series of one sample per hour, in chunks of one hour. The last byte of its chunk file
    /// belongs to the checksum of the last chunk.
    fn block_of_hours(fs: &Arc<dyn Fs>, n_hours: i64) -> std::path::PathBuf {
        let out = Path::new("blocks");
        fs.create_dir(out).unwrap();
        let mut writer = BlockWriter::create(fs, out, "x", &["a", "b"]).unwrap();
        let chunks: Vec<_> = (0..n_hours).flat_map(|hour| encoded([(hour * HOUR_MS, 1.0)])).collect();
        writer.add([("a", "b")].into_iter(), &chunks).unwrap();
        let description = Description { max_ms: n_hours * HOUR_MS, ..Description::default() };
        out.join(writer.finish(description).unwrap().ulid.to_string())
    }

    #[test]
    fn damage_of_each_window_is_reported_once() {
        let fs: Arc<dyn Fs> = Arc::new(MemFs::default());
        let block = block_of_hours(&fs, 7);
        let chunks = block.join("chunks/000001");
        let mut bytes = fs.read(&chunks, u64::MAX).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs.remove(&chunks).unwrap();
        fs.create(&chunks).unwrap().append(&bytes).unwrap();
        let mut damage = DamageReport::default();
        let imported = import_block(&fs, &block, Path::new("import"), 1, &mut damage).unwrap();
        assert_eq!(imported, Imported { n_blocks: 3, n_samples: 6 });
        assert_eq!(damage.entries().len(), 1, "{:?}", damage.entries());
        assert_eq!(damage.entries()[0].path, chunks);
    }
}
