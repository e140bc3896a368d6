//! `varve wal inspect` and `verify` of Prometheus' data directories.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_env::damage::DamageKind;
use varve_env::sample_totals::SampleTotals;
use varve_env::{Fs, RealFs};
use varve_prometheus::block::BlockMeta;
use varve_prometheus::inspect::{Depth, Inspection, SegmentSummary, inspect as inspect_dir};
use varve_prometheus::recover::dry_run;

use crate::output::table;
use crate::progress::{Progress, Unit};
use crate::report::{
    because, block_table, blocks_json, damage_json, damage_lines, loss, overlap_line, time,
    totals_json, totals_table,
};
use crate::scratch_dir::ScratchDir;
use crate::verdict::Verdict;
use crate::wal::args::InspectArgs;
use crate::wal::prometheus::recover::{default_options, with_progress};

/// Prints the content of the directory.
pub(in crate::wal) fn inspect(args: &InspectArgs) -> Result<Verdict> {
    let found = read(args, Depth::Summary)?;
    args.output.print(|| text(&found), || json(&found));
    let verdict = Verdict::new(&found.damage, &found.block_totals);
    Ok(if found.n_unknown_samples == 0 {
        verdict
    } else {
        Verdict::Damaged
    })
}

/// Prints whether the directory has damage, and what a recovery would make of its samples.
pub(in crate::wal) fn verify(args: &InspectArgs) -> Result<Verdict> {
    let found = read(args, Depth::Everything)?;
    // The same function as that of a recovery, an import and a dump: they count the same.
    let scratch = ScratchDir::create(None)?;
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let options = default_options(4);
    let counted =
        with_progress(|progress| dry_run(&fs, &args.dir, scratch.path(), &options, progress));
    let mut totals = counted.context("read the WAL")?.totals;
    totals.append(&found.block_totals);
    let verdict = Verdict::new(&found.damage, &totals);

    args.output.print(
        || text(&found) + &last_lines(&found, &totals, verdict),
        || {
            let mut json = json(&found);
            json["samples"] = json!(totals.n_kept);
            json["totals"] = totals_json(&totals);
            json
        },
    );
    Ok(verdict)
}

fn read(args: &InspectArgs, depth: Depth) -> Result<Inspection> {
    let inspection = Progress::start("reading the directory", Unit::Bytes)
        .during(|show| inspect_dir(&RealFs, &args.dir, depth, show));
    inspection.with_context(|| format!("read {:?}", args.dir))
}

fn text(inspection: &Inspection) -> String {
    let header = [
        "segment", "bytes", "records", "series", "samples", "from", "to",
    ];
    let mut text = table(&header, inspection.segments.iter().map(segment_row));
    text.push_str(&format!(
        "\nhead chunks: {} of {} samples\n\n",
        inspection.n_head_chunks, inspection.n_head_samples
    ));
    text.push_str(&block_table(&inspection.blocks));
    text.push_str(&damage_lines(&inspection.damage));
    if inspection.n_unknown_samples > 0 {
        text.push_str(&format!(
            "samples of unknown series: {}\n",
            inspection.n_unknown_samples
        ));
    }
    text
}

/// Returns the last lines of a verification: totals, and an estimate of what is lost.
fn last_lines(inspection: &Inspection, totals: &SampleTotals, verdict: Verdict) -> String {
    let &Inspection {
        ref segments,
        ref blocks,
        n_samples,
        n_unknown_samples,
        n_lost_samples,
        ..
    } = inspection;
    let n_bytes: u64 = segments.iter().map(|segment| segment.size).sum();
    let text = format!(
        "\n{}{}\n{} segments, {n_bytes} bytes, {} blocks, {} samples: {}\n",
        totals_table(totals, "readable"),
        overlap_line(blocks.iter().map(BlockMeta::range).collect()),
        segments.len(),
        blocks.len(),
        totals.n_kept,
        verdict.text(),
    );
    if verdict == Verdict::Sound {
        return text;
    }
    let n_series = inspection.unknown_series.len();
    let n_in_damaged_bytes = n_lost_samples.saturating_sub(n_unknown_samples);
    // A file that is gone had any number of samples.
    let has_missing_files = inspection.damage.count(DamageKind::Missing) > 0;
    let lost = if has_missing_files || n_lost_samples == 0 {
        "an unknown number of samples".to_owned()
    } else {
        loss(n_lost_samples, n_samples.saturating_sub(n_unknown_samples))
    };
    let mut causes = Vec::new();
    if has_missing_files {
        causes.push("those in missing files".to_owned());
    }
    if n_unknown_samples > 0 {
        causes.push(format!("{n_unknown_samples} of {n_series} unknown series"));
    }
    if n_in_damaged_bytes > 0 {
        causes.push(format!("about {n_in_damaged_bytes} in damaged bytes"));
    }
    text + &format!("a recovery would lose {}\n", because(&lost, &causes))
}

fn segment_row(segment: &SegmentSummary) -> Vec<String> {
    let n_records: u64 = segment.records.iter().map(|(_, n)| n).sum();
    let (from, to) = segment
        .times_ms
        .map_or_else(Default::default, |(from, to)| (time(from), time(to)));
    vec![
        segment.path.display().to_string(),
        segment.size.to_string(),
        n_records.to_string(),
        segment.n_series.to_string(),
        segment.n_samples.to_string(),
        from,
        to,
    ]
}

fn json(inspection: &Inspection) -> Value {
    let segments = inspection.segments.iter().map(segment_json);
    let unknown_series = inspection.unknown_series.iter();
    let unknown_series = unknown_series.map(|(series, n)| json!({"series": series, "samples": n}));
    json!({
        "owner": "prometheus",
        "checkpoint": inspection.checkpoint,
        "segments": segments.collect::<Vec<_>>(),
        "headChunks": inspection.n_head_chunks,
        "headSamples": inspection.n_head_samples,
        "blocks": blocks_json(&inspection.blocks),
        "samples": inspection.n_samples,
        "unknownSamples": inspection.n_unknown_samples,
        "unknownSeries": unknown_series.collect::<Vec<_>>(),
        "lostSamples": inspection.n_lost_samples,
        "damage": inspection.damage.entries().iter().map(damage_json).collect::<Vec<_>>(),
        "damageCount": inspection.damage.n_damaged(),
    })
}

fn segment_json(segment: &SegmentSummary) -> Value {
    let mut records = serde_json::Map::new();
    for (kind, n) in segment.records.iter() {
        records.insert(kind.name().to_owned(), json!(n));
    }
    let [none, snappy, zstd] = segment.compressions;
    json!({
        "path": segment.path,
        "bytes": segment.size,
        "records": records,
        "compressions": {"none": none, "snappy": snappy, "zstd": zstd},
        "series": segment.n_series,
        "samples": segment.n_samples,
        "minTime": segment.times_ms.map(|(min_ms, _)| min_ms),
        "maxTime": segment.times_ms.map(|(_, max_ms)| max_ms),
    })
}
