//! Flags of `varve-bench`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::client::parse_url;
use crate::fleet::{ACTIVE_SERIES_MAX, FleetOptions, SERIES_PER_NODE_MAX};
use crate::message::Version;

/// The most connections that a bench opens.
const CONNECTIONS_MAX: u64 = 256;
/// The most samples in a request: with labels of some 500 bytes still less than servers take by default.
const SAMPLES_PER_REQUEST_MAX: u64 = 50_000;

/// Load generator and comparison of servers: a simulated kube-prometheus fleet.
#[derive(Debug, Parser)]
#[command(name = "varve-bench", version, arg_required_else_help = true, subcommand_required = true)]
pub struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes the fleet's samples to a server by remote write
    Write(WriteArgs),
    /// Reads every k-th series back and compares each sample
    Verify(VerifyArgs),
    /// Asks what dashboards ask, and tells how long it takes
    Query(QueryArgs),
    /// Writes and asks at the same time, and tells what each costs the other
    Mixed(MixedArgs),
    /// Asks for all series from many clients at once, while writes go on
    Unbounded(UnboundedArgs),
    /// Puts Varve and its peers through the same work, one after the other, and compares
    Compare(CompareArgs),
    /// Checks that peers need for an hour of the fleet the bytes a sample that they are known for
    Calibrate(CalibrateArgs),
}

/// Which fleet it is.
#[derive(Debug, Clone, Args)]
pub(crate) struct FleetArgs {
    /// Series that are active at any time
    #[arg(long, value_name = "N", default_value = "200000", value_parser = clap::value_parser!(u64).range(1..=ACTIVE_SERIES_MAX as u64))]
    pub(crate) active_series: u64,

    /// Machines, instead of --active-series; the control planes' series come out of theirs
    #[arg(long, value_name = "N", conflicts_with = "active_series", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) nodes: Option<u64>,

    /// Series of a machine, those about its pods included
    #[arg(long, value_name = "N", default_value = "2100", value_parser = clap::value_parser!(u64).range(1..=SERIES_PER_NODE_MAX as u64))]
    pub(crate) series_per_node: u64,

    /// Time between two scrapes of a target
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_interval)]
    pub(crate) interval: Duration,

    /// Share of the pods that are replaced in an hour, with the series about them
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    pub(crate) churn: f64,

    /// Number from which everything follows: labels, rates, noise
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,

    /// Time from the first scrape to the last one
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) duration: Duration,
}

/// Flags of `varve-bench write`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WriteArgs {
    /// Where to write, for instance http://127.0.0.1:9898/api/v1/write
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Time of the first scrape, as RFC 3339 or seconds since 1970 [default: so that the last one is now]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) start: Option<i64>,

    /// Requests that are under way at the same time, each on a connection of its own
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub(crate) connections: u64,

    /// Samples in a request
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u64).range(1..=SAMPLES_PER_REQUEST_MAX))]
    pub(crate) samples_per_request: u64,

    /// Samples a second [0: as many as the server takes]
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) rate: u64,

    /// Make requests before they are sent, 2 GiB at a time, and time the sending only
    #[arg(long)]
    pub(crate) ahead: bool,

    /// Version of remote write
    #[arg(long, value_name = "VERSION", default_value = "1.0")]
    pub(crate) remote_write_version: Version,

    /// Process of the server, to report its CPU and memory
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

/// Flags of `varve-bench verify`.
#[derive(Debug, Clone, Args)]
pub(crate) struct VerifyArgs {
    /// The server, for instance http://127.0.0.1:9898; its query API is expected below
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Time of the first scrape, as `write` printed it
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) start: i64,

    /// Reads one place out of so many, with all the series that it has had
    #[arg(long, value_name = "K", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) every: u32,
}

/// Flags of `varve-bench query`.
#[derive(Debug, Clone, Args)]
pub(crate) struct QueryArgs {
    /// The server, for instance http://127.0.0.1:9898; its query API is expected below
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    /// Time of the last scrape; ranges are the hour before it
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) time: i64,

    /// How often each question is asked
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) repeats: u8,
}

/// Flags of `varve-bench mixed`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MixedArgs {
    /// The server, for instance http://127.0.0.1:9898, without data of the fleet; its APIs are expected below
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Samples a second that arrive while questions are asked
    #[arg(long, value_name = "N", default_value = "100000", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: u64,

    /// Clients that ask one question after the other in the last part
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) clients: u8,

    /// How often each question is asked
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) repeats: u8,
}

/// Flags of `varve-bench unbounded`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UnboundedArgs {
    /// The server, which holds the fleet, for instance http://127.0.0.1:9898
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub(crate) url: String,

    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Time of the first scrape, as `write` printed it; what is written now follows the last one
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) start: i64,

    /// Samples a second that are written meanwhile
    #[arg(long, value_name = "N", default_value = "30000", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rate: u64,

    /// Clients that ask at the same time
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    pub(crate) clients: u64,

    /// Process of the server, whose memory is watched
    #[arg(long, value_name = "PID")]
    pub(crate) pid: u32,
}

/// Flags of `varve-bench compare`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Which servers
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "varve,prometheus,victoria-metrics")]
    pub(crate) servers: Vec<Contestant>,

    /// How often each server is put through it; the order alternates
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) rounds: u8,

    /// How often each question is asked
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) repeats: u8,

    /// How the figures are printed
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: CompareFormat,

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

/// A server that can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Contestant {
    Varve,
    Prometheus,
    VictoriaMetrics,
}

/// How a comparison is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    Table,
    Json,
}

/// Flags of `varve-bench calibrate`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,

    /// Program to run as Prometheus
    #[arg(long, value_name = "FILE", default_value = "prometheus")]
    pub(crate) prometheus: PathBuf,

    /// Program to run as VictoriaMetrics
    #[arg(long, value_name = "FILE", default_value = "victoria-metrics")]
    pub(crate) victoria_metrics: PathBuf,
}

impl FleetArgs {
    /// Returns what the generator needs.
    pub(crate) fn options(&self, start_ms: i64) -> FleetOptions {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let active_series = self.nodes.map_or(self.active_series, |n| n.saturating_mul(self.series_per_node));
        FleetOptions {
            active_series: size(active_series).min(ACTIVE_SERIES_MAX),
            series_per_node: size(self.series_per_node),
            interval_ms: millis(self.interval),
            start_ms,
            churn_per_hour: self.churn,
            seed: self.seed,
        }
    }

    /// Counts the scrapes of a target.
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
        self.start.unwrap_or_else(|| now_ms() - self.fleet.n_rounds() * self.fleet.interval_ms())
    }
}

/// Returns the time now, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Parses a duration such as `1h30m`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration: Option<jiff::SignedDuration> = text.parse().ok();
    let duration = duration.and_then(|duration| Duration::try_from(duration).ok());
    duration.ok_or_else(|| "expected a duration, for instance 1h30m".to_owned())
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        interval if interval.as_millis() == 0 => Err("must be at least 1ms".to_owned()),
        interval => Ok(interval),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "expected a number, for instance 0.05".to_owned())?;
    if (0.0..=100.0).contains(&share) { Ok(share) } else { Err("must be within 0 and 100".to_owned()) }
}

/// Reads a time, to milliseconds since 1970.
fn parse_time(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse::<i64>() {
        return seconds.checked_mul(1000).ok_or_else(|| "out of range".to_owned());
    }
    let time: jiff::Timestamp = text
        .parse()
        .map_err(|_| "expected RFC 3339 or seconds since 1970, for instance 2026-01-01T00:00:00Z".to_owned())?;
    Ok(time.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(parse_duration("-1s").is_err() && parse_duration("5").is_err());
    }

    #[test]
    fn times_are_read_in_both_forms() {
        assert_eq!(parse_time("1767225600"), Ok(1_767_225_600_000));
        assert_eq!(parse_time("2026-01-01T00:00:00.5Z"), Ok(1_767_225_600_500));
        assert!(parse_time("yesterday").is_err());
    }
}
