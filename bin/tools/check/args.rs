//! The command line of `varve check`: promtool's.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::client::Url;
use crate::quantity::parse_duration;
use crate::tools::query::AccessArgs;

/// `varve check ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckCommand {
    /// Checks configuration files, of Varve or of Prometheus
    Config(ConfigArgs),
    /// Checks files for --web.config.file
    WebConfig(WebConfigArgs),
    /// Checks rule files
    Rules(RulesArgs),
    /// Checks a scrape body from the standard input against what metrics should be like
    Metrics(MetricsArgs),
    /// Asks a server whether it lives
    Healthy(ServerArgs),
    /// Asks a server whether it takes requests
    Ready(ServerArgs),
}

/// What is minded, and what that counts.
#[derive(Debug, Clone, Args)]
pub(super) struct LintArgs {
    /// What to mind besides errors, comma separated: all, none, duplicate-rules, and in configuration files too-long-scrape-interval
    #[arg(long, value_name = "NAME,...", default_value = "duplicate-rules")]
    pub(super) lint: String,

    /// Ends with exit code 3 if something is minded
    #[arg(long)]
    pub(super) lint_fatal: bool,

    /// Lets unknown fields of rule files pass
    #[arg(long)]
    pub(super) ignore_unknown_fields: bool,
}

/// Arguments of `varve check config`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigArgs {
    /// Files
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,

    /// Looks at the file alone, not at those that it names
    #[arg(long)]
    pub(super) syntax_only: bool,

    /// How far back queries look, from which on a scrape interval is too long
    #[arg(long = "query.lookback-delta", value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(super) lookback_delta: Duration,

    #[command(flatten)]
    pub(super) lint: LintArgs,
}

/// Arguments of `varve check web-config`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WebConfigArgs {
    /// Files
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
}

/// Arguments of `varve check rules`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes: 0 sound, 1 errors, 3 something is minded and --lint-fatal was given.")]
pub(crate) struct RulesArgs {
    /// Files [default: the standard input]
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(super) lint: LintArgs,
}

/// Arguments of `varve check metrics`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Exit codes: 0 sound, 1 errors, 3 something is minded. Example: curl -s http://localhost:9898/metrics | varve check metrics")]
pub(crate) struct MetricsArgs {
    /// Lists the metrics with the number of their series, the largest first
    #[arg(long)]
    pub(super) extended: bool,
}

/// Arguments of `varve check healthy` and `varve check ready`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9898", value_parser = Url::parse)]
    pub(super) url: Url,

    #[command(flatten)]
    pub(super) access: AccessArgs,
}
