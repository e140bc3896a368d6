//! The arguments of `varve rules`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use varve_model::TimeRange;
use varve_system::quantity::parse_duration;

use crate::report::time;
use crate::server_args::{RuleFilesArgs, ViewArgs, not_a_server, path_not_a_server};
use crate::time::parse_time_ms;

/// `varve rules ...`.
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Show why an alert fires or does not, step by step
    Explain(RulesExplainArgs),
    /// Show when the alerts of a rule file would have fired; writes nothing
    Backtest(BacktestArgs),
    /// Write the recording rules of files over history
    Backfill(RulesBackfillArgs),
}

/// Arguments of `varve rules explain`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct RulesExplainArgs {
    #[command(flatten)]
    pub(super) view: ViewArgs,

    /// Name of the alert
    #[arg(value_name = "ALERT", value_parser = not_a_server)]
    pub(super) alert: String,

    /// Only the rule of this group
    #[arg(long, value_name = "GROUP")]
    pub(super) rule_group: Option<String>,

    /// Evaluation time: RFC 3339, Unix seconds or milliseconds, or -1h [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    pub(super) time: Option<i64>,
}

/// Arguments of `varve rules backtest`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
pub struct BacktestArgs {
    #[command(flatten)]
    pub(super) view: ViewArgs,

    /// Rule file
    #[arg(value_name = "FILE", value_parser = PathBufValueParser::new().try_map(path_not_a_server))]
    pub(super) file: PathBuf,

    #[command(flatten)]
    pub(super) range: RangeArgs,
}

/// Arguments of `varve rules backfill`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Rules may read those of other files. The server needs --web.enable-admin-api. Samples that the server has already are not written again. After a failure, rules whose line was printed are complete; run it again to write the rest."
)]
pub struct RulesBackfillArgs {
    #[command(flatten)]
    pub(super) rules: RuleFilesArgs,

    /// Data directory of the running server, on this machine
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
    /// Start time: RFC 3339, Unix seconds or milliseconds, or -1h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    start: i64,

    /// End time [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_time_ms)]
    end: Option<i64>,
}

impl RangeArgs {
    /// Returns the range, of which no part is in the future.
    ///
    /// # Errors
    /// If the start is not before the end, or the end is in the future.
    pub(super) fn past(&self) -> Result<TimeRange> {
        let range = self.range();
        let TimeRange { start_ms, end_ms } = range;
        ensure!(
            start_ms < end_ms,
            "--start: {} must be before --end: {}",
            time(start_ms),
            time(end_ms)
        );
        let now_ms = Timestamp::now().as_millisecond();
        ensure!(
            end_ms <= now_ms,
            "--end: {} must not be after now: {}",
            time(end_ms),
            time(now_ms)
        );
        Ok(range)
    }

    /// Returns the range.
    pub(super) fn range(&self) -> TimeRange {
        TimeRange {
            start_ms: self.start,
            end_ms: self
                .end
                .unwrap_or_else(|| Timestamp::now().as_millisecond()),
        }
    }
}
