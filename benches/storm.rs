//! A burst of new series: the latency of requests with known series while other senders create many
//! new ones. Prints a table.
//!
//! Not a criterion bench: it measures the p99 latency of concurrent requests. The server is a
//! process of its own at its defaults (`cargo build --profile dist` builds it); the senders are
//! threads with one connection each. Requests are encoded ahead, so that senders only wait for
//! responses. Quiet phases and bursts alternate; each burst has other series and retries as it is
//! told to. At the end all samples are counted.

#[path = "common/bodies.rs"]
mod bodies;
#[allow(dead_code, reason = "no store is opened in this process")]
mod common;
#[path = "../tests/harness/messages/remote_write.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "this bench uses remote write 1.0 only"
)]
mod messages;
#[path = "store/process.rs"]
#[allow(dead_code, reason = "a bench does not use all of it")]
mod process;
#[path = "storm/server.rs"]
mod server;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bodies::{SERIES_PER_REQUEST, requests};
use clap::Parser;
use process::cpu_of_process;
use server::{Connection, Outcome, Server};

/// Age of the first sample.
const AGE_MS: i64 = 3_600_000;

#[derive(Debug, Parser)]
struct Args {
    /// Known series
    #[arg(long, default_value = "500000")]
    known: usize,
    /// New series per burst
    #[arg(long, default_value = "200000")]
    new: usize,
    /// Senders per burst
    #[arg(long, default_value = "16")]
    senders: usize,
    /// Milliseconds over which the requests of a burst are spread [0: as fast as possible]
    #[arg(long, default_value = "1000")]
    within_ms: u32,
    /// Requests with known series per second
    #[arg(long, default_value = "40")]
    rate: u32,
    /// Seconds of quiet before each burst
    #[arg(long, default_value = "5")]
    quiet_seconds: u32,
    /// Number of bursts
    #[arg(long, default_value = "5")]
    storms: usize,
    /// The server
    #[arg(long, default_value = "../target/dist/varve")]
    server: PathBuf,
    /// Passed by cargo to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Requests with the next samples of known series.
struct Known {
    bodies: Vec<Vec<u8>>,
    next: usize,
}

fn main() {
    let args = Args::parse();
    let dir = tempfile::tempdir().expect("create a temporary directory");
    let server = Server::start(&args.server, &dir.path().join("data"));
    let start_ms = now_ms() - AGE_MS;
    let mut connection = server.connect();
    for request in bodies(0..args.known, start_ms, 0) {
        assert_eq!(connection.send(&request), Outcome::Stored, "there is room");
    }
    // A burst lasts at most as long as its series would at 10,000 per second.
    let n_quiet = (args.rate * args.quiet_seconds) as usize;
    let n_storm = args.rate as usize * (args.new / 10_000 + 1);
    let n_requests = args.storms * (n_quiet + n_storm);
    let known = (1..)
        .flat_map(|step| bodies(0..args.known, start_ms, step))
        .take(n_requests)
        .collect();
    let mut known = Known {
        bodies: known,
        next: 0,
    };
    println!(
        "{} known series at {} requests per second, {} new series per storm",
        args.known, args.rate, args.new
    );
    let mut quiet = Vec::new();
    let mut stormy = Vec::new();
    for storm in 0..args.storms {
        let first = args.known + storm * args.new;
        let storm_bodies: Vec<_> = bodies(first..first + args.new, start_ms, 1).collect();
        let quiet_latencies = send_steadily(
            &mut connection,
            known.take(n_quiet),
            args.rate,
            &AtomicBool::new(false),
        );
        report("quiet", &quiet_latencies);
        let over = AtomicBool::new(false);
        let (
            storm_latencies,
            Storm {
                duration,
                n_repeated,
            },
        ) = thread::scope(|scope| {
            let known_bodies = known.take(n_storm);
            let connection = &mut connection;
            let steady = scope.spawn(|| send_steadily(connection, known_bodies, args.rate, &over));
            let outcome = send_storm(&server, &storm_bodies, &args);
            over.store(true, Ordering::Relaxed);
            (steady.join().expect("no panic"), outcome)
        });
        report("storm", &storm_latencies);
        println!(
            "       all new series stored after {duration:.1?}, {n_repeated} requests retried"
        );
        quiet.extend(quiet_latencies);
        stormy.extend(storm_latencies);
    }
    report("quiet, all", &quiet);
    report("storm, all", &stormy);
    let n_acknowledged =
        args.known + args.storms * args.new + SERIES_PER_REQUEST * (quiet.len() + stormy.len());
    assert_eq!(
        n_samples(&mut connection),
        n_acknowledged,
        "every acknowledged sample is stored"
    );
    println!(
        "CPU of the server {:.1?}",
        cpu_of_process(&server.id().to_string())
    );
}

impl Known {
    fn take(&mut self, n: usize) -> &[Vec<u8>] {
        let first = self.next;
        self.next += n;
        &self.bodies[first..self.next]
    }
}

/// Returns the bodies of requests with one sample of each of `series`.
fn bodies(series: Range<usize>, start_ms: i64, step: i64) -> impl Iterator<Item = Vec<u8>> {
    requests(series, start_ms, step).map(|request| request.to_body())
}

/// Sends requests at a rate until `over` is set, and returns their latencies, measured from the
/// time a request was due or sent, whichever is earlier.
fn send_steadily(
    connection: &mut Connection,
    requests: &[Vec<u8>],
    rate: u32,
    over: &AtomicBool,
) -> Vec<Duration> {
    let started = Instant::now();
    let mut latencies = Vec::with_capacity(requests.len());
    for (request, i) in requests.iter().zip(0..) {
        let due = started + Duration::from_secs(1) * i / rate;
        let left = due.saturating_duration_since(Instant::now());
        thread::sleep(left);
        let since = if left.is_zero() { due } else { Instant::now() };
        assert_eq!(
            connection.send(request),
            Outcome::Stored,
            "known series are stored"
        );
        latencies.push(since.elapsed());
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

/// Sends all requests when they are due and a sender is free, and retries rejected ones.
fn send_storm(server: &Server, requests: &[Vec<u8>], args: &Args) -> Storm {
    let connections: Vec<_> = (0..args.senders).map(|_| server.connect()).collect();
    let started = Instant::now();
    let next = Mutex::new((0..).zip(requests));
    let n_repeated = AtomicUsize::new(0);
    let take = || next.lock().expect("no panic").next();
    let between = Duration::from_millis(args.within_ms.into())
        / u32::try_from(requests.len()).expect("fewer than 2^32 requests");
    thread::scope(|scope| {
        for mut connection in connections {
            let take = &take;
            let n_repeated = &n_repeated;
            scope.spawn(move || {
                while let Some((i, request)) = take() {
                    thread::sleep(
                        (started + between * i).saturating_duration_since(Instant::now()),
                    );
                    while let Outcome::Again(after) = connection.send(request) {
                        n_repeated.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(after);
                    }
                }
            });
        }
    });
    Storm {
        duration: started.elapsed(),
        n_repeated: n_repeated.into_inner(),
    }
}

/// Returns the number of samples that the server has of this bench.
fn n_samples(connection: &mut Connection) -> usize {
    let mut n_samples = 0;
    for name in common::METRICS {
        // sum(count_over_time(name{job="kubelet"}[2h]))
        let query = format!("sum(count_over_time({name}%7Bjob%3D%22kubelet%22%7D%5B2h%5D))");
        let answer = connection.get(&format!("/api/v1/query?query={query}"));
        let value = answer
            .split('"')
            .rev()
            .find_map(|part| part.parse::<usize>().ok());
        n_samples += value.unwrap_or_else(|| panic!("no number in {answer}"));
    }
    n_samples
}

fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("it is later than 1970");
    i64::try_from(since.as_millis()).expect("milliseconds since 1970 fit an i64")
}

fn report(phase: &str, latencies: &[Duration]) {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let percentile = |percent: usize| sorted[(sorted.len() - 1) * percent / 100];
    println!(
        "{phase}: {} requests, p50 {:.1?}, p99 {:.1?}, max {:.1?}",
        sorted.len(),
        percentile(50),
        percentile(99),
        percentile(100)
    );
}
