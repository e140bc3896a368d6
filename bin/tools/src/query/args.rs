//! The arguments of `varve query`, which are promtool's, and of `explain`.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use varve_system::quantity::parse_duration;

use crate::server_args::{ServerArgs, ViewArgs, not_a_server};
use crate::time::parse_time_ms;

/// `varve query ...`.
#[derive(Debug, Subcommand)]
pub enum QueryCommand {
    /// Evaluate a query at one time
    Instant(InstantArgs),
    /// Evaluate a query over a range of time
    Range(RangeArgs),
    /// List the series that match selectors
    Series(SeriesArgs),
    /// List the values of a label
    Labels(LabelsArgs),
    /// Show how many buckets histograms populate
    Analyze(QueryAnalyzeArgs),
    /// Evaluate a query and show series, samples, bytes and time of each operator
    Explain(QueryExplainArgs),
    /// End a request for data, which `varve status queries` lists
    Cancel(CancelArgs),
}

/// Arguments of `varve query instant`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct InstantArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,

    /// Query
    #[arg(value_name = "EXPR", value_parser = not_a_server)]
    pub(crate) expr: String,

    /// Evaluation time, RFC 3339, Unix seconds or milliseconds, or -1h [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,
}

/// Arguments of `varve query range`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct RangeArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,

    /// Query
    #[arg(value_name = "EXPR", value_parser = not_a_server)]
    pub(crate) expr: String,

    /// Start time, RFC 3339, Unix seconds or milliseconds, or -1h [default: 5m before the end]
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
    /// Start time, RFC 3339, Unix seconds or milliseconds, or -1h [default: the oldest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) start: Option<String>,

    /// End time [default: the newest]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) end: Option<String>,
}

/// Arguments of `varve query series`.
#[derive(Debug, Clone, Args)]
pub struct SeriesArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,

    /// Selector; may be repeated
    #[arg(long = "match", value_name = "SELECTOR", required = true)]
    pub(crate) selectors: Vec<String>,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// Arguments of `varve query labels`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct LabelsArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,

    /// Label name
    #[arg(value_name = "NAME", value_parser = not_a_server)]
    pub(crate) name: String,

    /// Selector; may be repeated [default: all series]
    #[arg(long = "match", value_name = "SELECTOR")]
    pub(crate) selectors: Vec<String>,

    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
}

/// Arguments of `varve query analyze`.
#[derive(Debug, Clone, Args)]
pub struct QueryAnalyzeArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Type of the metrics
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: MetricKind,

    /// Range of time to analyze
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) duration: Duration,

    /// End of the range, RFC 3339, Unix seconds or milliseconds, or -1h [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) time: Option<String>,

    /// Selector; may be repeated
    #[arg(long = "match", value_name = "SELECTOR", required = true)]
    pub(crate) selectors: Vec<String>,
}

/// Values of `--type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricKind {
    Histogram,
}

/// Arguments of `varve query explain`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct QueryExplainArgs {
    #[command(flatten)]
    pub(crate) view: ViewArgs,

    /// Query
    #[arg(value_name = "EXPR", value_parser = not_a_server)]
    pub(crate) query: String,

    /// Time of an instant query, RFC 3339, Unix seconds or milliseconds, or -1h [default: now]
    #[arg(long = "time", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    pub(crate) time: Option<i64>,

    /// Start time of a range query
    #[arg(long = "start", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    pub(crate) start: Option<i64>,

    /// End time of a range query
    #[arg(long = "end", value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    pub(crate) end: Option<i64>,

    /// Step of a range query
    #[arg(long = "step", value_name = "DURATION")]
    pub(crate) step: Option<String>,
}

/// Arguments of `varve query cancel`.
#[derive(Debug, Clone, Args)]
#[command(
    allow_missing_positional = true,
    after_help = "The server needs --web.enable-admin-api."
)]
pub struct CancelArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Id of the request
    #[arg(value_name = "ID", value_parser = not_a_server)]
    pub(crate) id: String,
}

impl SelectionArgs {
    /// Returns the parameters of a request for series or labels.
    pub(super) fn params(&self, selectors: &[String]) -> Result<Vec<(&'static str, String)>> {
        let mut params: Vec<_> = selectors
            .iter()
            .map(|selector| ("match[]", selector.clone()))
            .collect();
        for (name, text) in [("start", &self.start), ("end", &self.end)] {
            if let Some(text) = text {
                let time_s =
                    parse_time(text).with_context(|| format!("error parsing {name} time"))?;
                params.push((name, time_s.to_string()));
            }
        }
        Ok(params)
    }
}

/// Parses a time of a query. Returns Unix seconds.
///
/// # Errors
/// If the text is not a time.
pub(super) fn parse_time(text: &str) -> Result<f64> {
    let time_ms = parse_time_ms(text).map_err(anyhow::Error::msg)?;
    Ok(time_ms as f64 / 1000.0)
}
