//! The command line.
//!
//! Flags that Prometheus also has keep Prometheus' names, dots included, and its defaults. The arguments of a tool are
//! defined beside the tool in `tools/`.

mod serve;

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

pub(crate) use serve::{OnCorruption, ServeArgs, WalSync};

use crate::tools::advise::AdviseCommand;
use crate::tools::check::CheckCommand;
use crate::tools::manual::{CompletionArgs, ManArgs};
use crate::tools::query::QueryCommand;
use crate::tools::relabel::RelabelCommand;
use crate::tools::rules::RulesCommand;
use crate::tools::status::StatusCommand;
use crate::tools::test::TestCommand;
use crate::tools::tsdb::TsdbCommand;
use crate::tools::wal::WalCommand;
use crate::version;

/// Prometheus-compatible metrics store: remote write, PromQL, Prometheus HTTP API, and command-line tools
#[derive(Debug, Parser)]
// `varve --version` prints `varve, version 0.1.0 (revision: …)`, as Prometheus does.
#[command(name = "varve", display_name = "varve,", version = version::TEXT.as_str())]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(Box<ServeArgs>),
    /// Query a server with Prometheus' HTTP API
    #[command(subcommand)]
    Query(QueryCommand),
    /// Check configuration, rules, metrics and servers
    #[command(subcommand)]
    Check(CheckCommand),
    /// Run unit tests of rules
    #[command(subcommand)]
    Test(TestCommand),
    /// Work with data directories of Varve and Prometheus
    #[command(subcommand)]
    Tsdb(TsdbCommand),
    /// Inspect, verify, repair and recover write-ahead logs of Varve and Prometheus
    #[command(subcommand)]
    Wal(WalCommand),
    /// Find unused metrics, buckets and labels
    #[command(subcommand)]
    Advise(AdviseCommand),
    /// Enable relabel rules of a server
    #[command(subcommand)]
    Relabel(RelabelCommand),
    /// Explain alerts, and evaluate rules over history
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Show the state of a server
    #[command(subcommand)]
    Status(StatusCommand),
    /// Print shell completions
    Completion(CompletionArgs),
    /// Print the manual page of a command
    Man(ManArgs),
}

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) command: Command,
    /// The flags of the command with their values, including defaults, by name without dashes.
    pub(crate) flags: BTreeMap<String, String>,
}

/// Parses the command line.
///
/// # Errors
/// The error to print, also for `--help` and `--version`. It has its own exit code.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, clap::Error> {
    let matches = Cli::command().try_get_matches_from(args)?;
    let flags = matches.subcommand().map(|(name, matches)| flags_of(name, matches)).unwrap_or_default();
    Ok(Invocation { command: Cli::from_arg_matches(&matches)?.command, flags })
}

/// Returns the command line with its plain name, for manual pages and completions.
pub(crate) fn description() -> clap::Command {
    Cli::command().display_name("varve").version(version::NUMBER)
}

fn flags_of(command: &str, matches: &ArgMatches) -> BTreeMap<String, String> {
    let cli = Cli::command();
    let command = cli.find_subcommand(command).expect("clap matched this subcommand");
    let long = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg.get_id().as_str())));
    let value = |id| {
        let raw = matches.try_get_raw(id).ok().flatten();
        raw.map(|values| values.map(|v| v.to_string_lossy()).collect::<Vec<_>>().join(",")).unwrap_or_default()
    };
    long.map(|(long, id)| (long.to_owned(), value(id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_width(command: &clap::Command) {
        for help in [command.clone().render_help(), command.clone().render_long_help()] {
            for line in help.to_string().lines() {
                // The usage is a single line, and some flags of Prometheus have long names.
                let is_usage = line.starts_with("Usage:");
                let fits = line.chars().count() <= 60 || is_usage || line.trim_start().starts_with("--alertmanager.");
                assert!(fits, "{}: {line}", command.get_name());
            }
        }
        command.get_subcommands().for_each(check_width);
    }

    #[test]
    fn help_fits_a_narrow_terminal() {
        let mut command = Cli::command().term_width(60);
        command.build();
        check_width(&command);
    }

    #[test]
    fn version_is_printed_as_in_prometheus() {
        let printed = parse(["varve", "--version"].map(OsString::from)).unwrap_err().to_string();
        let expect = format!("varve, version {} (revision: {})\n", version::NUMBER, version::REVISION);
        assert!(printed.starts_with(&expect) && printed.contains("\n  build date:  "), "{printed}");
    }
}
