//! A storm: how long requests of known series take while another sender brings many new series in at once. Prints one table.
//!
//! Not a criterion bench: what counts is the 99th percentile of many requests that run beside others, not the time of one.
//! Requests go from their bodies to their acknowledgement, without HTTP. Those of known series come at a steady rate; their
//! bodies are made before, so that making them takes no time from the rest. The storm sends again what it is told to.

#[path = "../bin/allocator.rs"]
mod allocator;
mod common;
#[path = "../tests/harness/remote_write.rs"]
#[allow(dead_code, reason = "the storm speaks version 1.0 only")]
mod messages;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use varve_ingest::{Limits, Origin, Receiver, Version, WriteError};

/// The server's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// As Prometheus' default `max_samples_per_send`.
const SERIES_PER_REQUEST: usize = 2_000;

#[derive(Debug, Parser)]
struct Args {
    /// Series that are known
    #[arg(long, default_value = "500000")]
    known: usize,
    /// Series of the storm
    #[arg(long, default_value = "200000")]
    new: usize,
    /// Senders of the storm
    #[arg(long, default_value = "16")]
    senders: usize,
    /// Requests of known series in a second
    #[arg(long, default_value = "40")]
    rate: u32,
    /// Seconds of each phase, as far as known series go
    #[arg(long, default_value = "15")]
    seconds: u32,
    /// Requests that make series at the same time
    #[arg(long, default_value = "1")]
    creation_concurrency: usize,
    /// What cargo tells every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    // As the server: else a new thread's first pages are huge ones, and clearing them is most of what is measured.
    allocator::take_no_more_than_needed();
    let args = Args::parse();
    let dir = tempfile::tempdir().expect("a folder");
    let db = Arc::new(common::open(dir.path(), 2, 1));
    let limits = Limits { creation_concurrency_max: args.creation_concurrency, ..Limits::default() };
    let receiver = Receiver::new(Arc::clone(&db), limits);
    for body in bodies(0..args.known, 0) {
        write(&receiver, &body).expect("there is room");
    }
    let n_requests = (args.rate * args.seconds) as usize;
    let steps = || (1..).flat_map(|step| bodies(0..args.known, step)).take(2 * n_requests).collect::<Vec<_>>();
    let known = steps();
    let (quiet, stormy) = known.split_at(n_requests);
    let storm: Vec<_> = bodies(args.known..args.known + args.new, 1).collect();

    println!("{} known series, {} requests of known series a second", args.known, args.rate);
    report("quiet", &send_steadily(&receiver, quiet, args.rate, &AtomicBool::new(false)));
    let over = AtomicBool::new(false);
    let (latencies, outcome) = thread::scope(|scope| {
        let steady = scope.spawn(|| send_steadily(&receiver, stormy, args.rate, &over));
        let outcome = send_at_once(&receiver, &storm, args.senders);
        over.store(true, Ordering::Relaxed);
        (steady.join().expect("no panic"), outcome)
    });
    report("storm", &latencies);
    let Storm { duration, n_repeated } = outcome;
    println!(
        "{} new series by {} senders: all there after {duration:.1?}, {n_repeated} requests repeated",
        args.new, args.senders
    );
    assert_eq!(db.n_series(), (args.known + args.new) as u64, "nothing is lost");
}

/// Returns the requests that bring one sample of each of some series.
fn bodies(series: std::ops::Range<usize>, step: i64) -> impl Iterator<Item = Vec<u8>> {
    let end = series.end;
    series.step_by(SERIES_PER_REQUEST).map(move |first| {
        let of_request = (first..end.min(first + SERIES_PER_REQUEST)).map(|i| {
            let labels = common::labels(i);
            let pairs: Vec<_> = labels.iter().collect();
            messages::series(&pairs, &[(common::START_MS + step * common::STEP_MS, common::value(i, step))])
        });
        messages::WriteRequest::new(of_request).to_body()
    })
}

fn write(receiver: &Receiver, body: &[u8]) -> Result<(), WriteError> {
    let written = receiver.write(&Origin::default(), Version::V1, body)?;
    assert!(written.rejects.is_empty(), "{}", written.rejects);
    Ok(())
}

/// Sends requests at a rate until it is over, and returns how long each took from the time when it was due.
fn send_steadily(receiver: &Receiver, bodies: &[Vec<u8>], rate: u32, over: &AtomicBool) -> Vec<Duration> {
    let started = Instant::now();
    let mut latencies = Vec::with_capacity(bodies.len());
    for (body, i) in bodies.iter().zip(0..) {
        let due = started + Duration::from_secs(1) * i / rate;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        write(receiver, body).expect("known series are stored");
        latencies.push(due.elapsed());
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    latencies
}

struct Storm {
    duration: Duration,
    n_repeated: usize,
}

/// Sends all requests as fast as so many senders can, and again what is refused.
fn send_at_once(receiver: &Receiver, bodies: &[Vec<u8>], n_senders: usize) -> Storm {
    let started = Instant::now();
    let (next, n_repeated) = (Mutex::new(bodies.iter()), AtomicUsize::new(0));
    let take = || next.lock().expect("no panic").next();
    thread::scope(|scope| {
        for _ in 0..n_senders {
            scope.spawn(|| {
                while let Some(body) = take() {
                    while let Err(refused) = write(receiver, body) {
                        let WriteError::Throttled { retry_after, .. } = refused else { panic!("{refused}") };
                        n_repeated.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(retry_after);
                    }
                }
            });
        }
    });
    Storm { duration: started.elapsed(), n_repeated: n_repeated.into_inner() }
}

fn report(phase: &str, latencies: &[Duration]) {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted[(sorted.len() - 1) * percent / 100];
    println!("{phase}: {} requests, p50 {:.1?}, p99 {:.1?}, max {:.1?}", sorted.len(), at(50), at(99), at(100));
}
