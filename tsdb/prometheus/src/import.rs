//! Imports Prometheus' blocks as blocks of the store.
//!
//! Writes one block per window of two hours to the directory `import` of a data directory, from
//! where [`Db::import`](varve_tsdb::Db::import) adds all of them atomically. The heads are not
//! involved.
//!
//! Memory: the index of the source block, and the samples of one series. External labels need more:
//! see `block/labeled.rs`.
//!
//! Crash: an unfinished block has a temporary name and is written again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use varve_context::Limit;
use varve_env::Fs;
use varve_env::damage::DamageReport;
use varve_env::sample_totals::SampleTotals;
use varve_model::{SampleColumns, TimeRange};
use varve_tsdb::{Error, ImportWriter, Result};

use super::block::{BlockReader, LabeledCursor};
use super::histogram_limits::remove_too_large;
use super::losses::{NOT_SUPPORTED, lose_unread};
use super::recover::{WINDOW_MS, WINDOWS_MAX, range_of};

/// Result of importing a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    /// Number of blocks written.
    pub n_blocks: u64,
    /// What became of the samples of the block. Those that were written are kept.
    pub totals: SampleTotals,
}

/// Writes the samples of a Prometheus block as blocks of the store to the directory `import_dir`,
/// numbered from `first_number`. Adds each of the external labels to the series that have no label
/// of its name. Skips and reports damage.
///
/// Of two samples with the same timestamp, [`Db::import`](varve_tsdb::Db::import) keeps the one in
/// the block with the lower number.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] and [`Error::Version`] if the block cannot be opened;
/// [`Error::Limit`] if it spans more than [`WINDOWS_MAX`] windows.
pub fn import_block(
    fs: &Arc<dyn Fs>,
    block_dir: &Path,
    import_dir: &Path,
    first_number: u64,
    external_labels: &[(String, String)],
    damage: &mut DamageReport,
) -> Result<Imported> {
    fs.create_dir(import_dir)
        .map_err(Error::io("create", import_dir))?;
    let block = BlockReader::open(&**fs, block_dir, damage)?;
    let windows = windows(&block, damage)?;
    let source = Source {
        block: &block,
        dir: block_dir,
        external_labels,
    };
    let mut imported = Imported::default();
    for window in windows {
        let number = first_number + imported.n_blocks;
        let target = Target {
            fs,
            import_dir,
            number,
        };
        let range = range_of(window);
        let n_samples = import_window(&target, &source, range, &mut imported.totals, damage)?;
        imported.totals.n_kept += n_samples;
        imported.n_blocks += u64::from(n_samples > 0);
    }
    lose_unread(block.meta().stats.n_samples, &mut imported.totals);
    Ok(imported)
}

/// Returns the windows that the chunks of a block overlap.
fn windows(block: &BlockReader, damage: &mut DamageReport) -> Result<BTreeSet<i64>> {
    let mut windows = BTreeSet::new();
    let mut cursor = block.cursor();
    while let Some(series) = cursor.next(damage) {
        for range in series.chunk_ranges() {
            let first = range.start_ms.div_euclid(WINDOW_MS);
            let last = range.end_ms.div_euclid(WINDOW_MS);
            let n_chunk_windows = last.abs_diff(first) + 1;
            if n_chunk_windows <= WINDOWS_MAX as u64 {
                windows.extend(first..=last);
            }
            let used = n_chunk_windows.max(windows.len() as u64);
            if used > WINDOWS_MAX as u64 {
                let what =
                    "two-hour blocks needed for the samples of a block; check for wrong timestamps";
                return Err(Error::Limit {
                    what: Limit::Other(what),
                    used,
                    limit: WINDOWS_MAX as u64,
                });
            }
        }
    }
    Ok(windows)
}

/// A Prometheus block that is read.
struct Source<'a> {
    block: &'a BlockReader,
    dir: &'a Path,
    external_labels: &'a [(String, String)],
}

impl Source<'_> {
    /// Returns a cursor before the first series of a window.
    fn cursor(&self, window: TimeRange, damage: &mut DamageReport) -> LabeledCursor<'_> {
        LabeledCursor::new(self.block, window, self.external_labels, damage)
    }
}

/// A block of the store that is written.
struct Target<'a> {
    fs: &'a Arc<dyn Fs>,
    import_dir: &'a Path,
    number: u64,
}

fn import_window(
    target: &Target<'_>,
    source: &Source<'_>,
    window: TimeRange,
    totals: &mut SampleTotals,
    damage: &mut DamageReport,
) -> Result<u64> {
    let &Target {
        fs,
        import_dir,
        number,
    } = target;
    // `windows` reported the damage of the index.
    let mut labels = BTreeSet::new();
    let mut reported = DamageReport::default();
    let mut cursor = source.cursor(window, &mut reported);
    while let Some(series) = cursor.next(&mut reported) {
        labels.extend(series.labels().iter().copied());
    }
    if labels.is_empty() {
        return Ok(0);
    }
    let mut writer = ImportWriter::create(fs, import_dir, number, window.start_ms, labels)?;
    let mut columns = SampleColumns::default();
    let mut cursor = source.cursor(window, &mut reported);
    while let Some(series) = cursor.next(&mut reported) {
        columns.clear();
        series.read_window(window, &mut columns, totals, damage);
        let n_samples = columns.len();
        remove_too_large(
            &mut columns,
            || format!("{:?}", series.labels()),
            source.dir,
            damage,
        );
        totals.lose(NOT_SUPPORTED, (n_samples - columns.len()) as u64);
        writer.add(series.labels(), &columns)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockWriter, Description};
    use crate::chunk::{Encoder, StartTimestamps};
    use crate::testing::{encoded, fs};
    use varve_env::testing::MemFs;
    use varve_model::histogram::{BucketSpan, HISTOGRAM_BUCKETS_MAX, Histogram, HistogramCounts};
    use varve_tsdb::{Db, Options};

    const HOUR_MS: i64 = 3_600_000;

    /// Writes a block with a series of one sample per hour, in chunks of one hour. The last byte of
    /// its chunk file belongs to the checksum of the last chunk.
    fn block_of_hours(fs: &Arc<dyn Fs>, n_hours: i64) -> std::path::PathBuf {
        let out = Path::new("blocks");
        fs.create_dir(out).unwrap();
        let mut writer = BlockWriter::create(fs, out, "x", &["a", "b"]).unwrap();
        let chunks: Vec<_> = (0..n_hours)
            .flat_map(|hour| encoded([(hour * HOUR_MS, 1.0)]))
            .collect();
        writer.add([("a", "b")].into_iter(), &chunks).unwrap();
        let description = Description {
            max_ms: n_hours * HOUR_MS,
            ..Description::default()
        };
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
        let imported = import_block(&fs, &block, Path::new("import"), 1, &[], &mut damage).unwrap();
        assert_eq!((imported.n_blocks, imported.totals.n_kept), (3, 6));
        // The samples of the damaged chunk are lost, and the numbers add up.
        assert_eq!(
            (imported.totals.n_found, imported.totals.n_unaccounted()),
            (7, 0)
        );
        assert_eq!(imported.totals.losses[0].n_samples, Some(1));
        assert_eq!(damage.entries().len(), 1, "{:?}", damage.entries());
        assert_eq!(damage.entries()[0].path, chunks);
    }

    /// Such histograms used to be written to blocks that no store could read, and no block was
    /// imported.
    #[test]
    fn a_histogram_with_too_many_buckets_is_reported_and_the_rest_is_imported() {
        for (n_positive, n_negative, n_imported) in [
            (HISTOGRAM_BUCKETS_MAX - 9, 9, 2),
            (HISTOGRAM_BUCKETS_MAX - 9, 10, 1),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let spans = |n: usize| {
                vec![BucketSpan {
                    offset: 0,
                    length: n as u32,
                }]
            };
            let positive = vec![0; n_positive];
            let negative = vec![0; n_negative];
            let counts = HistogramCounts::Integer {
                count: 0,
                zero_count: 0,
                positive,
                negative,
            };
            let positive_spans = spans(n_positive);
            let negative_spans = spans(n_negative);
            let mut encoder = Encoder::new(StartTimestamps::Drop);
            let histogram = Histogram {
                counts,
                positive_spans,
                negative_spans,
                ..Histogram::default()
            };
            encoder.push_histogram(1, Arc::new(histogram), 0);
            let mut writer =
                BlockWriter::create(&fs(), dir.path(), "test", &["a", "b", "n"]).unwrap();
            writer
                .add([("n", "a")].into_iter(), &encoded([(1, 1.0)]))
                .unwrap();
            writer
                .add([("n", "b")].into_iter(), &encoder.finish())
                .unwrap();
            let block = writer
                .finish(Description {
                    min_ms: 1,
                    max_ms: 2,
                    ..Description::default()
                })
                .unwrap();
            let data = dir.path().join("data");
            let mut damage = DamageReport::default();
            let block_dir = dir.path().join(block.ulid.to_string());
            let imported =
                import_block(&fs(), &block_dir, &data.join("import"), 1, &[], &mut damage).unwrap();
            assert_eq!(
                (imported.totals.n_kept, damage.n_damaged()),
                (n_imported, 2 - n_imported),
                "{damage:?}"
            );
            let db = Db::open(
                &data,
                Options {
                    background: false,
                    ..Options::default()
                },
            )
            .unwrap();
            assert_eq!(db.import().unwrap(), 1);
            assert_eq!(db.stats().blocks_samples, n_imported);
        }
    }

    /// Prometheus up to 2.8 wrote some labels out of order.
    #[test]
    fn series_out_of_order_and_invalid_labels_are_reported_and_the_rest_is_imported() {
        let dir = tempfile::tempdir().unwrap();
        let symbols = ["", "0", "1", "2", "3", "a", "b"];
        let mut writer = BlockWriter::create(&fs(), dir.path(), "test", &symbols).unwrap();
        let series: [&[(&str, &str)]; 8] = [
            &[("a", "1")],
            &[("b", "1"), ("a", "2")],
            &[("a", "2"), ("b", "")],
            &[("", "2")],
            &[("a", "2")],
            &[("a", "2")],
            &[("a", "0")],
            &[("a", "3")],
        ];
        for labels in series {
            writer
                .add(labels.iter().copied(), &encoded([(1, 1.0)]))
                .unwrap();
        }
        let block = writer
            .finish(Description {
                min_ms: 1,
                max_ms: 2,
                ..Description::default()
            })
            .unwrap();
        let data = dir.path().join("data");
        let mut damage = DamageReport::default();
        let block_dir = dir.path().join(block.ulid.to_string());
        let imported =
            import_block(&fs(), &block_dir, &data.join("import"), 1, &[], &mut damage).unwrap();
        assert_eq!(
            (imported.totals.n_kept, damage.n_damaged()),
            (3, 3),
            "{damage:?}"
        );
        let db = Db::open(
            &data,
            Options {
                background: false,
                ..Options::default()
            },
        )
        .unwrap();
        assert_eq!((db.import().unwrap(), db.stats().blocks_samples), (1, 3));
    }
}
