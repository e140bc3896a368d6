//! `varve advise usage`: shows the usage record of a server.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::args::UsageArgs;
use crate::output::table;

/// Runs `varve advise usage`.
///
/// # Errors
/// If the server cannot be reached or has no usage record.
pub(crate) fn usage(args: &UsageArgs) -> Result<()> {
    let mut client = args.view.server.client()?;
    if args.forget {
        let answer = client.post_data("/api/v1/admin/usage/forget", "")?;
        let forgotten = answer["forgotten"].as_u64().unwrap_or(0);
        let text = format!("forgotten metrics and selectors: {forgotten}\n");
        args.view.output.print(|| text, || &answer);
        return Ok(());
    }
    let count_exploration = args.count_exploration;
    let path = format!("/api/v1/status/usage?count_exploration={count_exploration}");
    let mut record = client.get_data(&path)?;

    let metrics = record
        .get_mut("metrics")
        .and_then(Value::as_array_mut)
        .context("the server has no usage record")?;
    if args.unused {
        let queried: BTreeSet<String> = metrics
            .iter()
            .map(|metric| name(metric).to_owned())
            .collect();
        let names = client.get_data("/api/v1/label/__name__/values")?;
        let names = names
            .as_array()
            .context("the server returned no metric names")?
            .iter()
            .filter_map(Value::as_str);
        let unused: Vec<_> = names
            .filter(|name| name.starts_with(&args.prefix) && !queried.contains(*name))
            .collect();
        let rows: Vec<_> = unused.iter().map(|name| [(*name).to_owned()]).collect();
        args.view.output.print(
            || limited(&["metric without a query"], &rows, args.limit),
            || json!({"unused": unused}),
        );
        return Ok(());
    }
    metrics.retain(|metric| name(metric).starts_with(&args.prefix));
    args.view.output.print(|| print(&record, args), || &record);
    Ok(())
}

/// Returns the tables of metrics, of selectors and of exploration.
fn print(record: &Value, args: &UsageArgs) -> String {
    let rows: Vec<_> = list(record, "metrics").map(row).collect();
    let head = ["queries", "last", "metric", "labels", "queried by"];
    let mut text = limited(&head, &rows, args.limit);
    // A prefix asks for metrics.
    if !args.prefix.is_empty() {
        return text;
    }
    for (key, title) in [
        ("selectors", "selector"),
        ("exploration", "exploration, which is no use"),
    ] {
        let rows: Vec<_> = list(record, key).map(row).collect();
        if !rows.is_empty() {
            let head = ["queries", "last", title, "labels", "queried by"];
            text.push('\n');
            text.push_str(&limited(&head, &rows, args.limit));
        }
    }
    text
}

/// Returns a table of at most `limit` rows.
fn limited<const N: usize>(head: &[&str; N], rows: &[[String; N]], limit: usize) -> String {
    let more = rows.len().saturating_sub(limit);
    let rest = if more > 0 {
        format!("  and {more} more, see --limit\n")
    } else {
        String::new()
    };
    table(head, &rows[..rows.len() - more]) + &rest
}

/// Returns the metric or selector of an entry.
fn name(entry: &Value) -> &str {
    entry
        .get("metric")
        .or_else(|| entry.get("selector"))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the elements of a list.
fn list<'v>(metric: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    metric
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn row(metric: &Value) -> [String; 5] {
    let last = metric
        .get("lastMs")
        .and_then(Value::as_i64)
        .and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let labels: BTreeSet<&str> = list(metric, "matchedLabels")
        .chain(list(metric, "groupedLabels"))
        .filter_map(Value::as_str)
        .collect();
    let labels = match metric.get("allLabels").and_then(Value::as_bool) {
        Some(true) => "all".to_owned(),
        _ => labels.into_iter().collect::<Vec<_>>().join(" "),
    };
    let requesters: Vec<_> = list(metric, "requesters").map(requester).collect();
    [
        metric
            .get("queries")
            .and_then(Value::as_u64)
            .unwrap_or(0)
            .to_string(),
        last.map(|last| format!("{last:.0}")).unwrap_or_default(),
        name(metric).to_owned(),
        labels,
        requesters.join(", "),
    ]
}

/// Returns the most specific description of a requester.
fn requester(requester: &Value) -> String {
    let text = |key: &str| {
        requester
            .get(key)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    match (text("rule"), text("dashboard"), text("panel")) {
        (Some(rule), _, _) => format!("rule {rule}"),
        (None, Some(dashboard), Some(panel)) => format!("dashboard {dashboard} panel {panel}"),
        (None, Some(dashboard), None) => format!("dashboard {dashboard}"),
        (None, None, _) => text("userAgent").unwrap_or("unknown").to_owned(),
    }
}
