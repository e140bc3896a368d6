//! `varve tsdb export`: exports a data directory of Varve to Prometheus' blocks.

use std::sync::Arc;

use anyhow::{Context, Result};
use varve_env::{Fs, RealFs};
use varve_model::{MatchOp, Matcher, TimeRange};
use varve_prometheus::export::{ExportOptions, export as export_blocks};
use varve_system::metrics::OWN_JOB;
use varve_tsdb::ReadContext;

use super::args::ExportArgs;
use super::source::OfflineDb;
use crate::data_dir::ensure_takes_prometheus_blocks;
use crate::report::{block_table, blocks_json, damage_lines, print_losses};
use crate::selector::parse_optional;
use crate::verdict::Verdict;

/// Exports the samples of a data directory.
pub(crate) fn export(args: &ExportArgs) -> Result<Verdict> {
    ensure_takes_prometheus_blocks(&args.to_blocks)?;
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let mut matchers = parse_optional(args.selector.as_deref())?;
    if !args.self_scraped && matchers.iter().all(|matcher| matcher.name() != "job") {
        matchers.push(Matcher::new(MatchOp::NotEqual, "job", OWN_JOB)?);
    }
    let range = TimeRange {
        start_ms: args.start.unwrap_or(i64::MIN),
        end_ms: args.end.unwrap_or(i64::MAX),
    };
    let store = OfflineDb::open(&args.path, Some(range))?;
    let external_labels = args.external_labels.clone();
    let options = ExportOptions {
        matchers,
        range,
        external_labels,
        ..ExportOptions::default()
    };
    let blocks = export_blocks(
        &store.db,
        &fs,
        &ReadContext::unbounded(),
        &args.to_blocks,
        &options,
    )
    .context("export")?;
    args.output
        .print(|| block_table(&blocks), || blocks_json(&blocks));
    let mut totals = store.losses();
    for block in &blocks {
        totals.n_found += block.stats.n_samples;
        totals.n_kept += block.stats.n_samples;
    }
    eprint!("{}", damage_lines(&store.damage));
    print_losses(&totals, "written");
    Ok(Verdict::new(&store.damage, &totals))
}
