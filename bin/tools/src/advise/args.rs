//! The arguments of `varve advise`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use varve_advise::relabel_rules::Dialect;
use varve_client::Url;
use varve_system::quantity::parse_duration;

use crate::output::OutputArgs;
use crate::server_args::{ServerArgs, ViewArgs};
use crate::time::parse_time_ms;

/// Commands of `varve advise`.
#[derive(Debug, Subcommand)]
pub enum AdviseCommand {
    /// Find metrics, buckets and labels that no rule, dashboard or query uses, and write rules that
    /// drop them
    Drops(Box<DropsArgs>),
    /// Show which metrics were queried recently and by whom, or which were not
    Usage(Box<UsageArgs>),
    /// Verify that relabel rules change no result of rules and dashboards
    Verify(Box<VerifyArgs>),
}

/// Where the expressions of rules and dashboards are.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExpressionArgs {
    /// Rule file, PrometheusRule manifest, or directory of them; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: Vec<PathBuf>,

    /// Grafana dashboard, manifest with dashboards, or directory of them; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) dashboards: Vec<PathBuf>,

    /// Grafana whose dashboards are read, too
    #[arg(long, value_name = "URL", value_parser = Url::parse)]
    pub(crate) grafana: Option<Url>,

    /// File with the token of a Grafana service account
    #[arg(long, value_name = "FILE", requires = "grafana")]
    pub(crate) grafana_token_file: Option<PathBuf>,
}

/// Arguments of `varve advise drops`.
#[derive(Debug, Clone, Args)]
pub struct DropsArgs {
    // The server whose series are analyzed; the usage record of a Varve is read, too.
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    #[command(flatten)]
    pub(crate) expressions: ExpressionArgs,

    /// File with a scrape of one target of a job, instead of a server; may be repeated
    #[arg(long, value_name = "JOB=FILE", value_parser = parse_scrape)]
    pub(crate) scrape: Vec<(String, PathBuf)>,

    /// Number of targets of a job given by --scrape; may be repeated
    #[arg(long, value_name = "JOB=N", value_parser = parse_targets)]
    pub(crate) targets: Vec<(String, u64)>,

    /// Scrape interval of a job, or of all other jobs; may be repeated [default: 1m]
    #[arg(long, value_name = "[JOB=]DURATION", value_parser = parse_interval)]
    pub(crate) scrape_interval: Vec<(Option<String>, Duration)>,

    /// File with a usage record, a copy of /api/v1/status/usage; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) usage: Vec<PathBuf>,

    /// Ignore queries older than this
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = parse_positive)]
    pub(crate) usage_since: Duration,

    /// Ignore the usage record of the server
    #[arg(long)]
    pub(crate) no_usage: bool,

    /// Respect matchers on `job`: a metric can be unused in one job and used in another
    #[arg(long)]
    pub(crate) by_job: bool,

    /// Count recorded queries without a metric name as uses of all series that they may match,
    /// instead of as exploration
    #[arg(long)]
    pub(crate) count_exploration: bool,

    /// Ignore selectors without a metric name also in rules and dashboards
    #[arg(long, conflicts_with = "count_exploration")]
    pub(crate) ignore_nameless: bool,

    /// Keep metrics whose name matches this anchored regex although nothing uses them, beside those of
    /// the presets gpu-health and apiserver-health; may be repeated
    #[arg(long, value_name = "REGEX")]
    pub(crate) keep: Vec<String>,

    /// Do not keep the metrics of the presets
    #[arg(long)]
    pub(crate) no_keep: bool,

    /// Bytes per sample on disk [default: the value of the server if it is a Varve that stores its
    /// own metrics, else 1]
    #[arg(long, value_name = "N", value_parser = parse_bytes)]
    pub(crate) bytes_per_sample: Option<f64>,

    /// Retention, to estimate disk usage
    #[arg(long, value_name = "DURATION", default_value = "15d", value_parser = parse_positive)]
    pub(crate) retention: Duration,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Maximum number of lines per table
    #[arg(long, value_name = "N", default_value = "50")]
    pub(crate) limit: usize,

    /// File to write relabel rules to
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,

    /// Format of the rules
    #[arg(long, value_name = "FORMAT", default_value = "varve")]
    pub(crate) write_for: Format,

    /// Write rules with `state: enforce` instead of `state: dry_run`
    #[arg(long)]
    pub(crate) enforce: bool,

    /// Also write rules that remove labels, where no two series become equal without them
    #[arg(long)]
    pub(crate) write_labels: bool,

    /// Exit with code 3 if more than this share of the series is unused
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(crate) fail_above: Option<f64>,

    /// Exit with code 4 if some input could not be parsed
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Arguments of `varve advise usage`.
#[derive(Debug, Clone, Args)]
pub struct UsageArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,

    /// Show the metrics that exist and were not queried, instead
    #[arg(long)]
    pub(crate) unused: bool,

    /// Empty the usage record, which begins again; the server needs --web.enable-admin-api
    #[arg(long, conflicts_with_all = ["unused", "prefix", "limit", "count_exploration"])]
    pub(crate) forget: bool,

    /// List queries without a metric name among the selectors, instead of as exploration
    #[arg(long)]
    pub(crate) count_exploration: bool,

    /// Prefix of the metric names
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: String,

    /// Maximum number of lines
    #[arg(long, value_name = "N", default_value = "50")]
    pub(crate) limit: usize,
}

/// Arguments of `varve advise verify`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
The series are those that the server has. The relabel rules apply as if each was enforced.

Exit codes: 3 if a result may change, 4 with --strict if an expression could not be verified.")]
pub struct VerifyArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,

    #[command(flatten)]
    pub(crate) expressions: ExpressionArgs,

    /// File with relabel rules, as `advise drops --write` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) relabel_rules: PathBuf,

    /// Evaluation time: RFC 3339, Unix seconds or milliseconds, or -1h [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    pub(crate) time: Option<i64>,

    /// The series of this range before the evaluation are looked at
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_positive)]
    pub(crate) range: Duration,

    /// Maximum number of lines per list
    #[arg(long, value_name = "N", default_value = "50")]
    pub(crate) limit: usize,

    /// Exit with code 4 if some expression could not be parsed or verified
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Values of `--write-for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// `ingest.metric_relabel_configs` of Varve, with names and states
    Varve,
    /// `write_relabel_configs` or `metric_relabel_configs` of Prometheus
    Prometheus,
}

impl From<Format> for Dialect {
    fn from(format: Format) -> Self {
        match format {
            Format::Varve => Self::Varve,
            Format::Prometheus => Self::Prometheus,
        }
    }
}

fn parse_scrape(text: &str) -> Result<(String, PathBuf), String> {
    let (job, file) = text
        .split_once('=')
        .filter(|(_, file)| !file.is_empty())
        .ok_or("expected JOB=FILE")?;
    Ok((job.to_owned(), file.into()))
}

fn parse_targets(text: &str) -> Result<(String, u64), String> {
    const TARGETS_MAX: u64 = 1_000_000;
    let (job, n) = text.rsplit_once('=').ok_or("expected JOB=N")?;
    let n = n.parse().ok().filter(|n| (1..=TARGETS_MAX).contains(n));
    Ok((
        job.to_owned(),
        n.ok_or_else(|| format!("N must be from 1 to {TARGETS_MAX}"))?,
    ))
}

fn parse_interval(text: &str) -> Result<(Option<String>, Duration), String> {
    match text.rsplit_once('=') {
        Some((job, duration)) => Ok((Some(job.to_owned()), parse_positive(duration)?)),
        None => Ok((None, parse_positive(text)?)),
    }
}

fn parse_positive(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration.is_zero() {
        Err("must be more than 0".to_owned())
    } else {
        Ok(duration)
    }
}

fn parse_bytes(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|bytes| (0.0..=1_000.0).contains(bytes))
        .ok_or("must be from 0 to 1000".to_owned())
}

fn parse_percent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or("must be from 0 to 100".to_owned())
}
