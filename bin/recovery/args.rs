//! The command line of `varve wal`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::quantity::parse_size;

/// `varve wal ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum WalCommand {
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

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.trim_matches('"').to_owned())),
        _ => Err("expected name=value".to_owned()),
    }
}
