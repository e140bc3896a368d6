//! `varve rules backtest`.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Deserialize;
use varve_client::escape;
use varve_wire::api::backtest::{Backtest, BacktestedRule, Firing};

use super::{BacktestArgs, label_set, read};
use crate::wal::time;

/// Sends the file to a server and prints its response.
pub(super) fn backtest(args: &BacktestArgs) -> Result<()> {
    let (start_ms, end_ms) = args.range.times_ms()?;
    let seconds = |time_ms: i64| time_ms as f64 / 1000.0;
    let (start, end, file) = (
        seconds(start_ms),
        seconds(end_ms),
        escape(&args.file.to_string_lossy()),
    );
    let form = format!(
        "start={start}&end={end}&file={file}&rules={}",
        escape(&read(&args.file)?)
    );
    let data = args
        .view
        .server
        .client()?
        .post_data("/api/v1/rules/backtest", &form)?;
    let found = Backtest::deserialize(&data).context("parse the response")?;
    args.view.output.print(|| print(&found), || &data);
    Ok(())
}

fn print(backtest: &Backtest) -> String {
    let mut text: String = backtest
        .warnings
        .iter()
        .map(|warning| format!("warning: {warning}\n"))
        .collect();
    for BacktestedRule {
        group,
        name,
        evaluations,
        failures,
        last_error,
        firings,
        ..
    } in &backtest.rules
    {
        let _ = writeln!(
            text,
            "{name} in group {group}: fires {} times in {evaluations} evaluations",
            firings.len()
        );
        if *failures > 0 {
            let _ = writeln!(text, "  {failures} evaluations fail: {last_error}");
        }
        for Firing {
            labels,
            fired_at_ms,
            resolved_at_ms,
            ..
        } in firings
        {
            let end = if *resolved_at_ms == 0 {
                "the end".to_owned()
            } else {
                time(*resolved_at_ms)
            };
            let _ = writeln!(
                text,
                "  {} to {end} {}",
                time(*fired_at_ms),
                label_set(labels)
            );
        }
    }
    if backtest.is_truncated {
        text.push_str("there are more; use a shorter range\n");
    }
    text
}
