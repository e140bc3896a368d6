//! `varve query explain`: the work of each operator of a query.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use varve_client::escape;

use super::args::QueryExplainArgs;

/// Runs `varve query explain`: sends a query to a server and prints the statistics of each
/// operator.
///
/// # Errors
/// If the server cannot be reached or returns an error.
pub(super) fn explain(args: &QueryExplainArgs) -> Result<()> {
    let data = args.view.server.client()?.get_data(&path(args)?)?;
    let explained = Explained::deserialize(&data).context("parse the response")?;
    args.view.output.print(|| print(&explained), || &data);
    Ok(())
}

fn path(args: &QueryExplainArgs) -> Result<String> {
    let mut path = format!("/api/v1/query_explain?query={}", escape(&args.query));
    let is_complete = args.start.is_some() && args.end.is_some() && args.step.is_some();
    let is_range = args.start.is_some() || args.end.is_some() || args.step.is_some();
    if is_range && (!is_complete || args.time.is_some()) {
        bail!("a range query needs --start, --end and --step without --time");
    }
    for (name, time_ms) in [
        ("start", args.start),
        ("end", args.end),
        ("time", args.time),
    ] {
        if let Some(time_ms) = time_ms {
            let _ = write!(path, "&{name}={}", time_ms as f64 / 1000.0);
        }
    }
    if let Some(step) = &args.step {
        let _ = write!(path, "&step={}", escape(step));
    }
    Ok(path)
}

#[derive(Deserialize)]
struct Explained {
    timings: Timings,
    samples: Samples,
    operators: Vec<Operator>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timings {
    eval_total_time: f64,
    query_preparation_time: f64,
    exec_queue_time: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    total_queryable_samples: u64,
    samples_read: u64,
    peak_samples: u64,
}

#[derive(Deserialize)]
struct Operator {
    depth: usize,
    operator: String,
    runs: u64,
    series: u64,
    samples: u64,
    bytes: u64,
    seconds: f64,
}

/// Prints a line for each operator, indented by depth.
fn print(explained: &Explained) -> String {
    let Explained {
        timings,
        samples,
        operators,
    } = explained;

    let mut text = format!(
        "{} ms, of which {} to prepare; {} ms in the queue\n{} samples queryable, {} read, {} held at most\n\n",
        millis(timings.eval_total_time),
        millis(timings.query_preparation_time),
        millis(timings.exec_queue_time),
        samples.total_queryable_samples,
        samples.samples_read,
        samples.peak_samples
    );
    let _ = writeln!(
        text,
        "{:>12} {:>6} {:>10} {:>12} {:>12}  operator",
        "ms", "runs", "series", "samples", "bytes held"
    );
    for Operator {
        depth,
        operator,
        runs,
        series,
        samples,
        bytes,
        seconds,
    } in operators
    {
        let time = millis(*seconds);
        let indent = depth * 2;
        let _ = writeln!(
            text,
            "{time:>12} {runs:>6} {series:>10} {samples:>12} {bytes:>12}  {:indent$}{operator}",
            ""
        );
    }
    text
}

fn millis(seconds: f64) -> String {
    format!("{:.3}", seconds * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_printed_as_a_tree() {
        let response = r#"{"timings": {"evalTotalTime": 0.0125, "queryPreparationTime": 0.0005, "execQueueTime": 0},
            "samples": {"totalQueryableSamples": 20, "samplesRead": 11, "peakSamples": 7},
            "operators": [
                {"depth": 0, "operator": "sum", "runs": 1, "series": 2, "samples": 4, "bytes": 100, "seconds": 0.012},
                {"depth": 1, "operator": "rate()", "runs": 1, "series": 9, "samples": 18, "bytes": 0, "seconds": 0.01}]}"#;
        let printed = print(&serde_json::from_str(response).unwrap());
        let lines: Vec<_> = printed.lines().collect();
        assert_eq!(
            lines[0],
            "12.500 ms, of which 0.500 to prepare; 0.000 ms in the queue"
        );
        assert_eq!(lines[1], "20 samples queryable, 11 read, 7 held at most");
        assert_eq!(
            lines[4],
            "      12.000      1          2            4          100  sum"
        );
        assert_eq!(
            lines[5],
            "      10.000      1          9           18            0    rate()"
        );
    }
}
