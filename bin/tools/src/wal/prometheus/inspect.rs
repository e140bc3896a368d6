//! `varve wal inspect` and `verify` of Prometheus' data directories.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_fs::RealFs;
use varve_prometheus::inspect::{Depth, Inspection, SegmentSummary, inspect};

use crate::output::table;
use crate::wal::Verdict;
use crate::wal::args::InspectArgs;
use crate::wal::progress::{Progress, Unit};
use crate::wal::report::{
    block_table, blocks_json, damage_json, damage_lines, loss, time, verdict,
};

/// Runs `inspect`, or `verify` for everything.
pub(in crate::wal) fn run(args: &InspectArgs, depth: Depth) -> Result<Verdict> {
    let read = |show: &mut dyn FnMut(u64, u64)| inspect(&RealFs, &args.dir, depth, show);
    let inspection = Progress::start("reading the directory", Unit::Bytes).during(read);
    let inspection = inspection.with_context(|| format!("read {:?}", args.dir))?;
    let totals = || {
        if depth == Depth::Everything {
            totals(&inspection)
        } else {
            String::new()
        }
    };
    args.output
        .print(|| text(&inspection) + &totals(), || json(&inspection));
    Ok(verdict_on(&inspection))
}

fn text(inspection: &Inspection) -> String {
    let header = [
        "segment", "bytes", "records", "series", "samples", "from", "to",
    ];
    let mut text = table(&header, inspection.segments.iter().map(segment_row));
    let (chunks, samples) = (inspection.n_head_chunks, inspection.n_head_samples);
    text.push_str(&format!("\nhead chunks: {chunks} of {samples} samples\n\n"));
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
        "\n{} segments, {n_bytes} bytes, {} blocks, {n_samples} samples: ",
        segments.len(),
        blocks.len()
    );
    if verdict_on(inspection) == Verdict::Sound {
        return text + "sound\n";
    }
    let loss = loss(n_lost_samples, n_samples.saturating_sub(n_unknown_samples));
    let n_series = inspection.unknown_series.len();
    format!(
        "{text}damage was found\na recovery would lose {loss}: {n_unknown_samples} samples of {n_series} unknown \
         series, {} in damaged bytes\n",
        n_lost_samples.saturating_sub(n_unknown_samples)
    )
}

/// Samples of unknown series are damage, too: their definitions are lost.
fn verdict_on(inspection: &Inspection) -> Verdict {
    if inspection.n_unknown_samples == 0 {
        verdict(&inspection.damage)
    } else {
        Verdict::Damaged
    }
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
    let segment = |segment: &SegmentSummary| {
        let records = segment
            .records
            .iter()
            .map(|(kind, n)| (kind.name().to_owned(), json!(n)));
        let [none, snappy, zstd] = segment.compressions;
        json!({
            "path": segment.path,
            "bytes": segment.size,
            "records": records.collect::<serde_json::Map<_, _>>(),
            "compressions": {"none": none, "snappy": snappy, "zstd": zstd},
            "series": segment.n_series,
            "samples": segment.n_samples,
            "minTime": segment.times_ms.map(|(min_ms, _)| min_ms),
            "maxTime": segment.times_ms.map(|(_, max_ms)| max_ms),
        })
    };
    let unknown = |(series, n): (&u64, &u64)| json!({"series": series, "samples": n});
    json!({
        "owner": "prometheus",
        "checkpoint": inspection.checkpoint,
        "segments": inspection.segments.iter().map(segment).collect::<Vec<_>>(),
        "headChunks": inspection.n_head_chunks,
        "headSamples": inspection.n_head_samples,
        "blocks": blocks_json(&inspection.blocks),
        "samples": inspection.n_samples,
        "unknownSamples": inspection.n_unknown_samples,
        "unknownSeries": inspection.unknown_series.iter().map(unknown).collect::<Vec<_>>(),
        "lostSamples": inspection.n_lost_samples,
        "damage": inspection.damage.entries().iter().map(damage_json).collect::<Vec<_>>(),
        "damageCount": inspection.damage.n_damaged(),
    })
}
