//! `varve wal inspect` and `verify` of Prometheus' data directories.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_env::RealFs;
use varve_env::damage::DamageKind;
use varve_prometheus::inspect::{Depth, Inspection, SegmentSummary, inspect};

use crate::output::table;
use crate::progress::{Progress, Unit};
use crate::report::{
    block_table, blocks_json, damage_json, damage_lines, loss, time, totals_json, totals_table,
};
use crate::verdict::Verdict;
use crate::wal::args::InspectArgs;

/// Runs `inspect`, or `verify` for everything.
pub(in crate::wal) fn run(args: &InspectArgs, depth: Depth) -> Result<Verdict> {
    let inspection = Progress::start("reading the directory", Unit::Bytes)
        .during(|show| inspect(&RealFs, &args.dir, depth, show));
    let inspection = inspection.with_context(|| format!("read {:?}", args.dir))?;
    args.output
        .print(|| text(&inspection, depth), || json(&inspection));
    Ok(verdict_on(&inspection))
}

fn text(inspection: &Inspection, depth: Depth) -> String {
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
    if depth == Depth::Everything {
        text.push_str(&totals(inspection));
    }
    text
}

/// Returns the last lines of a verification: totals, and an estimate of what is lost.
fn totals(inspection: &Inspection) -> String {
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
        "\n{}\n{} segments, {n_bytes} bytes, {} blocks, {n_samples} samples: ",
        totals_table(&inspection.totals, "readable"),
        segments.len(),
        blocks.len()
    );
    if verdict_on(inspection) == Verdict::Sound {
        return text + "sound\n";
    }
    let n_series = inspection.unknown_series.len();
    let n_in_damaged_bytes = n_lost_samples.saturating_sub(n_unknown_samples);
    let causes = format!(
        "{n_unknown_samples} samples of {n_series} unknown series, {n_in_damaged_bytes} in damaged bytes"
    );
    // A file that is gone had any number of samples.
    let lost = if inspection.damage.count(DamageKind::Missing) > 0 {
        format!("an unknown number of samples: those in missing files, {causes}")
    } else {
        let n_known = n_samples.saturating_sub(n_unknown_samples);
        format!("{}: {causes}", loss(n_lost_samples, n_known))
    };
    format!("{text}damage was found\na recovery would lose {lost}\n")
}

/// Samples of unknown series are damage, too: their definitions are lost.
fn verdict_on(inspection: &Inspection) -> Verdict {
    Verdict::new(&inspection.damage, &inspection.totals)
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
        "totals": totals_json(&inspection.totals),
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
