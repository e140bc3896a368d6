//! `varve-bench history`: days of data in Varve and its peers, and queries over hours and days.
//!
//! docs/development/bench.md lists the steps. Servers run one after the other. Each is restarted
//! before its queries, so that no cache of the process knows them.

mod data;
mod draw;
mod measure;
mod report;
mod response;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::args::{HistoryArgs, OutputFormat};
use crate::output::print;
use crate::parse::now_ms;
use crate::server::{self, Server};
use crate::server_process::Scratch;
use data::{INTERVAL_MS, Parameters, WrittenData};
use draw::Drawn;
use measure::measure;
use report::Report;

/// Servers retain the data for this many more days than it covers, so that it can be used again.
const RETENTION_DAYS: u64 = 30;
/// The data ends this long ago: VictoriaMetrics hides the newest 30 seconds.
const AGE_MS: i64 = 60_000;

/// Compares the servers and prints tables, or JSON.
///
/// # Errors
/// If a server cannot be run or rejects samples, or if kept data has other parameters.
pub(crate) fn history(args: &HistoryArgs) -> Result<()> {
    let servers = server::list(
        &args.servers,
        &args.programs,
        Some(args.days + RETENTION_DAYS),
    )?;
    let expressions = draw::expressions(args.expressions.as_deref(), args.seed)?;
    let scratch;
    let root = match &args.data {
        Some(dir) => dir.as_path(),
        None => {
            scratch = Scratch::new("history")?;
            scratch.path()
        }
    };
    let parameters = Parameters::new(args);
    let mut kept = Vec::new();
    for server in &servers {
        kept.push(data::kept(&server_dir(root, server), &parameters)?);
    }
    let start_ms = start_ms(&kept, &parameters)?;
    let end_s = (start_ms + parameters.duration_ms()) / 1000;

    let mut drawn: Option<Drawn> = None;
    let mut measured = Vec::new();
    for (server, kept) in servers.iter().zip(kept) {
        let dir = server_dir(root, server);
        let written = match kept {
            Some(written) => written,
            None => data::write(server, &dir, &parameters, start_ms)
                .with_context(|| format!("write to {}", server.name()))?,
        };
        let drawn = match &mut drawn {
            Some(drawn) => drawn,
            // The draw runs queries. The restart below makes the server forget them.
            None => drawn.insert(draw_on(server, &dir, &expressions, end_s, args)?),
        };
        eprintln!("{}: {} queries", server.name(), drawn.queries.len());
        let outcomes = measure(server, &dir, &drawn.queries, end_s, args.rounds)
            .with_context(|| format!("query {}", server.name()))?;
        measured.push((server, written, outcomes));
    }
    let drawn = drawn.context("at least one server is needed")?;
    let report = Report::new(args, end_s, drawn, measured);
    match args.format {
        OutputFormat::Table => print(report),
        OutputFormat::Json => print(report.json()? + "\n"),
    }
}

/// Draws the queries from those that have data on a server.
fn draw_on(
    server: &Server,
    dir: &Path,
    expressions: &[String],
    end_s: i64,
    args: &HistoryArgs,
) -> Result<Drawn> {
    eprintln!("{}: draw queries", server.name());
    let running = server.start(dir)?;
    let drawn = draw::draw(&running.url(""), expressions, end_s, args)?;
    running.stop()?;
    Ok(drawn)
}

/// Returns the directory of a server below the directory of all servers.
fn server_dir(root: &Path, server: &Server) -> PathBuf {
    root.join(server.name().to_lowercase())
}

/// Returns the time of the first scrape: that of kept data, or the one with which the data ends
/// now.
fn start_ms(kept: &[Option<WrittenData>], parameters: &Parameters) -> Result<i64> {
    let mut starts = kept.iter().flatten().map(|written| written.start_ms);
    let Some(first) = starts.next() else {
        let end_ms = (now_ms() - AGE_MS) / INTERVAL_MS * INTERVAL_MS;
        return Ok(end_ms - parameters.duration_ms());
    };
    ensure!(
        starts.all(|start_ms| start_ms == first),
        "the servers' data begins at different times; remove that of all but one"
    );
    Ok(first)
}
