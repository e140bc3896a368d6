//! `varve status`: the state of a server, from its data directory.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use jiff::Timestamp;

use crate::server::active_requests::log;
use crate::server::active_requests::log::{LogFile, Record, State};

/// Maximum number of finished requests in the report.
const ENDED_SHOWN: usize = 10;

/// `varve status ...`.
#[derive(Debug, Subcommand)]
pub(crate) enum StatusCommand {
    /// List the requests that were active when the server died, largest memory first
    LastWords(LastWordsArgs),
}

/// Arguments of `varve status last-words`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LastWordsArgs {
    /// Data directory
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(crate) path: PathBuf,
}

/// Runs `varve status ...`.
///
/// # Errors
/// If no log of active requests can be read.
pub(crate) fn run(command: &StatusCommand) -> Result<()> {
    let StatusCommand::LastWords(args) = command;
    last_words(args)
}

fn last_words(args: &LastWordsArgs) -> Result<()> {
    let (mut n_read, mut refusals) = (0, Vec::new());
    for path in log::files(&args.path) {
        match log::read(&path) {
            Ok(found) => {
                let gap = if n_read == 0 { "" } else { "\n" };
                print!("{gap}{}", report(&found));
                n_read += 1;
            }
            // After the first start there is no log of a previous process.
            Err(_) if !path.exists() => {}
            Err(refused) => refusals.push(format!("{refused:#}")),
        }
    }
    match (n_read, &refusals[..]) {
        (0, []) => bail!("no log of active requests in {:?}", args.path),
        (_, []) => Ok(()),
        (_, refusals) => bail!("{}", refusals.join("; ")),
    }
}

/// Returns the report of a process.
fn report(found: &LogFile) -> String {
    let mut out = String::new();
    let end = if found.is_clean_shutdown { "shut down" } else { "was killed, crashed, or is still running" };
    line(&mut out, format_args!("Process {}, started {}, {end}.", found.pid, time(found.started_ms)));
    let active = found.active();
    if active.is_empty() {
        line(&mut out, format_args!("No active requests."));
    } else {
        line(&mut out, format_args!("Active requests, heaviest first ({}):", active.len()));
        active.iter().for_each(|record| describe(&mut out, record));
    }
    let mut ended: Vec<_> =
        found.records.iter().filter(|record| matches!(record.state, State::Completed | State::Failed)).collect();
    ended.sort_by_key(|record| std::cmp::Reverse(record.recorded_ms));
    if !ended.is_empty() {
        line(&mut out, format_args!("Finished requests, latest first ({} known):", ended.len()));
        ended.iter().take(ENDED_SHOWN).for_each(|record| describe(&mut out, record));
    }
    if found.n_damaged > 0 {
        line(&mut out, format_args!("{} records are damaged.", found.n_damaged));
    }
    out
}

fn describe(out: &mut String, record: &Record) {
    let Record { id, started_ms, recorded_ms, held_bytes, peak_bytes, n_series, n_samples, .. } = record;
    let state = match record.state {
        State::Waiting => "waiting",
        State::Working => "working",
        State::Completed => "completed",
        State::Failed => "failed",
    };
    let age_ms = recorded_ms.saturating_sub(*started_ms);
    line(out, format_args!("  {id} {state} {} {age_ms} ms, since {}", record.route, time(*started_ms)));
    line(out, format_args!("    memory {held_bytes} bytes, peak {peak_bytes}; series {n_series}, samples {n_samples}"));
    for (name, text) in [
        ("query", &record.text),
        ("client", &record.client),
        ("user", &record.user),
        ("agent", &record.user_agent),
        ("reason", &record.reason),
    ] {
        if !text.is_empty() {
            line(out, format_args!("    {name} {text:?}"));
        }
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_requests_are_listed_heaviest_first() {
        let record = |id, state, held_bytes| Record {
            state,
            id,
            held_bytes,
            started_ms: 1_700_000_000_000,
            recorded_ms: 1_700_000_001_500,
            text: format!("query_{id}"),
            ..Record::default()
        };
        let records = vec![
            record(1, State::Completed, 9),
            record(2, State::Working, 5),
            record(3, State::Working, 70),
            record(4, State::Waiting, 0),
        ];
        let found = LogFile { pid: 7, started_ms: 0, is_clean_shutdown: false, records, n_damaged: 1 };
        let text = report(&found);
        let position = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is not in\n{text}"));
        let order = ["Process 7", "(3)", "query_3", "query_2", "query_4", "Finished requests", "query_1", "1 records"];
        assert!(order.map(position).is_sorted(), "{text}");
        assert!(text.contains("  3 working  1500 ms, since 2023-11-14T22:13:20.000Z"), "{text}");
    }
}
