//! `varve query`: queries any server with Prometheus' HTTP API, with the flags and the output of
//! promtool.
//!
//! `server` sends requests, `response` parses responses, `print` prints results as promtool does, `buckets` analyzes
//! histograms, and `explain` prints the plan of a query, which only Varve provides.
//!
//! Bounds: the client rejects responses that are too long. See [`varve_client`].

mod args;
mod buckets;
mod explain;
mod print;
pub(crate) mod response;
mod server;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde::Serialize;
use varve_client::escape;
use varve_system::printing::failure;

pub use args::QueryCommand;

use args::{CancelArgs, InstantArgs, LabelsArgs, RangeArgs, SeriesArgs, parse_time};
use response::{Data, Labels, Value};
use server::Server;

use crate::output::Output;

/// Number of points of a range query without a step.
const POINTS: f64 = 250.0;
/// Default range of a range query in seconds.
const RANGE_S: f64 = 300.0;

/// Runs `varve query ...`.
pub fn run(command: &QueryCommand) -> ExitCode {
    let result = match command {
        QueryCommand::Instant(args) => instant(args),
        QueryCommand::Range(args) => range(args),
        QueryCommand::Series(args) => series(args),
        QueryCommand::Labels(args) => labels(args),
        QueryCommand::Analyze(args) => buckets::analyze(args),
        QueryCommand::Explain(args) => explain::explain(args),
        QueryCommand::Cancel(args) => cancel(args),
    };
    result.map_or_else(|error| failure(&error), |()| ExitCode::SUCCESS)
}

fn instant(args: &InstantArgs) -> Result<()> {
    let time_s = args
        .time
        .as_deref()
        .map(|time| parse_time(time).context("error parsing evaluation time"))
        .transpose()?;
    let mut params = vec![("query", args.expr.clone())];
    params.extend(time_s.map(|time_s| ("time", time_s.to_string())));
    let data = Server::new(&args.view.server)?.post("/api/v1/query", &params)?;
    print_value(&data, args.view.output.output)
}

fn range(args: &RangeArgs) -> Result<()> {
    let end_s = args
        .end
        .as_deref()
        .map_or_else(|| Ok(now_s()), parse_time)
        .context("error parsing end time")?;
    let start_s = args
        .start
        .as_deref()
        .map_or(Ok(end_s - RANGE_S), parse_time)
        .context("error parsing start time")?;
    if start_s >= end_s {
        bail!("start time is not before end time");
    }
    let step_s = match args.step {
        Some(step) if !step.is_zero() => step.as_secs_f64(),
        _ => ((end_s - start_s) / POINTS).floor().max(1.0),
    };
    let params = [
        ("query", args.expr.clone()),
        ("start", start_s.to_string()),
        ("end", end_s.to_string()),
        ("step", step_s.to_string()),
    ];
    let data = Server::new(&args.view.server)?.post("/api/v1/query_range", &params)?;
    print_value(&data, args.view.output.output)
}

fn series(args: &SeriesArgs) -> Result<()> {
    let data = Server::new(&args.view.server)?
        .post("/api/v1/series", &args.selection.params(&args.selectors)?)?;
    data.print_annotations();
    let found: Vec<Labels> = data.read()?;
    print_list(&found, print::label_set, args.view.output.output)
}

fn labels(args: &LabelsArgs) -> Result<()> {
    let path = format!("/api/v1/label/{}/values", escape(&args.name));
    let params = args.selection.params(&args.selectors)?;
    // This endpoint has no POST.
    let data = Server::new(&args.view.server)?.get(&path, &params)?;
    data.print_annotations();
    let found: Vec<String> = data.read()?;
    print_list(&found, String::clone, args.view.output.output)
}

fn cancel(args: &CancelArgs) -> Result<()> {
    let id = &args.id;
    let mut client = args.server.client()?;
    let path = format!("/api/v1/status/queries/{}", escape(id));
    let response = client.delete(&path)?;
    client.ensure_success(&path, &response)?;
    println!("request {id} is canceled");
    Ok(())
}

fn print_list<T: Serialize>(
    found: &[T],
    print: impl Fn(&T) -> String,
    format: Output,
) -> Result<()> {
    match format {
        Output::Table => {
            for item in found {
                println!("{}", print(item));
            }
        }
        Output::Json => println!("{}", print::html_escaped(&serde_json::to_string(found)?)),
    }
    Ok(())
}

fn print_value(data: &Data, format: Output) -> Result<()> {
    data.print_annotations();
    let value: Value = data.read()?;
    match format {
        Output::Table => println!("{}", print::promql(&value)),
        Output::Json => println!("{}", print::json(&value)),
    }
    Ok(())
}

fn now_s() -> f64 {
    Timestamp::now().as_millisecond() as f64 / 1000.0
}
