//! Measuring the queries of one server: time to the last byte, and CPU time of its process.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::draw::DrawnQuery;
use super::response::{client, error, n_series};
use crate::client::{Client, Response};
use crate::server::Server;
use crate::statistics::median;

/// Time after the last response. What a server does after it, such as freeing memory, is part of
/// its CPU time.
const SETTLE_TIME: Duration = Duration::from_millis(10);

/// The outcome of a query.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(super) enum Outcome {
    Measured(Measured),
    Failed { error: String },
}

/// The measurements of a query.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Measured {
    /// Time of the first request after the start of the server.
    pub(super) first_ms: f64,
    /// Median time of the others.
    pub(super) median_ms: f64,
    /// Mean CPU time of the server per request, without the first.
    pub(super) cpu_ms: f64,
    pub(super) response_bytes: u64,
    pub(super) n_series: usize,
}

/// CPU time of each thread of a process, in nanoseconds.
#[derive(Debug, Default)]
struct ThreadTimes(HashMap<String, u64>);

/// Starts a server on its data, reads the files once, and sends all queries over one connection.
///
/// # Errors
/// If the server cannot be run, or exits. A query that fails is an outcome.
pub(super) fn measure(
    server: &Server,
    dir: &Path,
    queries: &[DrawnQuery],
    end_s: i64,
    n_rounds: u8,
) -> Result<Vec<Outcome>> {
    let mut running = server.start(dir)?;
    read_files(&running.data_dir()).context("read the files of the server")?;
    let client = client(&running.url(""));
    // Opens the connection.
    client.get("/metrics")?;

    let mut outcomes = Vec::new();
    for query in queries {
        let path = query.path(end_s);
        match measure_query(&client, &path, running.pid(), n_rounds) {
            Ok(measured) => outcomes.push(Outcome::Measured(measured)),
            Err(error) => {
                running.check_runs()?;
                outcomes.push(Outcome::Failed {
                    error: format!("{error:#}"),
                });
            }
        }
    }
    running.stop()?;
    Ok(outcomes)
}

fn measure_query(client: &Client, path: &str, pid: u32, n_rounds: u8) -> Result<Measured> {
    let (first, first_response) = send(client, path)?;
    let n_series = n_series(&first_response.body)?;
    let response_bytes = first_response.size;
    drop(first_response);

    thread::sleep(SETTLE_TIME);
    let before = ThreadTimes::read(pid)?;
    let mut times = Vec::new();
    for _ in 0..n_rounds {
        let (time, _) = send(client, path)?;
        times.push(time);
    }
    thread::sleep(SETTLE_TIME);
    let cpu = ThreadTimes::read(pid)?.since(&before);

    Ok(Measured {
        first_ms: first.as_secs_f64() * 1e3,
        median_ms: median(&mut times).as_secs_f64() * 1e3,
        cpu_ms: cpu.as_secs_f64() * 1e3 / f64::from(n_rounds.max(1)),
        response_bytes,
        n_series,
    })
}

/// Sends a query. Returns the time until the last byte.
fn send(client: &Client, path: &str) -> Result<(Duration, Response)> {
    let started = Instant::now();
    let response = client.get(path)?;
    let time = started.elapsed();
    if !response.is_success() {
        bail!("{}", error(&response));
    }
    Ok((time, response))
}

/// Reads all files below a directory, so that they are in the page cache. Ignores files removed
/// meanwhile.
fn read_files(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            read_files(&path)?;
        } else if let Ok(mut file) = File::open(&path) {
            io::copy(&mut file, &mut io::sink())?;
        }
    }
    Ok(())
}

impl ThreadTimes {
    /// Reads the times of all threads. `/proc/<pid>/stat` has ticks of 10 ms, which is more than
    /// many queries take.
    fn read(pid: u32) -> Result<Self> {
        let dir = format!("/proc/{pid}/task");
        let mut times = Self::default();
        for entry in std::fs::read_dir(&dir).with_context(|| format!("read {dir}"))? {
            let entry = entry.with_context(|| format!("read {dir}"))?;
            let path = entry.path().join("schedstat");
            // A thread may have exited.
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let time = parse_schedstat(&text)
                .with_context(|| format!("find the CPU time in {}", path.display()))?;
            times
                .0
                .insert(entry.file_name().to_string_lossy().into_owned(), time);
        }
        if times.0.is_empty() {
            bail!("{dir} has no thread with schedstat");
        }
        Ok(times)
    }

    /// Returns the CPU time since `before`, without that of threads that have exited.
    fn since(&self, before: &Self) -> Duration {
        let mut nanos = 0;
        for (thread, &time) in &self.0 {
            let earlier = before.0.get(thread).copied().unwrap_or_default();
            nanos += time.saturating_sub(earlier);
        }
        Duration::from_nanos(nanos)
    }
}

/// Returns the first field: the time on a CPU in nanoseconds.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_threads_count_from_their_start() {
        let times = |times: &[(&str, u64)]| {
            ThreadTimes(
                times
                    .iter()
                    .map(|&(thread, time)| (thread.to_owned(), time))
                    .collect(),
            )
        };
        let before = times(&[("1", 5), ("2", 10)]);
        let after = times(&[("1", 8), ("3", 4)]);
        assert_eq!(after.since(&before), Duration::from_nanos(7));
    }

    #[test]
    fn this_process_uses_cpu_time() {
        let pid = std::process::id();
        let before = ThreadTimes::read(pid).unwrap();
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(50) {
            std::hint::black_box(parse_schedstat("1 2 3"));
        }
        // Other threads of the test may exit, but not this one.
        let used = ThreadTimes::read(pid).unwrap().since(&before);
        assert!(used > Duration::ZERO);
    }
}
