//! `varve wal dump` of logs of Prometheus.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_prometheus::inspect::{FoundRecord, for_each_record};
use varve_prometheus::wal::{
    RecordType, decode_definitions, decode_exemplars, decode_histograms, decode_metadata, decode_samples,
    decode_tombstones,
};
use varve_tsdb::fs::RealFs;
use varve_tsdb::fs::damage::DamageReport;

use crate::printing::stdout;
use crate::tools::wal::Verdict;
use crate::tools::wal::args::{DumpArgs, Format};
use crate::tools::wal::filter::Filter;
use crate::tools::wal::progress::{Progress, Unit};
use crate::tools::wal::record_json as item;
use crate::tools::wal::report::{damage_lines, verdict};

/// Prints the records of a directory, one line each: as JSON, or as words.
pub(in crate::tools::wal) fn run(args: &DumpArgs) -> Result<Verdict> {
    let mut filter = Filter::new(args, &RecordType::ALL.map(RecordType::name))?;
    if filter.needs_labels() {
        let progress = Progress::beside_output("reading definitions", Unit::Bytes);
        let mut show = |done, total| progress.show(done, total, "");
        for_each_record(&RealFs, &args.dir, &mut DamageReport::default(), &mut show, |record| {
            learn(&record, &mut filter);
            Ok(())
        })
        .with_context(|| format!("read {:?}", args.dir))?;
        progress.finish();
    }
    let (mut out, mut damage) = (BufWriter::new(stdout()), DamageReport::default());
    let mut stopped = None;
    let progress = Progress::beside_output("dumping", Unit::Bytes);
    let mut show = |done, total| progress.show(done, total, "");
    for_each_record(&RealFs, &args.dir, &mut damage, &mut show, |record| {
        if stopped.is_none() {
            let line = line(args.output.format, &record, &filter);
            stopped = line.and_then(|line| writeln!(out, "{line}").err());
        }
        Ok(())
    })
    .with_context(|| format!("read {:?}", args.dir))?;
    progress.finish();
    if let Some(error) = stopped.or_else(|| out.flush().err()) {
        return Err(error).context("print");
    }
    eprint!("{}", damage_lines(&damage));
    Ok(verdict(&damage))
}

fn learn(record: &FoundRecord<'_>, filter: &mut Filter) {
    if record.record_type == Some(RecordType::Series) {
        let mut found = Vec::new();
        // What cannot be decoded is noted when it is to be printed.
        let _ = decode_definitions(record.bytes, &mut found);
        found.iter().for_each(|it| filter.learn(it.series, it.labels()));
    }
}

/// Prints a record; `None` if nothing of it is asked for.
fn line(format: Format, record: &FoundRecord<'_>, filter: &Filter) -> Option<String> {
    let name = record.record_type.map_or("unknown", RecordType::name);
    if !filter.record(name) {
        return None;
    }
    let items = items(record, filter);
    if items.is_empty() && !filter.shows_empty() {
        return None;
    }
    Some(match format {
        Format::Json => json!({
            "path": record.path, "offset": record.offset, "type": name,
            "compression": record.compression.name(), "items": items,
        })
        .to_string(),
        Format::Table => words(record, name, &items),
    })
}

fn words(record: &FoundRecord<'_>, name: &str, items: &[Value]) -> String {
    let mut text = format!("{}:{} {name} ({} items)", record.path.display(), record.offset, items.len());
    for item in items {
        text.push_str(&format!("\n  {item}"));
    }
    text
}

/// Returns what is asked for of a record.
fn items(record: &FoundRecord<'_>, filter: &Filter) -> Vec<Value> {
    let bytes = record.bytes;
    // A record that makes no sense gives what comes before the damage; `verify` reports it.
    match record.record_type {
        Some(RecordType::Series) => {
            let mut found = Vec::new();
            let _ = decode_definitions(bytes, &mut found);
            let found = found.iter().filter(|it| filter.series(it.series));
            found.map(|it| json!({"series": it.series, "labels": item::labels(it.labels())})).collect()
        }
        Some(RecordType::Samples | RecordType::SamplesV2) => {
            let mut found = Vec::new();
            let _ = decode_samples(bytes, &mut found);
            let found = found.iter().filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
            found.map(|it| item::sample(it.series, it.timestamp_ms, it.value)).collect()
        }
        Some(RecordType::Tombstones) => {
            let mut found = Vec::new();
            let _ = decode_tombstones(bytes, &mut found);
            let found = found.iter().filter(|it| filter.series(it.series) && filter.times(it.min_ms, it.max_ms));
            found.map(|it| json!({"series": it.series, "min_ms": it.min_ms, "max_ms": it.max_ms})).collect()
        }
        Some(RecordType::Exemplars) => {
            let mut found = Vec::new();
            let _ = decode_exemplars(bytes, &mut found);
            let found = found.iter().filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
            found
                .map(|it| {
                    let value = format!("{:?}", it.value);
                    json!({"series": it.series, "timestamp_ms": it.timestamp_ms, "value": value, "labels": it.labels})
                })
                .collect()
        }
        Some(RecordType::Metadata) => {
            let mut found = Vec::new();
            let _ = decode_metadata(bytes, &mut found);
            let found = found.iter().filter(|it| filter.series(it.series));
            found
                .map(|it| json!({"series": it.series, "type": it.type_name(), "unit": it.unit, "help": it.help}))
                .collect()
        }
        Some(RecordType::MmapMarkers) | None => Vec::new(),
        Some(_) => {
            let mut found = Vec::new();
            let _ = decode_histograms(bytes, &mut found);
            let found = found.iter().filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
            found.map(|it| item::histogram(it.series, it.timestamp_ms, &it.histogram)).collect()
        }
    }
}
