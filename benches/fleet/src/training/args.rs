//! The command line of `varve-bench training`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::client::parse_url;
use crate::parse::{millis, parse_duration, parse_interval, parse_time};

/// Maximum number of nodes.
const NODES_MAX: u64 = 20_000;
/// Maximum number of faults and decoys of a kind.
const FAULTS_MAX: u64 = 1_000;

/// Commands of the training cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum TrainingCommand {
    /// Count the series and samples without writing them
    Count(CountArgs),
    /// Write the cluster to a server by remote write, and what is wrong to a file
    Write(TrainingWriteArgs),
    /// Compare alerts with the truth: those of `varve rules backtest`, or the series ALERTS
    Score(ScoreArgs),
}

/// Parameters of the cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    /// Nodes with eight GPUs each
    #[arg(long, value_name = "N", default_value = "128", value_parser = clap::value_parser!(u64).range(2..=NODES_MAX))]
    pub(crate) nodes: u64,

    /// Simulated time, with one scrape per interval; the last scrape is one interval before its end
    #[arg(long, value_name = "DURATION", default_value = "6h", value_parser = parse_duration)]
    pub(crate) duration: Duration,

    /// Scrape interval
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_interval)]
    pub(crate) interval: Duration,

    /// Seed of jobs, faults and noise
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// Faults of each kind, as far as jobs have time for them [0: a healthy cluster]
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u64).range(0..=FAULTS_MAX))]
    pub(crate) faults_per_kind: u64,

    /// Decoys of each kind
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u64).range(0..=FAULTS_MAX))]
    pub(crate) decoys_per_kind: u64,
}

/// Flags of `varve-bench training count`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CountArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Flags of `varve-bench training write`.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrainingWriteArgs {
    /// Remote-write URL, for example http://127.0.0.1:9898/api/v1/write
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Time of the first scrape, RFC 3339 or Unix seconds [default: now minus --duration]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) start: Option<i64>,

    /// File for the faults and decoys, one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub(crate) truth: Option<PathBuf>,

    /// Write each scrape at its time, beginning now
    #[arg(long)]
    pub(crate) live: bool,
}

/// Flags of `varve-bench training score`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ScoreArgs {
    /// Truth file of `write`
    #[arg(long, value_name = "FILE")]
    pub(crate) truth: PathBuf,

    /// Output of `varve rules backtest --output json`
    #[arg(long, value_name = "FILE", required_unless_present = "alerts")]
    pub(crate) backtest: Option<PathBuf>,

    /// Response of /api/v1/query_range for `ALERTS{alertstate="firing"}`
    #[arg(long, value_name = "FILE", conflicts_with = "backtest")]
    pub(crate) alerts: Option<PathBuf>,
}

impl ClusterArgs {
    /// Returns the number of scrapes.
    pub(crate) fn n_rounds(&self) -> i64 {
        (millis(self.duration) / self.interval_ms()).max(1)
    }

    pub(crate) fn interval_ms(&self) -> i64 {
        millis(self.interval)
    }
}
