//! The arguments of `varve tsdb`: promtool's, and Varve's own.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use varve_client::Url;
use varve_ingest::text::NanMeaning;
use varve_system::quantity::parse_duration;

use crate::label::{parse_external_label, parse_label};
use crate::output::OutputArgs;
use crate::server_args::{AccessArgs, DEFAULT, ViewArgs};
use crate::time::{parse_time_ms, parse_timestamp};

/// `varve tsdb ...`.
#[derive(Debug, Subcommand)]
pub enum TsdbCommand {
    /// List the blocks of a data directory
    List(ListArgs),
    /// Show the cost of metrics, labels and encodings in a block
    Analyze(TsdbAnalyzeArgs),
    /// Show which labels created the new series of the last hour, on a server or in a data
    /// directory
    Churn(ChurnArgs),
    /// Print all samples of a data directory
    Dump(TsdbDumpArgs),
    /// Print all floats of a data directory in the OpenMetrics format
    DumpOpenmetrics(TsdbDumpArgs),
    /// Create Prometheus blocks
    #[command(subcommand)]
    CreateBlocksFrom(CreateBlocksCommand),
    /// Import a Prometheus data directory (blocks, WAL, head chunks), or the blocks of a bucket
    Import(ImportArgs),
    /// Export samples to Prometheus blocks
    Export(ExportArgs),
    /// Back up a running server to a directory or a bucket, incrementally
    Backup(BackupArgs),
    /// Restore a data directory from a backup, or verify a backup
    Restore(RestoreArgs),
    /// Flush the WAL to blocks and merge all blocks; no server may have the directory open
    Compact(CompactArgs),
}

/// Arguments of `varve tsdb list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Data directory of Prometheus or Varve
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(super) path: PathBuf,

    /// Print human-readable times and sizes
    #[arg(short = 'r', long)]
    pub(super) human_readable: bool,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Arguments of `varve tsdb dump` and `varve tsdb dump-openmetrics`.
#[derive(Debug, Clone, Args)]
pub struct TsdbDumpArgs {
    /// Data directory of Prometheus or Varve
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(super) path: PathBuf,

    /// Minimum time: RFC 3339, Unix seconds or milliseconds, or -1h [default: the oldest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms, default_value_t = i64::MIN, hide_default_value = true)]
    pub(super) min_time: i64,

    /// Maximum time [default: the newest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms, default_value_t = i64::MAX, hide_default_value = true)]
    pub(super) max_time: i64,

    /// Selector; may be repeated [default: all series]
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(super) selectors: Vec<String>,

    #[command(flatten)]
    pub(super) sandbox: SandboxArgs,
}

/// Where the WAL of a Prometheus directory is converted to blocks.
#[derive(Debug, Clone, Args)]
pub(super) struct SandboxArgs {
    /// Directory for the scratch directory of WAL data, which is removed at the end [default: the
    /// temporary directory]
    #[arg(long, value_name = "DIR")]
    pub(super) sandbox_dir_root: Option<PathBuf>,
}

/// Arguments of `varve tsdb analyze`.
#[derive(Debug, Clone, Args)]
pub struct TsdbAnalyzeArgs {
    /// Data directory of Prometheus or Varve
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(super) path: PathBuf,

    /// Block to analyze [default: the last one]
    #[arg(value_name = "BLOCK")]
    pub(super) block: Option<String>,

    /// Maximum number of entries per list
    #[arg(long, value_name = "N", default_value = "20")]
    pub(super) limit: usize,

    /// Also show the fill of chunks
    #[arg(long)]
    pub(super) extended: bool,

    /// Selector [default: all series]
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(super) selector: Option<String>,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// `varve tsdb create-blocks-from ...`.
#[derive(Debug, Subcommand)]
pub enum CreateBlocksCommand {
    /// Create Prometheus blocks from a file in the OpenMetrics format, version 1.0 or 2.0; each
    /// sample needs a timestamp, and the last line is # EOF
    Openmetrics(TsdbBackfillArgs),
    /// Create Prometheus blocks from VictoriaMetrics' JSON lines, as /api/v1/export returns them
    JsonLines(TsdbBackfillArgs),
}

/// Arguments of `varve tsdb create-blocks-from ...`.
#[derive(Debug, Clone, Args)]
pub struct TsdbBackfillArgs {
    /// File
    #[arg(value_name = "INPUT")]
    pub(super) input: PathBuf,

    /// Output directory; created if it does not exist
    #[arg(value_name = "OUTPUT", default_value = "data/")]
    pub(super) output: PathBuf,

    /// Print human-readable times and sizes
    #[arg(short = 'r', long)]
    pub(super) human_readable: bool,

    /// Do not print the created blocks
    #[arg(short = 'q', long)]
    pub(super) quiet: bool,

    /// Label to add to all series; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(super) labels: Vec<(String, String)>,

    /// Maximum duration of a block; 2h, 6h, 18h, ... are used
    #[arg(long, value_name = "DURATION", default_value = "2h", value_parser = parse_duration)]
    pub(super) max_block_duration: Duration,

    /// What a NaN means: the end of a series (marker), the value NaN (value), or no sample (skip)
    /// [default: value; of JSON, null is a marker]
    #[arg(long, value_name = "MEANING", value_parser = NanMeaning::from_str)]
    pub(super) nan: Option<NanMeaning>,
}

/// Arguments of `varve tsdb import`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 no damage, 1 damage was found and the rest imported, 2 the command failed."
)]
pub struct ImportArgs {
    /// Prometheus' data directory; read-only, may be in use. Or a bucket with blocks of Thanos or
    /// Mimir: a file in the format of Thanos' objstore configuration, or s3://BUCKET/PREFIX
    #[arg(value_name = "PROM_DIR|BUCKET")]
    pub(super) source: PathBuf,

    /// Varve's data directory; if a server has it open, the server imports the blocks on request
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(super) path: PathBuf,

    /// Only blocks of the bucket with this external label; may be repeated
    #[arg(long = "block-label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(super) block_labels: Vec<(String, String)>,

    /// External label that remote write adds to the series that have no label of that name;
    /// repeatable
    #[arg(long = "external-label", value_name = "NAME=VALUE", value_parser = parse_external_label)]
    pub(super) external_labels: Vec<(String, String)>,
}

/// Arguments of `varve tsdb export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// Varve's data directory; no server may have it open
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(super) path: PathBuf,

    /// Directory for the blocks; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(super) to_blocks: PathBuf,

    /// Only series that match this selector
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(super) selector: Option<String>,

    /// Oldest time to export: RFC 3339, Unix seconds or milliseconds, or -1h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    pub(super) start: Option<i64>,

    /// Newest time to export
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    pub(super) end: Option<i64>,

    /// Also export Varve's own metrics, which have job="varve"
    #[arg(long)]
    pub(super) self_scraped: bool,

    /// External label for the Thanos section of meta.json; repeatable
    #[arg(long = "external-label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(super) external_labels: Vec<(String, String)>,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Arguments of `varve tsdb backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    /// Directory or bucket of the backups: a path, a file in the format of Thanos' objstore
    /// configuration, or s3://BUCKET/PREFIX
    #[arg(value_name = "BACKUPS")]
    pub(super) destination: String,

    /// Server on this machine, with --web.enable-admin-api
    #[arg(long, alias = "server", value_name = "URL", default_value = DEFAULT, value_parser = Url::parse)]
    pub(super) url: Url,

    /// Data directory of the server [default: its --storage.tsdb.path]
    #[arg(long, value_name = "DIR")]
    pub(super) path: Option<PathBuf>,

    /// Read all files of the backup back, compare their checksums, and store damaged ones again
    #[arg(long)]
    pub(super) verify: bool,

    /// Keep only this number of backups, and remove files that no backup needs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) keep: Option<u32>,

    #[command(flatten)]
    pub(super) access: AccessArgs,
}

/// Arguments of `varve tsdb restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// Directory or bucket of the backups: a path, a file in the format of Thanos' objstore
    /// configuration, or s3://BUCKET/PREFIX
    #[arg(value_name = "BACKUPS")]
    pub(super) source: String,

    /// New data directory. It must be empty or not exist
    #[arg(value_name = "DIR", required_unless_present_any = ["list", "verify"])]
    pub(super) path: Option<PathBuf>,

    /// Newest backup that is not newer than this time: RFC 3339, Unix seconds or milliseconds, or -1h
    /// [default: the newest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_timestamp)]
    pub(super) at: Option<Timestamp>,

    /// Name of the backup, as --list prints it
    #[arg(long, value_name = "NAME", conflicts_with = "at")]
    pub(super) backup: Option<String>,

    /// List the backups
    #[arg(long, conflicts_with = "path")]
    pub(super) list: bool,

    /// Only read all files of the backup and compare their checksums
    #[arg(long, conflicts_with = "path")]
    pub(super) verify: bool,
}

/// Arguments of `varve tsdb compact`.
#[derive(Debug, Clone, Args)]
pub struct CompactArgs {
    /// Data directory
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(super) path: PathBuf,
}

/// Arguments of `varve tsdb churn`.
#[derive(Debug, Clone, Args)]
pub struct ChurnArgs {
    #[command(flatten)]
    pub(super) view: ViewArgs,

    /// Data directory that no server has open, instead of a server; shows the hour before its
    /// newest sample
    #[arg(long, value_name = "DIR", conflicts_with_all = ["server", "url"])]
    pub(super) path: Option<PathBuf>,

    /// Maximum number of labels
    #[arg(long, value_name = "N", default_value = "20")]
    pub(super) limit: usize,
}
