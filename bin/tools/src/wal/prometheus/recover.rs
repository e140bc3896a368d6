//! `varve wal recover`.

use std::io::{self, ErrorKind};
use std::path::{self, Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_advise::counted;
use varve_env::{Fs, RealFs};
use varve_prometheus::chunk::StartTimestamps;
use varve_prometheus::recover::{
    CONCURRENCY_MAX, Progress, RecoverOptions, RecoverPhase, Report, UNKNOWN_SAMPLES, recover,
};
use varve_system::machine;

use crate::data_dir::ensure_takes_prometheus_blocks;
use crate::output::table;
use crate::progress::{Progress as ProgressBar, Unit};
use crate::report::{
    Field, block_table, blocks_json, cost_fields, damage_lines, field_json, field_table,
    totals_json, totals_table,
};
use crate::verdict::Verdict;
use crate::wal::args::RecoverArgs;

/// Recovers blocks and prints the report.
pub(in crate::wal) fn run(args: &RecoverArgs) -> Result<Verdict> {
    if is_inside(&args.to_blocks, &args.source)? {
        bail!(
            "the target {:?} is inside the data directory, which is read-only",
            args.to_blocks
        );
    }
    ensure_takes_prometheus_blocks(&args.to_blocks)?;
    let defaults = default_options(2);
    let options = RecoverOptions {
        memory_bytes: if args.memory == 0 {
            defaults.memory_bytes
        } else {
            args.memory
        },
        concurrency: if args.concurrency == 0 {
            defaults.concurrency
        } else {
            args.concurrency.min(CONCURRENCY_MAX)
        },
        start_timestamps: if args.keep_start_timestamps {
            StartTimestamps::Keep
        } else {
            StartTimestamps::Drop
        },
        external_labels: args.external_labels.clone(),
    };
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let started = Instant::now();
    let recovered =
        with_progress(|progress| recover(&fs, &args.source, &args.to_blocks, &options, progress));
    let report = recovered.with_context(|| format!("recover {:?}", args.source))?;
    let elapsed_s = started.elapsed().as_secs_f64();
    args.output
        .print(|| text(&report, elapsed_s), || json(&report, elapsed_s));
    Ok(Verdict::new(&report.damage, &report.totals))
}

/// Returns `true` if `path` is `dir` or inside it, whatever the paths are relative to and whatever
/// symbolic links they have. `path` may not exist.
fn is_inside(path: &Path, dir: &Path) -> Result<bool> {
    let resolved_path = resolve(path).with_context(|| format!("resolve {path:?}"))?;
    let resolved_dir = resolve(dir).with_context(|| format!("resolve {dir:?}"))?;
    Ok(resolved_path.starts_with(resolved_dir))
}

/// Returns the absolute path without symbolic links and `..`. Directories that do not exist are
/// taken as plain ones, as which they would be created.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut resolved = PathBuf::new();
    for component in path::absolute(path)?.components() {
        if component == Component::ParentDir {
            resolved.pop();
        } else {
            resolved.push(component);
        }
        match resolved.canonicalize() {
            Ok(existing) => resolved = existing,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(resolved)
}

/// Returns options for all cores and one part in `memory_divisor` of the memory.
pub(crate) fn default_options(memory_divisor: u64) -> RecoverOptions {
    let memory_bytes = machine::Memory::find().limit_bytes() / memory_divisor;
    RecoverOptions {
        memory_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX),
        concurrency: machine::cores().min(CONCURRENCY_MAX),
        ..RecoverOptions::default()
    }
}

/// Samples of unknown series are damage, too: their definitions are lost.
pub(super) fn replay_verdict(report: &Report) -> Verdict {
    if report.n_unknown_samples == 0 {
        Verdict::from_damage(&report.damage)
    } else {
        Verdict::Damaged
    }
}

/// Runs a recovery with a progress display.
pub(crate) fn with_progress<T>(recover: impl FnOnce(&(dyn Fn(Progress) + Sync)) -> T) -> T {
    let reading = ProgressBar::start("reading WAL", Unit::Bytes);
    let writing = OnceLock::new();
    let show = |progress: Progress| {
        let bar = match progress.phase {
            RecoverPhase::Read => &reading,
            RecoverPhase::Write => writing.get_or_init(|| {
                reading.finish();
                ProgressBar::start("writing blocks", Unit::Series)
            }),
        };
        bar.show(
            progress.done,
            progress.total,
            &format!("{} samples", progress.n_samples),
        );
    };
    let recovered = recover(&show);
    writing.get().unwrap_or(&reading).finish();
    recovered
}

/// Returns the counts that `recover` and `replay` report.
pub(super) fn replay_fields(report: &Report, elapsed_s: f64) -> Vec<Field> {
    let rate = (report.n_samples + report.n_out_of_order) as f64 / elapsed_s.max(0.001);
    let mut fields = vec![
        ("readBytes", "bytes read", json!(report.read_size)),
        ("segments", "segments", json!(report.n_segments)),
        ("headChunks", "head chunks", json!(report.n_head_chunks)),
        ("series", "series", json!(report.n_series)),
        ("samples", "in-order samples", json!(report.n_samples)),
        (
            "outOfOrderSamples",
            "out-of-order samples",
            json!(report.n_out_of_order),
        ),
        (
            "coveredSamples",
            "samples covered by blocks",
            json!(report.n_covered),
        ),
        (
            "notNewerSamples",
            "samples not newer than the one before",
            json!(report.n_not_newer),
        ),
        (
            "unknownSchemaSamples",
            "histograms with an unknown schema",
            json!(report.n_unknown_schema),
        ),
        (
            "unknownSamples",
            "samples of unknown series",
            json!(report.n_unknown_samples),
        ),
        ("tombstones", "tombstones", json!(report.n_tombstones)),
        (
            "exemplars",
            "exemplars (not in blocks)",
            json!(report.n_exemplars),
        ),
        (
            "metadata",
            "metadata (not in blocks)",
            json!(report.n_metadata),
        ),
        ("spilledBytes", "bytes spilled", json!(report.spilled_size)),
        ("elapsedSeconds", "seconds", json!(elapsed_s)),
        (
            "samplesPerSecond",
            "samples per second",
            json!(rate.round() as u64),
        ),
    ];
    fields.extend(cost_fields());
    fields
}

fn text(report: &Report, elapsed_s: f64) -> String {
    let records = report
        .records
        .iter()
        .map(|(kind, n)| vec![format!("records of {}", kind.name()), n.to_string()]);
    let blocks = block_table(&report.blocks);
    let mut text = format!(
        "{}\n{}\n{blocks}\n{}",
        field_table(&replay_fields(report, elapsed_s)),
        table(&[], records),
        totals_table(&report.totals, "written")
    );
    text.push_str(&damage_lines(&report.damage));
    if report.n_unknown_samples > 0 {
        text.push_str(&format!(
            "\n{UNKNOWN_SAMPLES} has {} of {} unknown series\n",
            counted(report.n_unknown_samples, "sample"),
            report.unknown_series.len()
        ));
    }
    text
}

fn json(report: &Report, elapsed_s: f64) -> Value {
    let records = report
        .records
        .iter()
        .map(|(kind, n)| (kind.name().to_owned(), json!(n)));
    let unknown = report.unknown_series.iter().map(
        |(series, lost)| json!({"series": series, "samples": lost.n_samples, "minTime": lost.min_ms, "maxTime": lost.max_ms}),
    );
    let mut json = field_json(
        "prometheus",
        &replay_fields(report, elapsed_s),
        &report.damage,
    );
    json["checkpoint"] = json!(report.checkpoint);
    json["records"] = Value::Object(records.collect());
    json["unknownSeries"] = json!(unknown.collect::<Vec<_>>());
    json["blocks"] = blocks_json(&report.blocks);
    json["totals"] = totals_json(&report.totals);
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_compared_by_what_they_mean() {
        for (path, dir, expected) in [
            ("out", ".", true),
            ("./src", "src", true),
            ("src/out", "./src", true),
            ("src", "./src/../src", true),
            ("missing/../src/out", "src", true),
            ("out", "src", false),
            (".", "src", false),
            ("src/../out", "src", false),
            ("srcs", "src", false),
        ] {
            let found = is_inside(Path::new(path), Path::new(dir)).unwrap();
            assert_eq!(found, expected, "{path} in {dir}");
        }
    }
}
