//! `varve bench fleet write`: the fleet's samples, sent as Prometheus would send them.
//!
//! Rounds come one after the other. Within a round connections take machine after machine, whoever is free, and fill
//! requests of equal size; a round ends when all of it is acknowledged, so that the samples of a series arrive in order.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use varve_ingest::Version;
use varve_tsdb::Sample;

use super::args::WriteArgs;
use super::fleet::{Fleet, SeriesId};
use super::message::{EncodedLabels, WriteRequest};
use crate::client::{Answer, Client, Url};
use crate::process::{self, Usage};

/// Waits between attempts, as Prometheus' `min_backoff` and `max_backoff`.
const BACKOFF_MIN: Duration = Duration::from_millis(30);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How long a request is tried; Prometheus tries for ever, but a bench must end.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// In so many parts the server's memory over the time of writing is told.
const PARTS_MAX: usize = 10;

/// How to write.
#[derive(Debug, Clone)]
pub(super) struct WriteOptions {
    pub(super) url: Url,
    pub(super) n_connections: usize,
    pub(super) samples_per_request: usize,
    /// Samples a second, all connections together; `None` for no limit.
    pub(super) rate: Option<f64>,
    pub(super) version: Version,
    pub(super) pid: Option<u32>,
}

/// What was written, and what it cost.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) n_samples: u64,
    /// Samples that the server refused for good.
    n_refused: u64,
    /// What it said of the first of them.
    refusal: Option<String>,
    n_retries: u64,
    /// Of each request, its last attempt only; ascending once all is written.
    latencies: Vec<Duration>,
    duration: Duration,
    server: Option<(Usage, Usage)>,
    /// Memory of the server after each round, in bytes.
    resident_bytes: Vec<u64>,
}

/// Writes a fleet and prints what it cost.
///
/// # Errors
/// If the server cannot be reached, or has refused samples.
pub(crate) fn write(args: &WriteArgs) -> Result<()> {
    let start_ms = args.start_ms();
    let fleet = Fleet::new(args.fleet.options(start_ms));
    let start = jiff::Timestamp::from_millisecond(start_ms).context("read the start")?;
    println!("writing {} series from --start {start} on, to {}", fleet.n_places(), args.url);
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let options = WriteOptions {
        url: args.url.clone(),
        n_connections: size(args.connections),
        samples_per_request: size(args.samples_per_request),
        rate: (args.rate > 0).then_some(args.rate as f64),
        version: args.remote_write_version,
        pid: args.pid,
    };
    let written = write_fleet(&fleet, 0..args.fleet.n_rounds(), &options)?;
    print!("{written}");
    written.check()
}

/// Writes some rounds of a fleet.
pub(super) fn write_fleet(fleet: &Fleet, rounds: Range<i64>, options: &WriteOptions) -> Result<Written> {
    let before = options.pid.map(process::usage).transpose()?;
    let shared = Shared::new(fleet, rounds, options);
    let started = Instant::now();
    let results: Vec<_> = thread::scope(|scope| {
        let senders: Vec<_> = (0..options.n_connections).map(|_| scope.spawn(|| Sender::run(&shared))).collect();
        senders.into_iter().map(|sender| sender.join()).collect()
    });
    let mut written = Written { duration: started.elapsed(), ..Written::default() };
    for result in results {
        written.add(result.map_err(|_| anyhow::anyhow!("a sender panicked"))??);
    }
    written.latencies.sort_unstable();
    written.resident_bytes = shared.resident_bytes.into_inner().unwrap_or_else(PoisonError::into_inner);
    written.server = before.zip(options.pid.map(process::usage).transpose()?);
    Ok(written)
}

/// What the connections share.
struct Shared<'a> {
    fleet: &'a Fleet,
    options: &'a WriteOptions,
    rounds: Range<i64>,
    /// The machines, each with the labels of what was sent last.
    machines: Vec<(std::ops::Range<u32>, Mutex<Vec<Known>>)>,
    /// Machines handed out, of all rounds.
    next: AtomicUsize,
    round_end: Barrier,
    /// When the next request of any connection is due, if there is a rate.
    due: Mutex<Instant>,
    failed: Mutex<Option<anyhow::Error>>,
    resident_bytes: Mutex<Vec<u64>>,
}

/// The labels of the series at a place.
struct Known {
    generation: u32,
    labels: EncodedLabels,
}

/// One connection.
struct Sender<'a> {
    shared: &'a Shared<'a>,
    client: Client,
    request: WriteRequest,
    written: Written,
}

impl<'a> Shared<'a> {
    fn new(fleet: &'a Fleet, rounds: Range<i64>, options: &'a WriteOptions) -> Self {
        Self {
            fleet,
            options,
            rounds,
            machines: fleet.machines().map(|places| (places, Mutex::default())).collect(),
            next: AtomicUsize::new(0),
            round_end: Barrier::new(options.n_connections),
            due: Mutex::new(Instant::now()),
            failed: Mutex::default(),
            resident_bytes: Mutex::default(),
        }
    }

    /// Notes how much memory the server has. If it has ended, the next request tells.
    fn note_memory(&self) {
        if let Some(Ok(usage)) = self.options.pid.map(process::usage) {
            self.resident_bytes.lock().unwrap_or_else(PoisonError::into_inner).push(usage.resident_bytes);
        }
    }

    fn has_failed(&self) -> bool {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl<'a> Sender<'a> {
    fn run(shared: &'a Shared<'a>) -> Result<Written> {
        let client = Client::new(&shared.options.url)?;
        let (request, written) = (WriteRequest::default(), Written::default());
        let mut sender = Self { shared, client, request, written };
        for round in shared.rounds.clone() {
            if let Err(error) = sender.round(round) {
                // The others learn of it at the end of the round: all leave there together.
                shared.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
            let is_leader = shared.round_end.wait().is_leader();
            if is_leader {
                shared.note_memory();
            }
            if shared.has_failed() {
                break;
            }
        }
        match shared.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(sender.written),
        }
    }

    fn round(&mut self, round: i64) -> Result<()> {
        let machines = &self.shared.machines;
        let end = ((round - self.shared.rounds.start).unsigned_abs() as usize + 1) * machines.len();
        loop {
            let taken =
                self.shared.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < end).then_some(n + 1));
            let Ok(taken) = taken else { break };
            self.machine(taken % machines.len(), round)?;
        }
        if self.request.n_samples() > 0 { self.flush() } else { Ok(()) }
    }

    fn machine(&mut self, machine: usize, round: i64) -> Result<()> {
        let shared = self.shared;
        let (places, known) = &shared.machines[machine];
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut result = Ok(());
        shared.fleet.scrape(places.clone(), round, |series, sample| {
            if result.is_ok() {
                result = self.sample(&mut known, (series.place - places.start) as usize, series, sample);
            }
        });
        result
    }

    fn sample(&mut self, known: &mut Vec<Known>, at: usize, series: SeriesId, sample: Sample) -> Result<()> {
        let encode = || {
            let labels = EncodedLabels::new(&self.shared.fleet.labels(series), self.shared.options.version);
            Known { generation: series.generation, labels }
        };
        match known.get_mut(at) {
            Some(known) if known.generation == series.generation => {}
            Some(known) => *known = encode(),
            None => known.push(encode()),
        }
        self.request.push(&known[at].labels, sample);
        if self.request.n_samples() < self.shared.options.samples_per_request { Ok(()) } else { self.flush() }
    }

    /// Sends what has gathered, and again until the server has taken or refused it.
    fn flush(&mut self) -> Result<()> {
        let n_samples = self.request.n_samples() as u64;
        let body = self.request.take_body()?;
        self.wait_until_due(n_samples);
        let (answer, latency) = self.attempt(&body)?;
        self.written.latencies.push(latency);
        self.written.n_samples += n_samples;
        if !answer.is_success() {
            self.written.n_refused += n_samples;
            self.written.refusal.get_or_insert_with(|| format!("{}: {}", answer.status, answer.text()));
        }
        Ok(())
    }

    fn attempt(&mut self, body: &Bytes) -> Result<(Answer, Duration)> {
        let (since, mut backoff) = (Instant::now(), BACKOFF_MIN);
        loop {
            let started = Instant::now();
            let failed = match self.client.write(body.clone(), self.shared.options.version) {
                Ok(answer) if !is_retried(answer.status) => return Ok((answer, started.elapsed())),
                failed => failed,
            };
            let wait = failed.as_ref().ok().and_then(|answer| answer.retry_after).unwrap_or(backoff);
            if since.elapsed() + wait > RETRY_MAX {
                let answer = failed?;
                bail!("the server has taken nothing for {RETRY_MAX:?}; it says {}: {}", answer.status, answer.text());
            }
            self.written.n_retries += 1;
            thread::sleep(wait);
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    fn wait_until_due(&self, n_samples: u64) {
        let Some(rate) = self.shared.options.rate else { return };
        let due = {
            let mut next = self.shared.due.lock().unwrap_or_else(PoisonError::into_inner);
            // Who fell behind does not catch up with a burst.
            let due = (*next).max(Instant::now());
            *next = due + Duration::from_secs_f64(n_samples as f64 / rate);
            due
        };
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Prometheus sends again what met a server's error or too many requests; other refusals are final.
fn is_retried(status: u16) -> bool {
    status >= 500 || status == 429
}

impl Written {
    fn add(&mut self, other: Self) {
        self.n_samples += other.n_samples;
        self.n_refused += other.n_refused;
        self.n_retries += other.n_retries;
        self.refusal = self.refusal.take().or(other.refusal);
        self.latencies.extend(other.latencies);
    }

    /// Adds what was written after this.
    pub(super) fn append(&mut self, later: Self) {
        self.duration += later.duration;
        self.add(later);
        self.latencies.sort_unstable();
    }

    /// Turns refused samples into an error.
    pub(super) fn check(&self) -> Result<()> {
        match &self.refusal {
            Some(refusal) => bail!("{} samples were in requests that the server refused; {refusal}", self.n_refused),
            None => Ok(()),
        }
    }

    pub(super) fn samples_per_s(&self) -> f64 {
        self.n_samples as f64 / self.duration.as_secs_f64().max(1e-9)
    }

    pub(super) fn latency_ms(&self, per_mille: usize) -> f64 {
        self.latency(per_mille).as_secs_f64() * 1e3
    }

    fn latency(&self, per_mille: usize) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get(last * per_mille / 1000).copied().unwrap_or_default()
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rate) = (self.duration.as_secs_f64(), self.samples_per_s());
        writeln!(f, "samples      {} in {seconds:.1} s, {rate:.0} a second", self.n_samples)?;
        let (p50, p99, max) = (self.latency_ms(500), self.latency_ms(990), self.latency_ms(1000));
        writeln!(f, "requests     {}, p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms", self.latencies.len())?;
        writeln!(f, "retries      {}", self.n_retries)?;
        writeln!(f, "refused      {} samples", self.n_refused)?;
        let Some((before, after)) = &self.server else { return Ok(()) };
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        writeln!(f, "server CPU   {cpu:.1} s, {:.2} s a million samples", cpu * 1e6 / self.n_samples.max(1) as f64)?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(f, "server RSS   {:.0} MiB, peak {:.0} MiB", mib(after.resident_bytes), mib(after.peak_bytes))?;
        let n_rounds = self.resident_bytes.len();
        let parts = PARTS_MAX.min(n_rounds);
        let after_part = |part: usize| format!("{:.0}", mib(self.resident_bytes[(part + 1) * n_rounds / parts - 1]));
        writeln!(f, "  in between {} MiB", (0..parts).map(after_part).collect::<Vec<_>>().join(" "))
    }
}
