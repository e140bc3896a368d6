//! `varve wal dump` of Prometheus' WAL and WBL.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_env::RealFs;
use varve_env::damage::DamageReport;
use varve_prometheus::inspect::{FoundRecord, for_each_record};
use varve_prometheus::wal::{RecordContent, RecordType};
use varve_system::printing::stdout;

use crate::progress::{Progress, Unit};
use crate::report::damage_lines;
use crate::verdict::Verdict;
use crate::wal::args::WalDumpArgs;
use crate::wal::filter::Filter;
use crate::wal::record_json::{self, PrintedRecord};

/// Prints records, one per line: as JSON or as text.
pub(in crate::wal) fn run(args: &WalDumpArgs) -> Result<Verdict> {
    let mut filter = Filter::new(args, &RecordType::ALL.map(RecordType::name))?;
    if filter.needs_labels() {
        let mut damage = DamageReport::default();
        read(args, "reading definitions", &mut damage, &mut |record| {
            if let Some(RecordContent::Series(definitions)) = record.content() {
                for definition in &definitions {
                    filter.learn(definition.series, definition.labels());
                }
            }
        })?;
    }

    let mut out = BufWriter::new(stdout());
    let mut damage = DamageReport::default();
    read(args, "dumping", &mut damage, &mut |record| {
        let printed = PrintedRecord {
            path: record.path,
            offset: record.offset,
            name: record.record_type.map_or("unknown", RecordType::name),
            fields: &[("compression", json!(record.compression.name()))],
        };
        printed.print(&mut out, &filter, args.output.output, || {
            items(&record, &filter)
        });
    })?;
    out.flush().context("print")?;
    eprint!("{}", damage_lines(&damage));
    Ok(Verdict::from_damage(&damage))
}

/// Calls `each` for all records, with a progress display.
fn read(
    args: &WalDumpArgs,
    what: &'static str,
    damage: &mut DamageReport,
    each: &mut dyn FnMut(FoundRecord<'_>),
) -> Result<()> {
    let found = Progress::with_output(what, Unit::Bytes).during(|show| {
        for_each_record(&RealFs, &args.dir, damage, show, |record| {
            each(record);
            Ok(())
        })
    });
    found.with_context(|| format!("read {:?}", args.dir))
}

/// Returns the included items of a record. `varve wal verify` reports damage in it.
fn items(record: &FoundRecord<'_>, filter: &Filter) -> Vec<Value> {
    match record.content() {
        Some(RecordContent::Series(found)) => {
            let found = found.iter().filter(|it| filter.includes_series(it.series));
            found
                .map(|it| json!({"series": it.series, "labels": record_json::labels(it.labels())}))
                .collect()
        }
        Some(RecordContent::Samples(found)) => {
            let found = found.iter().filter(|it| {
                filter.includes_series(it.series) && filter.includes_time(it.timestamp_ms)
            });
            found
                .map(|it| record_json::sample(it.series, it.timestamp_ms, it.value))
                .collect()
        }
        Some(RecordContent::Histograms(found)) => {
            let found = found.iter().filter(|it| {
                filter.includes_series(it.series) && filter.includes_time(it.timestamp_ms)
            });
            found
                .map(|it| record_json::histogram(it.series, it.timestamp_ms, &it.histogram))
                .collect()
        }
        Some(RecordContent::Tombstones(found)) => {
            let found = found.iter().filter(|it| {
                filter.includes_series(it.series) && filter.includes_times(it.min_ms, it.max_ms)
            });
            found
                .map(|it| json!({"series": it.series, "min_ms": it.min_ms, "max_ms": it.max_ms}))
                .collect()
        }
        Some(RecordContent::Exemplars(found)) => {
            let found = found.iter().filter(|it| {
                filter.includes_series(it.series) && filter.includes_time(it.timestamp_ms)
            });
            found
                .map(|it| {
                    let value = format!("{:?}", it.value);
                    json!({"series": it.series, "timestamp_ms": it.timestamp_ms, "value": value, "labels": it.labels})
                })
                .collect()
        }
        Some(RecordContent::Metadata(found)) => {
            let found = found.iter().filter(|it| filter.includes_series(it.series));
            found
                .map(|it| json!({"series": it.series, "type": it.metric_type.name(), "unit": it.unit, "help": it.help}))
                .collect()
        }
        Some(RecordContent::MinValidTime(times)) if filter.shows_empty() => {
            times.iter().map(|time| json!({"min_ms": time})).collect()
        }
        Some(RecordContent::MmapMarkers | RecordContent::MinValidTime(_)) | None => Vec::new(),
    }
}
