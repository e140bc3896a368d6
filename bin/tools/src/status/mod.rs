//! `varve status`: the state of a server, from its API; and its last words, from its data
//! directory.

mod last_words;
mod overview;
mod views;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::last_words::LastWordsArgs;
use self::overview::{data_of_varve, overview};
use self::views::{HA, QUERIES, REJECTS, RELABEL, REPLAY, SENDERS, TEAMS, TOP};
use super::server_args::ViewArgs;

/// Arguments of `varve status`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct StatusArgs {
    #[command(subcommand)]
    part: Option<StatusCommand>,

    #[command(flatten)]
    view: ViewArgs,
}

/// `varve status ...`.
#[derive(Debug, Subcommand)]
pub enum StatusCommand {
    /// Show the budgets of teams and their usage
    Teams(ViewArgs),
    /// Show the leaders of HA pairs
    Ha(ViewArgs),
    /// Show relabel rules, the number of series and samples that they drop, and the queries that
    /// disabled them
    Relabel(ViewArgs),
    /// Show rejected samples by reason, each with its last example
    Rejects(ViewArgs),
    /// Show the active requests for data
    Queries(ViewArgs),
    /// Show the queries that took the most time, by their shape or by who sent them
    Top(TopArgs),
    /// Show the senders of write requests, the most recent first
    Senders(ViewArgs),
    /// Show the progress of WAL replay, in files
    Replay(ViewArgs),
    /// List the requests that were active when the server died, largest memory first
    LastWords(LastWordsArgs),
}

/// Arguments of `varve status top`.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Time range, up to now
    #[arg(long, value_name = "RANGE", default_value = "hour", value_parser = ["hour", "day"])]
    range: String,

    /// What queries are grouped by
    #[arg(long, value_name = "PART", default_value = "shape", value_parser = ["shape", "dashboard", "panel", "user", "user_agent"])]
    by: String,

    #[command(flatten)]
    view: ViewArgs,
}

/// Runs `varve status ...`.
///
/// # Errors
/// If the server cannot be reached or is not Varve, or no log of active requests can be read.
pub fn run(args: &StatusArgs) -> Result<()> {
    match &args.part {
        None => overview(&args.view),
        Some(part) => show(part),
    }
}

/// Shows a part of the state.
fn show(command: &StatusCommand) -> Result<()> {
    let (view, args) = match command {
        StatusCommand::Teams(args) => (TEAMS, args),
        StatusCommand::Ha(args) => (HA, args),
        StatusCommand::Relabel(args) => (RELABEL, args),
        StatusCommand::Rejects(args) => (REJECTS, args),
        StatusCommand::Queries(args) => (QUERIES, args),
        StatusCommand::Top(TopArgs { view, .. }) => (TOP, view),
        StatusCommand::Senders(args) => (SENDERS, args),
        StatusCommand::Replay(args) => (REPLAY, args),
        StatusCommand::LastWords(args) => return last_words::last_words(args),
    };
    let path = match command {
        StatusCommand::Top(TopArgs { range, by, .. }) => {
            format!("{}?range={range}&by={by}", view.path)
        }
        _ => view.path.to_owned(),
    };
    let mut client = args.server.client()?;
    let response = client.get(&path)?;
    let data = data_of_varve(&client, view.path, &response)?;
    let ready = match command {
        // The numbers of files do not tell whether the replay has ended.
        StatusCommand::Replay(_) => client.get("/-/ready")?.text() + "\n",
        _ => String::new(),
    };
    args.output.print(|| view.print(&data) + &ready, || &data);
    Ok(())
}
