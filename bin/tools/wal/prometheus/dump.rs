//! `varve wal dump` of Prometheus' WAL and WBL.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_prometheus::inspect::{FoundRecord, for_each_record};
use varve_prometheus::wal::{RecordContent, RecordType};
use varve_tsdb::fs::RealFs;
use varve_tsdb::fs::damage::DamageReport;

use crate::printing::stdout;
use crate::tools::wal::Verdict;
use crate::tools::wal::args::{DumpArgs, Format};
use crate::tools::wal::filter::Filter;
use crate::tools::wal::progress::{Progress, Unit};
use crate::tools::wal::record_json;
use crate::tools::wal::report::{damage_lines, verdict};

/// Prints records, one per line: as JSON or as text.
pub(in crate::tools::wal) fn run(args: &DumpArgs) -> Result<Verdict> {
    let mut filter = Filter::new(args, &RecordType::ALL.map(RecordType::name))?;
    if filter.needs_labels() {
        let progress = Progress::with_output("reading definitions", Unit::Bytes);
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
    let progress = Progress::with_output("dumping", Unit::Bytes);
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
    if let Some(RecordContent::Series(definitions)) = record.content() {
        definitions.iter().for_each(|it| filter.learn(it.series, it.labels()));
    }
}

/// Formats a record; `None` if the filter excludes all of it.
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

/// Returns the included items of a record; `varve wal verify` reports damage in it.
fn items(record: &FoundRecord<'_>, filter: &Filter) -> Vec<Value> {
    match record.content() {
        Some(RecordContent::Series(found)) => {
            let found = found.iter().filter(|it| filter.series(it.series));
            found.map(|it| json!({"series": it.series, "labels": record_json::labels(it.labels())})).collect()
        }
        Some(RecordContent::Samples(found)) => {
            let found = found.iter().filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
            found.map(|it| record_json::sample(it.series, it.timestamp_ms, it.value)).collect()
        }
        Some(RecordContent::Histograms(found)) => {
            let found = found.iter().filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
            found.map(|it| record_json::histogram(it.series, it.timestamp_ms, &it.histogram)).collect()
        }
        Some(RecordContent::Tombstones(found)) => {
            let found = found.iter().filter(|it| filter.series(it.series) && filter.times(it.min_ms, it.max_ms));
            found.map(|it| json!({"series": it.series, "min_ms": it.min_ms, "max_ms": it.max_ms})).collect()
        }
        Some(RecordContent::Exemplars(found)) => {
            let found = found.iter().filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
            found
                .map(|it| {
                    let value = format!("{:?}", it.value);
                    json!({"series": it.series, "timestamp_ms": it.timestamp_ms, "value": value, "labels": it.labels})
                })
                .collect()
        }
        Some(RecordContent::Metadata(found)) => {
            let found = found.iter().filter(|it| filter.series(it.series));
            found
                .map(|it| json!({"series": it.series, "type": it.type_name(), "unit": it.unit, "help": it.help}))
                .collect()
        }
        Some(RecordContent::MmapMarkers) | None => Vec::new(),
    }
}
