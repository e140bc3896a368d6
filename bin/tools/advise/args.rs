//! Flags of `varve advise`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use super::relabel_rules::Dialect;
use crate::client::{Access, Client, Url};
use crate::quantity::parse_duration;

/// Commands of `varve advise`.
#[derive(Debug, Subcommand)]
pub(crate) enum AdviseCommand {
    /// Finds metrics, buckets and labels that no rule, dashboard or query needs, and writes rules that drop them
    Drops(Box<DropsArgs>),
    /// Shows which metrics were asked for of late, by whom, and which never
    Usage(UsageArgs),
}

/// Whom to trust over https.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrustArgs {
    /// Certificates in PEM that servers asked over https are signed with, instead of those that the system trusts
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,

    /// Takes any certificate of servers asked over https: whoever is in between can read and change all
    #[arg(long, conflicts_with = "ca_file")]
    pub(crate) insecure_skip_verify: bool,
}

impl TrustArgs {
    /// Makes a client of a server, with the bearer token of a file if there is one.
    ///
    /// # Errors
    /// If a file cannot be read, or holds what it should not.
    pub(crate) fn client(&self, url: &Url, token_file: Option<&Path>) -> Result<Client> {
        let access = Access::with_token_file(token_file)?;
        Client::with_access(url, access.trusting(self.ca_file.clone(), self.insecure_skip_verify))
    }
}

/// Arguments of `varve advise drops`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DropsArgs {
    /// Rule file, PrometheusRule manifest, or folder of them; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: Vec<PathBuf>,

    /// Grafana dashboard, manifest that holds some, or folder of them; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) dashboards: Vec<PathBuf>,

    /// Grafana whose dashboards are read as well
    #[arg(long, value_name = "URL", value_parser = Url::parse)]
    pub(crate) grafana: Option<Url>,

    /// File with the token of a service account of that Grafana
    #[arg(long, value_name = "FILE", requires = "grafana")]
    pub(crate) grafana_token_file: Option<PathBuf>,

    /// Running Varve or Prometheus whose series are looked at; a Varve's usage record is read, too
    #[arg(long, value_name = "URL", value_parser = Url::parse, conflicts_with = "scrape")]
    pub(crate) url: Option<Url>,

    /// File with a bearer token for --url
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) token_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,

    /// Text-format scrape of a target of a job, instead of --url; may be repeated
    #[arg(long, value_name = "JOB=FILE", value_parser = parse_scrape)]
    pub(crate) scrape: Vec<(String, PathBuf)>,

    /// Targets of a job, where its scrape is one of many; may be repeated
    #[arg(long, value_name = "JOB=N", value_parser = parse_targets)]
    pub(crate) targets: Vec<(String, u64)>,

    /// How often targets are scraped, of one job or of all that are not named; may be repeated [default: 30s]
    #[arg(long, value_name = "[JOB=]DURATION", value_parser = parse_interval)]
    pub(crate) scrape_interval: Vec<(Option<String>, Duration)>,

    /// Usage record in a file: a copy of /api/v1/status/usage; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) usage: Vec<PathBuf>,

    /// How far back what was asked for counts
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = parse_positive)]
    pub(crate) usage_since: Duration,

    /// Leaves the usage record of --url out
    #[arg(long)]
    pub(crate) no_usage: bool,

    /// Takes matchers on `job` at their word: a metric is unused in each job that no selector of it names
    #[arg(long)]
    pub(crate) by_job: bool,

    /// Takes selectors without a metric's name for no need of anything
    #[arg(long)]
    pub(crate) ignore_nameless: bool,

    /// Bytes of a sample on the disk [default: those of --url if it is a Varve that stores its own metrics, else 1]
    #[arg(long, value_name = "N", value_parser = parse_bytes)]
    pub(crate) bytes_per_sample: Option<f64>,

    /// How long samples are kept, for what something costs on the disk
    #[arg(long, value_name = "DURATION", default_value = "15d", value_parser = parse_positive)]
    pub(crate) retention: Duration,

    /// Form of the report
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,

    /// Lines of each part of the table
    #[arg(long, value_name = "N", default_value = "50")]
    pub(crate) limit: usize,

    /// File to write relabelling rules to
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,

    /// Whose rules are written
    #[arg(long, value_name = "WHOSE", default_value = "varve")]
    pub(crate) write_for: Dialect,

    /// Writes rules that drop, instead of rules in shadow that count what they would drop
    #[arg(long)]
    pub(crate) enforce: bool,

    /// Writes rules for labels, too, where no two series become one without them
    #[arg(long)]
    pub(crate) write_labels: bool,

    /// Ends with code 3 if more than this share of the series is unused
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(crate) fail_above: Option<f64>,

    /// Ends with code 4 if something could not be read
    #[arg(long)]
    pub(crate) strict: bool,
}

/// Arguments of `varve advise usage`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UsageArgs {
    /// Running Varve
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9898", value_parser = Url::parse)]
    pub(crate) url: Url,

    /// File with a bearer token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,

    /// Shows the metrics that exist and were not asked for, instead
    #[arg(long)]
    pub(crate) unused: bool,

    /// Only metrics whose name begins so
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: String,

    /// Form of the report
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,

    /// Lines of the table
    #[arg(long, value_name = "N", default_value = "50")]
    pub(crate) limit: usize,
}

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Yaml,
    Json,
}

fn parse_scrape(text: &str) -> Result<(String, PathBuf), String> {
    let (job, file) = text.split_once('=').filter(|(_, file)| !file.is_empty()).ok_or("expected JOB=FILE")?;
    Ok((job.to_owned(), file.into()))
}

fn parse_targets(text: &str) -> Result<(String, u64), String> {
    const TARGETS_MAX: u64 = 1_000_000;
    let (job, n) = text.rsplit_once('=').ok_or("expected JOB=N")?;
    let n = n.parse().ok().filter(|n| (1..=TARGETS_MAX).contains(n));
    Ok((job.to_owned(), n.ok_or_else(|| format!("N must be from 1 to {TARGETS_MAX}"))?))
}

fn parse_interval(text: &str) -> Result<(Option<String>, Duration), String> {
    match text.rsplit_once('=') {
        Some((job, duration)) => Ok((Some(job.to_owned()), parse_positive(duration)?)),
        None => Ok((None, parse_positive(text)?)),
    }
}

fn parse_positive(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration.is_zero() { Err("must be more than 0".to_owned()) } else { Ok(duration) }
}

fn parse_bytes(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|bytes| (0.0..=1_000.0).contains(bytes)).ok_or("must be from 0 to 1000".to_owned())
}

fn parse_percent(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).ok_or("must be from 0 to 100".to_owned())
}
