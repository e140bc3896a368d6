//! `varve wal inspect` and `verify` of Prometheus' data directories.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_prometheus::block::BlockMeta;
use varve_prometheus::inspect::{Depth, Inspection, SegmentSummary, inspect};
use varve_tsdb::fs::RealFs;

use crate::tools::wal::Verdict;
use crate::tools::wal::args::{Format, InspectArgs};
use crate::tools::wal::progress::{Progress, Unit};
use crate::tools::wal::report::{damage_json, damage_lines, table, time, verdict};

/// Runs `inspect`, or `verify` for everything.
pub(in crate::tools::wal) fn run(args: &InspectArgs, depth: Depth) -> Result<Verdict> {
    let progress = Progress::start("reading the directory", Unit::Bytes);
    let inspection = inspect(&RealFs, &args.dir, depth, &mut |done, total| progress.show(done, total, ""));
    progress.finish();
    let inspection = inspection.with_context(|| format!("read {:?}", args.dir))?;
    match args.output.format {
        Format::Table => print!("{}", text(&inspection)),
        Format::Json => println!("{}", json(&inspection)),
    }
    Ok(verdict(&inspection.damage))
}

fn text(inspection: &Inspection) -> String {
    let header = ["segment", "bytes", "records", "series", "samples", "from", "to"];
    let mut text = table(&header, inspection.segments.iter().map(segment_row));
    let (chunks, samples) = (inspection.n_head_chunks, inspection.n_head_samples);
    text.push_str(&format!("\nhead chunks: {chunks} of {samples} samples\n\n"));
    let block = |block: &BlockMeta| {
        let (from, to, stats) = (time(block.min_ms), time(block.max_ms), &block.stats);
        vec![block.ulid.to_string(), from, to, stats.n_series.to_string(), stats.n_samples.to_string()]
    };
    text.push_str(&table(&["block", "from", "to", "series", "samples"], inspection.blocks.iter().map(block)));
    text.push_str(&damage_lines(&inspection.damage));
    text
}

fn segment_row(segment: &SegmentSummary) -> Vec<String> {
    let n_records: u64 = segment.records.iter().map(|(_, n)| n).sum();
    let (from, to) = segment.times_ms.map_or_else(Default::default, |(from, to)| (time(from), time(to)));
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
        let records = segment.records.iter().map(|(kind, n)| (kind.name().to_owned(), json!(n)));
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
    let blocks = inspection.blocks.iter().map(|block| {
        json!({
            "ulid": block.ulid.to_string(),
            "minTime": block.min_ms,
            "maxTime": block.max_ms,
            "series": block.stats.n_series,
            "samples": block.stats.n_samples,
        })
    });
    json!({
        "owner": "prometheus",
        "checkpoint": inspection.checkpoint,
        "segments": inspection.segments.iter().map(segment).collect::<Vec<_>>(),
        "headChunks": inspection.n_head_chunks,
        "headSamples": inspection.n_head_samples,
        "blocks": blocks.collect::<Vec<_>>(),
        "damage": inspection.damage.entries().iter().map(damage_json).collect::<Vec<_>>(),
        "damageCount": inspection.damage.n_damaged(),
    })
}
