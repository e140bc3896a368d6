//! The arguments of `varve query`, which are promtool's, and of `explain`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use crate::quantity::parse_duration;
use crate::tools::client::{Access, Url};

/// `varve query ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum QueryCommand {
    /// Evaluate a query at one time
    Instant(InstantArgs),
    /// Evaluate a query over a range of time
    Range(RangeArgs),
    /// List the series that match selectors
    Series(SeriesArgs),
    /// List the values of a label
    Labels(LabelsArgs),
    /// Show how many buckets histograms populate
    Analyze(AnalyzeArgs),
    /// Evaluate a query and show series, samples, bytes and time of each operator
    Explain(ExplainArgs),
}

/// Credentials and headers for the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccessArgs {
    /// HTTP client configuration file, in the format of Prometheus: basic_auth, authorization, tls_config, http_headers
    #[arg(long = "http.config.file", value_name = "FILE", conflicts_with = "token_file")]
    pub(crate) http_config_file: Option<PathBuf>,

    /// File with a bearer token
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Header to send; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    pub(crate) headers: Vec<(String, String)>,
}

impl AccessArgs {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid.
    pub(crate) fn access(&self) -> Result<Access> {
        let mut access = match &self.http_config_file {
            Some(path) => Access::read(path)?,
            None => Access::with_token_file(self.token_file.as_deref())?,
        };
        self.headers.iter().try_for_each(|(name, value)| access.add_header(name, value))?;
        Ok(access)
    }
}

/// The server, and the output format.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Server, for example http://localhost:9898
    #[arg(value_name = "SERVER", value_parser = Url::parse)]
    pub(crate) server: Url,

    /// Output format
    #[arg(short = 'o', long = "format", value_name = "FORMAT", default_value = "promql")]
    pub(crate) format: Format,

    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// Values of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Promql,
    Json,
}

/// Arguments of `varve query instant`.
#[derive(Debug, Clone, Args)]
pub(crate) struct InstantArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Query
    #[arg(value_name = "EXPR")]
    pub(crate) expr: String,

    /// Evaluation time, Unix seconds or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,
}

/// Arguments of `varve query range`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RangeArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Query
    #[arg(value_name = "EXPR")]
    pub(crate) expr: String,

    /// Start time, Unix seconds or RFC 3339 [default: 5m before the end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) start: Option<String>,

    /// End time [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) end: Option<String>,

    /// Step [default: 1/250 of the range, at least 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) step: Option<Duration>,
}

/// The range of time.
#[derive(Debug, Clone, Args)]
pub(crate) struct SelectionArgs {
    /// Start time, Unix seconds or RFC 3339 [default: the oldest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) start: Option<String>,

    /// End time [default: the newest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) end: Option<String>,
}

/// Arguments of `varve query series`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SeriesArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Selector; may be repeated
    #[arg(long = "match", value_name = "SELECTOR", required = true)]
    pub(crate) selectors: Vec<String>,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// Arguments of `varve query labels`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LabelsArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Label name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Selector; may be repeated [default: all series]
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(crate) selectors: Vec<String>,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// Arguments of `varve query analyze`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AnalyzeArgs {
    /// Server
    #[arg(long, value_name = "URL", value_parser = Url::parse)]
    pub(crate) server: Url,

    /// Type of the metrics
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: MetricKind,

    /// Range of time to analyze
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) duration: Duration,

    /// End of the range, Unix seconds or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,

    /// Selector; may be repeated
    #[arg(long = "match", value_name = "SELECTOR", required = true)]
    pub(crate) selectors: Vec<String>,

    #[command(flatten)]
    pub(crate) access: AccessArgs,
}

/// Values of `--type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricKind {
    Histogram,
}

/// Arguments of `varve query explain`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainArgs {
    /// Query
    #[arg(value_name = "EXPR")]
    pub(crate) query: String,

    /// Varve server
    #[arg(long = "url", value_name = "URL", default_value = "http://127.0.0.1:9898", value_parser = Url::parse)]
    pub(crate) url: Url,

    #[command(flatten)]
    pub(crate) access: AccessArgs,

    /// Time of an instant query, Unix seconds or RFC 3339 [default: now]
    #[arg(long = "time", value_name = "TIME")]
    pub(crate) time: Option<String>,

    /// Start time of a range query
    #[arg(long = "start", value_name = "TIME")]
    pub(crate) start: Option<String>,

    /// End time of a range query
    #[arg(long = "end", value_name = "TIME")]
    pub(crate) end: Option<String>,

    /// Step of a range query
    #[arg(long = "step", value_name = "DURATION")]
    pub(crate) step: Option<String>,

    /// Output format
    #[arg(long = "output", value_name = "FORMAT", default_value = "text")]
    pub(crate) output: ExplainOutput,
}

/// Values of `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainOutput {
    Text,
    Json,
}

/// Splits `name=value`, or `name:value`, which promtool accepts too.
fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(['=', ':']).ok_or_else(|| "expected NAME=VALUE".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
