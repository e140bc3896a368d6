//! `varve-bench mixed`: queries and a steady rate of writes at the same time.
//!
//! Half of the fleet's scrapes are written as fast as the server accepts them. The queries of
//! `query` then run three times: without writes, during writes, and during writes from several
//! clients. Data time advances as fast as scrapes are sent, so all of it is in the past.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow, bail};

use crate::args::MixedArgs;
use crate::fleet::Fleet;
use crate::output::print;
use crate::parse::now_ms;
use crate::query::{QueryResult, geometric_mean_ms, run_all};
use crate::table::table;
use crate::write::{WriteOptions, Written, write_fleet};

/// Runs the three phases and prints their results.
///
/// # Errors
/// If the server cannot be reached or rejects samples, or if the scrapes end before the queries.
pub(crate) fn mixed(args: &MixedArgs) -> Result<()> {
    let n_rounds = args.fleet.n_rounds();
    let start_ms = now_ms() - n_rounds * args.fleet.interval_ms();
    let mut bench = Mixed {
        args,
        fleet: Fleet::new(args.fleet.options(start_ms)),
        rounds: 0..n_rounds,
    };
    bench.write_half()?;
    let quiet = bench.query()?;
    let (concurrent, written) = bench.while_writing(1)?;
    print(comparison(&quiet, &concurrent[0]))?;
    print(format_args!("one client, during writes:\n{written}\n"))?;
    let (results, written) = bench.while_writing(usize::from(args.clients))?;
    let n_queries = results.iter().flatten().count() * usize::from(args.repeats);
    print(format_args!(
        "{} clients in a loop, {n_queries} queries, during writes:\n{written}\n",
        args.clients
    ))
}

struct Mixed<'a> {
    args: &'a MixedArgs,
    fleet: Fleet,
    /// Scrapes that are not sent yet.
    rounds: Range<i64>,
}

impl Mixed<'_> {
    fn write_half(&mut self) -> Result<()> {
        let half = self.rounds.end / 2;
        write_fleet(&self.fleet, self.rounds.start..half, &self.options(None))?.check()?;
        self.rounds.start = half;
        Ok(())
    }

    /// Runs all queries over the hour before the last written scrape.
    fn query(&self) -> Result<Vec<QueryResult>> {
        let options = self.fleet.options();
        let time_ms = options.start_ms + self.rounds.start * options.interval_ms;
        run_all(
            &self.args.url,
            time_ms / 1000,
            usize::from(self.args.repeats),
        )
    }

    /// Runs all queries from each client, and writes until all clients are done.
    fn while_writing(&mut self, n_clients: usize) -> Result<(Vec<Vec<QueryResult>>, Written)> {
        let is_over = AtomicBool::new(false);
        let this = &*self;
        let (results, written) = thread::scope(|scope| {
            let writer = scope.spawn(|| this.write_until(&is_over));
            let clients: Vec<_> = (0..n_clients)
                .map(|_| scope.spawn(|| this.query()))
                .collect();
            let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            (results, writer.join())
        });
        let results = results
            .into_iter()
            .map(|result| result.map_err(|_| anyhow!("a client panicked"))?);
        let (written, next) = written.map_err(|_| anyhow!("the writer panicked"))??;
        self.rounds.start = next;
        Ok((results.collect::<Result<_>>()?, written))
    }

    /// Writes scrapes at the rate, at least one, until `is_over`. Returns the next round.
    fn write_until(&self, is_over: &AtomicBool) -> Result<(Written, i64)> {
        let options = self.options(Some(self.args.rate as f64));
        let mut all = Written::default();
        for round in self.rounds.clone() {
            all.append(write_fleet(&self.fleet, round..round + 1, &options)?);
            if is_over.load(Ordering::Relaxed) {
                all.check()?;
                return Ok((all, round + 1));
            }
        }
        bail!("the scrapes end before the queries; increase --duration")
    }

    fn options(&self, rate: Option<f64>) -> WriteOptions {
        WriteOptions {
            rate,
            ..WriteOptions::new(&self.args.url)
        }
    }
}

/// Returns a table of the medians of both, and their ratio.
fn comparison(quiet: &[QueryResult], concurrent: &[QueryResult]) -> String {
    let mut rows = Vec::new();
    for (quiet, concurrent) in quiet.iter().zip(concurrent) {
        rows.push(row(quiet.name, quiet.median_ms, concurrent.median_ms));
    }
    for (name, is_metadata) in [
        ("queries, geometric mean", false),
        ("metadata, geometric mean", true),
    ] {
        rows.push(row(
            name,
            geometric_mean_ms(quiet, is_metadata),
            geometric_mean_ms(concurrent, is_metadata),
        ));
    }
    table(
        &["query", "idle, ms", "during writes, ms", "ratio"].map(str::to_owned),
        &rows,
    )
}

/// Returns a row of the table: the medians in milliseconds, and their ratio.
fn row(name: &str, quiet_ms: Option<f64>, concurrent_ms: Option<f64>) -> Vec<String> {
    let ratio = match (quiet_ms, concurrent_ms) {
        (Some(quiet_ms), Some(concurrent_ms)) => format!("{:.2}", concurrent_ms / quiet_ms),
        _ => "-".to_owned(),
    };
    vec![
        name.to_owned(),
        shown(quiet_ms),
        shown(concurrent_ms),
        ratio,
    ]
}

fn shown(ms: Option<f64>) -> String {
    ms.map_or("rejected".to_owned(), |ms| format!("{ms:.2}"))
}
