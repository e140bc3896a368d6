//! `varve wal replay` of logs of Prometheus: what `recover` does before it writes blocks.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;
use varve_prometheus::recover::{CONCURRENCY_MAX, Progress as Done, RecoverOptions, replay_only};
use varve_tsdb::fs::{Fs, RealFs};

use crate::machine;
use crate::tools::wal::Verdict;
use crate::tools::wal::args::{Format, ReplayArgs};
use crate::tools::wal::progress::{Progress, Unit};
use crate::tools::wal::report::{Cost, damage_json, damage_lines, table};

/// Replays, and says how long it took.
pub(in crate::tools::wal) fn run(args: &ReplayArgs) -> Result<Verdict> {
    let n_threads = if args.concurrency == 0 { machine::cores() } else { args.concurrency }.min(CONCURRENCY_MAX);
    let options = RecoverOptions { concurrency: n_threads, ..RecoverOptions::default() };
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let (started, progress) = (Instant::now(), Progress::start("replaying the log", Unit::Bytes));
    let show = |it: Done| progress.show(it.done, it.total, &format!("{} samples", it.n_samples));
    let report = replay_only(&fs, &args.dir, &options, &show).with_context(|| format!("replay {:?}", args.dir))?;
    progress.finish();
    let (elapsed_s, cost) = (started.elapsed().as_secs_f64(), Cost::now());
    let rate = (report.n_samples + report.n_late_samples) as f64 / elapsed_s.max(0.001);
    match args.output.format {
        Format::Json => println!(
            "{}",
            json!({
                "owner": "prometheus",
                "elapsedSeconds": elapsed_s,
                "cpuSeconds": cost.cpu_s,
                "peakBytes": cost.peak_bytes,
                "concurrency": n_threads,
                "segments": report.n_segments,
                "readBytes": report.read_size,
                "headChunks": report.n_head_chunks,
                "series": report.n_series,
                "samples": report.n_samples,
                "lateSamples": report.n_late_samples,
                "coveredSamples": report.n_covered,
                "unknownSamples": report.n_unknown_samples,
                "samplesPerSecond": rate,
                "damage": report.damage.entries().iter().map(damage_json).collect::<Vec<_>>(),
                "damageCount": report.damage.n_damaged(),
            })
        ),
        Format::Table => {
            let rows = [
                ("segments", report.n_segments.to_string()),
                ("bytes of logs", report.read_size.to_string()),
                ("head chunks", report.n_head_chunks.to_string()),
                ("series", report.n_series.to_string()),
                ("samples", report.n_samples.to_string()),
                ("late samples", report.n_late_samples.to_string()),
                ("samples that blocks have", report.n_covered.to_string()),
                ("samples of series without a definition", report.n_unknown_samples.to_string()),
                ("workers", n_threads.to_string()),
                ("seconds", format!("{elapsed_s:.3}")),
                ("samples a second", format!("{rate:.0}")),
            ];
            let rows = rows.into_iter().chain(cost.rows());
            print!("{}", table(&[], rows.map(|(name, value)| vec![name.to_owned(), value])));
            print!("{}", damage_lines(&report.damage));
        }
    }
    let is_whole = report.damage.n_damaged() == 0 && report.n_unknown_samples == 0;
    Ok(if is_whole { Verdict::Sound } else { Verdict::Damaged })
}
