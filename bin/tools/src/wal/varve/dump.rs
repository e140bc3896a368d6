//! `varve wal dump` of Varve's WAL: definitions first, then samples, frame by frame.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_advise::counted;
use varve_env::RealFs;
use varve_env::damage::DamageReport;
use varve_model::{Exemplar, Labels};
use varve_system::printing::stdout;
use varve_tsdb::inspect::{
    Content, LoggedSample, RECORD_NAMES, Role, SegmentKind, WalFile, list, read_file,
};

use crate::progress::{Progress, Unit};
use crate::report::damage_lines;
use crate::verdict::Verdict;
use crate::wal::args::WalDumpArgs;
use crate::wal::filter::Filter;
use crate::wal::record_json::{self, PrintedRecord};

/// Prints records, one per line: as JSON or as text.
pub(in crate::wal) fn run(args: &WalDumpArgs) -> Result<Verdict> {
    let mut filter = Filter::new(args, &RECORD_NAMES)?;
    let mut files =
        list(&RealFs, &args.dir).with_context(|| format!("list the WAL of {:?}", args.dir))?;
    files.retain(|file| file.role == Role::Live);
    files.sort_by_key(|file| file.kind == SegmentKind::Samples);
    if filter.needs_labels() {
        learn(&files, &mut filter)?;
    }
    let mut out = BufWriter::new(stdout());
    let mut damage = DamageReport::default();
    let mut n_removed = 0;
    let total = files.iter().map(|file| file.size(&RealFs)).sum();
    Progress::with_output("dumping", Unit::Bytes).during(|show| -> Result<()> {
        let mut done = 0;
        for file in &files {
            let end = read_file(&RealFs, file, &mut damage, |frame| {
                show(done + frame.offset, total);
                let record = PrintedRecord {
                    path: &file.path,
                    offset: frame.offset,
                    name: frame.content.name(),
                    fields: &[
                        ("frame", json!(frame.sequence)),
                        ("bytes", json!(frame.size)),
                        ("compressed", json!(frame.is_compressed)),
                    ],
                };
                record.print(&mut out, &filter, args.output.output, || {
                    items(&frame.content, &filter)
                });
                Ok(())
            })?;
            done += end.size;
            n_removed += u64::from(end.is_removed);
        }
        Ok(())
    })?;
    out.flush().context("print")?;
    if n_removed > 0 {
        let files = counted(n_removed, "file");
        eprintln!("a running server deleted {files} during the dump");
    }
    eprint!("{}", damage_lines(&damage));
    Ok(Verdict::from_damage(&damage))
}

/// Reads all definitions, so that the filter knows the matching series.
fn learn(files: &[WalFile], filter: &mut Filter) -> Result<()> {
    for file in files {
        if file.kind == SegmentKind::Samples {
            continue;
        }
        read_file(&RealFs, file, &mut DamageReport::default(), |frame| {
            match &frame.content {
                Content::Series(found) => {
                    for (series, labels) in found {
                        filter.learn(*series, labels.iter());
                    }
                }
                Content::CheckpointSeries(found, _) => {
                    for (series, _, labels) in found {
                        filter.learn(*series, labels.iter());
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Returns the included items of a record.
fn items(content: &Content<'_>, filter: &Filter) -> Vec<Value> {
    let mut items = Vec::new();
    match content {
        Content::Samples(samples, _) => {
            for LoggedSample { series, sample } in *samples {
                if filter.includes_sample(*series, sample.timestamp_ms) {
                    let item = record_json::sample(*series, sample.timestamp_ms, sample.value);
                    items.push(item);
                }
            }
        }
        Content::Histograms(histograms) => {
            for (series, timestamp_ms, histogram) in histograms {
                if filter.includes_sample(*series, *timestamp_ms) {
                    items.push(record_json::histogram(*series, *timestamp_ms, histogram));
                }
            }
        }
        Content::Exemplars(exemplars) => {
            for (number, series, exemplar) in exemplars {
                if filter.includes_sample(*series, exemplar.timestamp_ms) {
                    let exemplar = record_json::exemplar(exemplar);
                    items.push(json!({"number": number, "series": series, "exemplar": exemplar}));
                }
            }
        }
        Content::StartTimestamps(starts) => {
            for start in starts {
                if filter.includes_sample(start.series, start.timestamp_ms) {
                    items.push(json!({
                        "series": start.series,
                        "timestamp_ms": start.timestamp_ms,
                        "start_ms": start.start_ms,
                        "outOfOrder": start.is_out_of_order,
                    }));
                }
            }
        }
        Content::CheckpointExemplars(by_series) => {
            for (labels, exemplars) in by_series {
                if filter.includes_labels(&labels.iter().collect::<Vec<_>>()) {
                    items.push(checkpoint_exemplars(labels, exemplars, filter));
                }
            }
        }
        _ => definitions(content, filter, &mut items),
    }
    items
}

/// Returns the included exemplars of a series.
fn checkpoint_exemplars(labels: &Labels, exemplars: &[(u64, Exemplar)], filter: &Filter) -> Value {
    let mut included = Vec::new();
    for (number, exemplar) in exemplars {
        if filter.includes_time(exemplar.timestamp_ms) {
            let exemplar = record_json::exemplar(exemplar);
            included.push(json!({"number": number, "exemplar": exemplar}));
        }
    }
    json!({"labels": record_json::labels(labels.iter()), "exemplars": included})
}

/// Appends the included items of a record without samples.
fn definitions(content: &Content<'_>, filter: &Filter, items: &mut Vec<Value>) {
    match content {
        Content::Series(found) => {
            for (series, labels) in found {
                if filter.includes_series(*series) {
                    let labels = record_json::labels(labels.iter());
                    items.push(json!({"series": series, "labels": labels}));
                }
            }
        }
        Content::CheckpointSeries(found, _) => {
            for (series, last_ms, labels) in found {
                if filter.includes_series(*series) {
                    // A series without samples has no last timestamp.
                    let last_ms = Some(*last_ms).filter(|last_ms| *last_ms != i64::MIN);
                    let labels = record_json::labels(labels.iter());
                    items.push(json!({"series": series, "last_ms": last_ms, "labels": labels}));
                }
            }
        }
        Content::Metadata(families) => {
            for (family, metadata) in families {
                if filter.includes_family(family) {
                    items.push(json!({
                        "family": family,
                        "type": metadata.kind,
                        "unit": metadata.unit,
                        "help": metadata.help,
                    }));
                }
            }
        }
        // Items without a series.
        _ if !filter.shows_empty() => {}
        Content::Begin(next_ref) | Content::End(next_ref) => {
            items.push(json!({"nextSeries": next_ref}));
        }
        Content::Symbols(n_symbols) => items.push(json!({"symbols": n_symbols})),
        _ => {}
    }
}
