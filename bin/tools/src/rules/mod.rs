//! `varve rules`: why an alert does not fire, when it would have fired, and recording rules over
//! history.
//!
//! `explain` and `backtest` print responses of a server. `backfill` evaluates recording rules
//! through the HTTP API and imports their samples into a data directory.

mod backfill;
mod backtest;
mod explain;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;
use varve_wire::time::parse_time_ms;

use super::server_args::{ServerArgs, ViewArgs};

/// `varve rules ...`.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Show why an alert fires or does not, step by step
    Explain(ExplainArgs),
    /// Show when the alerts of a rule file would have fired; writes nothing
    Backtest(BacktestArgs),
    /// Write the recording rules of a file over history
    Backfill(BackfillArgs),
}

/// Arguments of `varve rules explain`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct ExplainArgs {
    #[command(flatten)]
    view: ViewArgs,

    /// Name of the alert
    #[arg(value_name = "ALERT")]
    alert: String,

    /// Only the rule of this group
    #[arg(long, value_name = "GROUP")]
    rule_group: Option<String>,

    /// Evaluation time, Unix seconds or RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    time: Option<String>,
}

/// Arguments of `varve rules backtest`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct BacktestArgs {
    #[command(flatten)]
    view: ViewArgs,

    /// Rule file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    range: RangeArgs,
}

/// Arguments of `varve rules backfill`.
#[derive(Debug, Clone, Args)]
#[command(
    allow_missing_positional = true,
    after_help = "The server needs --web.enable-admin-api. Samples that the server has already are not written again."
)]
pub struct BackfillArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// Rule file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Data directory of the server
    #[arg(long, value_name = "DIR")]
    path: PathBuf,

    /// Interval of groups that set none
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = varve_system::quantity::parse_duration)]
    evaluation_interval: std::time::Duration,

    #[command(flatten)]
    range: RangeArgs,
}

/// A time range.
#[derive(Debug, Clone, Args)]
struct RangeArgs {
    /// Start time, Unix seconds or RFC 3339
    #[arg(long, value_name = "TIME")]
    start: String,

    /// End time [default: now]
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
}

/// Runs `varve rules ...`.
///
/// # Errors
/// If the server cannot be reached or returns an error, or the file is invalid.
pub fn run(command: &RulesCommand) -> Result<()> {
    match command {
        RulesCommand::Explain(args) => explain::explain(args),
        RulesCommand::Backtest(args) => backtest::backtest(args),
        RulesCommand::Backfill(args) => backfill::backfill(args),
    }
}

impl RangeArgs {
    /// Returns start and end in milliseconds.
    fn times_ms(&self) -> Result<(i64, i64)> {
        let start_ms = time_ms(&self.start).context("--start")?;
        let end_ms = self
            .end
            .as_deref()
            .map_or_else(|| Ok(Timestamp::now().as_millisecond()), time_ms);
        Ok((start_ms, end_ms.context("--end")?))
    }
}

fn time_ms(text: &str) -> Result<i64> {
    parse_time_ms(text).map_err(anyhow::Error::msg)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {path:?}"))
}

/// Prints labels as a selector.
fn label_set(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}={}", json!(value)))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}
