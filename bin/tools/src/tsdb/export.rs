//! `varve tsdb export`: exports a data directory of Varve to Prometheus' blocks.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use varve_fs::{Fs, RealFs};
use varve_model::{MatchOp, Matcher, TimeRange};
use varve_prometheus::export::{ExportOptions, export as export_blocks};
use varve_system::metrics::OWN_JOB;
use varve_tsdb::ReadContext;

use super::source::{OfflineDb, parse_matchers};
use crate::label::parse_label;
use crate::output::OutputArgs;
use crate::wal::{self, Verdict, block_table, blocks_json, damage_lines};

/// Arguments of `varve tsdb export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// Varve's data directory; no server may have it open
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(crate) path: PathBuf,

    /// Directory for the blocks; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) to_blocks: PathBuf,

    /// Only series that match this selector
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    /// First millisecond since the epoch
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) start: Option<i64>,

    /// Last millisecond since the epoch
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) end: Option<i64>,

    /// Also export Varve's own metrics, which have job="varve"
    #[arg(long)]
    pub(crate) self_scraped: bool,

    /// External label for the Thanos section of meta.json; repeatable
    #[arg(long = "external-label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) external_labels: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Exports the samples of a data directory.
pub(crate) fn export(args: &ExportArgs) -> Result<Verdict> {
    let store = OfflineDb::open(&args.path)?;
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let mut matchers = args
        .selector
        .as_deref()
        .map(parse_matchers)
        .transpose()?
        .unwrap_or_default();
    if !args.self_scraped && matchers.iter().all(|matcher| matcher.name() != "job") {
        matchers.push(Matcher::new(MatchOp::NotEqual, "job", OWN_JOB)?);
    }
    let range = TimeRange {
        start_ms: args.start.unwrap_or(i64::MIN),
        end_ms: args.end.unwrap_or(i64::MAX),
    };
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
    let verdict = wal::verdict(&store.damage);
    if verdict == Verdict::Damaged {
        eprint!("{}", damage_lines(&store.damage));
    }
    Ok(verdict)
}
