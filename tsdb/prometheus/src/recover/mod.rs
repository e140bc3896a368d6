//! A Prometheus data directory as blocks: what its log, its head chunks and its log of late samples hold.
//!
//! For a Prometheus that cannot start any more: the blocks take the place of `wal`, `wbl` and `chunks_head`. What a replay
//! by Prometheus would give is what comes out, except that damage costs only what is damaged.
//!
//! # How
//! 1. `input`: blocks tell since when samples count; head chunks are listed; segments are put in order.
//! 2. `queue` and `replay`: records are read in order, in batches, and decompressed by all workers. Series are defined in
//!    order (`find`, `series`), samples are dealt out by series (`route`), then each worker applies those of its shards, in
//!    order, while the next batches are read and looked at.
//! 3. `shard`: each series gathers chunks, none across a boundary of [`WINDOW_MS`]. Above the memory budget all of them go
//!    to a file, those that still grow too (`chunk_log`).
//! 4. `output`: window by window, series in the order of labels (`order`), some at a time, on all workers (`in_order`): chunks
//!    as they are, or decoded, merged with what came late or was cut by a spill, cut by deletions, and encoded again.
//!
//! # What Prometheus' replay does, and this too
//! - Samples before the end of the newest block that is not of late samples are left out, except late ones.
//! - Of a series, what is in head chunks goes before the log, and a sample that is not newer than the last one is dropped.
//! - Late samples are kept whatever their time; where there is one at that time already, the first stays.
//! - A deletion holds for all of a series' samples in its range, late ones included.
//!
//! Crash: unfinished blocks and [`SCRATCH`] are removed by the next run, which makes the same blocks again.

mod chunk_log;
mod find;
mod hashed;
mod in_order;
mod input;
mod numbers;
mod order;
mod output;
mod pairs;
mod postings;
mod queue;
mod replay;
mod report;
mod route;
mod scratch;
mod series;
mod shard;
#[cfg(test)]
mod tests;
mod unknown;
mod windows;

use std::path::Path;
use std::sync::Arc;

pub use report::{LostSeries, Phase, Progress, RecordCounts, Report};
pub(crate) use windows::range_of;

use varve_tsdb::fs::{Fs, ReadOnlyFs};
use varve_tsdb::{Error, Result};

use crate::chunk::StartTimes;

/// Milliseconds of a block: Prometheus' own blocks begin at multiples of it.
pub const WINDOW_MS: i64 = 2 * 60 * 60 * 1000;
/// Most blocks that are written: more than two years, or times that make no sense.
pub const WINDOWS_MAX: usize = 10_000;
/// Most workers.
pub const CONCURRENCY_MAX: usize = 256;
/// The folder inside the target for what does not fit in memory; it is gone at the end.
pub const SCRATCH: &str = "varve-recover.tmp";
/// The file inside the target for samples of series whose definition is lost, one JSON object a line; there if there are any.
pub const UNKNOWN_SAMPLES: &str = "unknown-series.jsonl";

/// How to recover.
#[derive(Debug, Clone)]
pub struct RecoverOptions {
    /// Bytes of memory that are aimed at.
    pub memory_bytes: usize,
    /// Workers, 1 to [`CONCURRENCY_MAX`].
    pub concurrency: usize,
    /// What becomes of start timestamps.
    pub starts: StartTimes,
    /// External labels for the section of Thanos in `meta.json`.
    pub external_labels: Vec<(String, String)>,
}

impl Default for RecoverOptions {
    fn default() -> Self {
        Self { memory_bytes: 1 << 30, concurrency: 1, starts: StartTimes::Dropped, external_labels: Vec::new() }
    }
}

/// Recovers what the Prometheus data directory `source` holds besides its blocks, as blocks in `out`.
///
/// `source` is read alone; a Prometheus may be writing to it. `progress` is called from time to time.
///
/// # Errors
/// [`Error::Io`] if `source` cannot be listed or `out` cannot be written; [`Error::Limit`] if the times of the samples need
/// more than [`WINDOWS_MAX`] blocks; [`Error::Options`].
pub fn recover(
    fs: &Arc<dyn Fs>,
    source: &Path,
    out: &Path,
    options: &RecoverOptions,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report> {
    let pool = pool(options)?;
    fs.create_dir(out).map_err(Error::io("create", out))?;
    let mut report = Report::default();
    let input = pool.install(|| input::Input::open(&**fs, source, &mut report))?;
    let scratch = scratch::Scratch::create(fs, &out.join(SCRATCH))?;
    let replayed = replay::replay(fs, input, out, options, &pool, &scratch, &mut report, progress)?;
    output::write(fs, replayed, out, options, &pool, &mut report, progress)?;
    scratch.remove()?;
    Ok(report)
}

/// Replays what [`recover`] would make blocks of, in memory whatever its budget, and writes nothing.
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
    let options = RecoverOptions { memory_bytes: usize::MAX, ..options.clone() };
    let mut report = Report::default();
    let input = pool.install(|| input::Input::open(&*fs, source, &mut report))?;
    let nowhere = source.join(SCRATCH);
    let scratch = scratch::Scratch::create(&fs, &nowhere)?;
    replay::replay(&fs, input, &nowhere, &options, &pool, &scratch, &mut report, progress)?;
    Ok(report)
}

fn pool(options: &RecoverOptions) -> Result<rayon::ThreadPool> {
    if !(1..=CONCURRENCY_MAX).contains(&options.concurrency) {
        return Err(Error::Options(format!("{} workers are not in 1 to {CONCURRENCY_MAX}", options.concurrency)));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.concurrency).build();
    pool.map_err(|error| Error::Options(format!("threads cannot be started: {error}")))
}
