//! `varve-bench unbounded`: many clients request all series at once during writes.
//!
//! The server already stores the fleet. One more round is written alone at a rate, then another
//! while clients request all series in a loop. The report shows the write rates, the added memory,
//! and the outcome of the requests.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use crate::args::UnboundedArgs;
use crate::client::{Client, escape};
use crate::fleet::Fleet;
use crate::output::{mib, print};
use crate::process;
use crate::write::{WriteOptions, Written, write_fleet};

/// Interval at which the server's memory is read.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The selector of all series.
const ALL: &str = "{__name__=~\".+\"}";

/// The results.
#[derive(Debug)]
struct Report {
    alone: Written,
    concurrent: Written,
    outcomes: Outcomes,
    idle_bytes: u64,
    peak_bytes: u64,
}

/// Outcomes of requests.
#[derive(Debug, Default)]
struct Outcomes {
    n_complete: u64,
    /// Size of the largest complete response.
    size: u64,
    /// Latency of the slowest complete response.
    slowest: Duration,
    /// Responses other than 2xx.
    refused: Vec<String>,
    /// Errors of truncated responses.
    truncated: Vec<String>,
}

/// Runs the benchmark and prints its results.
///
/// # Errors
/// If the server cannot be reached or rejects samples.
pub(crate) fn unbounded(args: &UnboundedArgs) -> Result<()> {
    let fleet = Fleet::new(args.fleet.options(args.start));
    let options = WriteOptions {
        rate: Some(args.rate as f64),
        ..WriteOptions::new(&args.url)
    };
    let next = args.fleet.n_rounds();
    let alone = write_fleet(&fleet, next..next + 1, &options)?;
    alone.check()?;
    let idle_bytes = process::usage(args.pid)?.resident_bytes;
    let stop = AtomicBool::new(false);
    let (concurrent, outcomes, peak_bytes) = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(args.pid, &stop));
        let clients: Vec<_> = (0..args.clients)
            .map(|_| scope.spawn(|| request_all(&args.url, &stop)))
            .collect();
        let concurrent = write_fleet(&fleet, next + 1..next + 2, &options);
        stop.store(true, Ordering::Relaxed);
        let mut outcomes = Outcomes::default();
        for client in clients {
            outcomes.add(client.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        let peak_bytes = watching
            .join()
            .map_err(|_| anyhow!("the watch panicked"))??;
        Ok::<_, anyhow::Error>((concurrent?, outcomes, peak_bytes))
    })?;
    concurrent.check()?;
    ensure!(
        outcomes.n_complete > 0,
        "no complete response: {:?} {:?}",
        outcomes.refused,
        outcomes.truncated
    );
    print(Report {
        alone,
        concurrent,
        outcomes,
        idle_bytes,
        peak_bytes,
    })
}

/// Returns the maximum resident size until the writes end.
fn watch(pid: u32, stop: &AtomicBool) -> Result<u64> {
    let mut peak = 0;
    while !stop.load(Ordering::Relaxed) {
        peak = process::usage(pid)?.resident_bytes.max(peak);
        thread::sleep(POLL_INTERVAL);
    }
    Ok(peak)
}

/// Requests all series until the writes end and the request in progress is complete.
fn request_all(url: &str, stop: &AtomicBool) -> Result<Outcomes> {
    let path = format!("/api/v1/series?match[]={}", escape(ALL));
    let mut client = Client::new(url);
    let mut outcomes = Outcomes::default();
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        match client.get(&path) {
            Ok(response) if response.is_success() => {
                outcomes.n_complete += 1;
                outcomes.size = outcomes.size.max(response.size);
                outcomes.slowest = outcomes.slowest.max(started.elapsed());
            }
            Ok(refused) => {
                outcomes
                    .refused
                    .push(format!("{} {}", refused.status, refused.text()));
                thread::sleep(refused.retry_after.unwrap_or_default());
            }
            Err(error) => {
                outcomes.truncated.push(format!("{error:#}"));
                client = Client::new(url);
            }
        }
    }
    Ok(outcomes)
}

impl Outcomes {
    fn add(&mut self, other: Self) {
        self.n_complete += other.n_complete;
        self.size = self.size.max(other.size);
        self.slowest = self.slowest.max(other.slowest);
        self.refused.extend(other.refused);
        self.truncated.extend(other.truncated);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, written) in [("alone", &self.alone), ("with reads", &self.concurrent)] {
            let rate = written.samples_per_s();
            let p99 = written.latency_ms(990);
            writeln!(
                f,
                "writes {name:<10} {rate:.0} samples per second, p99 {p99:.1} ms"
            )?;
        }
        writeln!(
            f,
            "rate retained     {:.1} %",
            100.0 * self.concurrent.samples_per_s() / self.alone.samples_per_s()
        )?;

        let added = mib(self.peak_bytes.saturating_sub(self.idle_bytes));
        writeln!(
            f,
            "server RSS        {:.0} MiB idle, at most {added:.0} MiB more",
            mib(self.idle_bytes)
        )?;
        let Outcomes {
            n_complete,
            size,
            slowest,
            refused,
            truncated,
        } = &self.outcomes;
        let size = mib(*size);
        let slowest = slowest.as_secs_f64();
        writeln!(
            f,
            "responses         {n_complete} complete, {size:.0} MiB each, the slowest in {slowest:.1} s"
        )?;
        writeln!(
            f,
            "                  {} refused, {} truncated",
            refused.len(),
            truncated.len()
        )?;
        for reason in refused.first().into_iter().chain(truncated.first()) {
            writeln!(f, "                  {reason}")?;
        }
        Ok(())
    }
}
