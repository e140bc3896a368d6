//! The command line.
//!
//! Flags that Prometheus has too have Prometheus' names, dots included, and its defaults. The arguments of a tool are
//! beside it in `tools/`.

mod serve;

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

pub(crate) use serve::{AdmissionStatus, OnCorruption, ServeArgs, WalSync};

use crate::recovery::WalCommand;
use crate::tools::advise::AdviseCommand;
use crate::tools::check::CheckCommand;
use crate::tools::manual::{CompletionArgs, ManArgs};
use crate::tools::query::QueryCommand;
use crate::tools::status::StatusCommand;
use crate::tools::tsdb::TsdbCommand;

/// A Prometheus-compatible metrics store: remote-write target, Grafana data source, admin CLI.
#[derive(Debug, Parser)]
// `varve --version` prints `varve, version 0.1.0`, in the order of words of Prometheus.
#[command(name = "varve", display_name = "varve,", version = concat!("version ", env!("CARGO_PKG_VERSION")))]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the store: takes writes, answers queries
    Serve(Box<ServeArgs>),
    /// Asks a running server, Varve or another one that speaks Prometheus' API
    #[command(subcommand)]
    Query(QueryCommand),
    /// Checks configuration, rules, metrics and servers
    #[command(subcommand)]
    Check(CheckCommand),
    /// Works on data directories, of Varve and of Prometheus
    #[command(subcommand)]
    Tsdb(TsdbCommand),
    /// Opens, checks, mends and recovers write-ahead logs, Prometheus' included
    #[command(subcommand)]
    Wal(WalCommand),
    /// Tells which metrics and labels nobody needs
    #[command(subcommand)]
    Advise(AdviseCommand),
    /// Tells from a data directory what its server does or did
    #[command(subcommand)]
    Status(StatusCommand),
    /// Prints what a shell needs to complete this command line
    Completion(CompletionArgs),
    /// Prints the manual page of a command
    Man(ManArgs),
}

/// A command line that was understood.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) command: Command,
    /// Every flag of the command with its value, defaults included, by name without dashes.
    pub(crate) flags: BTreeMap<String, String>,
}

/// Reads the command line.
///
/// # Errors
/// What clap says about it, `--help` and `--version` included: print it and leave with its exit code.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, clap::Error> {
    let matches = Cli::command().try_get_matches_from(args)?;
    let flags = matches.subcommand().map(|(name, matches)| flags_of(name, matches)).unwrap_or_default();
    Ok(Invocation { command: Cli::from_arg_matches(&matches)?.command, flags })
}

/// Returns the command line, for pages about it: by its plain name.
pub(crate) fn description() -> clap::Command {
    Cli::command().display_name("varve").version(env!("CARGO_PKG_VERSION"))
}

fn flags_of(command: &str, matches: &ArgMatches) -> BTreeMap<String, String> {
    let cli = Cli::command();
    let command = cli.find_subcommand(command).expect("clap matched a subcommand that it has");
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
                // The usage is one line, however long.
                assert!(line.chars().count() <= 60 || line.starts_with("Usage:"), "{}: {line}", command.get_name());
            }
        }
        command.get_subcommands().for_each(check_width);
    }

    #[test]
    fn help_reads_well_on_a_narrow_terminal() {
        let mut command = Cli::command().term_width(60);
        command.build();
        check_width(&command);
    }

    #[test]
    fn version_is_printed_in_the_words_of_prometheus() {
        let printed = parse(["varve", "--version"].map(OsString::from)).unwrap_err().to_string();
        assert_eq!(printed, format!("varve, version {}\n", env!("CARGO_PKG_VERSION")));
    }
}
