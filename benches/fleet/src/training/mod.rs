//! A training cluster: jobs of 1 to 512 nodes that are gang-scheduled, lose pods and end, with
//! faults whose truth is known, and the score of the alerts that found them.
//!
//! Only the series that docs/mixin/training reads are written: a full fleet of 1,000 nodes would be
//! 17 billion samples in three days. `count` prints the numbers.
//!
//! Used by the command `varve-bench training`. Order: `schedule` (jobs and pods) -> `faults` (what
//! is wrong) -> `cluster` (each scrape, from `signals` and `labels`) -> `series` (what changed) ->
//! `send`. `alerts` reads what fired, and `score` compares it with the truth.
//!
//! Invariants
//! 1. Equal options give equal schedules, faults and samples.
//! 2. Memory grows with the duration only by jobs, pods and faults, which are drawn before the first
//!    scrape. Samples are sent scrape by scrape.

mod alerts;
mod args;
mod capacity;
mod cluster;
mod faults;
mod kind;
mod labels;
mod metrics;
mod node;
mod random;
mod schedule;
mod score;
mod send;
mod series;
mod signals;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

pub(crate) use args::TrainingCommand;

use alerts::Alerts;
use args::{ClusterArgs, CountArgs, ScoreArgs, TrainingWriteArgs};
use cluster::Cluster;
use faults::{Fault, FaultOptions};
use schedule::{Schedule, ScheduleOptions};
use send::{RETRY_MAX, Senders};

use crate::output::print;
use crate::parse::{now_ms, to_usize};

/// Runs a command of the training cluster.
///
/// # Errors
/// If a server or file fails, or the server rejects samples.
pub(crate) fn training(command: &TrainingCommand) -> Result<()> {
    match command {
        TrainingCommand::Count(args) => count(args),
        TrainingCommand::Write(args) => write(args),
        TrainingCommand::Score(args) => score(args),
    }
}

fn draw(args: &ClusterArgs, start_ms: i64) -> (Schedule, Vec<Fault>) {
    let schedule = Schedule::draw(ScheduleOptions {
        seed: args.seed,
        n_nodes: to_usize(args.nodes),
        n_rounds: args.n_rounds(),
        n_per_kind: to_usize(args.faults_per_kind),
        n_decoys: to_usize(args.decoys_per_kind),
    });
    let options = FaultOptions {
        seed: args.seed,
        n_rounds: args.n_rounds(),
        n_per_kind: to_usize(args.faults_per_kind),
        n_decoys: to_usize(args.decoys_per_kind),
        start_ms,
        interval_ms: args.interval_ms(),
    };
    let faults = faults::draw(&schedule, options);
    (schedule, faults)
}

fn cluster(args: &ClusterArgs, start_ms: i64) -> (Cluster, Vec<Fault>) {
    let (schedule, faults) = draw(args, start_ms);
    let cluster = Cluster::new(
        schedule,
        faults.clone(),
        args.seed,
        to_usize(args.nodes),
        start_ms,
        args.interval_ms(),
    );
    (cluster, faults)
}

fn count(args: &CountArgs) -> Result<()> {
    let started = Instant::now();
    let (mut cluster, faults) = cluster(&args.cluster, 0);
    let mut n_bytes = 0;
    for round in 0..args.cluster.n_rounds() {
        cluster.step(round)?;
        let bodies = cluster.series.bodies.drain(..);
        n_bytes += bodies.map(|body| body.bytes.len()).sum::<usize>();
    }
    let n_decoys = faults.iter().filter(|fault| fault.is_decoy).count();
    print(format_args!(
        "series {}\nsamples {}\nbytes {n_bytes}\nfaults {}\ndecoys {n_decoys}\nseconds {:.1}\n",
        cluster.series.n_series,
        cluster.series.n_samples,
        faults.len() - n_decoys,
        started.elapsed().as_secs_f64(),
    ))
}

fn write(args: &TrainingWriteArgs) -> Result<()> {
    let interval_ms = args.cluster.interval_ms();
    let n_rounds = args.cluster.n_rounds();
    let default_start_ms = if args.live {
        now_ms()
    } else {
        now_ms() - n_rounds * interval_ms
    };
    // Scrapes at multiples of the interval, as groups are evaluated.
    let start_ms = args.start.unwrap_or(default_start_ms) / interval_ms * interval_ms;
    let started = Instant::now();
    let (mut cluster, faults) = cluster(&args.cluster, start_ms);
    if let Some(path) = &args.truth {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        faults::write(&faults, BufWriter::new(file))?;
    }
    send(args, &mut cluster, start_ms, RETRY_MAX)?;
    print(format_args!(
        "start {}\nend {}\nseries {}\nsamples {}\nfaults {}\nseconds {:.1}\n",
        start_ms / 1000,
        (start_ms + (n_rounds - 1) * interval_ms) / 1000,
        cluster.series.n_series,
        cluster.series.n_samples,
        faults.len(),
        started.elapsed().as_secs_f64(),
    ))
}

/// Simulates and sends all scrapes.
fn send(
    args: &TrainingWriteArgs,
    cluster: &mut Cluster,
    start_ms: i64,
    retry_max: Duration,
) -> Result<()> {
    let senders = Senders::start(&args.url, retry_max);
    let sent = send_rounds(args, cluster, start_ms, &senders);
    // If a connection has failed, this returns the reason.
    senders.finish()?;
    sent
}

/// Simulates and sends each scrape, with `--live` at its time.
fn send_rounds(
    args: &TrainingWriteArgs,
    cluster: &mut Cluster,
    start_ms: i64,
    senders: &Senders,
) -> Result<()> {
    for round in 0..args.cluster.n_rounds() {
        if args.live {
            let due_ms = start_ms + round * args.cluster.interval_ms() - now_ms();
            std::thread::sleep(Duration::from_millis(u64::try_from(due_ms).unwrap_or(0)));
        }
        cluster.step(round)?;
        senders.send(cluster.series.bodies.drain(..))?;
    }
    Ok(())
}

fn score(args: &ScoreArgs) -> Result<()> {
    let truth = faults::read(open(&args.truth)?)?;
    let alerts = match (&args.backtest, &args.alerts) {
        (Some(path), _) => Alerts::from_backtest(open(path)?)
            .with_context(|| format!("parse {}", path.display()))?,
        (None, Some(path)) => {
            Alerts::from_series(open(path)?).with_context(|| format!("parse {}", path.display()))?
        }
        (None, None) => Alerts::default(),
    };
    let report = score::score(&truth, &alerts);
    print(report)
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    Ok(BufReader::new(file))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_that_cannot_be_reached_fails_the_command_with_the_reason() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let args = TrainingWriteArgs {
            url: format!("http://{address}/api/v1/write"),
            cluster: ClusterArgs {
                nodes: 2,
                duration: Duration::from_secs(3600),
                interval: Duration::from_secs(1),
                seed: 1,
                faults_per_kind: 0,
                decoys_per_kind: 0,
            },
            start: None,
            truth: None,
            live: false,
        };
        let (mut cluster, _) = cluster(&args.cluster, 0);
        let error = send(&args, &mut cluster, 0, Duration::ZERO).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("Connection refused"), "{text}");
    }
}
