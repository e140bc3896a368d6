//! The command line of `varve query`: promtool's, and `explain`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use crate::client::{Access, Url};
use crate::quantity::parse_duration;

/// `varve query ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum QueryCommand {
    /// Evaluates a query at one time
    Instant(InstantArgs),
    /// Evaluates a query at many times
    Range(RangeArgs),
    /// Lists the series that selectors choose
    Series(SeriesArgs),
    /// Lists the values of a label
    Labels(LabelsArgs),
    /// Tells how many buckets histograms use
    Analyze(AnalyzeArgs),
    /// Evaluates a query and shows what each operator of its plan did: series, samples, bytes, time
    Explain(ExplainArgs),
}

/// How to speak to the server.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccessArgs {
    /// HTTP client configuration as Prometheus' tools have it: basic_auth, authorization, tls_config, http_headers
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
    /// What of them is wrong.
    pub(crate) fn access(&self) -> Result<Access> {
        let mut access = match &self.http_config_file {
            Some(path) => Access::read(path)?,
            None => Access::with_token_file(self.token_file.as_deref())?,
        };
        self.headers.iter().try_for_each(|(name, value)| access.add_header(name, value))?;
        Ok(access)
    }
}

/// Whom to ask, and the form of the answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Server, for instance http://localhost:9898
    #[arg(value_name = "SERVER", value_parser = Url::parse)]
    pub(crate) server: Url,

    /// Form of the answer
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

    /// The query
    #[arg(value_name = "EXPR")]
    pub(crate) expr: String,

    /// Time: seconds since the epoch or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,
}

/// Arguments of `varve query range`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RangeArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// The query
    #[arg(value_name = "EXPR")]
    pub(crate) expr: String,

    /// First time: seconds since the epoch or RFC 3339 [default: 5m before the last]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) start: Option<String>,

    /// Last time [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) end: Option<String>,

    /// Distance of the times [default: a 250th of the range, at least 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) step: Option<Duration>,
}

/// Which times count.
#[derive(Debug, Clone, Args)]
pub(crate) struct SelectionArgs {
    /// First time: seconds since the epoch or RFC 3339 [default: the oldest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) start: Option<String>,

    /// Last time [default: the newest]
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

    /// Name of the label
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

    /// Kind of metric to look at
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: MetricKind,

    /// Time to look at
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) duration: Duration,

    /// End of it: seconds since the epoch or RFC 3339 [default: now]
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
    /// The query
    #[arg(value_name = "EXPR")]
    pub(crate) query: String,

    /// The server, which has to be a Varve
    #[arg(long = "url", value_name = "URL", default_value = "http://127.0.0.1:9898", value_parser = Url::parse)]
    pub(crate) url: Url,

    #[command(flatten)]
    pub(crate) access: AccessArgs,

    /// Time of an instant query: seconds since the epoch or RFC 3339 [default: now]
    #[arg(long = "time", value_name = "TIME")]
    pub(crate) time: Option<String>,

    /// First time of a range query
    #[arg(long = "start", value_name = "TIME")]
    pub(crate) start: Option<String>,

    /// Last time of a range query
    #[arg(long = "end", value_name = "TIME")]
    pub(crate) end: Option<String>,

    /// Distance of the times of a range query
    #[arg(long = "step", value_name = "DURATION")]
    pub(crate) step: Option<String>,

    /// Form of the answer
    #[arg(long = "output", value_name = "FORMAT", default_value = "text")]
    pub(crate) output: ExplainOutput,
}

/// Values of `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainOutput {
    Text,
    Json,
}

/// Splits `name=value`, or `name:value`, which promtool takes too.
fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(['=', ':']).ok_or_else(|| "expected NAME=VALUE".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
