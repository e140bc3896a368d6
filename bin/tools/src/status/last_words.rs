//! `varve status last-words`: what a server was doing when it died, from its data directory.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use varve_system::machine::files::is_locked;
use varve_system::quantity::print_time;
use varve_wire::active_requests::{self, RULE_ROUTE, Record, RecordedRequests, RequestState};

/// Maximum number of finished requests, and of finished rule evaluations, in the report.
const ENDED_SHOWN: usize = 10;

/// Arguments of `varve status last-words`.
#[derive(Debug, Clone, Args)]
pub struct LastWordsArgs {
    /// Data directory
    #[arg(value_name = "DIR", default_value = "data/")]
    pub(crate) path: PathBuf,
}

/// Runs `varve status last-words`.
///
/// # Errors
/// If no log of active requests can be read.
pub(super) fn last_words(args: &LastWordsArgs) -> Result<()> {
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
        let _ = writeln!(out, "Damaged records: {}.", found.n_damaged);
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
        ("grafana", &record.grafana.to_string()),
        ("reason", &record.reason),
    ] {
        if !text.is_empty() {
            let _ = writeln!(out, "    {name} {text:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "Damaged records: 1",
        ];
        assert!(order.map(position).is_sorted(), "{text}");
        assert!(
            text.contains("  3 working  1500 ms, since 2023-11-14T22:13:20.000Z"),
            "{text}"
        );
    }
}
