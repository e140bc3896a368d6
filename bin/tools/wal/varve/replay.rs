//! `varve wal replay` of Varve's own logs: as at a start of a server, with nothing written.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use varve_tsdb::fs::{ReadOnlyFs, RealFs};
use varve_tsdb::stats::ReplayState;
use varve_tsdb::{Db, Options, WalSync};

use crate::machine;
use crate::tools::wal::Verdict;
use crate::tools::wal::args::{Format, ReplayArgs};
use crate::tools::wal::progress::{Progress, Unit};
use crate::tools::wal::report::{Cost, table};

/// How often it is looked how far the replay is.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// As many shards and logs as a server has at most by itself.
const SHARDS_MAX: usize = 256;

/// Replays, and says how long it took.
pub(in crate::tools::wal) fn run(args: &ReplayArgs) -> Result<Verdict> {
    let n_threads = if args.concurrency == 0 { machine::cores() } else { args.concurrency };
    let defaults = Options::default();
    let options = Options {
        shards: machine::cores().next_power_of_two().min(SHARDS_MAX),
        wal_logs: machine::cores().next_power_of_two().min(SHARDS_MAX),
        wal_sync: WalSync::Never,
        wal_replay_concurrency: n_threads,
        wal_replay_memory_bytes: if args.memory == 0 { defaults.wal_replay_memory_bytes } else { args.memory },
        wal_replay_in_background: true,
        background: false,
        fs: Arc::new(ReadOnlyFs(Arc::new(RealFs))),
        ..defaults
    };
    let (started, progress) = (Instant::now(), Progress::start("replaying the log", Unit::Bytes));
    let db = Db::open(&args.dir, options).with_context(|| format!("open data directory {:?}", args.dir))?;
    let defined_s = started.elapsed().as_secs_f64();
    let status = loop {
        let status = db.replay_status();
        match &status.state {
            ReplayState::Running => progress.show(status.n_bytes, status.n_bytes_total, ""),
            ReplayState::Done => break status,
            ReplayState::Failed(reason) => bail!("replay of {:?}: {reason}", args.dir),
        }
        sleep(LOOK_INTERVAL);
    };
    progress.finish();
    let (elapsed_s, cost, stats) = (started.elapsed().as_secs_f64(), Cost::now(), db.stats().replayed);
    let damaged = stats.damaged_bytes + stats.n_missing_frames + stats.n_damaged_checkpoints + stats.n_orphaned;
    let rate = stats.n_samples as f64 / elapsed_s.max(0.001);
    match args.output.format {
        Format::Json => println!(
            "{}",
            json!({
                "owner": "varve",
                "elapsedSeconds": elapsed_s,
                "definitionsSeconds": defined_s,
                "cpuSeconds": cost.cpu_s,
                "peakBytes": cost.peak_bytes,
                "concurrency": n_threads,
                "files": status.n_files_total,
                "readBytes": stats.read_bytes,
                "series": stats.n_series,
                "samples": stats.n_samples,
                "samplesPerSecond": rate,
                "repeatedSamples": stats.n_repeated,
                "conflictingSamples": stats.n_conflicting,
                "orphanedSamples": stats.n_orphaned,
                "exemplars": stats.n_exemplars,
                "tornBytes": stats.torn_bytes,
                "damagedBytes": stats.damaged_bytes,
                "missingFrames": stats.n_missing_frames,
                "damagedCheckpoints": stats.n_damaged_checkpoints,
                "lostSeries": stats.n_lost_series,
            })
        ),
        Format::Table => {
            let rows = [
                ("files", status.n_files_total.to_string()),
                ("bytes of the log", stats.read_bytes.to_string()),
                ("series", stats.n_series.to_string()),
                ("samples", stats.n_samples.to_string()),
                ("samples that were there already", stats.n_repeated.to_string()),
                ("samples that contradict one before", stats.n_conflicting.to_string()),
                ("samples of series without a definition", stats.n_orphaned.to_string()),
                ("exemplars", stats.n_exemplars.to_string()),
                ("bytes of torn ends", stats.torn_bytes.to_string()),
                ("bytes of damage", stats.damaged_bytes.to_string()),
                ("frames that are missing", stats.n_missing_frames.to_string()),
                ("checkpoints that are damaged", stats.n_damaged_checkpoints.to_string()),
                ("workers", n_threads.to_string()),
                ("seconds until all series were known", format!("{defined_s:.3}")),
                ("seconds", format!("{elapsed_s:.3}")),
                ("samples a second", format!("{rate:.0}")),
            ];
            let rows = rows.into_iter().chain(cost.rows());
            print!("{}", table(&[], rows.map(|(name, value)| vec![name.to_owned(), value])));
        }
    }
    Ok(if damaged == 0 { Verdict::Sound } else { Verdict::Damaged })
}
