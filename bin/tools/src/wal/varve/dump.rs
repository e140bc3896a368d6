//! `varve wal dump` of Varve's WAL: definitions first, then samples, frame by frame.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_env::RealFs;
use varve_env::damage::DamageReport;
use varve_system::printing::stdout;
use varve_tsdb::inspect::{Content, LogFile, RECORD_NAMES, Role, SegmentKind, list, read_file};

use crate::progress::{Progress, Unit};
use crate::report::damage_lines;
use crate::verdict::Verdict;
use crate::wal::args::WalDumpArgs;
use crate::wal::filter::Filter;
use crate::wal::record_json::{self, PrintedRecord};

/// Prints records, one per line: as JSON or as text.
pub(in crate::wal) fn run(args: &WalDumpArgs) -> Result<Verdict> {
    let mut filter = Filter::new(args, &RECORD_NAMES)?;
    let files =
        list(&RealFs, &args.dir).with_context(|| format!("list the WAL of {:?}", args.dir))?;
    let mut files: Vec<LogFile> = files
        .into_iter()
        .filter(|file| file.role == Role::Live)
        .collect();
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
        eprintln!("a running server deleted {n_removed} files during the dump");
    }
    eprint!("{}", damage_lines(&damage));
    Ok(Verdict::from_damage(&damage))
}

/// Reads all definitions, so that the filter knows the matching series.
fn learn(files: &[LogFile], filter: &mut Filter) -> Result<()> {
    for file in files
        .iter()
        .filter(|file| file.kind != SegmentKind::Samples)
    {
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
    match content {
        Content::Series(found) => {
            let found = found
                .iter()
                .filter(|(series, _)| filter.includes_series(*series));
            found.map(|(series, item)| json!({"series": series, "labels": record_json::labels(item.iter())})).collect()
        }
        Content::CheckpointSeries(found, _) => {
            let found = found
                .iter()
                .filter(|(series, ..)| filter.includes_series(*series));
            found
                .map(|(series, last_ms, item)| {
                    // A series without samples has no last timestamp.
                    let last_ms = Some(*last_ms).filter(|last_ms| *last_ms != i64::MIN);
                    json!({"series": series, "last_ms": last_ms, "labels": record_json::labels(item.iter())})
                })
                .collect()
        }
        Content::Samples(found, _) => {
            let found = found.iter().filter(|it| {
                filter.includes_series(it.series) && filter.includes_time(it.sample.timestamp_ms)
            });
            found
                .map(|it| record_json::sample(it.series, it.sample.timestamp_ms, it.sample.value))
                .collect()
        }
        Content::Histograms(found) => {
            let found = found
                .iter()
                .filter(|it| filter.includes_series(it.0) && filter.includes_time(it.1));
            found
                .map(|(series, time, item)| record_json::histogram(*series, *time, item))
                .collect()
        }
        Content::Exemplars(found) => {
            let found = found.iter().filter(|it| {
                filter.includes_series(it.1) && filter.includes_time(it.2.timestamp_ms)
            });
            found
                .map(|(number, series, item)| json!({"number": number, "series": series, "exemplar": record_json::exemplar(item)}))
                .collect()
        }
        Content::CheckpointExemplars(found) => {
            let found = found
                .iter()
                .filter(|(item, _)| filter.includes_labels(&item.iter().collect::<Vec<_>>()));
            found
                .map(|(labels, exemplars)| {
                    let exemplars: Vec<_> = exemplars
                        .iter()
                        .filter(|(_, exemplar)| filter.includes_time(exemplar.timestamp_ms))
                        .map(|(number, exemplar)| json!({"number": number, "exemplar": record_json::exemplar(exemplar)}))
                        .collect();
                    json!({"labels": record_json::labels(labels.iter()), "exemplars": exemplars})
                })
                .collect()
        }
        Content::Metadata(found) => {
            let found = found
                .iter()
                .filter(|(family, _)| filter.includes_family(family));
            found
                .map(
                    |(family, item)| json!({"family": family, "type": item.kind, "unit": item.unit, "help": item.help}),
                )
                .collect()
        }
        Content::StartTimestamps(found) => {
            let found = found.iter().filter(|it| {
                filter.includes_series(it.series) && filter.includes_time(it.timestamp_ms)
            });
            found
                .map(|it| {
                    json!({"series": it.series, "timestamp_ms": it.timestamp_ms, "start_ms": it.start_ms, "outOfOrder": it.is_out_of_order})
                })
                .collect()
        }
        // Items without a series.
        _ if !filter.shows_empty() => Vec::new(),
        Content::Begin(next_ref) | Content::End(next_ref) => vec![json!({"nextSeries": next_ref})],
        Content::Symbols(n) => vec![json!({"symbols": n})],
        Content::Unknown => Vec::new(),
    }
}
