//! The command line of these tools: promtool's.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::client::Url;
use crate::quantity::parse_duration;
use crate::recovery::{ExportArgs, ImportArgs};

/// `varve tsdb ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum TsdbCommand {
    /// Lists the blocks of a data directory
    List(ListArgs),
    /// Tells what metrics, labels and encodings of a block cost
    Analyze(AnalyzeArgs),
    /// Tells which labels made the new series of the last hour, of a running server or of a data directory
    Churn(ChurnArgs),
    /// Prints all samples of a data directory
    Dump(DumpArgs),
    /// Prints all floats of a data directory in the OpenMetrics format
    DumpOpenmetrics(DumpArgs),
    /// Makes blocks of Prometheus
    #[command(subcommand)]
    CreateBlocksFrom(CreateBlocksCommand),
    /// Takes in all that a Prometheus data directory holds: blocks, log, head chunks
    Import(ImportArgs),
    /// Writes samples to blocks of Prometheus
    Export(ExportArgs),
    /// Writes all of the log to blocks and merges them as far as it goes, so that the directory takes the least space
    Compact(CompactArgs),
}

/// Arguments of `varve tsdb list`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    /// Data directory of Prometheus or Varve
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(super) path: PathBuf,

    /// Prints times and sizes for people
    #[arg(short = 'r', long)]
    pub(super) human_readable: bool,
}

/// Arguments of `varve tsdb dump` and `varve tsdb dump-openmetrics`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DumpArgs {
    /// Data directory of Prometheus or Varve
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(super) path: PathBuf,

    /// First millisecond since the epoch [default: the oldest]
    #[arg(long, value_name = "MS", allow_hyphen_values = true, default_value_t = i64::MIN, hide_default_value = true)]
    pub(super) min_time: i64,

    /// Last millisecond since the epoch [default: the newest]
    #[arg(long, value_name = "MS", allow_hyphen_values = true, default_value_t = i64::MAX, hide_default_value = true)]
    pub(super) max_time: i64,

    /// Series of this selector alone; may be repeated [default: all]
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(super) selectors: Vec<String>,

    #[command(flatten)]
    pub(super) sandbox: SandboxArgs,
}

/// Where the log of a Prometheus directory is brought into blocks.
#[derive(Debug, Clone, Args)]
pub(super) struct SandboxArgs {
    /// Folder in which a scratch folder is made for what the log holds; it is removed in the end [default: that for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(super) sandbox_dir_root: Option<PathBuf>,
}

/// Arguments of `varve tsdb analyze`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AnalyzeArgs {
    /// Data directory of Prometheus or Varve
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(super) path: PathBuf,

    /// Block to look at [default: the last one]
    #[arg(value_name = "BLOCK")]
    pub(super) block: Option<String>,

    /// Entries of each list
    #[arg(long, value_name = "N", default_value = "20")]
    pub(super) limit: usize,

    /// Adds how full chunks are
    #[arg(long)]
    pub(super) extended: bool,

    /// Series of this selector alone
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(super) selector: Option<String>,
}

/// `varve tsdb create-blocks-from ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum CreateBlocksCommand {
    /// Makes blocks of Prometheus of a file in the OpenMetrics format
    Openmetrics(BackfillArgs),
}

/// Arguments of `varve tsdb create-blocks-from openmetrics`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BackfillArgs {
    /// The file; each sample has a time, and the last line is # EOF
    #[arg(value_name = "INPUT")]
    pub(super) input: PathBuf,

    /// Folder for the blocks; made if need be
    #[arg(value_name = "OUTPUT", default_value = "data/")]
    pub(super) output: PathBuf,

    /// Prints times and sizes for people
    #[arg(short = 'r', long)]
    pub(super) human_readable: bool,

    /// Does not print the blocks
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,

    /// Label that all series get; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(super) labels: Vec<(String, String)>,

    /// Longest time of a block; 2h, 6h, 18h, ... fit
    #[arg(long, value_name = "DURATION", default_value = "2h", value_parser = parse_duration)]
    pub(super) max_block_duration: Duration,
}

/// Arguments of `varve tsdb compact`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompactArgs {
    /// Data directory
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(crate) path: PathBuf,
}

/// Arguments of `varve tsdb churn`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChurnArgs {
    /// Running Varve
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9898", value_parser = Url::parse)]
    pub(crate) url: Url,

    /// File with a bearer token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Data directory that no server has open, instead; the hour before its newest sample is looked at
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(crate) path: Option<PathBuf>,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| "expected NAME=VALUE".to_owned())?;
    if name.is_empty() { Err("the name is empty".to_owned()) } else { Ok((name.to_owned(), value.to_owned())) }
}
