//! `varve-bench unbounded`: the call that ends other stores, all series for many clients at once, while writes go on.
//!
//! The server holds the fleet already. One more round is written alone, at a rate, then another one while clients ask for
//! all series again and again: what of the rate is kept, what memory is added, and what the clients got.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};

use crate::args::UnboundedArgs;
use crate::client::{Client, escape};
use crate::fleet::Fleet;
use crate::message::Version;
use crate::process;
use crate::write::{WriteOptions, Written, write_fleet};

/// How often the server's memory is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// The selector of all series.
const ALL: &str = "{__name__=~\".+\"}";
/// Connections that write.
const WRITERS: usize = 2;
/// Samples in a write request, as Prometheus has them.
const SAMPLES_PER_REQUEST: usize = 2_000;

/// What came of it.
#[derive(Debug)]
struct Report {
    alone: Written,
    beside: Written,
    answers: Answers,
    idle_bytes: u64,
    peak_bytes: u64,
}

/// What clients got.
#[derive(Debug, Default)]
struct Answers {
    n_whole: u64,
    /// Bytes of the longest whole answer.
    n_bytes: u64,
    /// How long the slowest of them took.
    slowest: Duration,
    /// What the server said where it refused.
    refused: Vec<String>,
    /// How answers that began broke off.
    cut: Vec<String>,
}

/// Runs the bench and prints what came of it.
///
/// # Errors
/// If the server cannot be reached, or refuses samples.
pub(crate) fn unbounded(args: &UnboundedArgs) -> Result<()> {
    let fleet = Fleet::new(args.fleet.options(args.start));
    let options = WriteOptions {
        url: format!("{}/api/v1/write", args.url),
        version: Version::V1,
        n_connections: WRITERS,
        samples_per_request: SAMPLES_PER_REQUEST,
        rate: Some(args.rate as f64),
        ahead: false,
        pid: None,
    };
    let next = args.fleet.n_rounds();
    let alone = write_fleet(&fleet, next..next + 1, &options)?;
    alone.check()?;
    let idle_bytes = process::usage(args.pid)?.resident_bytes;
    let stop = AtomicBool::new(false);
    let (beside, answers, peak_bytes) = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(args.pid, &stop));
        let asking: Vec<_> = (0..args.clients).map(|_| scope.spawn(|| ask(&args.url, &stop))).collect();
        let beside = write_fleet(&fleet, next + 1..next + 2, &options);
        stop.store(true, Ordering::Relaxed);
        let mut answers = Answers::default();
        for client in asking {
            answers.add(client.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        let peak_bytes = watching.join().map_err(|_| anyhow!("the watch panicked"))??;
        Ok::<_, anyhow::Error>((beside?, answers, peak_bytes))
    })?;
    beside.check()?;
    ensure!(answers.n_whole > 0, "no client got a whole answer: {:?} {:?}", answers.refused, answers.cut);
    print!("{}", Report { alone, beside, answers, idle_bytes, peak_bytes });
    Ok(())
}

/// Returns the most that was resident until the writes had ended.
fn watch(pid: u32, stop: &AtomicBool) -> Result<u64> {
    let mut peak = 0;
    while !stop.load(Ordering::Relaxed) {
        peak = process::usage(pid)?.resident_bytes.max(peak);
        thread::sleep(LOOK_INTERVAL);
    }
    Ok(peak)
}

/// Asks until the writes have ended, and to the end of the answer that is under way then.
fn ask(url: &str, stop: &AtomicBool) -> Result<Answers> {
    let path = format!("/api/v1/series?match[]={}", escape(ALL));
    let mut client = Client::new(url);
    let mut answers = Answers::default();
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        match client.get(&path) {
            Ok(answer) if answer.is_success() => {
                answers.n_whole += 1;
                answers.n_bytes = answers.n_bytes.max(answer.size);
                answers.slowest = answers.slowest.max(started.elapsed());
            }
            Ok(refused) => {
                answers.refused.push(format!("{} {}", refused.status, refused.text()));
                thread::sleep(refused.retry_after.unwrap_or_default());
            }
            Err(cut) => {
                answers.cut.push(format!("{cut:#}"));
                client = Client::new(url);
            }
        }
    }
    Ok(answers)
}

impl Answers {
    fn add(&mut self, other: Self) {
        self.n_whole += other.n_whole;
        self.n_bytes = self.n_bytes.max(other.n_bytes);
        self.slowest = self.slowest.max(other.slowest);
        self.refused.extend(other.refused);
        self.cut.extend(other.cut);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, written) in [("alone", &self.alone), ("beside", &self.beside)] {
            let (rate, p99) = (written.samples_per_s(), written.latency_ms(990));
            writeln!(f, "writes {name:<6} {rate:.0} samples a second, p99 {p99:.1} ms")?;
        }
        writeln!(f, "kept          {:.1} %", 100.0 * self.beside.samples_per_s() / self.alone.samples_per_s())?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let added = mib(self.peak_bytes.saturating_sub(self.idle_bytes));
        writeln!(f, "server RSS    {:.0} MiB idle, {added:.0} MiB more at most", mib(self.idle_bytes))?;
        let Answers { n_whole, n_bytes, slowest, refused, cut } = &self.answers;
        let (size, slowest) = (mib(*n_bytes), slowest.as_secs_f64());
        writeln!(f, "answers       {n_whole} whole, {size:.0} MiB each, the slowest in {slowest:.1} s")?;
        writeln!(f, "              {} refused, {} cut", refused.len(), cut.len())?;
        refused.first().into_iter().chain(cut.first()).try_for_each(|reason| writeln!(f, "              {reason}"))
    }
}
