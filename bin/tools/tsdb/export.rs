//! `varve tsdb export`: exports a data directory of Varve to Prometheus' blocks.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use varve_prometheus::export::{ExportOptions, export as export_blocks};
use varve_query::promql::parse_selector;
use varve_tsdb::fs::{Fs, RealFs};
use varve_tsdb::{Db, Options, QueryContext, TimeRange};

use crate::machine;
use crate::tools::wal::{self, Verdict, parse_label, time};

/// Arguments of `varve tsdb export`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExportArgs {
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

    /// External label for the Thanos section of meta.json; repeatable
    #[arg(long = "external-label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) external_labels: Vec<(String, String)>,
}

/// Exports the samples of a data directory.
pub(crate) fn export(args: &ExportArgs) -> ExitCode {
    wal::exit_code(run(args))
}

fn run(args: &ExportArgs) -> Result<Verdict> {
    if !args.path.is_dir() {
        bail!("data directory {:?} does not exist", args.path);
    }
    let options = Options { wal_replay_concurrency: machine::cores(), background: false, ..Options::default() };
    let db = Db::open(&args.path, options).with_context(|| format!("open data directory {:?}", args.path))?;
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let matchers = match &args.selector {
        Some(selector) => parse_selector(selector).map_err(|error| anyhow::anyhow!("{selector:?}: {error}"))?,
        None => Vec::new(),
    };
    let range = TimeRange { start_ms: args.start.unwrap_or(i64::MIN), end_ms: args.end.unwrap_or(i64::MAX) };
    let external_labels = args.external_labels.clone();
    let options = ExportOptions { matchers, range, external_labels, ..ExportOptions::default() };
    let blocks = export_blocks(&db, &fs, &QueryContext::unbounded(), &args.to_blocks, &options).context("export")?;
    for block in &blocks {
        let (from, to) = (time(block.min_ms), time(block.max_ms));
        println!("{} {from} {to} {} series {} samples", block.ulid, block.stats.n_series, block.stats.n_samples);
    }
    Ok(Verdict::Sound)
}
