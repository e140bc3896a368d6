//! `varve tsdb churn`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use varve_advise::churn;
use varve_env::damage::DamageReport;
use varve_tsdb::ReadContext;
use varve_wire::api::churn::ChurnReport;

use super::args::ChurnArgs;
use super::source::OfflineDb;
use crate::output::table;
use crate::report::time;

/// If more than this percentage of all series is new, the store may be too young.
const NEW_PERCENT_OF_YOUNG_STORE: u64 = 90;

/// Runs `varve tsdb churn` on a server or a data directory. Returns the damage of the directory.
///
/// # Errors
/// If the server cannot be reached, or the directory does not exist, is open elsewhere, or cannot
/// be read.
pub(super) fn churn(args: &ChurnArgs) -> Result<DamageReport> {
    let (found, damage) = match &args.path {
        Some(path) => churn_of_directory(path)?,
        None => (churn_of_server(args)?, DamageReport::default()),
    };
    let all_series = match &args.path {
        Some(path) => format!("varve tsdb analyze {}", path.display()),
        None => format!("{}/cardinality", args.view.server.url()),
    };
    args.view
        .output
        .print(|| print(&found, args.limit, &all_series), || &found);
    Ok(damage)
}

/// Returns the report as text, with at most `limit` labels and metrics. Omits those with less than
/// 1 % of the new series. `all_series` is where the labels with the most series are listed, new or
/// not.
fn print(found: &ChurnReport, limit: usize, all_series: &str) -> String {
    let ChurnReport {
        series,
        new_series,
        new_combinations,
        ..
    } = found;
    let next_step = format!(
        "Repeat the command after {}. Until then, {all_series} lists the labels with the most series.\n",
        time(found.end_ms.saturating_add(churn::RANGE_MS))
    );
    if found.earlier_series == 0 {
        return format!(
            "{series} series have samples from {} to {}, and none has samples in the hour before: the store \
             is too young to tell which are new. {next_step}",
            time(found.start_ms),
            time(found.end_ms)
        );
    }
    let mut text = format!(
        "{new_series} of {series} series are new, {new_combinations} of them new combinations of known values.\n"
    );
    // A few samples of the hour before, for example from an import, do not make a store older.
    if new_series.saturating_mul(100) > series.saturating_mul(NEW_PERCENT_OF_YOUNG_STORE) {
        text.push_str(&format!(
            "In the hour before, {} series had samples. If senders started after {}, their series only look new. {next_step}",
            found.earlier_series,
            time(found.start_ms)
        ));
    }
    if !found.summary.is_empty() {
        text.push_str(&found.summary);
        text.push('\n');
    }
    text.push_str(&labels(found, limit));
    text.push('\n');
    text.push_str(&metrics(found, limit));
    if !found.teams.is_empty() {
        text.push('\n');
        text.push_str(&teams(found, limit));
    }
    text
}

/// Returns the share of the new series in percent.
fn share(found: &ChurnReport, n_series: u64) -> String {
    format!("{:.1} %", 100.0 * n_series as f64 / found.new_series as f64)
}

/// Returns `true` for at least 1 % of the new series.
fn is_large(found: &ChurnReport, n_series: u64) -> bool {
    n_series.saturating_mul(100) >= found.new_series
}

fn labels(found: &ChurnReport, limit: usize) -> String {
    let large = found
        .labels
        .iter()
        .filter(|label| is_large(found, label.new_series));
    let rows = large.take(limit).map(|label| {
        [
            share(found, label.new_series),
            label.new_series.to_string(),
            label.new_values.to_string(),
            label.new_series_alone.to_string(),
            label.label.clone(),
            label.metrics.join(", "),
        ]
    });
    let head = ["new", "series", "new values", "alone", "label", "metrics"];
    table(&head, rows)
}

fn metrics(found: &ChurnReport, limit: usize) -> String {
    let large = found
        .metrics
        .iter()
        .filter(|metric| is_large(found, metric.new_series));
    let rows = large.take(limit).map(|metric| {
        let cause = match metric.label.as_str() {
            "" => String::new(),
            label => format!(
                "{:.0} % by {label}; {} without it",
                metric.percent, metric.new_series_without_label
            ),
        };
        [
            share(found, metric.new_series),
            metric.new_series.to_string(),
            metric.metric.clone(),
            cause,
        ]
    });
    table(&["new", "series", "metric", "cause"], rows)
}

fn teams(found: &ChurnReport, limit: usize) -> String {
    let rows = found.teams.iter().take(limit).map(|team| {
        let cause = match team.label.as_str() {
            "" => String::new(),
            label => format!("{:.0} % by {label}", team.percent),
        };
        [
            share(found, team.new_series),
            team.new_series.to_string(),
            team.team.clone(),
            cause,
            team.metric.clone(),
        ]
    });
    table(&["new", "series", "team", "cause", "most in"], rows)
}

fn churn_of_server(args: &ChurnArgs) -> Result<ChurnReport> {
    let mut client = args.view.server.client()?;
    serde_json::from_value(client.get_data("/api/v1/status/churn")?).context("parse the response")
}

fn churn_of_directory(path: &Path) -> Result<(ChurnReport, DamageReport)> {
    let store = OfflineDb::open(path, None)?;
    let Some(newest_ms) = store.db.stats().newest_ms else {
        bail!("data directory {path:?} has no samples")
    };
    let ctx = ReadContext::unbounded();
    let mut kept = ctx.charge();
    let found = churn::find(&store.db, &ctx, newest_ms, churn::RANGE_MS, "", &mut kept)
        .context("find new series")?;
    Ok((ChurnReport::of(found), store.damage))
}

#[cfg(test)]
mod tests {
    use varve_wire::api::churn::{NewSeriesOfLabel, NewSeriesOfMetric, NewSeriesOfTeam};

    use super::*;

    #[test]
    fn reports_list_large_causes_up_to_the_limit() {
        let label = |label: &str, new_series| NewSeriesOfLabel {
            label: label.to_owned(),
            new_series,
            percent: new_series as f64 / 10.0,
            new_series_alone: 2,
            new_values: 3,
            metrics: vec!["a".to_owned(), "b".to_owned()],
        };
        let metric = NewSeriesOfMetric {
            metric: "a".to_owned(),
            new_series: 750,
            label: "pod".to_owned(),
            percent: 100.0,
            new_series_without_label: 2,
        };
        let team = NewSeriesOfTeam {
            team: "ml".to_owned(),
            new_series: 800,
            label: "pod".to_owned(),
            percent: 90.0,
            metric: "a".to_owned(),
        };
        let found = ChurnReport {
            start_ms: 0,
            end_ms: 3_600_000,
            earlier_series: 1,
            series: 2_000,
            new_series: 1_000,
            new_combinations: 0,
            labels: vec![label("pod", 750), label("uid", 20), label("tiny", 9)],
            metrics: vec![metric],
            teams: vec![team],
            summary: "3 new values of the label pod.".to_owned(),
        };
        let text = print(&found, 10, "");
        assert!(!text.contains("only look new"), "{text}");
        assert!(
            text.contains("\n3 new values of the label pod.\n"),
            "{text}"
        );
        assert!(
            text.contains("  80.0 %     800  ml    90 % by pod  a\n"),
            "{text}"
        );
        assert!(
            text.contains("  75.0 %     750           3      2  pod    a, b\n"),
            "{text}"
        );
        assert!(
            text.contains("uid")
                && !text.contains("tiny")
                && text.contains("a       100 % by pod; 2 without it"),
            "{text}"
        );
        assert!(!print(&found, 1, "").contains("uid"));
    }

    /// One imported sample in the hour before made all series of a store new, without a word.
    #[test]
    fn the_report_of_a_young_store_names_the_next_step() {
        let found = |earlier_series, new_series| ChurnReport {
            start_ms: 3_600_000,
            end_ms: 7_200_000,
            earlier_series,
            series: 1_000,
            new_series,
            new_combinations: 0,
            labels: Vec::new(),
            metrics: Vec::new(),
            teams: Vec::new(),
            summary: String::new(),
        };
        let next_step = "Repeat the command after 1970-01-01T03:00:00Z. Until then, http://h:1/cardinality lists";
        let print = |found: &ChurnReport| print(found, 10, "http://h:1/cardinality");
        let young = print(&found(0, 1_000));
        assert!(young.contains("the store is too young"), "{young}");
        assert!(young.contains(next_step), "{young}");
        let imported = print(&found(1, 999));
        assert!(
            imported.contains("In the hour before, 1 series had samples. If senders started after 1970-01-01T01:00:00Z"),
            "{imported}"
        );
        assert!(imported.contains(next_step), "{imported}");
        let old = print(&found(900, 900));
        assert!(!old.contains("Repeat"), "{old}");
    }
}
