//! `varve wal dump` of Prometheus' WAL and WBL.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_fs::RealFs;
use varve_fs::damage::DamageReport;
use varve_prometheus::inspect::{FoundRecord, for_each_record};
use varve_prometheus::wal::{RecordContent, RecordType};
use varve_system::printing::stdout;

use crate::wal::Verdict;
use crate::wal::args::DumpArgs;
use crate::wal::filter::Filter;
use crate::wal::progress::{Progress, Unit};
use crate::wal::record_json;
use crate::wal::report::{damage_lines, verdict};

/// Prints records, one per line: as JSON or as text.
pub(in crate::wal) fn run(args: &DumpArgs) -> Result<Verdict> {
    let mut filter = Filter::new(args, &RecordType::ALL.map(RecordType::name))?;
    let read = |what, damage: &mut DamageReport, each: &mut dyn FnMut(FoundRecord<'_>)| {
        let read = |show: &mut dyn FnMut(u64, u64)| {
            for_each_record(&RealFs, &args.dir, damage, show, |record| {
                each(record);
                Ok(())
            })
        };
        Progress::with_output(what, Unit::Bytes)
            .during(read)
            .with_context(|| format!("read {:?}", args.dir))
    };
    if filter.needs_labels() {
        read(
            "reading definitions",
            &mut DamageReport::default(),
            &mut |record| {
                if let Some(RecordContent::Series(definitions)) = record.content() {
                    definitions
                        .iter()
                        .for_each(|it| filter.learn(it.series, it.labels()));
                }
            },
        )?;
    }
    let (mut out, mut damage) = (BufWriter::new(stdout()), DamageReport::default());
    read("dumping", &mut damage, &mut |record| {
        let name = record.record_type.map_or("unknown", RecordType::name);
        let (location, fields) = (
            (record.path, record.offset, name),
            [("compression", json!(record.compression.name()))],
        );
        let items = || items(&record, &filter);
        record_json::print(
            &mut out,
            &filter,
            args.output.output,
            location,
            &fields,
            items,
        );
    })?;
    out.flush().context("print")?;
    eprint!("{}", damage_lines(&damage));
    Ok(verdict(&damage))
}

/// Returns the included items of a record. `varve wal verify` reports damage in it.
fn items(record: &FoundRecord<'_>, filter: &Filter) -> Vec<Value> {
    match record.content() {
        Some(RecordContent::Series(found)) => {
            let found = found.iter().filter(|it| filter.series(it.series));
            found
                .map(|it| json!({"series": it.series, "labels": record_json::labels(it.labels())}))
                .collect()
        }
        Some(RecordContent::Samples(found)) => {
            let found = found
                .iter()
                .filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
            found
                .map(|it| record_json::sample(it.series, it.timestamp_ms, it.value))
                .collect()
        }
        Some(RecordContent::Histograms(found)) => {
            let found = found
                .iter()
                .filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
            found
                .map(|it| record_json::histogram(it.series, it.timestamp_ms, &it.histogram))
                .collect()
        }
        Some(RecordContent::Tombstones(found)) => {
            let found = found
                .iter()
                .filter(|it| filter.series(it.series) && filter.times(it.min_ms, it.max_ms));
            found
                .map(|it| json!({"series": it.series, "min_ms": it.min_ms, "max_ms": it.max_ms}))
                .collect()
        }
        Some(RecordContent::Exemplars(found)) => {
            let found = found
                .iter()
                .filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
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
                .map(|it| json!({"series": it.series, "type": it.metric_type.name(), "unit": it.unit, "help": it.help}))
                .collect()
        }
        Some(RecordContent::MinValidTime(times)) if filter.shows_empty() => {
            times.iter().map(|time| json!({"min_ms": time})).collect()
        }
        Some(RecordContent::MmapMarkers | RecordContent::MinValidTime(_)) | None => Vec::new(),
    }
}
