//! `varve rules explain`.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Deserialize;
use varve_client::escape;
use varve_wire::api::explain::{
    ExampleSeries, ExplainedAlert, ExplainedStep, Explanation, Explanations,
};

use super::args::RulesExplainArgs;
use crate::label::label_set;
use crate::report::time;

/// Asks a server and prints its explanation.
pub(super) fn explain(args: &RulesExplainArgs) -> Result<()> {
    let mut path = format!("/api/v1/rules/explain?alert={}", escape(&args.alert));
    if let Some(group) = &args.rule_group {
        let _ = write!(path, "&rule_group={}", escape(group));
    }
    if let Some(time_ms) = args.time {
        let _ = write!(path, "&time={}", time_ms as f64 / 1000.0);
    }
    let data = args.view.server.client()?.get_data(&path)?;
    let found = Explanations::deserialize(&data).context("parse the response")?;
    args.view
        .output
        .print(|| found.rules.iter().map(print).collect(), || &data);
    Ok(())
}

fn print(rule: &Explanation) -> String {
    let Explanation {
        group,
        name,
        time_ms,
        reason,
        steps,
        alerts,
        ..
    } = rule;
    let mut text = format!(
        "{name} in group {group}, at {}\n  {reason}\n\n",
        time(*time_ms)
    );
    let _ = writeln!(text, "{:>8}  expression", "series");
    for ExplainedStep {
        depth,
        expr,
        series,
        examples,
    } in steps
    {
        let expr = expr.split_whitespace().collect::<Vec<_>>().join(" ");
        let indent = *depth as usize * 2;
        let _ = writeln!(text, "{series:>8}  {:indent$}{expr}", "");
        for ExampleSeries { labels, value } in examples {
            let _ = writeln!(
                text,
                "{:1$}{2} = {value}",
                "",
                12 + indent,
                label_set(labels)
            );
        }
    }
    for ExplainedAlert {
        labels,
        state,
        value,
        active_at_ms,
        fires_in_ms,
    } in alerts
    {
        let left = match fires_in_ms {
            0 => String::new(),
            left_ms => format!(
                ", fires in {}",
                varve_promql::duration::print_duration(*left_ms)
            ),
        };
        let _ = writeln!(
            text,
            "  {state} {} = {value}, active since {}{left}",
            label_set(labels),
            time(*active_at_ms)
        );
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_is_printed_as_a_tree() {
        let response = r#"{"file": "f", "group": "g", "name": "A", "query": "a > 1", "timeMs": 0,
            "reason": "1 alert is pending", "state": "pending", "lastError": "",
            "steps": [{"depth": 0, "expr": "a > 1", "series": 0, "examples": []},
                {"depth": 1, "expr": "a", "series": 1, "examples": [{"labels": {"x": "y"}, "value": "1"}]}],
            "alerts": [{"labels": {"x": "y"}, "state": "pending", "value": "2", "activeAtMs": 0, "firesInMs": 90000}]}"#;
        let printed = print(&serde_json::from_str(response).unwrap());
        let expect = "A in group g, at 1970-01-01T00:00:00Z\n  1 alert is pending\n\n  series  expression\n       0  a > 1\n\
                      \x20      1    a\n              {x=\"y\"} = 1\n  pending {x=\"y\"} = 2, active since \
                      1970-01-01T00:00:00Z, fires in 1m30s\n\n";
        assert_eq!(printed, expect);
    }
}
