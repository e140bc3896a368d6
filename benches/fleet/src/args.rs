//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::client::parse_url;
use crate::fleet::{ACTIVE_SERIES_MAX, FleetOptions, SERIES_PER_NODE_MAX};
use crate::message::Version;
use crate::parse::{
    millis, now_ms, parse_duration, parse_interval, parse_share, parse_time, to_usize,
};
use crate::training::TrainingCommand;

/// Maximum number of connections.
const CONNECTIONS_MAX: u64 = 256;
/// Maximum number of samples per request. With labels of 500 bytes, a request is below the default
/// limits of servers.
const SAMPLES_PER_REQUEST_MAX: u64 = 50_000;
/// Maximum number of days of `history`.
const DAYS_MAX: u64 = 400;
/// Maximum number of queries of `history`.
const QUERIES_MAX: u64 = 10_000;

/// Load generator and comparison of servers: a simulated kube-prometheus fleet.
#[derive(Debug, Parser)]
#[command(
    name = "varve-bench",
    version,
    arg_required_else_help = true,
    subcommand_required = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write the fleet to a server by remote write
    Write(WriteArgs),
    /// Read every k-th series back and compare all samples
    Verify(VerifyArgs),
    /// Send the queries of dashboards and print their latency
    Query(QueryArgs),
    /// Write and query at the same time, and print what each costs the other
    Mixed(MixedArgs),
    /// Request all series from many clients at once during writes
    Unbounded(UnboundedArgs),
    /// Send small queries of one user beside heavy queries of another
    NoisyNeighbor(NoisyNeighborArgs),
    /// Run Varve and its peers one after the other under the same load and compare them
    Compare(CompareArgs),
    /// Compare how Varve and its peers store days of data and answer queries over them
    History(HistoryArgs),
    /// Simulate a training cluster with faults, and score the alerts that find them
    #[command(subcommand)]
    Training(TrainingCommand),
}

/// Parameters of the fleet.
#[derive(Debug, Clone, Args)]
pub(crate) struct FleetArgs {
    /// Active series
    #[arg(long, value_name = "N", default_value = "200000", value_parser = clap::value_parser!(u64).range(1..=ACTIVE_SERIES_MAX as u64))]
    pub(crate) active_series: u64,

    /// Series per machine, including the series of its pods
    #[arg(long, value_name = "N", default_value = "2100", value_parser = clap::value_parser!(u64).range(1..=SERIES_PER_NODE_MAX as u64))]
    pub(crate) series_per_node: u64,

    /// Scrape interval
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_interval)]
    pub(crate) interval: Duration,

    /// Share of the pods that is replaced per hour, with their series
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    pub(crate) churn: f64,

    /// Seed of labels, rates and noise
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// Time between the first and the last scrape
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) duration: Duration,
}

/// Flags of `varve-bench write`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WriteArgs {
    /// Remote-write URL, for example http://127.0.0.1:9898/api/v1/write
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Time of the first scrape, RFC 3339 or Unix seconds [default: now minus --duration]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) start: Option<i64>,

    /// Concurrent requests, each on its own connection
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub(crate) connections: u64,

    /// Samples per request
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u64).range(1..=SAMPLES_PER_REQUEST_MAX))]
    pub(crate) samples_per_request: u64,

    /// Samples per second [0: as fast as the server accepts]
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) rate: u64,

    /// Encode requests before they are sent, 2 GiB at a time, and time only the sending
    #[arg(long)]
    pub(crate) ahead: bool,

    /// Remote-write version
    #[arg(long, value_name = "VERSION", default_value = "1.0")]
    pub(crate) remote_write_version: Version,

    /// Process id of the server; reports its CPU time and memory
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

/// Flags of `varve-bench verify`.
#[derive(Debug, Clone, Args)]
pub(crate) struct VerifyArgs {
    /// Server, for example http://127.0.0.1:9898
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Time of the first scrape, as printed by `write`
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) start: i64,

    /// Verify one place of every K, with all series that it had
    #[arg(long, value_name = "K", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) every: u32,
}

/// Flags of `varve-bench query`.
#[derive(Debug, Clone, Args)]
pub(crate) struct QueryArgs {
    /// Server, for example http://127.0.0.1:9898
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    /// Time of the last scrape; range queries cover the hour before it
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) time: i64,

    /// Repetitions of each query
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) repeats: u8,
}

/// Flags of `varve-bench mixed`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MixedArgs {
    /// Server without data of the fleet, for example http://127.0.0.1:9898
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Samples per second during the queries
    #[arg(long, value_name = "N", default_value = "100000", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: u64,

    /// Concurrent clients in the last phase
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) clients: u8,

    /// Repetitions of each query
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) repeats: u8,
}

/// Flags of `varve-bench unbounded`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UnboundedArgs {
    /// Server that stores the fleet, for example http://127.0.0.1:9898
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Time of the first scrape, as printed by `write`
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) start: i64,

    /// Samples per second during the requests
    #[arg(long, value_name = "N", default_value = "30000", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: u64,

    /// Concurrent clients
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub(crate) clients: u64,

    /// Process id of the server; reports its memory
    #[arg(long, value_name = "PID")]
    pub(crate) pid: u32,
}

/// Flags of `varve-bench noisy-neighbor`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NoisyNeighborArgs {
    /// Server that stores a fleet, for example http://127.0.0.1:9898
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    /// Time of the last scrape; queries cover the hour before it
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) time: i64,

    /// Bearer token of the small queries
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,

    /// Bearer token of the heavy queries
    #[arg(long, value_name = "TOKEN")]
    pub(crate) heavy_token: Option<String>,

    /// Clients that send heavy queries in a loop
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub(crate) clients: u64,

    /// Heavy query; `@` becomes a matcher that is different in each query
    #[arg(
        long,
        value_name = "EXPR",
        default_value = "sum by (namespace) (last_over_time({__name__=~\"container_.+\",@}[5m]))"
    )]
    pub(crate) heavy: String,

    /// Time between a small query and the next
    #[arg(long, value_name = "DURATION", default_value = "2ms", value_parser = parse_duration)]
    pub(crate) pause: Duration,

    /// Time of all phases
    #[arg(long, value_name = "DURATION", default_value = "40s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
}

/// Flags of `varve-bench compare`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Servers to compare
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "varve,prometheus,victoria-metrics"
    )]
    pub(crate) servers: Vec<ServerKind>,

    /// Rounds; the order of servers alternates
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) rounds: u8,

    /// Repetitions of each query
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) repeats: u8,

    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: OutputFormat,

    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
}

/// Flags of `varve-bench history`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HistoryArgs {
    /// Servers to compare
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "varve,victoria-metrics"
    )]
    pub(crate) servers: Vec<ServerKind>,

    /// Days of data
    #[arg(long, value_name = "N", default_value = "7", value_parser = clap::value_parser!(u64).range(1..=DAYS_MAX))]
    pub(crate) days: u64,

    /// Active series
    #[arg(long, value_name = "N", default_value = "22000", value_parser = clap::value_parser!(u64).range(1..=ACTIVE_SERIES_MAX as u64))]
    pub(crate) active_series: u64,

    /// Share of the pods that is replaced per hour, with their series
    #[arg(long, value_name = "SHARE", default_value = "0.01", value_parser = parse_share)]
    pub(crate) churn: f64,

    /// JSON file with expressions to draw from: a list of strings, or an object with `expressions`,
    /// a list of objects with `expr` [default: the expressions of `query`]
    #[arg(long, value_name = "FILE")]
    pub(crate) expressions: Option<PathBuf>,

    /// Number of queries
    #[arg(long, value_name = "N", default_value = "40", value_parser = clap::value_parser!(u64).range(1..=QUERIES_MAX))]
    pub(crate) queries: u64,

    /// Seed of the queries
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// Repetitions of each query after the first time
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) rounds: u8,

    /// Directory that keeps the data of all servers; data of an earlier run is used again
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: OutputFormat,

    #[command(flatten)]
    pub(crate) programs: ProgramArgs,
}

/// Programs of the servers.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProgramArgs {
    /// Program to run as Varve [default: varve, beside this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) varve: Option<PathBuf>,

    /// Program to run as Prometheus
    #[arg(long, value_name = "FILE", default_value = "prometheus")]
    pub(crate) prometheus: PathBuf,

    /// Program to run as VictoriaMetrics
    #[arg(long, value_name = "FILE", default_value = "victoria-metrics")]
    pub(crate) victoria_metrics: PathBuf,
}

/// A server to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum ServerKind {
    Varve,
    Prometheus,
    #[value(alias = "victoriametrics")]
    VictoriaMetrics,
}

/// Output format of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Json,
}

impl FleetArgs {
    /// Returns the options of the generator.
    pub(crate) fn options(&self, start_ms: i64) -> FleetOptions {
        FleetOptions {
            active_series: to_usize(self.active_series),
            series_per_node: to_usize(self.series_per_node),
            interval_ms: millis(self.interval),
            start_ms,
            churn_per_hour: self.churn,
            seed: self.seed,
        }
    }

    /// Returns the number of scrapes.
    pub(crate) fn n_rounds(&self) -> i64 {
        (millis(self.duration) / self.interval_ms()).max(1)
    }

    pub(crate) fn interval_ms(&self) -> i64 {
        millis(self.interval)
    }
}

impl WriteArgs {
    /// Returns the time of the first scrape.
    pub(crate) fn start_ms(&self) -> i64 {
        self.start
            .unwrap_or_else(|| now_ms() - self.fleet.n_rounds() * self.fleet.interval_ms())
    }
}
