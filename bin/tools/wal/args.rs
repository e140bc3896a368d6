//! The command line of `varve wal`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::quantity::parse_size;

/// `varve wal ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum WalCommand {
    /// Says what is in the log of a data directory, and what takes how many bytes
    Inspect(InspectArgs),
    /// Reads the log of a data directory to the last byte, with Prometheus' also head chunks and blocks, and says what is damaged
    Verify(InspectArgs),
    /// Prints the records of a log
    Dump(DumpArgs),
    /// Writes damaged files of a log anew with all records that are whole; says so first
    Repair(RepairArgs),
    /// Replays a log without serving it, and says how long that takes
    Replay(ReplayArgs),
    /// Turns log and head chunks of a Prometheus that cannot start into blocks
    Recover(RecoverArgs),
}

/// Arguments of `varve wal recover`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The directory is read alone, and may be in use. To start Prometheus on the blocks: set its wal, wbl and chunks_head aside \
together, and move the blocks into its data directory. Exit codes: 0 nothing was damaged, 1 something was (the report says \
what), 2 it could not be done.")]
pub(crate) struct RecoverArgs {
    /// Prometheus' data directory
    #[arg(value_name = "DIR")]
    pub(crate) source: PathBuf,

    /// Folder for the blocks; made if need be
    #[arg(long, value_name = "DIR")]
    pub(crate) to_blocks: PathBuf,

    /// Memory to aim at; what does not fit goes to the target folder meanwhile [0: half of the memory of the machine or cgroup]
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) memory: usize,

    /// Workers [0: the number of cores]
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) concurrency: usize,

    /// Keep start timestamps, in encodings that Prometheus reads since 3.12 and older ones refuse
    #[arg(long)]
    pub(crate) keep_start_timestamps: bool,

    /// External label for the Thanos section of meta.json; may be repeated
    #[arg(long = "external-label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) external_labels: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `varve wal inspect` and `varve wal verify`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Of a directory in use is seen what was written when a file was read; the end of the newest files may look torn. \
Exit codes: 0 sound, 1 damage was found, 2 it could not be done.")]
pub(crate) struct InspectArgs {
    /// Data directory of Varve or Prometheus; it is read alone, without its lock, and may be in use
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `varve wal repair`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes: 0 sound, 1 damage was found, and mended with --write, 2 it could not be done.")]
pub(crate) struct RepairArgs {
    /// Data directory of Varve or Prometheus, which no server has open
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Do it; the originals are kept in the folder `quarantine`
    #[arg(long)]
    pub(crate) write: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `varve wal dump`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DumpArgs {
    /// Data directory of Varve or Prometheus; it is read alone, without its lock, and may be in use
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Records of this type alone: series, samples, exemplars, ...
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) record_type: Option<String>,

    /// What is said of the series of this number alone
    #[arg(long, value_name = "N")]
    pub(crate) series: Option<u64>,

    /// What is said of the series of this selector alone
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    /// First millisecond since the epoch
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) start: Option<i64>,

    /// Last millisecond since the epoch
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub(crate) end: Option<i64>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `varve wal replay`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
A log of Varve is replayed as at a start of the server, with its blocks beside it, one of Prometheus as `recover` reads it; \
nothing is written. Exit codes: 0 sound, 1 damage was found, 2 it could not be done.")]
pub(crate) struct ReplayArgs {
    /// Data directory of Varve or Prometheus; it is read alone, without its lock
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Workers [0: the number of cores]
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) concurrency: usize,

    /// Memory that the replay of a log of Varve may hold beside the heads [0: as much as a server gives it]
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) memory: usize,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How a report is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputArgs {
    /// Form of the report
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,
}

/// Values of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

/// Parses an external label, `name=value`.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.trim_matches('"').to_owned())),
        _ => Err("expected name=value".to_owned()),
    }
}
