//! `varve wal replay` of Varve's WAL: like a start of the server, read-only.

use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_env::damage::DamageReport;
use varve_env::{ReadOnlyFs, RealFs};
use varve_system::machine;
use varve_tsdb::stats::{ReplayState, ReplayStats, ReplayStatus};
use varve_tsdb::{Db, Options, WalSync};

use crate::progress::{Progress, Unit};
use crate::report::{Field, cost_fields, field_json, field_table};
use crate::verdict::Verdict;
use crate::wal::args::ReplayArgs;

/// Interval of progress updates.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(20);

/// Replays the WAL, and prints how long it took.
pub(in crate::wal) fn run(args: &ReplayArgs) -> Result<Verdict> {
    let n_threads = args.n_threads();
    let started = Instant::now();
    let progress = Progress::start("replaying", Unit::Bytes);
    let db = Db::open(&args.dir, options(args, n_threads))
        .with_context(|| format!("open data directory {:?}", args.dir))?;
    let defined_s = started.elapsed().as_secs_f64();
    let status = wait(&db, &args.dir, &progress)?;
    progress.finish();
    let elapsed_s = started.elapsed().as_secs_f64();
    let stats = db.stats().replayed;
    let rate = stats.n_samples as f64 / elapsed_s.max(0.001);
    let mut fields = count_fields(&status, &stats);
    fields.extend([
        ("concurrency", "threads", json!(n_threads)),
        (
            "definitionsSeconds",
            "seconds until all series were loaded",
            json!(defined_s),
        ),
        ("elapsedSeconds", "seconds", json!(elapsed_s)),
        (
            "samplesPerSecond",
            "samples per second",
            json!(rate.round() as u64),
        ),
    ]);
    fields.extend(cost_fields());
    args.output.print(
        || field_table(&fields),
        || field_json("varve", &fields, &DamageReport::default()),
    );
    Ok(if stats.is_damaged() {
        Verdict::Damaged
    } else {
        Verdict::Sound
    })
}

/// Returns options as at a start of the server, except that nothing is written.
fn options(args: &ReplayArgs, n_threads: usize) -> Options {
    let mut options = Options {
        shards: machine::shards(),
        wal_sync: WalSync::Never,
        wal_replay_concurrency: n_threads,
        wal_replay_in_background: true,
        background: false,
        fs: Arc::new(ReadOnlyFs(Arc::new(RealFs))),
        ..Options::default()
    };
    if args.memory > 0 {
        options.wal_replay_memory_bytes = args.memory;
    }
    options
}

/// Waits for the end of a replay.
fn wait(db: &Db, dir: &Path, progress: &Progress) -> Result<ReplayStatus> {
    loop {
        let status = db.replay_status();
        match &status.state {
            ReplayState::Running => progress.show(status.n_bytes, status.n_bytes_total, ""),
            ReplayState::Done => return Ok(status),
            ReplayState::Failed(reason) => bail!("replay of {dir:?}: {reason}"),
        }
        sleep(PROGRESS_INTERVAL);
    }
}

/// Returns what was read, lost and damaged.
fn count_fields(status: &ReplayStatus, stats: &ReplayStats) -> Vec<Field> {
    vec![
        ("files", "files", json!(status.n_files_total)),
        ("readBytes", "bytes read", json!(stats.read_bytes)),
        ("series", "series", json!(stats.n_series)),
        ("samples", "samples", json!(stats.n_samples)),
        (
            "repeatedSamples",
            "duplicate samples",
            json!(stats.n_repeated),
        ),
        (
            "conflictingSamples",
            "duplicate samples with another value",
            json!(stats.n_conflicting),
        ),
        (
            "unknownSamples",
            "samples of unknown series",
            json!(stats.n_unknown_samples),
        ),
        (
            "unknownExemplars",
            "exemplars of unknown series",
            json!(stats.n_unknown_exemplars),
        ),
        ("exemplars", "exemplars", json!(stats.n_exemplars)),
        ("tornBytes", "bytes in torn tails", json!(stats.torn_bytes)),
        ("damagedBytes", "damaged bytes", json!(stats.damaged_bytes)),
        (
            "missingFrames",
            "missing frames",
            json!(stats.n_missing_frames),
        ),
        (
            "missingFiles",
            "gaps of missing files, or empty files",
            json!(stats.n_file_gaps),
        ),
        (
            "damagedCheckpoints",
            "damaged checkpoints",
            json!(stats.n_damaged_checkpoints),
        ),
        ("lostSeries", "lost series", json!(stats.n_lost_series)),
    ]
}
