//! `varve wal dump` of Varve's WAL: definitions first, then samples, frame by frame.

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use varve_fs::RealFs;
use varve_fs::damage::DamageReport;
use varve_system::printing::stdout;
use varve_tsdb::inspect::{Content, LogFile, RECORD_NAMES, Role, SegmentKind, list, read_file};

use crate::wal::Verdict;
use crate::wal::args::DumpArgs;
use crate::wal::filter::Filter;
use crate::wal::progress::{Progress, Unit};
use crate::wal::record_json;
use crate::wal::report::{damage_lines, verdict};

/// Prints records, one per line: as JSON or as text.
pub(in crate::wal) fn run(args: &DumpArgs) -> Result<Verdict> {
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
    let (mut out, mut damage, mut n_gone) = (BufWriter::new(stdout()), DamageReport::default(), 0);
    let total = files.iter().map(|file| file.size(&RealFs)).sum();
    Progress::with_output("dumping", Unit::Bytes).during(|show| -> Result<()> {
        let mut done = 0;
        for file in &files {
            let end = read_file(&RealFs, file, &mut damage, |frame| {
                show(done + frame.offset, total);
                let name = frame.content.name();
                let fields = [
                    ("frame", json!(frame.sequence)),
                    ("bytes", json!(frame.size)),
                    ("compressed", json!(frame.is_compressed)),
                ];
                let location = (file.path.as_path(), frame.offset, name);
                let items = || items(&frame.content, &filter);
                record_json::print(
                    &mut out,
                    &filter,
                    args.output.output,
                    location,
                    &fields,
                    items,
                );
                Ok(())
            })?;
            done += end.size;
            n_gone += u64::from(end.is_removed);
        }
        Ok(())
    })?;
    out.flush().context("print")?;
    if n_gone > 0 {
        eprintln!("a running server deleted {n_gone} files during the dump");
    }
    eprint!("{}", damage_lines(&damage));
    Ok(verdict(&damage))
}

/// Reads all definitions, so that the filter knows the matching series.
fn learn(files: &[LogFile], filter: &mut Filter) -> Result<()> {
    for file in files
        .iter()
        .filter(|file| file.kind != SegmentKind::Samples)
    {
        read_file(&RealFs, file, &mut DamageReport::default(), |frame| {
            match &frame.content {
                Content::Series(found) => found
                    .iter()
                    .for_each(|(series, item)| filter.learn(*series, item.iter())),
                Content::CheckpointSeries(found, _) => {
                    found
                        .iter()
                        .for_each(|(series, _, item)| filter.learn(*series, item.iter()));
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
            let found = found.iter().filter(|(series, _)| filter.series(*series));
            found.map(|(series, item)| json!({"series": series, "labels": record_json::labels(item.iter())})).collect()
        }
        Content::CheckpointSeries(found, _) => {
            let found = found.iter().filter(|(series, ..)| filter.series(*series));
            let last = |last_ms: i64| (last_ms != i64::MIN).then_some(last_ms);
            found
                .map(|(series, last_ms, item)| {
                    json!({"series": series, "last_ms": last(*last_ms), "labels": record_json::labels(item.iter())})
                })
                .collect()
        }
        Content::Samples(found, _) => {
            let is_wanted =
                |series, timestamp_ms| filter.series(series) && filter.time(timestamp_ms);
            let found = found
                .iter()
                .filter(|it| is_wanted(it.series, it.sample.timestamp_ms));
            found
                .map(|it| record_json::sample(it.series, it.sample.timestamp_ms, it.sample.value))
                .collect()
        }
        Content::Histograms(found) => {
            let found = found
                .iter()
                .filter(|it| filter.series(it.0) && filter.time(it.1));
            found
                .map(|(series, time, item)| record_json::histogram(*series, *time, item))
                .collect()
        }
        Content::Exemplars(found) => {
            let found = found
                .iter()
                .filter(|it| filter.series(it.1) && filter.time(it.2.timestamp_ms));
            found
                .map(|(number, series, item)| json!({"number": number, "series": series, "exemplar": record_json::exemplar(item)}))
                .collect()
        }
        Content::CheckpointExemplars(found) => {
            let found = found
                .iter()
                .filter(|(item, _)| filter.labels(&item.iter().collect::<Vec<_>>()));
            let exemplars = |all: &[(u64, varve_model::Exemplar)]| {
                let all = all
                    .iter()
                    .filter(|(_, item)| filter.time(item.timestamp_ms));
                all.map(|(number, item)| json!({"number": number, "exemplar": record_json::exemplar(item)}))
                    .collect::<Vec<_>>()
            };
            found
                .map(|(item, all)| json!({"labels": record_json::labels(item.iter()), "exemplars": exemplars(all)}))
                .collect()
        }
        Content::Metadata(found) => {
            let found = found.iter().filter(|(family, _)| filter.family(family));
            found
                .map(
                    |(family, item)| json!({"family": family, "type": item.kind, "unit": item.unit, "help": item.help}),
                )
                .collect()
        }
        Content::StartTimestamps(found) => {
            let found = found
                .iter()
                .filter(|it| filter.series(it.series) && filter.time(it.timestamp_ms));
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
