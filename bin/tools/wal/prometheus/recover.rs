//! `varve wal recover`.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_prometheus::block::BlockMeta;
use varve_prometheus::chunk::StartTimes;
use varve_prometheus::recover::{CONCURRENCY_MAX, Phase, Progress, RecoverOptions, Report, UNKNOWN_SAMPLES, recover};
use varve_tsdb::fs::{Fs, RealFs};

use crate::machine;
use crate::tools::wal::Verdict;
use crate::tools::wal::args::{Format, RecoverArgs};
use crate::tools::wal::progress::{Progress as ProgressBar, Unit};
use crate::tools::wal::report::{Cost, damage_json, damage_lines, table, time};

/// Recovers, and prints the report.
pub(in crate::tools::wal) fn run(args: &RecoverArgs) -> Result<Verdict> {
    if !args.source.is_dir() {
        bail!("data directory {:?} does not exist", args.source);
    }
    if args.to_blocks.starts_with(&args.source) {
        bail!("the target {:?} is inside the data directory, which is not written to", args.to_blocks);
    }
    let concurrency = if args.concurrency == 0 { machine::cores() } else { args.concurrency };
    let half = usize::try_from(machine::Memory::find().limit_bytes() / 2).unwrap_or(usize::MAX);
    let options = RecoverOptions {
        memory_bytes: if args.memory == 0 { half } else { args.memory },
        concurrency: concurrency.min(CONCURRENCY_MAX),
        starts: if args.keep_start_timestamps { StartTimes::Kept } else { StartTimes::Dropped },
        external_labels: args.external_labels.clone(),
    };
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let started = Instant::now();
    let report = recover_with_progress(&fs, &args.source, &args.to_blocks, &options)
        .with_context(|| format!("recover {:?}", args.source))?;
    let elapsed_s = started.elapsed().as_secs_f64();
    match args.output.format {
        Format::Table => print!("{}", text(&report, elapsed_s)),
        Format::Json => println!("{}", json(&report, elapsed_s)),
    }
    let is_whole = report.damage.n_damaged() == 0 && report.n_unknown_samples == 0;
    Ok(if is_whole { Verdict::Sound } else { Verdict::Damaged })
}

/// As [`recover`], and shows how far it is.
pub(crate) fn recover_with_progress(
    fs: &Arc<dyn Fs>,
    source: &Path,
    to_blocks: &Path,
    options: &RecoverOptions,
) -> Result<Report, varve_tsdb::Error> {
    let (reading, writing) = (ProgressBar::start("reading logs", Unit::Bytes), OnceLock::new());
    let show = |progress: Progress| {
        let bar = match progress.phase {
            Phase::Read => &reading,
            Phase::Write => writing.get_or_init(|| {
                reading.finish();
                ProgressBar::start("writing blocks", Unit::Series)
            }),
        };
        bar.show(progress.done, progress.total, &format!("{} samples", progress.n_samples));
    };
    let report = recover(fs, source, to_blocks, options, &show);
    writing.get().unwrap_or(&reading).finish();
    report
}

fn text(report: &Report, elapsed_s: f64) -> String {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let rate = (report.n_samples + report.n_late_samples) as f64 / elapsed_s.max(0.001);
    let mut rows = vec![
        row("bytes of logs read", report.read_size.to_string()),
        row("segments", report.n_segments.to_string()),
        row("head chunks", report.n_head_chunks.to_string()),
        row("series", report.n_series.to_string()),
        row("samples taken from the log", report.n_samples.to_string()),
        row("late samples", report.n_late_samples.to_string()),
        row("samples that blocks have", report.n_covered.to_string()),
        row("samples not newer than the one before", report.n_not_newer.to_string()),
        row("deletions", report.n_tombstones.to_string()),
        row("exemplars, which blocks do not hold", report.n_exemplars.to_string()),
        row("metadata, which blocks do not hold", report.n_metadata.to_string()),
        row("bytes that did not fit in memory", report.spilled_size.to_string()),
        row("samples a second", format!("{rate:.0}")),
    ];
    rows.extend(report.records.iter().map(|(kind, n)| row(&format!("records of {}", kind.name()), n.to_string())));
    rows.extend(Cost::now().rows().map(|(name, value)| row(name, value)));
    let mut text = table(&[], rows.into_iter());
    text.push('\n');
    let block = |block: &BlockMeta| {
        let (from, to, stats) = (time(block.min_ms), time(block.max_ms), &block.stats);
        vec![block.ulid.to_string(), from, to, stats.n_series.to_string(), stats.n_samples.to_string()]
    };
    text.push_str(&table(&["block", "from", "to", "series", "samples"], report.blocks.iter().map(block)));
    text.push_str(&damage_lines(&report.damage));
    text.push_str(&lost(report));
    text
}

fn lost(report: &Report) -> String {
    match report.n_unknown_samples {
        0 => String::new(),
        n => {
            let n_series = report.unknown_series.len();
            format!("\n{n} samples of {n_series} series whose definition is lost are in {UNKNOWN_SAMPLES}\n")
        }
    }
}

fn json(report: &Report, elapsed_s: f64) -> Value {
    let cost = Cost::now();
    let records = report.records.iter().map(|(kind, n)| (kind.name().to_owned(), json!(n)));
    let block = |block: &BlockMeta| {
        json!({
            "ulid": block.ulid.to_string(),
            "minTime": block.min_ms,
            "maxTime": block.max_ms,
            "series": block.stats.n_series,
            "samples": block.stats.n_samples,
            "chunks": block.stats.n_chunks,
        })
    };
    let lost = report.unknown_series.iter().map(|(series, lost)| {
        json!({"series": series, "samples": lost.n_samples, "minTime": lost.min_ms, "maxTime": lost.max_ms})
    });
    json!({
        "elapsedSeconds": elapsed_s,
        "cpuSeconds": cost.cpu_s,
        "peakBytes": cost.peak_bytes,
        "readBytes": report.read_size,
        "segments": report.n_segments,
        "checkpoint": report.checkpoint,
        "headChunks": report.n_head_chunks,
        "series": report.n_series,
        "samples": report.n_samples,
        "lateSamples": report.n_late_samples,
        "coveredSamples": report.n_covered,
        "notNewerSamples": report.n_not_newer,
        "unknownSchemaSamples": report.n_unknown_schema,
        "unknownSamples": report.n_unknown_samples,
        "unknownSeries": lost.collect::<Vec<_>>(),
        "tombstones": report.n_tombstones,
        "exemplars": report.n_exemplars,
        "metadata": report.n_metadata,
        "spilledBytes": report.spilled_size,
        "records": records.collect::<serde_json::Map<_, _>>(),
        "blocks": report.blocks.iter().map(block).collect::<Vec<_>>(),
        "damage": report.damage.entries().iter().map(damage_json).collect::<Vec<_>>(),
        "damageCount": report.damage.n_damaged(),
    })
}
