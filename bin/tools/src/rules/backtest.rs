//! `varve rules backtest`.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Deserialize;
use varve_client::escape;
use varve_model::TimeRange;
use varve_wire::api::backtest::{Backtest, BacktestedRule, Firing};

use super::args::BacktestArgs;
use crate::label::label_set;
use crate::report::time;

/// Sends the file to a server and prints its response.
pub(super) fn backtest(args: &BacktestArgs) -> Result<()> {
    let TimeRange { start_ms, end_ms } = args.range.range();
    let rules =
        std::fs::read_to_string(&args.file).with_context(|| format!("read {:?}", args.file))?;
    let form = format!(
        "start={}&end={}&file={}&rules={}",
        start_ms as f64 / 1000.0,
        end_ms as f64 / 1000.0,
        escape(&args.file.to_string_lossy()),
        escape(&rules)
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
