//! `varve wal inspect` and `verify` of Varve's WAL.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_advise::counted;
use varve_env::RealFs;
use varve_env::damage::{DamageKind, DamageReport};
use varve_env::sample_totals::SampleTotals;
use varve_prometheus::losses::{IN_DAMAGED_PARTS, OF_UNKNOWN_SERIES};
use varve_tsdb::inspect::{self, FileSummary, PartSizes, Role, SegmentKind, WalInspection};
use varve_tsdb::stats::BlockSummary;

use crate::output::table;
use crate::progress::{Progress, Unit};
use crate::report::{because, damage_json, damage_lines, loss, time, totals_json, totals_table};
use crate::verdict::Verdict;
use crate::wal::args::InspectArgs;

/// Maximum number of unknown series in a table.
const UNKNOWN_SERIES_LISTED: usize = 20;

/// Prints the content of the WAL.
pub(in crate::wal) fn inspect(args: &InspectArgs) -> Result<Verdict> {
    let found = read(args)?;
    args.output.print(
        || files(&found) + "\n" + &parts(&found.parts) + &damage(&found),
        || json(&found),
    );
    Ok(verdict(&found))
}

/// Prints whether the WAL, a block or the tombstones have damage.
pub(in crate::wal) fn verify(args: &InspectArgs) -> Result<Verdict> {
    let mut found = read(args)?;
    let wal = wal_lines(&found);
    let (n_blocks, in_blocks) = BlockSummary::check(&args.dir).context("read the blocks")?;
    let blocks = format!(
        "blocks: {n_blocks} sound, {} damaged\n",
        in_blocks.n_damaged()
    );
    found.damage.append(in_blocks);
    BlockSummary::check_delete_rules(&args.dir, &mut found.damage)
        .context("read the tombstones")?;
    let verdict = verdict(&found);
    args.output.print(
        || {
            let found_samples = totals_table(&sample_totals(&found), "readable");
            let damage = damage(&found).trim_start().to_owned();
            // The last line is about everything above it.
            damage + &found_samples + "\n" + &wal + &blocks + verdict.text() + "\n"
        },
        || json(&found),
    );
    Ok(verdict)
}

/// Returns totals of the WAL, and an estimate of what a replay would lose.
fn wal_lines(found: &WalInspection) -> String {
    let sums = Sums::new(&found.files);
    let text = format!(
        "WAL: {} files, {} bytes, {} sound frames, {} samples\n",
        found.files.len(),
        sums.size,
        sums.n_frames,
        sums.n_samples
    );
    match verdict(found) {
        Verdict::Sound => text,
        Verdict::Damaged => format!("{text}a replay would lose {}\n", lost(found, 0)),
    }
}

/// Returns what became of the samples of the WAL. Those of superseded files are in blocks.
fn sample_totals(found: &WalInspection) -> SampleTotals {
    let mut totals = SampleTotals::default();
    for file in &found.files {
        totals.n_found += file.n_samples;
        if file.file.role == Role::Live {
            totals.n_kept += file.n_samples;
        } else {
            totals.n_covered += file.n_samples;
        }
    }
    totals.n_kept = totals
        .n_kept
        .saturating_sub(found.n_unknown_samples + found.n_duplicates);
    totals.n_duplicates = found.n_duplicates;
    totals.lose(OF_UNKNOWN_SERIES, found.n_unknown_samples);
    if found.damage.n_damaged() > 0 {
        totals.lose_unknown(IN_DAMAGED_PARTS);
    }
    totals
}

/// Returns an estimate of what a replay loses, and its causes. The replay found `n_file_gaps`:
/// it creates missing directories.
fn lost(found: &WalInspection, n_file_gaps: u64) -> String {
    let sums = Sums::new(&found.files);
    let n_unknown_samples = found.n_unknown_samples;
    let n_lost = n_in_damaged_bytes(found) + n_unknown_samples;
    let n_known_samples = sums.n_samples.saturating_sub(n_unknown_samples);
    let n_file_gaps = found.n_file_gaps.max(n_file_gaps);
    let lost = if n_file_gaps > 0 || n_lost == 0 {
        "an unknown number of samples".to_owned()
    } else {
        loss(n_lost, n_known_samples)
    };
    let mut causes = Vec::new();
    for (n, cause) in [
        (n_file_gaps, "gaps of missing files, or empty files"),
        (sums.damaged_bytes, "damaged bytes"),
        (sums.n_missing_frames, "missing frames"),
        (n_unknown_samples, "samples of unknown series"),
    ] {
        if n > 0 {
            causes.push(format!("{n} {cause}"));
        }
    }
    because(&lost, &causes)
}

/// Sums over files.
#[derive(Default)]
struct Sums {
    size: u64,
    damaged_bytes: u64,
    n_frames: u64,
    n_missing_frames: u64,
    n_samples: u64,
}

impl Sums {
    fn new<'a>(files: impl IntoIterator<Item = &'a FileSummary>) -> Self {
        let mut sums = Self::default();
        for file in files {
            sums.size += file.integrity.size;
            sums.damaged_bytes += file.integrity.damaged_bytes;
            sums.n_frames += file.records.values().sum::<u64>();
            sums.n_missing_frames += file.integrity.n_missing_frames;
            sums.n_samples += file.n_samples;
        }
        sums
    }
}

/// Returns the damage of a WAL that a replay found to be damaged, after an estimate of what is
/// lost.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn wal_damage(dir: &Path, n_file_gaps: u64) -> Result<DamageReport> {
    let found =
        inspect::inspect(&RealFs, dir, &mut |_, _| {}).with_context(|| format!("read {dir:?}"))?;
    let mut damage = DamageReport::default();
    damage.push(
        &dir.join("wal"),
        0,
        DamageKind::Missing,
        format!("in total, a replay loses {}", lost(&found, n_file_gaps)),
    );
    damage.append(found.damage);
    Ok(damage)
}

/// Estimates the number of samples in damaged bytes and missing frames of the segments that contain
/// samples.
fn n_in_damaged_bytes(found: &WalInspection) -> u64 {
    let sums = Sums::new(
        found
            .files
            .iter()
            .filter(|file| file.file.kind == SegmentKind::Samples),
    );
    let damaged_bytes = sums.damaged_bytes as f64;
    let in_bytes = damaged_bytes / (sums.size as f64 - damaged_bytes).max(1.0);
    let in_frames = sums.n_missing_frames as f64 / (sums.n_frames as f64).max(1.0);
    // A missing frame may be in the damaged bytes.
    (sums.n_samples as f64 * in_bytes.max(in_frames)).ceil() as u64
}

fn read(args: &InspectArgs) -> Result<WalInspection> {
    let found = Progress::start("reading WAL", Unit::Bytes)
        .during(|show| inspect::inspect(&RealFs, &args.dir, show));
    found.with_context(|| format!("read {:?}", args.dir))
}

fn verdict(found: &WalInspection) -> Verdict {
    if found.damage.n_damaged() == 0 && found.n_unknown_samples == 0 {
        Verdict::Sound
    } else {
        Verdict::Damaged
    }
}

fn files(found: &WalInspection) -> String {
    let header = [
        "file",
        "version",
        "bytes",
        "frames",
        "series",
        "samples",
        "exemplars",
        "from",
        "to",
        "",
    ];
    table(&header, found.files.iter().map(row))
}

fn row(summary: &FileSummary) -> Vec<String> {
    let (from, to) = summary.times.map_or_else(Default::default, |times| {
        (time(times.start_ms), time(times.end_ms))
    });
    vec![
        summary.file.path.display().to_string(),
        summary
            .integrity
            .version
            .map_or_else(String::new, |version| version.to_string()),
        summary.integrity.size.to_string(),
        summary.records.values().sum::<u64>().to_string(),
        summary.n_series.to_string(),
        summary.n_samples.to_string(),
        summary.n_exemplars.to_string(),
        from,
        to,
        role(summary).to_owned(),
    ]
}

fn role(summary: &FileSummary) -> &'static str {
    match summary.file.role {
        _ if summary.integrity.is_removed => "deleted",
        Role::Live => "",
        Role::Superseded => "replaced",
        Role::Damaged => "unused",
    }
}

/// Returns name, size in bits, and number of samples of each part.
fn part_rows(parts: &PartSizes) -> Vec<(&'static str, u64, u64)> {
    let n = parts.n_samples;
    vec![
        ("samples: frame headers", 8 * parts.sample_frames, n),
        ("samples: record headers", parts.samples.head, n),
        ("samples: series", parts.samples.refs, n),
        ("samples: timestamps", parts.samples.times, n),
        ("samples: values", parts.samples.values, n),
        ("histograms", 8 * parts.histograms, 0),
        ("start timestamps", 8 * parts.start_timestamps, 0),
        ("exemplars", 8 * parts.exemplars, 0),
        ("series definitions", 8 * parts.series, 0),
        ("metadata", 8 * parts.metadata, 0),
        ("checkpoints", 8 * parts.checkpoints, 0),
        ("file headers", 8 * parts.file_headers, 0),
        ("damaged or unused bytes", 8 * parts.damaged, 0),
    ]
}

fn parts(parts: &PartSizes) -> String {
    let parts = part_rows(parts);
    let total: u64 = parts.iter().map(|(_, bits, _)| bits).sum();
    let mut rows = Vec::new();
    for (name, bits, n_samples) in parts {
        if bits == 0 {
            continue;
        }
        let share = format!("{:.1}", bits as f64 * 100.0 / total.max(1) as f64);
        let per_sample = if n_samples == 0 {
            String::new()
        } else {
            format!("{:.3}", bits as f64 / 8.0 / n_samples as f64)
        };
        rows.push([
            name.to_owned(),
            bits.div_ceil(8).to_string(),
            share,
            per_sample,
        ]);
    }
    let header = ["part of the WAL", "bytes", "%", "bytes per sample"];
    table(&header, rows)
}

/// Lists damage after an empty line. Returns an empty string if there is no damage.
fn damage(found: &WalInspection) -> String {
    let mut text = damage_lines(&found.damage);
    if found.n_unknown_samples > 0 {
        let mut listed = Vec::new();
        for (series, n) in found.unknown_series.iter().take(UNKNOWN_SERIES_LISTED) {
            listed.push(format!("{series} ({n})"));
        }
        let more = if found.unknown_series.len() > listed.len() {
            ", ..., see --output json"
        } else {
            ""
        };
        let listed = listed.join(", ");
        text.push_str(&format!(
            "\nsamples of unknown series: {}: {listed}{more}\n",
            found.n_unknown_samples
        ));
    }
    if found.n_removed_files > 0 {
        text.push_str(&format!(
            "\na running server deleted {} during the inspection\n",
            counted(found.n_removed_files, "file")
        ));
    }
    text
}

fn json(found: &WalInspection) -> Value {
    let mut parts = serde_json::Map::new();
    for (name, bits, _) in part_rows(&found.parts) {
        parts.insert(name.to_owned(), json!(bits.div_ceil(8)));
    }
    let unknown_series = found
        .unknown_series
        .iter()
        .map(|(series, n)| json!({"series": series, "samples": n}));
    json!({
        "owner": "varve",
        "files": found.files.iter().map(file_json).collect::<Vec<_>>(),
        "partBytes": parts,
        "partSamples": found.parts.n_samples,
        "series": found.n_series,
        "unknownSamples": found.n_unknown_samples,
        "unknownSeries": unknown_series.collect::<Vec<_>>(),
        "duplicateSamples": found.n_duplicates,
        "missingFiles": found.n_file_gaps,
        "deletedFiles": found.n_removed_files,
        "totals": totals_json(&sample_totals(found)),
        "damage": found.damage.entries().iter().map(damage_json).collect::<Vec<_>>(),
        "damageCount": found.damage.n_damaged(),
    })
}

fn file_json(summary: &FileSummary) -> Value {
    let integrity = &summary.integrity;
    let state = match summary.file.role {
        Role::Live => "active",
        Role::Superseded => "replaced",
        Role::Damaged => "unused",
    };
    json!({
        "path": summary.file.path,
        "kind": summary.file.kind.name(),
        "state": state,
        "deleted": integrity.is_removed,
        "version": integrity.version,
        "bytes": integrity.size,
        "records": summary.records,
        "series": summary.n_series,
        "samples": summary.n_samples,
        "exemplars": summary.n_exemplars,
        "minTime": summary.times.map(|times| times.start_ms),
        "maxTime": summary.times.map(|times| times.end_ms),
        "damagedBytes": integrity.damaged_bytes,
        "tornBytes": integrity.torn_bytes,
        "missingFrames": integrity.n_missing_frames,
    })
}
