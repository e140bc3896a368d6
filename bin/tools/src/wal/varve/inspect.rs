//! `varve wal inspect` and `verify` of Varve's WAL.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_fs::RealFs;
use varve_fs::damage::{DamageKind, DamageReport};
use varve_tsdb::inspect::{self, FileSummary, Inspection, PartSizes, Role, SegmentKind};
use varve_tsdb::stats::BlockSummary;

use crate::output::table;
use crate::wal::Verdict;
use crate::wal::args::InspectArgs;
use crate::wal::progress::{Progress, Unit};
use crate::wal::report::{damage_json, damage_lines, loss, time};

/// Maximum number of unknown series in a table.
const UNKNOWN_SERIES_LISTED: usize = 20;

/// Prints the content of the WAL.
pub(in crate::wal) fn inspect(args: &InspectArgs) -> Result<Verdict> {
    let found = read(args)?;
    let text = || {
        format!(
            "{}\n{}{}",
            files(&found),
            parts(&found.parts),
            damage(&found)
        )
    };
    args.output.print(text, || json(&found));
    Ok(verdict(&found))
}

/// Prints whether the WAL, a block or the delete rules have damage.
pub(in crate::wal) fn verify(args: &InspectArgs) -> Result<Verdict> {
    let mut found = read(args)?;
    let wal = verdict(&found);
    let (n_blocks, in_blocks) = BlockSummary::check(&args.dir, true).context("read the blocks")?;
    let blocks = format!(
        "blocks: {n_blocks} sound, {} damaged\n",
        in_blocks.n_damaged()
    );
    found.damage.append(in_blocks);
    BlockSummary::check_delete_rules(&args.dir, &mut found.damage)
        .context("read the delete rules")?;
    args.output.print(
        || damage(&found).trim_start().to_owned() + &totals(&found, wal) + &blocks,
        || json(&found),
    );
    Ok(verdict(&found))
}

/// Returns totals of the WAL, and an estimate of what a replay would lose.
fn totals(found: &Inspection, wal: Verdict) -> String {
    let n_bytes: u64 = found.files.iter().map(|file| file.integrity.size).sum();
    let n_frames: u64 = found
        .files
        .iter()
        .flat_map(|file| file.records.values())
        .sum();
    let n_samples: u64 = found.files.iter().map(|file| file.n_samples).sum();
    let text = format!(
        "{} files, {n_bytes} bytes, {n_frames} sound frames, {n_samples} samples: ",
        found.files.len()
    );
    if wal == Verdict::Sound {
        return text + "sound\n";
    }
    format!(
        "{text}damage was found\na replay would lose {}\n",
        lost(found)
    )
}

/// Returns an estimate of what a replay loses, and its causes.
fn lost(found: &Inspection) -> String {
    let sum = |of: fn(&FileSummary) -> u64| found.files.iter().map(of).sum::<u64>();
    let n_unknown_samples = found.n_unknown_samples;
    let n_lost = n_in_damaged_bytes(found) + n_unknown_samples;
    format!(
        "{}: {} damaged bytes, {} missing frames, {n_unknown_samples} samples of unknown series",
        loss(
            n_lost,
            sum(|file| file.n_samples).saturating_sub(n_unknown_samples)
        ),
        sum(|file| file.integrity.damaged_bytes),
        sum(|file| file.integrity.n_missing_frames),
    )
}

/// Returns the damage of a WAL that a replay found to be damaged, after an estimate of what is
/// lost.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn wal_damage(dir: &Path) -> Result<DamageReport> {
    let found =
        inspect::inspect(&RealFs, dir, &mut |_, _| {}).with_context(|| format!("read {dir:?}"))?;
    let mut damage = DamageReport::default();
    damage.push(
        &dir.join("wal"),
        0,
        DamageKind::Missing,
        format!("in total, a replay loses {}", lost(&found)),
    );
    damage.append(found.damage);
    Ok(damage)
}

/// Estimates the number of samples in damaged bytes and missing frames of the segments that contain
/// samples.
fn n_in_damaged_bytes(found: &Inspection) -> u64 {
    let files = || {
        found
            .files
            .iter()
            .filter(|file| file.file.kind == SegmentKind::Samples)
    };
    let sum = |of: fn(&FileSummary) -> u64| files().map(of).sum::<u64>() as f64;
    let n_samples = sum(|file| file.n_samples);
    let (size, n_damaged) = (
        sum(|file| file.integrity.size),
        sum(|file| file.integrity.damaged_bytes),
    );
    let (n_frames, n_missing) = (
        sum(|file| file.records.values().sum()),
        sum(|file| file.integrity.n_missing_frames),
    );
    let (in_bytes, in_frames) = (
        n_damaged / (size - n_damaged).max(1.0),
        n_missing / n_frames.max(1.0),
    );
    // A missing frame may be in the damaged bytes.
    (n_samples * in_bytes.max(in_frames)).ceil() as u64
}

fn read(args: &InspectArgs) -> Result<Inspection> {
    let read = |show: &mut dyn FnMut(u64, u64)| inspect::inspect(&RealFs, &args.dir, show);
    let found = Progress::start("reading WAL", Unit::Bytes).during(read);
    found.with_context(|| format!("read {:?}", args.dir))
}

fn verdict(found: &Inspection) -> Verdict {
    if found.damage.n_damaged() == 0 && found.n_unknown_samples == 0 {
        Verdict::Sound
    } else {
        Verdict::Damaged
    }
}

fn files(found: &Inspection) -> String {
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
    let rows = part_rows(parts);
    let total: u64 = rows.iter().map(|(_, bits, _)| bits).sum();
    let row = |&(name, bits, n_samples): &(&str, u64, u64)| {
        let share = format!("{:.1}", bits as f64 * 100.0 / total.max(1) as f64);
        let per_sample = if n_samples == 0 {
            String::new()
        } else {
            format!("{:.3}", bits as f64 / 8.0 / n_samples as f64)
        };
        vec![
            name.to_owned(),
            bits.div_ceil(8).to_string(),
            share,
            per_sample,
        ]
    };
    table(
        &["part of the WAL", "bytes", "%", "bytes per sample"],
        rows.iter().filter(|row| row.1 > 0).map(row),
    )
}

/// Lists damage after an empty line. Returns an empty string if there is no damage.
fn damage(found: &Inspection) -> String {
    let mut text = damage_lines(&found.damage);
    if found.n_unknown_samples > 0 {
        let unknown_series = found
            .unknown_series
            .iter()
            .take(UNKNOWN_SERIES_LISTED)
            .map(|(series, n)| format!("{series} ({n})"));
        let listed: Vec<_> = unknown_series.collect();
        let more = if found.unknown_series.len() > listed.len() {
            ", ..., see --output json"
        } else {
            ""
        };
        let listed = listed.join(", ");
        text.push_str(&format!(
            "\n{} samples of unknown series: {listed}{more}\n",
            found.n_unknown_samples
        ));
    }
    if found.n_removed_files > 0 {
        text.push_str(&format!(
            "\na running server deleted {} files during the inspection\n",
            found.n_removed_files
        ));
    }
    text
}

fn json(found: &Inspection) -> Value {
    let file = |summary: &FileSummary| {
        let end = &summary.integrity;
        json!({
            "path": summary.file.path,
            "kind": summary.file.kind.name(),
            "state": match summary.file.role { Role::Live => "active", Role::Superseded => "replaced", Role::Damaged => "unused" },
            "deleted": end.is_removed,
            "version": end.version,
            "bytes": end.size,
            "records": summary.records,
            "series": summary.n_series,
            "samples": summary.n_samples,
            "exemplars": summary.n_exemplars,
            "minTime": summary.times.map(|times| times.start_ms),
            "maxTime": summary.times.map(|times| times.end_ms),
            "damagedBytes": end.damaged_bytes,
            "tornBytes": end.torn_bytes,
            "missingFrames": end.n_missing_frames,
        })
    };
    let parts = part_rows(&found.parts)
        .into_iter()
        .map(|(name, bits, _)| (name.to_owned(), json!(bits.div_ceil(8))));
    let unknown_series = found
        .unknown_series
        .iter()
        .map(|(series, n)| json!({"series": series, "samples": n}));
    json!({
        "owner": "varve",
        "files": found.files.iter().map(file).collect::<Vec<_>>(),
        "partBytes": parts.collect::<serde_json::Map<_, _>>(),
        "partSamples": found.parts.n_samples,
        "series": found.n_series,
        "unknownSamples": found.n_unknown_samples,
        "unknownSeries": unknown_series.collect::<Vec<_>>(),
        "deletedFiles": found.n_removed_files,
        "damage": found.damage.entries().iter().map(damage_json).collect::<Vec<_>>(),
        "damageCount": found.damage.n_damaged(),
    })
}
