//! `varve-bench write`: sends the samples of a fleet as Prometheus does.
//!
//! A round begins when all samples of the previous round are acknowledged, so that the samples of a
//! series arrive in order. Requests are encoded while they are sent, or some rounds ahead.

mod options;
mod requests;
mod send;
mod written;

use std::ops::Range;
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};

use crate::args::WriteArgs;
use crate::fleet::Fleet;
use crate::output::print;
use crate::parse::to_usize;
use crate::process;
pub(crate) use options::WriteOptions;
use requests::{Encoder, Round};
use send::{Pace, Sender};
pub(crate) use written::Written;

/// Requests are encoded ahead until they exceed this size.
const AHEAD_BYTES_MAX: usize = 2 << 30;

/// Writes a fleet and prints statistics.
///
/// # Errors
/// If the server cannot be reached or rejects samples.
pub(crate) fn write(args: &WriteArgs) -> Result<()> {
    let start_ms = args.start_ms();
    let fleet = Fleet::new(args.fleet.options(start_ms));
    let start = jiff::Timestamp::from_millisecond(start_ms).context("read the start")?;
    print(format_args!(
        "writing {} series, --start {start}\n",
        fleet.n_places()
    ))?;
    let options = WriteOptions {
        url: args.url.clone(),
        n_connections: to_usize(args.connections),
        samples_per_request: to_usize(args.samples_per_request),
        rate: (args.rate > 0).then_some(args.rate as f64),
        version: args.remote_write_version,
        ahead: args.ahead,
        pid: args.pid,
    };
    let written = write_fleet(&fleet, 0..args.fleet.n_rounds(), &options)?;
    print(&written)?;
    written.check()
}

/// Writes some rounds of a fleet.
pub(crate) fn write_fleet(
    fleet: &Fleet,
    mut rounds: Range<i64>,
    options: &WriteOptions,
) -> Result<Written> {
    let before = options.pid.map(process::usage).transpose()?;
    let encoder = Encoder::new(fleet, options.version, options.samples_per_request);
    let mut written = Written::default();
    if options.ahead {
        while !rounds.is_empty() {
            let ahead = encoder.ahead(&mut rounds, AHEAD_BYTES_MAX, options.n_connections)?;
            written.append(send_rounds(&ahead, options)?);
        }
    } else {
        let live: Vec<_> = rounds.map(|number| encoder.round(number)).collect();
        written.append(send_rounds(&live, options)?);
    }
    written.server = before.zip(options.pid.map(process::usage).transpose()?);
    Ok(written)
}

/// State shared by the connections.
struct Shared<'a, R> {
    rounds: &'a [R],
    options: &'a WriteOptions,
    pace: Pace,
    round_end: Barrier,
    failed: Mutex<Option<anyhow::Error>>,
    /// Memory of the server after each round, in bytes.
    resident_bytes: Mutex<Vec<u64>>,
}

/// Sends round after round.
fn send_rounds<R: Round>(rounds: &[R], options: &WriteOptions) -> Result<Written> {
    let shared = Shared {
        rounds,
        options,
        pace: Pace::new(options.rate),
        round_end: Barrier::new(options.n_connections),
        failed: Mutex::default(),
        resident_bytes: Mutex::default(),
    };
    let senders: Vec<_> = (0..options.n_connections)
        .map(|_| Sender::new(options, &shared.pace))
        .collect();
    let started = Instant::now();
    let results: Vec<_> = thread::scope(|scope| {
        let connections: Vec<_> = senders
            .into_iter()
            .map(|sender| scope.spawn(|| shared.connection(sender)))
            .collect();
        connections
            .into_iter()
            .map(|connection| connection.join())
            .collect()
    });
    let mut written = Written {
        duration: started.elapsed(),
        ..Written::default()
    };
    for result in results {
        written.append(result.map_err(|_| anyhow!("a sender panicked"))??);
    }
    written.resident_bytes = shared
        .resident_bytes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(written)
}

impl<R: Round> Shared<'_, R> {
    /// Runs one connection.
    fn connection(&self, mut sender: Sender<'_>) -> Result<Written> {
        for round in self.rounds {
            if let Err(error) = round.for_each_request(&mut |request| sender.send(&request)) {
                // The other connections see it at the end of the round, where all stop.
                self.failed().get_or_insert(error);
            }
            if self.round_end.wait().is_leader() {
                self.record_memory();
            }
            if self.failed().is_some() {
                break;
            }
        }
        match self.failed().take() {
            Some(error) => Err(error),
            None => Ok(sender.written),
        }
    }

    /// Records the memory of the server. If it has exited, the next request fails.
    fn record_memory(&self) {
        if let Some(Ok(usage)) = self.options.pid.map(process::usage) {
            self.resident_bytes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(usage.resident_bytes);
        }
    }

    fn failed(&self) -> MutexGuard<'_, Option<anyhow::Error>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
