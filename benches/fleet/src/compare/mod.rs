//! `varve-bench compare`: applies the same load to Varve and its peers, one server at a time, each
//! on an empty data directory.
//!
//! docs/development/bench.md lists the steps. The order of servers alternates between rounds, so
//! that a temporarily busy machine favors none. Results are medians over the rounds.

mod report;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use varve_model::labels::METRIC_NAME;

use crate::args::{CompareArgs, OutputFormat};
use crate::client::Client;
use crate::fleet::{Fleet, SeriesId};
use crate::output::print;
use crate::parse::now_ms;
use crate::process::{self, ProcessUsage};
use crate::query::{query_scalar, run_all};
use crate::server::{self, Running, Server};
use crate::server_process::Scratch;
use crate::write::{WriteOptions, Written, write_fleet};
use report::{Measurements, Report};

/// A metric with one series per machine: a restarted server must return all its samples.
const PROBE: &str = "node_load1";
/// Metrics with many series, used to count lost samples.
const SAMPLED: [&str; 4] = [
    "node_cpu_seconds_total",
    "container_memory_rss",
    "kubelet_runtime_operations_duration_seconds_bucket",
    "apiserver_request_duration_seconds_bucket",
];
/// Maximum time until the response of a restarted server is correct.
const TIMEOUT: Duration = Duration::from_secs(600);
/// 1 / LAST_PART of the scrapes is written right before the crash.
const LAST_PART: i64 = 10;
/// A response that stays wrong and unchanged for this long counts as final.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The resolution of the measured restart time.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Compares the servers and prints a table, or JSON.
///
/// # Errors
/// If a server cannot be run or rejects samples.
pub(crate) fn compare(args: &CompareArgs) -> Result<()> {
    let servers = server::list(&args.servers, &args.programs, None)?;
    let start_ms = now_ms() - args.fleet.n_rounds() * args.fleet.interval_ms();
    let mut bench = Bench {
        fleet: Fleet::new(args.fleet.options(start_ms)),
        n_rounds: args.fleet.n_rounds(),
        repeats: args.repeats,
    };
    eprintln!(
        "{} series, {} samples each",
        bench.fleet.n_places(),
        bench.n_rounds
    );
    let mut report = Report::new(&servers, bench.fleet.n_places(), bench.n_rounds);
    for round in 0..usize::from(args.rounds) {
        let mut order: Vec<usize> = (0..servers.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for i in order {
            eprintln!("round {}: {}", round + 1, servers[i].name());
            report.add(
                i,
                bench
                    .run(&servers[i])
                    .with_context(|| format!("bench {}", servers[i].name()))?,
            );
        }
    }
    match args.format {
        OutputFormat::Table => print(report),
        OutputFormat::Json => print(report.json()? + "\n"),
    }
}

struct Bench {
    fleet: Fleet,
    n_rounds: i64,
    repeats: u8,
}

impl Bench {
    /// Runs all steps against one server.
    fn run(&mut self, server: &Server) -> Result<Measurements> {
        let scratch = Scratch::new(server.name())?;
        let mut running = server.start(scratch.path())?;
        let n_before = self.n_rounds - (self.n_rounds / LAST_PART).max(1);
        let empty = process::usage(running.pid())?;
        let new = self.write(&running, 0..1)?;
        let after_new = process::usage(running.pid())?;
        let known = self.write(&running, 1..n_before)?;
        let full = process::usage(running.pid())?;
        let queries = run_all(
            &running.url(""),
            self.time_ms(n_before) / 1000,
            usize::from(self.repeats),
        )?;
        let n_expected = self.n_sent(PROBE);
        let last = self.write(&running, n_before..self.n_rounds)?;
        running.kill();
        let killed = Instant::now();
        running.restart()?;
        let restart = self.wait_until_correct(&running, n_expected, killed)?;
        let lost_share = self.lost_share(&running)?;
        let disk = running.flush()?;
        let n_series = f64::from(self.fleet.n_places());
        let n_stored =
            (new.n_samples + known.n_samples + last.n_samples) as f64 * (1.0 - lost_share);
        Ok(Measurements {
            cpu_s_per_million_new: cpu_s(&empty, &after_new) * 1e6 / new.n_samples as f64,
            cpu_s_per_million_known: cpu_s(&after_new, &full) * 1e6 / known.n_samples.max(1) as f64,
            samples_per_s: known.samples_per_s(),
            write_p99_ms: known.latency_ms(990),
            resident_bytes_per_series: full.resident_bytes as f64 / n_series,
            peak_bytes_per_series: full.peak_bytes as f64 / n_series,
            restart_s: restart.map(|duration| duration.as_secs_f64()),
            lost_share,
            disk_bytes_per_sample: disk.total_bytes as f64 / n_stored,
            disk_bytes_per_sample_without_index: disk.total_bytes.saturating_sub(disk.index_bytes)
                as f64
                / n_stored,
            index_bytes_per_series: disk.index_bytes as f64 / n_series,
            queries,
        })
    }

    fn write(&self, running: &Running, rounds: std::ops::Range<i64>) -> Result<Written> {
        let options = WriteOptions {
            ahead: true,
            ..WriteOptions::new(&running.url(""))
        };
        let written = write_fleet(&self.fleet, rounds, &options)?;
        written.check()?;
        Ok(written)
    }

    /// Polls until the response is correct. Returns the time since `since`, or `None` if the
    /// response stays wrong.
    fn wait_until_correct(
        &self,
        running: &Running,
        n_expected: u64,
        since: Instant,
    ) -> Result<Option<Duration>> {
        let mut last = (u64::MAX, Instant::now());
        while since.elapsed() < TIMEOUT {
            // A server that is not ready returns an error.
            if let Ok(n_found) = self.n_stored(running, PROBE) {
                if n_found == n_expected {
                    return Ok(Some(since.elapsed()));
                }
                if last.0 != n_found {
                    last = (n_found, Instant::now());
                } else if last.1.elapsed() > SETTLE_TIMEOUT {
                    return Ok(None);
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(None)
    }

    /// Returns the number of samples of a metric that a server stores.
    fn n_stored(&self, running: &Running, name: &str) -> Result<u64> {
        let end_ms = self.time_ms(self.n_rounds);
        let range_ms = end_ms - self.time_ms(0) + 1;
        let query = format!("sum(count_over_time({name}[{range_ms}ms]))");
        Ok(query_scalar(&Client::new(&running.url("")), &query, end_ms)? as u64)
    }

    /// Returns the number of samples of a metric that were sent.
    fn n_sent(&self, name: &str) -> u64 {
        let mut n_series = 0;
        for place in 0..self.fleet.n_places() {
            let labels = self.fleet.labels(SeriesId {
                place,
                generation: 0,
            });
            if labels.get(METRIC_NAME) == Some(name) {
                n_series += 1;
            }
        }
        n_series * self.n_rounds.unsigned_abs()
    }

    fn lost_share(&self, running: &Running) -> Result<f64> {
        let mut sent = 0;
        let mut found = 0;
        for name in SAMPLED {
            let n_sent = self.n_sent(name);
            sent += n_sent;
            found += self.n_stored(running, name)?.min(n_sent);
        }
        Ok((sent - found) as f64 / sent.max(1) as f64)
    }

    /// Returns a time after all samples of the first rounds.
    fn time_ms(&self, n_rounds: i64) -> i64 {
        let options = self.fleet.options();
        options.start_ms + n_rounds * options.interval_ms
    }
}

fn cpu_s(before: &ProcessUsage, after: &ProcessUsage) -> f64 {
    after.cpu.saturating_sub(before.cpu).as_secs_f64()
}
