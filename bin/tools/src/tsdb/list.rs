//! `varve tsdb list`: the blocks of a data directory.

use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use varve_env::damage::DamageReport;
use varve_env::sample_totals::SampleTotals;
use varve_prometheus::block::BlockMeta;
use varve_prometheus::losses::IN_DAMAGED_BLOCKS;
use varve_tsdb::stats::BlockSummary;

use super::args::ListArgs;
use super::columns;
use super::source::{Visited, open_blocks};
use crate::data_dir::{Owner, owner};
use crate::output::table;

/// Prints the blocks in ascending order of time. Returns the blocks that cannot be opened or whose
/// index is damaged, and the number of samples of the others.
///
/// # Errors
/// If the directory cannot be listed.
pub(super) fn list(args: &ListArgs) -> Result<Visited> {
    let mut rows = Vec::new();
    let mut damage = DamageReport::default();
    let mut totals = SampleTotals::default();
    match owner(&args.path)? {
        Owner::Prometheus => {
            for (dir, block) in open_blocks(&args.path, &mut totals, &mut damage)? {
                totals.n_kept += block.meta().stats.n_samples;
                rows.push(row(block.meta(), size_of(&dir)?, args.human_readable));
            }
        }
        Owner::Varve => {
            let (blocks, of_blocks) = BlockSummary::list(&args.path)?;
            damage.append(of_blocks);
            if damage.n_damaged() > 0 {
                totals.lose_unknown(IN_DAMAGED_BLOCKS);
            }
            for block in blocks {
                // As in Prometheus, the end is exclusive.
                let max_ms = block.range.end_ms.saturating_add(1);
                totals.n_found += block.n_samples;
                totals.n_kept += block.n_samples;
                let counts = [
                    block.n_samples.to_string(),
                    "-".to_owned(),
                    block.n_series.to_string(),
                ];
                rows.push(cells(
                    &block.number.to_string(),
                    block.range.start_ms,
                    max_ms,
                    counts,
                    block.size_bytes,
                    args.human_readable,
                ));
            }
        }
    }
    args.output.print(|| print(&rows), || json(&rows));
    Ok(Visited { damage, totals })
}

/// The columns, as promtool names them, and their names in JSON.
const COLUMNS: [(&str, &str); 8] = [
    ("BLOCK ULID", "block"),
    ("MIN TIME", "minTime"),
    ("MAX TIME", "maxTime"),
    ("DURATION", "duration"),
    ("NUM SAMPLES", "samples"),
    ("NUM CHUNKS", "chunks"),
    ("NUM SERIES", "series"),
    ("SIZE", "bytes"),
];

/// Returns the column names.
pub(super) fn header() -> Vec<String> {
    COLUMNS.map(|(column, _)| column.to_owned()).to_vec()
}

/// Returns the table: promtool's, or one that fits the terminal.
fn print(rows: &[Vec<String>]) -> String {
    if std::io::stdout().is_terminal() {
        return table(&COLUMNS.map(|(column, _)| column), rows);
    }
    columns::print([header()].iter().chain(rows))
}

/// Returns the rows as objects. Whole numbers are numbers.
fn json(rows: &[Vec<String>]) -> Vec<serde_json::Map<String, Value>> {
    let mut objects = Vec::new();
    for row in rows {
        let mut object = serde_json::Map::new();
        for ((_, key), cell) in COLUMNS.iter().zip(row) {
            let value = match cell.parse::<i64>() {
                Ok(number) => Value::from(number),
                Err(_) => Value::from(cell.as_str()),
            };
            object.insert((*key).to_owned(), value);
        }
        objects.push(object);
    }
    objects
}

/// Returns the row of a Prometheus block.
pub(super) fn row(meta: &BlockMeta, size: u64, human_readable: bool) -> Vec<String> {
    let stats = &meta.stats;
    let counts = [stats.n_samples, stats.n_chunks, stats.n_series].map(|n| n.to_string());
    cells(
        &meta.ulid.to_string(),
        meta.min_ms,
        meta.max_ms,
        counts,
        size,
        human_readable,
    )
}

fn cells(
    name: &str,
    min_ms: i64,
    max_ms: i64,
    counts: [String; 3],
    size: u64,
    human_readable: bool,
) -> Vec<String> {
    let duration = columns::duration(max_ms.saturating_sub(min_ms));
    let mut cells = vec![name.to_owned()];
    cells.extend([
        columns::time(min_ms, human_readable),
        columns::time(max_ms, human_readable),
        duration,
    ]);
    cells.extend(counts);
    cells.push(columns::size(size, human_readable));
    cells
}

/// Returns the total size of the files of a block.
pub(super) fn size_of(dir: &Path) -> Result<u64> {
    let mut size = 0;
    for dir in [dir.to_owned(), dir.join("chunks")] {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("list {dir:?}"))? {
            let metadata = entry
                .and_then(|entry| entry.metadata())
                .with_context(|| format!("list {dir:?}"))?;
            size += if metadata.is_file() {
                metadata.len()
            } else {
                0
            };
        }
    }
    Ok(size)
}
