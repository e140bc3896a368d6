//! `varve wal inspect`, `verify` and `dump`.

use std::io::{BufWriter, Write, stdout};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use varve_tsdb::RealFs;
use varve_tsdb::prometheus::fault::Faults;
use varve_tsdb::prometheus::inspect::{
    Depth, FoundRecord, Inspection, SegmentSummary, for_each_record, inspect, is_prometheus_directory,
};
use varve_tsdb::prometheus::wal::{
    RecordType, decode_definitions, decode_exemplars, decode_histograms, decode_metadata, decode_samples,
    decode_tombstones,
};

use super::args::{DumpArgs, Format, InspectArgs};
use super::report::{fault_json, fault_lines, time};
use super::{Verdict, table};

/// Runs `inspect` or, with everything, `verify`.
pub(super) fn run(args: &InspectArgs, depth: Depth) -> Result<Verdict> {
    check_directory(&args.dir)?;
    let inspection = inspect(&RealFs, &args.dir, depth, &mut |_| {}).with_context(|| format!("read {:?}", args.dir))?;
    match args.output.format {
        Format::Table => print!("{}", text(&inspection)),
        Format::Json => println!("{}", json(&inspection)),
    }
    Ok(verdict(&inspection.faults))
}

fn verdict(faults: &Faults) -> Verdict {
    if faults.n_unsound() == 0 { Verdict::Sound } else { Verdict::Faults }
}

fn check_directory(dir: &Path) -> Result<()> {
    if !dir.is_dir() {
        bail!("data directory {dir:?} does not exist");
    }
    if !is_prometheus_directory(&RealFs, dir) {
        bail!("{dir:?} is no data directory of Prometheus; Varve's own logs are checked when a server opens them");
    }
    Ok(())
}

fn text(inspection: &Inspection) -> String {
    let header = ["segment", "bytes", "records", "series", "samples", "from", "to"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(inspection.segments.iter().map(segment_row));
    let mut text = table::print(&rows);
    let (chunks, samples) = (inspection.n_head_chunks, inspection.n_head_samples);
    text.push_str(&format!("\nhead chunks: {chunks} of {samples} samples\n\n"));
    let mut rows = vec![["block", "from", "to", "series", "samples"].map(str::to_owned).to_vec()];
    for block in &inspection.blocks {
        let (from, to) = (time(block.min_ms), time(block.max_ms));
        let stats = &block.stats;
        rows.push(vec![block.ulid.to_string(), from, to, stats.n_series.to_string(), stats.n_samples.to_string()]);
    }
    text.push_str(&table::print(&rows));
    text.push_str(&fault_lines(&inspection.faults));
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
        "checkpoint": inspection.checkpoint,
        "segments": inspection.segments.iter().map(segment).collect::<Vec<_>>(),
        "headChunks": inspection.n_head_chunks,
        "headSamples": inspection.n_head_samples,
        "blocks": blocks.collect::<Vec<_>>(),
        "faults": inspection.faults.kept().iter().map(fault_json).collect::<Vec<_>>(),
        "nFaults": inspection.faults.n_unsound(),
    })
}

/// Prints the records of a directory, one line each: as JSON, or as words.
pub(super) fn dump(args: &DumpArgs) -> Result<Verdict> {
    check_directory(&args.dir)?;
    let (mut out, mut faults) = (BufWriter::new(stdout().lock()), Faults::default());
    let mut stopped = None;
    for_each_record(&RealFs, &args.dir, &mut faults, |record| {
        let name = record.record_type.map_or("unknown", RecordType::name);
        if stopped.is_some() || args.record_type.as_deref().is_some_and(|wanted| wanted != name) {
            return Ok(());
        }
        let items = items(&record, args.series);
        let line = match args.output.format {
            Format::Json => json!({
                "path": record.path, "offset": record.offset, "type": name,
                "compression": record.compression.name(), "items": items,
            })
            .to_string(),
            Format::Table => words(&record, name, &items),
        };
        if args.series.is_none() || !items.is_empty() {
            stopped = writeln!(out, "{line}").err();
        }
        Ok(())
    })
    .with_context(|| format!("read {:?}", args.dir))?;
    if let Some(error) = stopped.or_else(|| out.flush().err()) {
        return Err(error).context("print");
    }
    eprint!("{}", fault_lines(&faults));
    Ok(verdict(&faults))
}

fn words(record: &FoundRecord<'_>, name: &str, items: &[Value]) -> String {
    let mut text = format!("{}:{} {name} ({} items)", record.path.display(), record.offset, items.len());
    for item in items {
        text.push_str(&format!("\n  {item}"));
    }
    text
}

/// Returns what a record says, of one series or of all.
fn items(record: &FoundRecord<'_>, wanted: Option<u64>) -> Vec<Value> {
    let bytes = record.bytes;
    let is_wanted = |series: u64| wanted.is_none_or(|wanted| wanted == series);
    // A record that makes no sense gives what comes before the damage; `verify` reports it.
    match record.record_type {
        Some(RecordType::Series) => {
            let mut found = Vec::new();
            let _ = decode_definitions(bytes, &mut found);
            let labels =
                |labels: Vec<(&str, &str)>| labels.into_iter().map(|(n, v)| (n.to_owned(), json!(v))).collect();
            let item = |labels: serde_json::Map<_, _>, series| json!({"series": series, "labels": labels});
            let found = found.iter().filter(|it| is_wanted(it.series));
            found.map(|it| item(labels(it.labels().collect()), it.series)).collect()
        }
        Some(RecordType::Samples | RecordType::SamplesV2) => {
            let mut found = Vec::new();
            let _ = decode_samples(bytes, &mut found);
            let item = |it: &varve_tsdb::prometheus::wal::RefSample| json!({"series": it.series, "timestamp_ms": it.timestamp_ms, "value": format!("{:?}", it.value)});
            found.iter().filter(|it| is_wanted(it.series)).map(item).collect()
        }
        Some(RecordType::Tombstones) => {
            let mut found = Vec::new();
            let _ = decode_tombstones(bytes, &mut found);
            let found = found.iter().filter(|it| is_wanted(it.series));
            found.map(|it| json!({"series": it.series, "min_ms": it.min_ms, "max_ms": it.max_ms})).collect()
        }
        Some(RecordType::Exemplars) => {
            let mut found = Vec::new();
            let _ = decode_exemplars(bytes, &mut found);
            let found = found.iter().filter(|it| is_wanted(it.series));
            let value = |it: &varve_tsdb::prometheus::wal::RefExemplar<'_>| json!({"series": it.series, "timestamp_ms": it.timestamp_ms, "value": format!("{:?}", it.value), "labels": it.labels});
            found.map(value).collect()
        }
        Some(RecordType::Metadata) => {
            let mut found = Vec::new();
            let _ = decode_metadata(bytes, &mut found);
            let found = found.iter().filter(|it| is_wanted(it.series));
            found
                .map(|it| json!({"series": it.series, "type": it.type_name(), "unit": it.unit, "help": it.help}))
                .collect()
        }
        Some(RecordType::MmapMarkers) | None => Vec::new(),
        Some(_) => {
            let mut found = Vec::new();
            let _ = decode_histograms(bytes, &mut found);
            let found = found.iter().filter(|it| is_wanted(it.series));
            let item = |it: &varve_tsdb::prometheus::wal::RefHistogram| {
                let (schema, sum) = (it.histogram.schema, format!("{:?}", it.histogram.sum));
                json!({"series": it.series, "timestamp_ms": it.timestamp_ms, "schema": schema, "sum": sum})
            };
            found.map(item).collect()
        }
    }
}
