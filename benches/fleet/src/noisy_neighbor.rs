//! `varve-bench noisy-neighbor`: how long small queries of one user take beside heavy queries of
//! another.
//!
//! The server stores a fleet. A client sends small queries one after the other. Phases alternate:
//! in one the client is alone, in the next many clients send heavy queries in loops. So a change of
//! the machine's speed affects both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::args::NoisyNeighborArgs;
use crate::client::{Client, escape};
use crate::output::print;
use crate::table::table;

/// Number of pairs of a phase alone and a phase beside the heavy queries.
const ROUNDS: u32 = 4;
/// Time after which each heavy client has a query that runs or waits.
const WARM_UP: Duration = Duration::from_secs(1);
/// A small query: the load of one machine, over an hour.
const SMALL: &str = r#"node_load1{instance="gpu-00001"}"#;

/// Runs the phases and prints a table.
///
/// # Errors
/// If the server cannot be reached, or rejects a small query.
pub(crate) fn noisy_neighbor(args: &NoisyNeighborArgs) -> Result<()> {
    let mut alone = Vec::new();
    let mut beside = Vec::new();
    let mut n_heavy = 0;
    let mut n_rejected = 0;
    for _ in 0..ROUNDS {
        send_small(args, &mut alone)?;
        let (heavy, rejected) = while_busy(args, || send_small(args, &mut beside))?;
        n_heavy += heavy;
        n_rejected += rejected;
    }
    alone.sort_unstable();
    beside.sort_unstable();
    let mut rows = Vec::new();
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        let alone_ms = quantile_ms(&alone, share);
        let beside_ms = quantile_ms(&beside, share);
        rows.push(vec![
            name.to_owned(),
            format!("{alone_ms:.2}"),
            format!("{beside_ms:.2}"),
            format!("{:.2}", beside_ms / alone_ms),
        ]);
    }
    let header = ["small query", "alone, ms", "beside, ms", "ratio"].map(str::to_owned);
    print(table(&header, &rows))?;
    print(format_args!(
        "{} small queries alone, {} beside {} clients, which sent {n_heavy} heavy queries, {n_rejected} rejected\n",
        alone.len(),
        beside.len(),
        args.clients
    ))
}

/// Returns a quantile of sorted times in milliseconds.
fn quantile_ms(times: &[Duration], share: f64) -> f64 {
    let idx = (times.len() as f64 * share) as usize;
    times
        .get(idx.min(times.len().saturating_sub(1)))
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

/// Sends small queries for the time of one phase.
fn send_small(args: &NoisyNeighborArgs, times: &mut Vec<Duration>) -> Result<()> {
    let client = Client::new(&args.url).with_token(args.token.as_deref());
    let path = range_query(args, SMALL, 60);
    let phase = args.duration / (2 * ROUNDS);
    let began = Instant::now();
    while began.elapsed() < phase {
        let started = Instant::now();
        let response = client.get(&path).context("send a small query")?;
        times.push(started.elapsed());
        if !response.is_success() {
            bail!(
                "a small query was rejected with {}: {}",
                response.status,
                response.text()
            );
        }
        thread::sleep(args.pause);
    }
    Ok(())
}

/// Calls `measure` while clients send heavy queries. Returns the number of heavy queries, and of
/// rejected ones.
fn while_busy(
    args: &NoisyNeighborArgs,
    measure: impl FnOnce() -> Result<()>,
) -> Result<(u64, u64)> {
    let is_over = AtomicBool::new(false);
    let n_sent = AtomicU64::new(0);
    let n_rejected = AtomicU64::new(0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..args.clients)
            .map(|number| {
                let is_over = &is_over;
                let n_sent = &n_sent;
                let n_rejected = &n_rejected;
                scope.spawn(move || -> Result<()> {
                    let client = Client::new(&args.url).with_token(args.heavy_token.as_deref());
                    for i in 0_u64.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        // Each query differs from the others, so that no result is shared or
                        // cached.
                        let query = args.heavy.replace('@', &format!("no!=\"{number}-{i}\""));
                        let response = client
                            .get(&range_query(args, &query, 15))
                            .context("send a heavy query")?;
                        n_sent.fetch_add(1, Ordering::Relaxed);
                        n_rejected.fetch_add(u64::from(!response.is_success()), Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        thread::sleep(WARM_UP);
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        measured
    })?;
    Ok((n_sent.into_inner(), n_rejected.into_inner()))
}

/// Returns the path of a query over the hour before the last scrape.
fn range_query(args: &NoisyNeighborArgs, query: &str, step_s: i64) -> String {
    let end_s = args.time / 1000;
    format!(
        "/api/v1/query_range?start={}&end={end_s}&step={step_s}&query={}",
        end_s - 3600,
        escape(query)
    )
}
