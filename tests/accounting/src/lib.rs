//! Two properties of every read request, checked over generated requests against the libraries:
//!
//! 1. Memory: the peak of allocated bytes is at most the peak of charged bytes plus
//!    [`UNCHARGED_MAX`].
//! 2. Deadline: after its deadline or its cancellation a request uses at most [`OVERSHOOT_MAX`] of
//!    CPU.
//!
//! The requests are queries, selections of series and labels, exemplars, the parser and printer
//! alone, templates of alerts, and rule files. They include bombs: many matchers, wide regexes, long
//! strings, deep nesting, huge steps.
//! The data are hostile too: long label values, many labels, native histograms with invalid bounds.
//!
//! Label sets of almost 1 MiB have a test of their own (`long_labels.rs`).
//!
//! A third property is that of work in the background: it allocates at most what the store says that
//! it needs (`background.rs`).
//!
//! `cargo test` runs a thousand requests. `VARVE_ACCOUNTING_REQUESTS=200000` sets another number,
//! and `VARVE_ACCOUNTING_SEED` the seed that a failure prints. One test runs at a time, because the
//! allocator counts for the whole process.
#![cfg(test)]

mod allocator;
mod background;
mod cpu_time;
mod long_labels;
mod random;
mod requests;
mod store;
mod texts;

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use varve_context::{Interrupt, Limit, MemoryBudget, QueryContext};
use varve_query::{Engine, EngineOptions};
use varve_tsdb::{Db, ReadContext};

use allocator::CountingAllocator;
use cpu_time::process_cpu_time;
use random::Random;
use requests::Request;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// Maximum number of bytes that a request allocates above its charge.
const UNCHARGED_MAX: usize = 4 << 20;
/// Maximum CPU time of a request after its deadline.
const OVERSHOOT_MAX: Duration = Duration::from_millis(100);
/// The memory limit of a request in bytes.
const MEMORY_MAX: usize = 64 << 20;
/// Maximum number of violations to print.
const PRINTED_MAX: usize = 40;
/// The timeout of requests whose memory is checked.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The requests that violate a property, and the worst overshoot of all requests.
struct Overshoots<T> {
    limit: T,
    worst: T,
    violations: Vec<(T, String)>,
}

impl<T: PartialOrd + Copy + Default + Debug> Overshoots<T> {
    fn new(limit: T) -> Self {
        Self {
            limit,
            worst: T::default(),
            violations: Vec::new(),
        }
    }

    fn record(&mut self, overshoot: T, i: u64, request: &Request) {
        if overshoot > self.worst {
            self.worst = overshoot;
        }
        if overshoot > self.limit {
            self.violations
                .push((overshoot, format!("request {i}: {}", request.summary())));
        }
    }

    /// Prints the worst overshoot and the first violations.
    fn print(&self, property: &str) {
        println!(
            "{property}: worst {:?}, limit {:?}, {} violations",
            self.worst,
            self.limit,
            self.violations.len()
        );
        for (overshoot, request) in self.violations.iter().take(PRINTED_MAX) {
            println!("  {overshoot:?}: {request}");
        }
    }
}

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn requests_charge_their_memory_and_stop_at_their_deadline() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let n_requests = from_env("VARVE_ACCOUNTING_REQUESTS", 1_000);
    let seed = from_env("VARVE_ACCOUNTING_SEED", 1);
    let (_directory, db) = store::hostile();
    let engine = engine();
    let mut random = Random::new(seed);
    let (mut bytes, mut cpu) = (
        Overshoots::new(UNCHARGED_MAX),
        Overshoots::new(OVERSHOOT_MAX),
    );
    for i in 0..n_requests {
        let request = Request::random(&mut random);
        bytes.record(uncharged_bytes(&db, &engine, &request), i, &request);
        cpu.record(overshoot(&db, &engine, &request, &mut random), i, &request);
    }
    println!("{n_requests} requests with seed {seed}");
    bytes.print("uncharged bytes");
    cpu.print("CPU after the deadline");
    assert!(
        bytes.violations.is_empty() && cpu.violations.is_empty(),
        "the requests printed above"
    );
}

fn engine() -> Engine {
    Engine::new(EngineOptions {
        lookback_delta_ms: 300_000,
        samples_max: 50_000_000,
        subquery_step_ms: 60_000,
        parallelism: 1,
        cache_size: 0,
        features: requests::features(),
    })
}

/// Returns the number of bytes that a request allocates above its charge, at the peaks of both.
fn uncharged_bytes(db: &Db, engine: &Engine, request: &Request) -> usize {
    let memory = MemoryBudget::new(Limit::Other("request memory"), MEMORY_MAX);
    let ctx = ReadContext::unrestricted(QueryContext::new(TIMEOUT, memory.clone()));
    ALLOCATOR.start();
    let completed = request.run(db, engine, &ctx);
    let allocated = ALLOCATOR.peak();
    drop(completed);
    drop(ctx);
    assert_eq!(
        memory.used(),
        0,
        "the charge is not released: {}",
        request.summary()
    );
    allocated.saturating_sub(memory.peak())
}

/// Runs a request with a random timeout, or cancels it after one. Returns the CPU time that it uses
/// above the timeout.
///
/// A request runs on one thread at a time, so its CPU time never exceeds the elapsed time. A
/// request that stops at its deadline has used at most the timeout, on a busy machine too.
fn overshoot(db: &Db, engine: &Engine, request: &Request, random: &mut Random) -> Duration {
    let timeout = Duration::from_micros(1 << random.below(17));
    let memory = MemoryBudget::new(Limit::Other("request memory"), MEMORY_MAX);
    let is_canceled = random.chance(4);
    let ctx = ReadContext::unrestricted(QueryContext::new(
        if is_canceled { TIMEOUT } else { timeout },
        memory,
    ));
    std::thread::scope(|scope| {
        let canceled = ctx.clone();
        if is_canceled {
            scope.spawn(move || {
                std::thread::sleep(timeout);
                canceled.interrupt(Interrupt::Canceled);
            });
        }
        let before = process_cpu_time();
        drop(request.run(db, engine, &ctx));
        process_cpu_time()
            .saturating_sub(before)
            .saturating_sub(timeout)
    })
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}
