//! The command line of `varve wal`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use varve_system::machine;
use varve_system::quantity::parse_size;

use crate::label::parse_label;
use crate::output::OutputArgs;
use crate::time::parse_time_ms;

/// `varve wal ...`.
#[derive(Debug, Subcommand)]
pub enum WalCommand {
    /// Print the contents of a WAL, and the bytes per part
    Inspect(InspectArgs),
    /// Read a whole WAL, and Prometheus' head chunks and blocks, and report damage
    Verify(InspectArgs),
    /// Print the records of a WAL
    Dump(WalDumpArgs),
    /// Rewrite damaged files of a WAL with all intact records; without --write, only report what
    /// would be done
    Repair(RepairArgs),
    /// Replay a WAL without serving it, and print how long that takes
    Replay(ReplayArgs),
    /// Recover blocks from the WAL and head chunks of a Prometheus that cannot start
    Recover(RecoverArgs),
}

/// Arguments of `varve wal recover`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The directory is only read, and may be in use. To start Prometheus with the blocks, move wal, wbl and chunks_head out of its \
data directory, and the blocks into it. Exit codes: 0 no damage, 1 damage was found and reported, 2 the command failed.")]
pub struct RecoverArgs {
    /// Prometheus' data directory
    #[arg(value_name = "DIR")]
    pub(crate) source: PathBuf,

    /// Directory for the blocks; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) to_blocks: PathBuf,

    /// Memory target; chunks that do not fit are spilled to the output directory [0: half of the
    /// memory of the machine or cgroup]
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) memory: usize,

    /// Number of threads [0: the number of cores]
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) concurrency: usize,

    /// Keep start timestamps, in chunk encodings that Prometheus reads since 3.12
    #[arg(long)]
    pub(crate) keep_start_timestamps: bool,

    /// External label for the Thanos section of meta.json; repeatable
    #[arg(long = "external-label", value_name = "NAME=VALUE", value_parser = parse_label)]
    pub(crate) external_labels: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `varve wal inspect` and `varve wal verify`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Files of a directory in use are read one after the other; the newest files may have a torn tail. \
Exit codes: 0 sound, 1 damage was found, 2 the command failed.")]
pub struct InspectArgs {
    /// Data directory of Varve or Prometheus; read-only, without a lock, may be in use
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `varve wal repair`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 sound, 1 damage was found (and repaired with --write), 2 the command failed."
)]
pub struct RepairArgs {
    /// Data directory of Varve or Prometheus; no server may have it open
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Write the repaired files; the originals are saved in the directory `quarantine`
    #[arg(long)]
    pub(crate) write: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `varve wal dump`.
#[derive(Debug, Clone, Args)]
pub struct WalDumpArgs {
    /// Data directory of Varve or Prometheus; read-only, without a lock, may be in use
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Only records of this type: series, samples, exemplars, ...
    #[arg(long = "type", value_name = "NAME")]
    pub(crate) record_type: Option<String>,

    /// Only items of the series with this ref
    #[arg(long, value_name = "N")]
    pub(crate) series: Option<u64>,

    /// Only items of series that match this selector
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    /// Minimum time: RFC 3339, Unix seconds or milliseconds, or -1h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    pub(crate) start: Option<i64>,

    /// Maximum time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    pub(crate) end: Option<i64>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Arguments of `varve wal replay`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Varve's WAL is replayed together with its blocks, like at a start of the server, Prometheus' WAL like in `recover`; \
nothing is written. Exit codes: 0 sound, 1 damage was found, 2 the command failed.")]
pub struct ReplayArgs {
    /// Data directory of Varve or Prometheus; read-only, without a lock
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Number of threads [0: the number of cores]
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) concurrency: usize,

    /// Memory limit for the replay of Varve's WAL besides the heads [0: 256 MiB]
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) memory: usize,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl ReplayArgs {
    /// Returns the number of threads.
    pub(crate) fn n_threads(&self) -> usize {
        match self.concurrency {
            0 => machine::cores(),
            n_threads => n_threads,
        }
    }
}
