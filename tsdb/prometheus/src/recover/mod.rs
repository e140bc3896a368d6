//! Recovers blocks from the WAL, WBL and head chunks of a Prometheus data directory: blocks of
//! Prometheus, or of the store for an import.
//!
//! For a Prometheus that no longer starts: the blocks replace `wal`, `wbl` and `chunks_head`. They
//! contain the samples that Prometheus' own replay would restore. Unlike there, damage loses only
//! the damaged records, not those after them.
//!
//! # Steps
//! 1. `input`: finds the end of the existing blocks, lists head chunks, puts segments in order.
//! 2. `replay`: reads records in order, in batches that all threads decompress. One thread creates
//!    series (`series`), and samples are routed to shards. Each thread applies the samples of its
//!    own shards while the next batches are read and resolved.
//! 3. `shard`: collects chunks per series. No chunk crosses a multiple of [`WINDOW_MS`]. When they
//!    exceed the memory budget, all chunks, including open ones, are spilled to a file.
//! 4. `output`: writes a block per window with its series in label order. Most chunks are copied.
//!    Chunks that overlap out-of-order samples, split chunks or tombstones are decoded, merged and
//!    encoded again. For a block of the store, all of them are decoded.
//!
//! # Semantics, as in Prometheus' replay
//! - In-order samples are dropped if they are older than the end of the newest block, or older than
//!   the time at which the WAL was truncated. Prometheus 3.16 and later write that time into the
//!   checkpoint. Blocks of out-of-order samples, of stale series and of selected series do not
//!   count. If the WBL is missing or damaged, those that are older than an earlier sample of their
//!   series in the WAL are kept: blocks may lack them.
//! - Head chunks of a series come before its WAL samples, and have those of their time range.
//! - Unlike there, a sample that is not newer than an earlier one of the WAL counts as out of order:
//!   the WBL, where Prometheus expects it, may be lost, and segments may be exchanged.
//! - Out-of-order samples of any age are kept. If two samples have the same timestamp, the first
//!   wins.
//! - A tombstone deletes all samples of a series in its range, including out-of-order samples.
//!
//! Crash: the next run removes unfinished blocks and [`SPILL_DIR`], and writes the same blocks
//! again.

mod exemplars_and_metadata;
mod input;
mod options;
mod output;
mod recovery;
mod replay;
mod replayed;
mod report;
mod series;
mod shard;
#[cfg(test)]
mod tests;
mod unknown_series;
mod windows;

use std::path::Path;
use std::sync::Arc;

use varve_env::{Fs, ReadOnlyFs};
use varve_tsdb::{Error, Result};

use crate::chunk::StartTimestamps;
use crate::losses::IN_DAMAGED_PARTS;
pub use exemplars_and_metadata::ExemplarsAndMetadata;
use input::Input;
pub(crate) use input::truncated_before;
pub use options::{CONCURRENCY_MAX, RecoverOptions};
use recovery::{Recovery, Target};
use replayed::Replayed;
pub(crate) use report::UNKNOWN_SERIES_MAX;
pub use report::{ImportedHead, Progress, RecordCounts, RecoverPhase, Report, UnknownSeries};
pub use shard::SPILL_DIR;
use shard::SpillDir;
pub use unknown_series::{UNKNOWN_SAMPLES, histogram_json};
pub use windows::{WINDOW_MS, WINDOWS_MAX, range_of};

/// Reads the samples of the Prometheus data directory `source` that no block contains, and writes
/// them as blocks to `out`.
///
/// Never writes to `source`, so Prometheus may be running on it. Calls `progress` repeatedly.
///
/// # Errors
/// [`Error::Io`] if `source` cannot be listed or `out` cannot be written; [`Error::Limit`] if the
/// samples span more than [`WINDOWS_MAX`] windows; [`Error::Options`] if `concurrency` is out of
/// range.
pub fn recover(
    fs: &Arc<dyn Fs>,
    source: &Path,
    out: &Path,
    options: &RecoverOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report> {
    write_to(fs, fs, source, out, options, progress)
}

/// Returns the report that [`recover`] would return. Writes no blocks. The directory `scratch` gets
/// what does not fit in memory.
///
/// # Errors
/// The errors of [`recover`].
pub fn dry_run(
    fs: &Arc<dyn Fs>,
    source: &Path,
    scratch: &Path,
    options: &RecoverOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report> {
    let read_only: Arc<dyn Fs> = Arc::new(ReadOnlyFs(Arc::clone(fs)));
    write_to(fs, &read_only, source, scratch, options, progress)
}

/// Recovers Prometheus' blocks to the directory `out` of the file system `blocks_fs`.
fn write_to(
    fs: &Arc<dyn Fs>,
    blocks_fs: &Arc<dyn Fs>,
    source: &Path,
    out: &Path,
    options: &RecoverOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report> {
    let files = Files {
        fs,
        source,
        out,
        blocks_fs,
    };
    let target = Target::Prometheus;
    let ((), report) = replay_and_write(&files, target, options, progress, output::write_blocks)?;
    Ok(report)
}

/// Reads the same samples as [`recover`] does, and writes them as blocks of the store to `out`,
/// numbered from 1, for [`Db::import`](varve_tsdb::Db::import). Start timestamps are kept, whatever
/// the options say. Returns the newest `exemplars_max` exemplars, and the metadata.
///
/// # Errors
/// The errors of [`recover`].
pub fn import_head(
    fs: &Arc<dyn Fs>,
    source: &Path,
    out: &Path,
    options: &RecoverOptions,
    exemplars_max: usize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<ImportedHead> {
    let options = RecoverOptions {
        start_timestamps: StartTimestamps::KeepKnown,
        ..options.clone()
    };
    let files = Files {
        fs,
        source,
        out,
        blocks_fs: fs,
    };
    let (written, report) = replay_and_write(
        &files,
        Target::Store { exemplars_max },
        &options,
        progress,
        |recovery, replayed, report| output::write_store_blocks(recovery, source, replayed, report),
    )?;
    Ok(ImportedHead {
        report,
        n_blocks: written.n_blocks,
        n_samples: written.n_samples,
        exemplars_and_metadata: written.exemplars_and_metadata,
    })
}

/// The files of a recovery.
struct Files<'a> {
    fs: &'a Arc<dyn Fs>,
    source: &'a Path,
    /// The directory for blocks, and for what does not fit in memory.
    out: &'a Path,
    /// Where blocks are written.
    blocks_fs: &'a Arc<dyn Fs>,
}

/// Replays the files of `source`, and calls `write` with the result.
fn replay_and_write<T>(
    files: &Files<'_>,
    target: Target,
    options: &RecoverOptions,
    progress: &(dyn Fn(Progress) + Sync),
    write: impl FnOnce(&Recovery<'_>, Replayed, &mut Report) -> Result<T>,
) -> Result<(T, Report)> {
    let &Files {
        fs,
        source,
        out,
        blocks_fs,
    } = files;
    let pool = pool(options)?;
    fs.create_dir(out).map_err(Error::io("create", out))?;
    let mut report = Report::default();
    let input = pool.install(|| Input::open(&**fs, source, &mut report))?;
    let spill = SpillDir::create(fs, &out.join(SPILL_DIR))?;
    let recovery = Recovery {
        fs: blocks_fs,
        out,
        target,
        options,
        pool: &pool,
        spill: &spill,
        progress,
    };
    let replayed = replay::replay(&recovery, input, &mut report)?;
    if report.damage.n_damaged() > replayed.input.n_damaged_blocks {
        report.totals.lose_unknown(IN_DAMAGED_PARTS);
    }
    let written = write(&recovery, replayed, &mut report)?;
    spill.remove()?;
    Ok((written, report))
}

/// Replays like [`recover`], without a memory limit, and writes nothing. The report has no blocks.
///
/// # Errors
/// [`Error::Io`] if `source` cannot be listed; [`Error::Options`].
pub fn replay_only(
    fs: &Arc<dyn Fs>,
    source: &Path,
    options: &RecoverOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report> {
    let pool = pool(options)?;
    let fs: Arc<dyn Fs> = Arc::new(ReadOnlyFs(Arc::clone(fs)));
    let options = RecoverOptions {
        memory_bytes: usize::MAX,
        ..options.clone()
    };
    let mut report = Report::default();
    let input = pool.install(|| Input::open(&*fs, source, &mut report))?;
    let nowhere = source.join(SPILL_DIR);
    let spill = SpillDir::create(&fs, &nowhere)?;
    let recovery = Recovery {
        fs: &fs,
        out: &nowhere,
        target: Target::Prometheus,
        options: &options,
        pool: &pool,
        spill: &spill,
        progress,
    };
    replay::replay(&recovery, input, &mut report)?;
    Ok(report)
}

fn pool(options: &RecoverOptions) -> Result<rayon::ThreadPool> {
    if !(1..=CONCURRENCY_MAX).contains(&options.concurrency) {
        return Err(Error::Options(format!(
            "concurrency {} is not between 1 and {CONCURRENCY_MAX}",
            options.concurrency
        )));
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(options.concurrency)
        .build();
    pool.map_err(|error| Error::Options(format!("cannot start threads: {error}")))
}
