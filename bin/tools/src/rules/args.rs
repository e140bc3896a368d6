//! The arguments of `varve rules`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use varve_system::quantity::parse_duration;
use varve_wire::time::parse_time_ms;

use crate::server_args::{ServerArgs, ViewArgs};

/// `varve rules ...`.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Show why an alert fires or does not, step by step
    Explain(RulesExplainArgs),
    /// Show when the alerts of a rule file would have fired; writes nothing
    Backtest(BacktestArgs),
    /// Write the recording rules of a file over history
    Backfill(RulesBackfillArgs),
}

/// Arguments of `varve rules explain`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct RulesExplainArgs {
    #[command(flatten)]
    pub(super) view: ViewArgs,

    /// Name of the alert
    #[arg(value_name = "ALERT")]
    pub(super) alert: String,

    /// Only the rule of this group
    #[arg(long, value_name = "GROUP")]
    pub(super) rule_group: Option<String>,

    /// Evaluation time, Unix seconds or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    pub(super) time: Option<String>,
}

/// Arguments of `varve rules backtest`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct BacktestArgs {
    #[command(flatten)]
    pub(super) view: ViewArgs,

    /// Rule file
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    #[command(flatten)]
    pub(super) range: RangeArgs,
}

/// Arguments of `varve rules backfill`.
#[derive(Debug, Clone, Args)]
#[command(
    allow_missing_positional = true,
    after_help = "The server needs --web.enable-admin-api. Samples that the server has already are not written again."
)]
pub struct RulesBackfillArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,

    /// Rule file
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    /// Data directory of the server
    #[arg(long, value_name = "DIR")]
    pub(super) path: PathBuf,

    /// Interval of groups that set none
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub(super) evaluation_interval: Duration,

    #[command(flatten)]
    pub(super) range: RangeArgs,
}

/// A time range.
#[derive(Debug, Clone, Args)]
pub(super) struct RangeArgs {
    /// Start time, Unix seconds or RFC 3339
    #[arg(long, value_name = "TIME")]
    pub(super) start: String,

    /// End time [default: now]
    #[arg(long, value_name = "TIME")]
    pub(super) end: Option<String>,
}

impl RangeArgs {
    /// Returns start and end in milliseconds.
    pub(super) fn times_ms(&self) -> Result<(i64, i64)> {
        let start_ms = time_ms(&self.start).context("--start")?;
        let end_ms = self
            .end
            .as_deref()
            .map_or_else(|| Ok(Timestamp::now().as_millisecond()), time_ms);
        Ok((start_ms, end_ms.context("--end")?))
    }
}

/// Parses Unix seconds or RFC 3339.
pub(super) fn time_ms(text: &str) -> Result<i64> {
    parse_time_ms(text).map_err(anyhow::Error::msg)
}
