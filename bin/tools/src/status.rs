//! `varve status`: the state of a server, from its API; and its last words, from its data
//! directory.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::Value;
use varve_system::machine::files::is_locked;
use varve_system::quantity::print_time;
use varve_wire::active_requests::{self, RULE_ROUTE, Record, RecordedRequests, RequestState};

use super::output::table;
use super::server_args::ViewArgs;

/// Maximum number of finished requests, and of finished rule evaluations, in the report.
const ENDED_SHOWN: usize = 10;

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
    /// Show the queries that took the most time, by their shape
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

    #[command(flatten)]
    view: ViewArgs,
}

/// Arguments of `varve status last-words`.
#[derive(Debug, Clone, Args)]
pub struct LastWordsArgs {
    /// Data directory
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(crate) path: PathBuf,
}

/// A part of the state of a server: its path, the list in the response, and the columns of its
/// table with their location in an element.
struct View {
    path: &'static str,
    list: &'static str,
    /// The location of the sum of all elements, and the first cell of its row.
    total: Option<(&'static str, &'static str)>,
    columns: &'static [(&'static str, &'static str)],
}

const TEAMS: View = View {
    path: "/api/v1/status/teams",
    list: "/teams",
    total: Some(("/all", "all teams")),
    columns: &[
        ("team", "/team"),
        ("active series", "/use/activeSeries"),
        ("guaranteed", "/guaranteed/activeSeries"),
        ("maximum", "/maximum/activeSeries"),
        ("borrowed", "/borrowed/activeSeries"),
        ("new series/s", "/use/newSeriesPerSecond"),
        ("samples/s", "/use/samplesPerSecond"),
        ("rejected series", "/seriesRejected"),
    ],
};
const HA: View = View {
    path: "/api/v1/status/ha",
    list: "/clusters",
    total: None,
    columns: &[
        ("cluster", "/cluster"),
        ("leader", "/leader/replica"),
        ("silent ms", "/leader/silentMs"),
        ("since", "/sinceMs"),
        ("standby", "/standbys/0/replica"),
        ("changes", "/changes"),
        ("deduplicated samples", "/samplesDeduplicated"),
    ],
};
const RELABEL: View = View {
    path: "/api/v1/status/relabel",
    list: "/rules",
    total: None,
    columns: &[
        ("rule", "/name"),
        ("state", "/state"),
        ("series", "/series"),
        ("samples/s", "/samplesPerSecond"),
        ("disabled by", "/disabledByUse/who"),
        ("disabling selector", "/disabledByUse/selector"),
        ("would be disabled by", "/wouldBeDisabledBy/who"),
        ("would-be disabling selector", "/wouldBeDisabledBy/selector"),
    ],
};
const REJECTS: View = View {
    path: "/api/v1/status/rejects",
    list: "/rejects",
    total: None,
    columns: &[
        ("reason", "/reason"),
        ("requests", "/requests"),
        ("samples", "/samples"),
        ("last", "/lastMs"),
        ("sender", "/sender/userAgent"),
        ("example", "/example/text"),
    ],
};
const SENDERS: View = View {
    path: "/api/v1/status/senders",
    list: "/senders",
    total: None,
    columns: &[
        ("address", "/address"),
        ("user", "/user"),
        ("user agent", "/userAgent"),
        ("path", "/path"),
        ("samples/s", "/samplesPerSecond"),
        ("last", "/lastMs"),
        ("failed requests", "/failed"),
        ("last error", "/lastError"),
    ],
};
const QUERIES: View = View {
    path: "/api/v1/status/queries",
    list: "",
    total: None,
    columns: &[
        ("id", "/id"),
        ("stage", "/stage"),
        ("age s", "/ageSeconds"),
        ("memory bytes", "/memoryBytes"),
        ("samples", "/samples"),
        ("user agent", "/userAgent"),
        ("query", "/query"),
    ],
};
const TOP: View = View {
    path: "/api/v1/status/top_queries",
    list: "/queries",
    total: None,
    columns: &[
        ("seconds", "/seconds"),
        ("longest", "/secondsMax"),
        ("queries", "/queries"),
        ("failed", "/failed"),
        ("samples", "/samples"),
        ("memory bytes", "/memoryPeakBytes"),
        ("user agent", "/userAgent"),
        ("query", "/shape"),
    ],
};
const REPLAY: View = View {
    path: "/api/v1/status/walreplay",
    list: "",
    total: None,
    columns: &[("replayed files", "/current"), ("all files", "/max")],
};

/// Runs `varve status ...`.
///
/// # Errors
/// If the server cannot be reached, or no log of active requests can be read.
pub fn run(command: &StatusCommand) -> Result<()> {
    let (view, args) = match command {
        StatusCommand::Teams(args) => (TEAMS, args),
        StatusCommand::Ha(args) => (HA, args),
        StatusCommand::Relabel(args) => (RELABEL, args),
        StatusCommand::Rejects(args) => (REJECTS, args),
        StatusCommand::Queries(args) => (QUERIES, args),
        StatusCommand::Top(TopArgs { view, .. }) => (TOP, view),
        StatusCommand::Senders(args) => (SENDERS, args),
        StatusCommand::Replay(args) => (REPLAY, args),
        StatusCommand::LastWords(args) => return last_words(args),
    };
    let path = match command {
        StatusCommand::Top(TopArgs { range, .. }) => format!("{}?range={range}", view.path),
        _ => view.path.to_owned(),
    };
    let mut client = args.server.client()?;
    let data = client.get_data(&path)?;
    let ready = match command {
        // The numbers of files do not tell whether the replay has ended.
        StatusCommand::Replay(_) => client.get("/-/ready")?.text() + "\n",
        _ => String::new(),
    };
    args.output.print(|| view.print(&data) + &ready, || &data);
    Ok(())
}

impl View {
    /// Returns the table of a response.
    fn print(&self, data: &Value) -> String {
        let listed = data.pointer(self.list).unwrap_or(&Value::Null);
        let elements = listed
            .as_array()
            .map_or(std::slice::from_ref(listed), Vec::as_slice);
        if elements.is_empty() {
            return "none\n".to_owned();
        }
        let header: Vec<_> = self.columns.iter().map(|(head, _)| *head).collect();
        let mut rows: Vec<_> = elements.iter().map(|element| self.row(element)).collect();
        if let Some((pointer, name)) = self.total
            && let Some(total) = data.pointer(pointer)
        {
            let mut row = self.row(total);
            row[0] = name.to_owned();
            rows.push(row);
        }
        table(&header, rows)
    }

    /// Returns the cells of an element.
    fn row(&self, element: &Value) -> Vec<String> {
        let mut row = Vec::new();
        for (_, pointer) in self.columns {
            row.push(cell(pointer, element.pointer(pointer)));
        }
        row
    }
}

/// Returns a value of a response as a cell.
fn cell(pointer: &str, value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        // The team of series without a team.
        Some(Value::String(text)) if text.is_empty() => "\"\"".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) if matches!(pointer, "/sinceMs" | "/lastMs") => {
            value.as_i64().map(print_time).unwrap_or_default()
        }
        Some(value) if value.is_f64() => format!("{:.1}", value.as_f64().unwrap_or_default()),
        Some(value) => value.to_string(),
    }
}

fn last_words(args: &LastWordsArgs) -> Result<()> {
    let mut n_read = 0;
    let mut refusals = Vec::new();
    for path in active_requests::files(&args.path) {
        match active_requests::read(&path) {
            Ok(found) => {
                let gap = if n_read == 0 { "" } else { "\n" };
                // Only the newest log can be that of a running server.
                print!(
                    "{gap}{}",
                    report(&found, n_read == 0 && is_locked(&args.path))
                );
                n_read += 1;
            }
            // After the first start there is no log of a previous process.
            Err(_) if !path.exists() => {}
            Err(rejected) => refusals.push(format!("{rejected:#}")),
        }
    }
    match (n_read, &refusals[..]) {
        (0, []) => bail!("no log of active requests in {:?}", args.path),
        (_, []) => Ok(()),
        (_, refusals) => bail!("{}", refusals.join("; ")),
    }
}

/// Returns the report of a process.
fn report(found: &RecordedRequests, is_running: bool) -> String {
    let mut out = String::new();
    let end = match (found.is_clean_shutdown, is_running) {
        (true, _) => "shut down",
        (false, true) => "is running",
        (false, false) => "was killed or crashed",
    };
    let _ = writeln!(
        out,
        "Process {}, started {}, {end}.",
        found.pid,
        print_time(found.started_ms)
    );
    let active = found.active();
    if active.is_empty() {
        let _ = writeln!(out, "No active requests.");
    } else {
        let _ = writeln!(out, "Active requests, heaviest first ({}):", active.len());
        for record in active {
            describe(&mut out, record);
        }
    }
    let mut ended: Vec<_> = found
        .records
        .iter()
        .filter(|record| matches!(record.state, RequestState::Completed | RequestState::Failed))
        .collect();
    ended.sort_by_key(|record| std::cmp::Reverse((record.recorded_ms, record.id)));
    // Rule evaluations are numerous. Listed separately, they leave room for requests of clients.
    let (rules, requests): (Vec<_>, Vec<_>) = ended
        .into_iter()
        .partition(|record| record.route == RULE_ROUTE);
    for (what, ended) in [("requests", requests), ("rule evaluations", rules)] {
        if !ended.is_empty() {
            let _ = writeln!(
                out,
                "Finished {what}, latest first ({} known):",
                ended.len()
            );
            for record in ended.into_iter().take(ENDED_SHOWN) {
                describe(&mut out, record);
            }
        }
    }
    if found.n_damaged > 0 {
        let _ = writeln!(out, "{} records are damaged.", found.n_damaged);
    }
    out
}

fn describe(out: &mut String, record: &Record) {
    let Record {
        id,
        started_ms,
        recorded_ms,
        held_bytes,
        peak_bytes,
        n_series,
        n_samples,
        ..
    } = record;
    let state = record.state.name();
    let route = &record.route;
    let age_ms = recorded_ms.saturating_sub(*started_ms);
    let _ = writeln!(
        out,
        "  {id} {state} {route} {age_ms} ms, since {}",
        print_time(*started_ms)
    );
    let _ = writeln!(
        out,
        "    memory {held_bytes} bytes, peak {peak_bytes}; series {n_series}, samples {n_samples}"
    );
    for (name, text) in [
        ("query", &record.text),
        ("client", &record.client),
        ("user", &record.user),
        ("agent", &record.user_agent),
        ("reason", &record.reason),
    ] {
        if !text.is_empty() {
            let _ = writeln!(out, "    {name} {text:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_row_of_teams_is_their_total() {
        let team = |name, series| json!({"team": name, "use": {"activeSeries": series}});
        let all = json!({"use": {"activeSeries": 3}, "maximum": {"activeSeries": 3}});
        let text = TEAMS.print(&json!({"all": all, "teams": [team("", 1), team("a", 2)]}));
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1][..2], ["\"\"", "1"], "{text}");
        assert_eq!(rows[3][..5], ["all", "teams", "3", "-", "3"], "{text}");
    }

    #[test]
    fn finished_requests_are_listed_apart_from_rule_evaluations_latest_first() {
        let record = |id, route: &str| Record {
            state: RequestState::Completed,
            id,
            recorded_ms: 1,
            route: route.into(),
            text: format!("query_{id}"),
            ..Record::default()
        };
        let records = (1..=20)
            .map(|id| record(id, if id <= 2 { "/api/v1/query" } else { RULE_ROUTE }))
            .collect();
        let text = report(
            &RecordedRequests {
                pid: 7,
                started_ms: 0,
                is_clean_shutdown: false,
                records,
                n_damaged: 0,
            },
            false,
        );
        let order = [
            "Finished requests, latest first (2",
            "query_2\"",
            "query_1\"",
            "rule evaluations, latest first (18",
            "query_20",
        ];
        assert!(
            order
                .map(|part| text
                    .find(part)
                    .unwrap_or_else(|| panic!("{part} is not in\n{text}")))
                .is_sorted(),
            "{text}"
        );
        assert!(!text.contains("query_3\""), "{text}");
    }

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
            record(1, RequestState::Completed, 9),
            record(2, RequestState::Working, 5),
            record(3, RequestState::Working, 70),
            record(4, RequestState::Waiting, 0),
        ];
        let found = RecordedRequests {
            pid: 7,
            started_ms: 0,
            is_clean_shutdown: false,
            records,
            n_damaged: 1,
        };
        let text = report(&found, false);
        let position = |part: &str| {
            text.find(part)
                .unwrap_or_else(|| panic!("{part} is not in\n{text}"))
        };
        let order = [
            "Process 7",
            "(3)",
            "query_3",
            "query_2",
            "query_4",
            "Finished requests",
            "query_1",
            "1 records",
        ];
        assert!(order.map(position).is_sorted(), "{text}");
        assert!(
            text.contains("  3 working  1500 ms, since 2023-11-14T22:13:20.000Z"),
            "{text}"
        );
    }
}
