//! The command line.
//!
//! Flags that Prometheus also has keep Prometheus' names, dots included, and its defaults. The
//! arguments of a tool are defined beside the tool in `varve-tools`.

pub(crate) mod manual;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use varve_config::flags::ServeArgs;
use varve_system::quantity::{parse_duration, parse_size, print_duration, print_size};
use varve_system::version;
use varve_tools::admin::AdminCommand;
use varve_tools::advise::AdviseCommand;
use varve_tools::check::CheckCommand;
use varve_tools::query::QueryCommand;
use varve_tools::relabel::RelabelCommand;
use varve_tools::rules::RulesCommand;
use varve_tools::status::StatusArgs;
use varve_tools::test::TestCommand;
use varve_tools::tsdb::TsdbCommand;
use varve_tools::wal::WalCommand;

use manual::{CompletionArgs, ManArgs};

/// Prometheus-compatible metrics store: remote write, PromQL, Prometheus HTTP API, and command-line
/// tools
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
    /// Find unused metrics, buckets and labels, and verify that dropping them changes no result
    #[command(subcommand)]
    Advise(AdviseCommand),
    /// Enable relabel rules of a server
    #[command(subcommand)]
    Relabel(RelabelCommand),
    /// Explain alerts, and evaluate rules over history
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Show the state of a server on one screen, or a part of it
    Status(Box<StatusArgs>),
    /// Administer a server: snapshot, delete, import, confirm retention, compact, reload
    #[command(subcommand)]
    Admin(AdminCommand),
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
    let flags = matches
        .subcommand()
        .map(|(name, matches)| flags_of(name, matches))
        .unwrap_or_default();
    Ok(Invocation {
        command: Cli::from_arg_matches(&matches)?.command,
        flags,
    })
}

/// Prints an error of the command line like other errors, or the text of `--help` or `--version`.
/// Returns the exit code of the process.
pub(crate) fn print_message(message: &clap::Error) -> ExitCode {
    if !message.use_stderr() {
        let _ = message.print();
        return ExitCode::SUCCESS;
    }
    let text = message.to_string();
    let text = text
        .strip_prefix("error: ")
        .map_or_else(|| text.clone(), |error| format!("varve: {error}"));
    eprint!("{text}");
    ExitCode::from(u8::try_from(message.exit_code()).unwrap_or(1))
}

/// Returns the command line with its plain name, for manual pages and completions.
pub(crate) fn description() -> clap::Command {
    Cli::command()
        .display_name("varve")
        .version(version::NUMBER)
}

fn flags_of(command: &str, matches: &ArgMatches) -> BTreeMap<String, String> {
    let cli = Cli::command();
    let command = cli
        .find_subcommand(command)
        .expect("clap matched this subcommand");
    let mut flags = BTreeMap::new();
    for arg in command.get_arguments() {
        let Some(name) = arg.get_long() else { continue };
        let raw = matches.try_get_raw(arg.get_id().as_str()).ok().flatten();
        let values: Vec<_> = raw
            .into_iter()
            .flatten()
            .map(|value| value.to_string_lossy())
            .collect();
        flags.insert(name.to_owned(), canonical(arg, values.join(",")));
    }
    flags
}

/// Returns a value as Prometheus prints it: a duration or a size in its largest units.
fn canonical(arg: &clap::Arg, value: String) -> String {
    let kind = arg.get_value_names().and_then(|names| names.first());
    let printed = match kind.map(|name| name.as_str()) {
        Some("DURATION") => parse_duration(&value).map(print_duration),
        Some("SIZE") => parse_size(&value).map(print_size),
        _ => return value,
    };
    // The flag has no value.
    printed.unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use varve_config::file::Config;
    use varve_config::settings::{Resolved, resolve};
    use varve_system::machine::Memory;

    use super::*;

    fn check_width(command: &clap::Command) {
        for help in [
            command.clone().render_help(),
            command.clone().render_long_help(),
        ] {
            for line in help.to_string().lines() {
                // The usage is a single line, and some flags of Prometheus have long names.
                let is_usage = line.starts_with("Usage:");
                let fits = line.chars().count() <= 60
                    || is_usage
                    || line.trim_start().starts_with("--alertmanager.");
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
        let printed = parse(["varve", "--version"].map(OsString::from))
            .unwrap_err()
            .to_string();
        let expect = format!(
            "varve, version {} (revision: {})\n",
            version::NUMBER,
            version::REVISION
        );
        assert!(
            printed.starts_with(&expect) && printed.contains("\n  build date:  "),
            "{printed}"
        );
    }

    fn serve(args: &[&str]) -> Result<(ServeArgs, BTreeMap<String, String>), String> {
        let args = ["varve", "serve"].iter().chain(args).map(OsString::from);
        let invocation = parse(args).map_err(|rejected| rejected.to_string())?;
        let Command::Serve(args) = invocation.command else {
            panic!("it is `serve`")
        };
        Ok((*args, invocation.flags))
    }

    fn resolved(args: &[&str]) -> Resolved {
        let (args, flags) = serve(args).unwrap();
        let memory = Memory::given(1 << 40);
        resolve(&args, &Config::default(), &memory, None, flags, false).unwrap()
    }

    #[test]
    fn shared_flags_have_the_defaults_of_prometheus() {
        let Resolved {
            settings, store, ..
        } = resolved(&[]);
        assert_eq!(settings.query.timeout, Duration::from_secs(120));
        assert_eq!(settings.query.concurrency_max, 20);
        assert_eq!(store.engine.samples_max, 50_000_000);
        assert_eq!(settings.query.lookback_delta_ms, 300_000);
        assert_eq!(settings.web.listen_addresses, ["127.0.0.1:9898"]);
        assert_eq!(settings.web.response.buffer_size, 1 << 20);
        let flags = settings.flags_in_force(&Config::default());
        assert_eq!(flags["query.timeout"], "2m");
        assert_eq!(flags["enable-feature"], "");
        assert_eq!(flags["storage.tsdb.retention.time"], "15d");
        assert_eq!(flags["web.route-prefix"], "/");
    }

    #[test]
    fn dotted_flags_are_read_and_listed_in_units_of_prometheus() {
        let settings = resolved(&[
            "--query.timeout=90m",
            "--web.response-buffer=2048KB",
            "--query.cache-size=0",
            "--enable-feature=search-api,b",
            "--web.listen-address",
            ":0",
            "--web.listen-address=localhost:9",
        ])
        .settings;
        assert_eq!(settings.query.timeout, Duration::from_secs(5400));
        assert!(settings.web.search);
        assert_eq!(settings.web.listen_addresses, ["[::]:0", "localhost:9"]);
        assert!(settings.web.external_url.as_str().ends_with(":0"));
        let flags = settings.flags_in_force(&Config::default());
        assert_eq!(flags["web.listen-address"], ":0,localhost:9");
        assert_eq!(flags["query.timeout"], "1h30m");
        assert_eq!(flags["web.response-buffer"], "2MiB");
        assert_eq!(flags["query.cache-size"], "0B");
        assert_eq!(flags["enable-feature"], "search-api,b");
        assert_eq!(flags["objstore.config-file"], "");
        assert_eq!(flags["storage.tsdb.retention.local-after-upload"], "");
    }

    fn check_rejected(arg: &str, expect: &str) {
        let rejected = serve(&[arg]).unwrap_err();
        assert!(rejected.contains(expect), "{rejected}");
    }

    #[test]
    fn invalid_values_are_rejected_with_the_flag_and_the_reason() {
        check_rejected(
            "--query.timeout=5",
            "--query.timeout <DURATION>': not a valid duration string",
        );
        check_rejected("--query.timeout=0", "must be more than 0");
        check_rejected(
            "--query.max-concurrency=0",
            "--query.max-concurrency <N>': must be at least 1",
        );
        check_rejected("--web.listen-address=nowhere", "expected HOST:PORT");
        check_rejected("--web.listen-address=::1:80", "must be in brackets");
        check_rejected(
            "--storage.wal.sync=sometimes",
            "[possible values: interval, always, never]",
        );
        check_rejected("--query.time=5m", "unexpected argument '--query.time'");
    }
}
