//! `varve query`: queries any server with Prometheus' HTTP API, with the flags and the output of
//! promtool.
//!
//! `response` parses responses, `print` prints results as promtool does, `buckets` analyzes
//! histograms, and `explain` prints the plan of a query, which only Varve provides.
//!
//! Bounds: the client rejects responses that are too long. See [`varve_client`].

mod args;
mod buckets;
mod explain;
mod print;
mod response;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde::Serialize;
use varve_client::{Client, escape};
use varve_system::printing::failure;
use varve_system::quantity::print_duration;

pub use args::QueryCommand;

use args::{InstantArgs, LabelsArgs, RangeArgs, SelectionArgs, SeriesArgs};
use response::{Data, Labels, Value};

use crate::output::Output;
use crate::server_args::ServerArgs;

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
    let data = Server::of(&args.view.server)?.post("/api/v1/query", &params)?;
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
    let data = Server::of(&args.view.server)?.post("/api/v1/query_range", &params)?;
    print_value(&data, args.view.output.output)
}

fn series(args: &SeriesArgs) -> Result<()> {
    let data = Server::of(&args.view.server)?
        .post("/api/v1/series", &args.selection.params(&args.selectors)?)?;
    let found: Vec<Labels> = data.read()?;
    print_list(&found, print::label_set, args.view.output.output)
}

fn labels(args: &LabelsArgs) -> Result<()> {
    let path = format!("/api/v1/label/{}/values", escape(&args.name));
    let params = args.selection.params(&args.selectors)?;
    // This endpoint has no POST.
    let data = Server::of(&args.view.server)?.get(&path, &params)?;
    for warning in &data.warnings {
        eprintln!("query warning: {warning}");
    }
    let found: Vec<String> = data.read()?;
    print_list(&found, String::clone, args.view.output.output)
}

fn print_list<T: Serialize>(
    found: &[T],
    print: impl Fn(&T) -> String,
    format: Output,
) -> Result<()> {
    match format {
        Output::Table => found.iter().for_each(|item| println!("{}", print(item))),
        Output::Json => println!("{}", print::html_escaped(&serde_json::to_string(found)?)),
    }
    Ok(())
}

fn print_value(data: &Data, format: Output) -> Result<()> {
    let value: Value = data.read()?;
    match format {
        Output::Table => println!("{}", print::promql(&value)),
        Output::Json => println!("{}", print::json(&value)),
    }
    Ok(())
}

/// A queried server.
struct Server(Client);

impl Server {
    fn of(args: &ServerArgs) -> Result<Self> {
        args.client().context("error creating API client").map(Self)
    }

    /// Sends a POST request, as queries may be long, or a GET request if the server does not allow
    /// POST.
    fn post(&mut self, path: &str, params: &[(&str, String)]) -> Result<Data> {
        let response = self
            .0
            .post_form(path, &encode(params))
            .context("query error")?;
        match response.status {
            403 | 405 | 501 => self.get(path, params),
            _ => Data::parse(&response).context("query error"),
        }
    }

    fn get(&mut self, path: &str, params: &[(&str, String)]) -> Result<Data> {
        let response = self
            .0
            .get(&format!("{path}?{}", encode(params)))
            .context("query error")?;
        Data::parse(&response).context("query error")
    }
}

impl SelectionArgs {
    fn params(&self, selectors: &[String]) -> Result<Vec<(&'static str, String)>> {
        let mut params: Vec<_> = selectors
            .iter()
            .map(|selector| ("match[]", selector.clone()))
            .collect();
        for (name, text) in [("start", &self.start), ("end", &self.end)] {
            if let Some(text) = text {
                let time_s =
                    parse_time(text).with_context(|| format!("error parsing {name} time"))?;
                params.push((name, time_s.to_string()));
            }
        }
        Ok(params)
    }
}

fn encode(params: &[(&str, String)]) -> String {
    let pairs = params
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn now_s() -> f64 {
    Timestamp::now().as_millisecond() as f64 / 1000.0
}

/// Parses Unix seconds or RFC 3339.
pub(super) fn parse_time(text: &str) -> Result<f64> {
    if let Some(time_s) = text.parse().ok().filter(|time_s: &f64| time_s.is_finite()) {
        return Ok(time_s);
    }
    match text.parse::<Timestamp>() {
        Ok(time) => Ok(time.as_nanosecond() as f64 / 1e9),
        Err(_) => bail!("cannot parse {text:?} to a valid timestamp"),
    }
}

/// Returns the range selector that `varve query analyze` queries.
fn range_selector(selector: &str, range: std::time::Duration) -> String {
    format!("{selector}[{}]", print_duration(range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_unix_seconds_or_rfc_3339() {
        assert_eq!(parse_time("1700000000.5").unwrap(), 1_700_000_000.5);
        assert_eq!(parse_time("2023-11-14T22:13:20Z").unwrap(), 1_700_000_000.0);
        for bad in ["", "yesterday", "NaN", "inf"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parameters_are_escaped() {
        assert_eq!(
            encode(&[("match[]", "{a=\"b c\"}".to_owned())]),
            "match%5B%5D=%7Ba%3D%22b%20c%22%7D"
        );
        assert_eq!(range_selector("up", Duration::from_secs(3600)), "up[1h]");
    }
}
