//! The arguments of `varve check`, which are promtool's.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::verdict::Verdict;
use crate::features::FeatureArgs;
use crate::server_args::ServerArgs;

/// `varve check ...`.
#[derive(Debug, Subcommand)]
pub enum CheckCommand {
    /// Check configuration files
    Config(ConfigArgs),
    /// Check files for --web.config.file
    WebConfig(WebConfigArgs),
    /// Check rule files
    Rules(CheckRulesArgs),
    /// Lint a scrape body from standard input
    Metrics(MetricsArgs),
    /// Check that a server is healthy
    Healthy(ServerArgs),
    /// Check that a server is ready
    Ready(ServerArgs),
}

/// Flags of the linter.
#[derive(Debug, Clone, Args)]
pub(super) struct LintArgs {
    /// Lints, comma separated: all, none, duplicate-rules
    #[arg(long, value_name = "NAME,...", default_value = "duplicate-rules")]
    pub(super) lint: String,

    /// Exit with code 3 on lint errors
    #[arg(long)]
    pub(super) lint_fatal: bool,

    /// Ignore unknown fields in rule files
    #[arg(long)]
    pub(super) ignore_unknown_fields: bool,

    #[command(flatten)]
    pub(super) features: FeatureArgs,
}

/// Arguments of `varve check config`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "For a file of Prometheus use promtool check config. \
Exit codes: 0 valid, 1 errors, 3 lint errors with --lint-fatal.")]
pub struct ConfigArgs {
    /// Files to check
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,

    /// Check only the file, not the files that it refers to
    #[arg(long)]
    pub(super) syntax_only: bool,

    #[command(flatten)]
    pub(super) lint: LintArgs,
}

/// Arguments of `varve check web-config`.
#[derive(Debug, Clone, Args)]
pub struct WebConfigArgs {
    /// Files to check
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
}

/// Arguments of `varve check rules`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Exit codes: 0 valid, 1 errors, 3 lint errors with --lint-fatal.")]
pub struct CheckRulesArgs {
    /// Files to check [default: standard input]
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    #[command(flatten)]
    pub(super) lint: LintArgs,
}

/// Arguments of `varve check metrics`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Exit codes: 0 valid, 1 errors, 3 lint errors. Example: curl -s http://localhost:9898/metrics | varve check metrics")]
pub struct MetricsArgs {
    /// Print the number of series per metric, largest first
    #[arg(long)]
    pub(super) extended: bool,
}

impl LintArgs {
    /// Ignores lint errors unless `--lint-fatal` is set.
    pub(super) fn apply_severity(&self, verdict: Verdict) -> Verdict {
        if verdict == Verdict::Lint && !self.lint_fatal {
            Verdict::Valid
        } else {
            verdict
        }
    }

    /// Returns `true` if a lint is enabled. [`Self::warn`] reports unknown lints.
    pub(super) fn is_on(&self, option: &str) -> bool {
        let given: Vec<_> = self.lint.split(',').collect();
        !given.contains(&"none") && (given.contains(&option) || given.contains(&"all"))
    }

    /// Warns about unknown lints.
    pub(super) fn warn(&self, known: &[&str]) {
        for option in self.lint.split(',') {
            if !matches!(option, "" | "all" | "none") && !known.contains(&option) {
                println!("WARNING: unknown lint option: {option:?}");
            }
        }
    }
}
