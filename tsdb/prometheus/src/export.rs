//! Exports samples of the store to Prometheus' blocks.
//!
//! Writes one block per window of two hours, each from one selection, which is a consistent view
//! with tombstones applied. Used by `varve tsdb export`, by snapshots in Prometheus' format and by
//! uploads to object storage.
//!
//! Memory: the symbols and postings of a window, which are charged to the request like the selection,
//! and the samples of one series, which are not.

use std::path::Path;
use std::sync::Arc;

use varve_context::{Charge, Limit};
use varve_env::{Fs, create_dir_durably};
use varve_model::{Matcher, SampleColumns, TimeRange};
use varve_tsdb::{Db, Error, ReadContext, Result};

use super::block::{BlockMeta, BlockWriter, Description};
use super::chunk::{Encoder, StartTimestamps};
use super::recover::{WINDOW_MS, range_of};

/// Maximum number of windows per export: more than ten years.
pub const EXPORT_WINDOWS_MAX: u64 = 50_000;

/// Selection and format of an export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// Matchers of the series. An empty list selects all series.
    pub matchers: Vec<Matcher>,
    /// Time range of the samples.
    pub range: TimeRange,
    /// Whether chunks keep start timestamps.
    pub start_timestamps: StartTimestamps,
    /// External labels for the Thanos section of `meta.json`.
    pub external_labels: Vec<(String, String)>,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            matchers: Vec::new(),
            range: TimeRange::ALL,
            start_timestamps: StartTimestamps::Drop,
            external_labels: Vec::new(),
        }
    }
}

/// Writes the samples of a store to Prometheus' blocks in the directory `out`, oldest block first.
///
/// The same samples give the same block. Existing blocks are kept, unless they are damaged. So an
/// interrupted export can be repeated.
///
/// # Errors
/// [`Error::Io`] if `out` cannot be written; [`Error::Limit`] if the range has more than
/// [`EXPORT_WINDOWS_MAX`] windows; errors of selections.
pub fn export(
    db: &Db,
    fs: &Arc<dyn Fs>,
    ctx: &ReadContext,
    out: &Path,
    options: &ExportOptions,
) -> Result<Vec<BlockMeta>> {
    create_dir_durably(&**fs, out)?;
    let Some(range) = db
        .time_range()
        .filter(|range| range.overlaps(options.range))
    else {
        return Ok(Vec::new());
    };
    let start_ms = range.start_ms.max(options.range.start_ms);
    let end_ms = range.end_ms.min(options.range.end_ms);
    let first = start_ms.div_euclid(WINDOW_MS);
    let last = end_ms.div_euclid(WINDOW_MS);
    if last.abs_diff(first) >= EXPORT_WINDOWS_MAX {
        let what = "blocks of two hours in the range to export";
        return Err(Error::Limit {
            what: Limit::Other(what),
            used: last.abs_diff(first),
            limit: EXPORT_WINDOWS_MAX,
        });
    }
    let mut blocks = Vec::new();
    for window in first..=last {
        let window = range_of(window);
        let range = TimeRange {
            start_ms: start_ms.max(window.start_ms),
            end_ms: end_ms.min(window.end_ms),
        };
        blocks.extend(export_window(db, fs, ctx, out, options, range)?);
    }
    Ok(blocks)
}

/// Writes the samples of a store in the time range of `options` to one Prometheus block in the
/// directory `out`, which is created if needed. Returns `None` if there are none. The same samples
/// give the same block, with the same ULID.
///
/// # Errors
/// [`Error::Io`] if `out` cannot be written; errors of selections.
pub fn export_block(
    db: &Db,
    fs: &Arc<dyn Fs>,
    ctx: &ReadContext,
    out: &Path,
    options: &ExportOptions,
) -> Result<Option<BlockMeta>> {
    fs.create_dir(out).map_err(Error::io("create", out))?;
    export_window(db, fs, ctx, out, options, options.range)
}

fn export_window(
    db: &Db,
    fs: &Arc<dyn Fs>,
    ctx: &ReadContext,
    out: &Path,
    options: &ExportOptions,
    range: TimeRange,
) -> Result<Option<BlockMeta>> {
    let mut charge = ctx.charge();
    let strings = strings(db, ctx, options, range, &mut charge)?;
    if strings.is_empty() {
        return Ok(None);
    }
    let symbols: Vec<&str> = strings.iter().map(String::as_str).collect();
    let mut writer = BlockWriter::create(fs, out, &format!("export-{}", range.start_ms), &symbols)?;
    let mut columns = SampleColumns::default();
    let mut block_charge = ctx.charge();
    for series in db.select(ctx, &options.matchers, range)? {
        let series = series?;
        columns.clear();
        series.read(&mut columns)?;
        if !columns.is_empty() {
            let mut encoder = Encoder::new(options.start_timestamps);
            encoder.push_columns(&columns);
            // Skips a series that was created after the symbols were collected.
            writer.add(series.labels().iter(), &encoder.finish())?;
            block_charge.resize(writer.memory_size())?;
        }
    }
    if writer.stats().n_series == 0 {
        return writer.abandon().map(|()| None);
    }
    let external_labels = options.external_labels.clone();
    let max_ms = range.end_ms.saturating_add(1);
    writer
        .finish(Description {
            min_ms: range.start_ms,
            max_ms,
            external_labels,
            ..Description::default()
        })
        .map(Some)
}

/// Bytes of a name or value besides its text: in a set that is at least half full, in the sorted
/// list, as a symbol, and the overhead of its allocation.
const STRING_SIZE: usize = 3 * size_of::<String>() + size_of::<&str>() + 16;

/// Returns the names and values of the series with samples in a range, ascending. They are charged
/// twice: the table of symbols has them, too.
fn strings(
    db: &Db,
    ctx: &ReadContext,
    options: &ExportOptions,
    range: TimeRange,
    charge: &mut Charge,
) -> Result<Vec<String>> {
    let mut strings = hashbrown::HashSet::new();
    for series in db.select_labels(ctx, &options.matchers, range)? {
        for (name, value) in series?.labels() {
            for text in [name, value] {
                if !strings.contains(text) {
                    charge.grow(2 * text.len() + STRING_SIZE)?;
                    strings.insert(text.to_owned());
                }
            }
        }
    }
    let mut strings: Vec<_> = strings.into_iter().collect();
    strings.sort_unstable();
    Ok(strings)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use varve_context::{MemoryBudget, QueryContext};
    use varve_env::testing::{MemFs, PowerCut};
    use varve_model::{Labels, Sample};
    use varve_tsdb::{Options, WriteBatch};

    use super::*;

    #[test]
    fn an_export_to_a_new_directory_survives_a_power_cut() {
        let memory = MemFs::new();
        let fs: Arc<dyn Fs> = Arc::new(memory.clone());
        let options = Options {
            background: false,
            fs: Arc::clone(&fs),
            ..Options::default()
        };
        let db = Db::open(Path::new("/data"), options).unwrap();
        let labels = Labels::from_pairs([("a", "b")]).unwrap();
        let mut batch = WriteBatch::default();
        batch.push(
            db.series(&labels).unwrap(),
            Sample {
                timestamp_ms: 1,
                value: 1.0,
            },
            0,
        );
        db.append(&mut batch).unwrap();
        let out = db.snapshot_path("new");
        let blocks = export(
            &db,
            &fs,
            &ReadContext::unbounded(),
            &out,
            &ExportOptions::default(),
        )
        .unwrap();
        let found = memory.crash(PowerCut::LosesAll).list(&out).unwrap();
        assert_eq!(found, [blocks[0].ulid.to_string()]);
    }

    /// 860,000 pairs of names and values took 230 MB beside the selection, which alone was charged.
    #[test]
    fn an_export_is_charged_with_its_symbols_and_postings() {
        let memory = MemFs::new();
        let fs: Arc<dyn Fs> = Arc::new(memory.clone());
        let options = Options {
            background: false,
            fs: Arc::clone(&fs),
            ..Options::default()
        };
        let db = Db::open(Path::new("/data"), options).unwrap();
        let mut batch = WriteBatch::default();
        for series in 0..50 {
            let pairs: Vec<_> = (0..100)
                .map(|i| {
                    (
                        format!("name_{:05}", 100 * series + i),
                        format!("{series}_{i}"),
                    )
                })
                .collect();
            let pairs = pairs
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()));
            let labels = Labels::from_pairs(pairs).unwrap();
            let sample = Sample {
                timestamp_ms: 1,
                value: 1.0,
            };
            batch.push(db.series(&labels).unwrap(), sample, 0);
        }
        db.append(&mut batch).unwrap();
        let export = |limit| {
            let memory = MemoryBudget::new(Limit::Other("memory"), limit);
            let ctx = QueryContext::new(Duration::from_secs(60), memory);
            let ctx = ReadContext::unrestricted(ctx);
            super::export(&db, &fs, &ctx, Path::new("/out"), &ExportOptions::default())
        };
        // 10,000 texts and 5,000 pairs.
        let error = export(1_500_000).unwrap_err();
        assert!(error.to_string().starts_with("memory: "), "{error}");
        assert_eq!(export(4_000_000).unwrap().len(), 1);
    }
}
