//! `varve-bench mixed`: samples arrive at a steady rate while dashboards ask, and what each costs the other is told.
//!
//! Half of the fleet's scrapes are written as fast as the server takes them. The questions of `query` are then asked three
//! times over: while nothing arrives, while samples arrive at the rate, and while they do and several clients ask one
//! question after the other. Time goes on in the data as fast as scrapes are sent, so all of it has to lie in the past.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow, bail};
use comfy_table::{CellAlignment, Table, presets};

use crate::args::{MixedArgs, now_ms};
use crate::fleet::Fleet;
use crate::message::Version;
use crate::query::{Asked, ask_all, geometric_mean};
use crate::write::{WriteOptions, Written, write_fleet};

const CONNECTIONS: usize = 2;
const SAMPLES_PER_REQUEST: usize = 2_000;

/// Runs the three parts and prints what they found.
///
/// # Errors
/// If the server cannot be reached or refuses, or if there are too few scrapes for the time that the questions take.
pub(crate) fn mixed(args: &MixedArgs) -> Result<()> {
    let n_rounds = args.fleet.n_rounds();
    let start_ms = now_ms() - n_rounds * args.fleet.interval_ms();
    let mut bench = Mixed { args, fleet: Fleet::new(args.fleet.options(start_ms)), rounds: 0..n_rounds };
    bench.write_half()?;
    let quiet = bench.ask()?;
    let (beside, written) = bench.while_writing(1)?;
    println!("{}", table(&quiet, &beside[0]));
    println!("one client, while samples arrive:\n{written}");
    let (asked, written) = bench.while_writing(usize::from(args.clients))?;
    let n_answers = asked.iter().flatten().count() * usize::from(args.repeats);
    println!("{} clients in a loop, {n_answers} answers, while samples arrive:\n{written}", args.clients);
    Ok(())
}

struct Mixed<'a> {
    args: &'a MixedArgs,
    fleet: Fleet,
    /// Scrapes that are not sent yet.
    rounds: Range<i64>,
}

impl Mixed<'_> {
    fn write_half(&mut self) -> Result<()> {
        let half = self.rounds.end / 2;
        write_fleet(&self.fleet, self.rounds.start..half, &self.options(None))?.check()?;
        self.rounds.start = half;
        Ok(())
    }

    /// Asks everything about the hour before what was written last.
    fn ask(&self) -> Result<Vec<Asked>> {
        let options = self.fleet.options();
        let time_ms = options.start_ms + self.rounds.start * options.interval_ms;
        ask_all(&self.args.url, time_ms / 1000, usize::from(self.args.repeats))
    }

    /// Lets clients ask everything, each for itself, and samples arrive until all have their answers.
    fn while_writing(&mut self, n_clients: usize) -> Result<(Vec<Vec<Asked>>, Written)> {
        let (is_over, this) = (AtomicBool::new(false), &*self);
        let (asked, written) = thread::scope(|scope| {
            let writer = scope.spawn(|| this.write_until(&is_over));
            let clients: Vec<_> = (0..n_clients).map(|_| scope.spawn(|| this.ask())).collect();
            let asked: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            (asked, writer.join())
        });
        let asked = asked.into_iter().map(|asked| asked.map_err(|_| anyhow!("a client panicked"))?);
        let (written, next) = written.map_err(|_| anyhow!("the writer panicked"))??;
        self.rounds.start = next;
        Ok((asked.collect::<Result<_>>()?, written))
    }

    /// Writes scrape after scrape at the rate, at least one; returns which one is next.
    fn write_until(&self, is_over: &AtomicBool) -> Result<(Written, i64)> {
        let (options, mut all) = (self.options(Some(self.args.rate as f64)), Written::default());
        for round in self.rounds.clone() {
            all.append(write_fleet(&self.fleet, round..round + 1, &options)?);
            if is_over.load(Ordering::Relaxed) {
                all.check()?;
                return Ok((all, round + 1));
            }
        }
        bail!("the questions take longer than the scrapes that are left; a longer --duration has more")
    }

    fn options(&self, rate: Option<f64>) -> WriteOptions {
        WriteOptions {
            url: format!("{}/api/v1/write", self.args.url),
            n_connections: CONNECTIONS,
            samples_per_request: SAMPLES_PER_REQUEST,
            rate,
            version: Version::V1,
            ahead: false,
            pid: None,
        }
    }
}

/// Shows the medians of both, and how much they grew.
fn table(quiet: &[Asked], beside: &[Asked]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["question", "quiet, ms", "while samples arrive, ms", "ratio"]);
    let shown = |ms: Option<f64>| ms.map_or("refused".to_owned(), |ms| format!("{ms:.2}"));
    let mut row = |name: &str, quiet: Option<f64>, beside: Option<f64>| {
        let ratio = quiet.zip(beside).map_or("-".to_owned(), |(quiet, beside)| format!("{:.2}", beside / quiet));
        table.add_row([name.to_owned(), shown(quiet), shown(beside), ratio]);
    };
    for (quiet, beside) in quiet.iter().zip(beside) {
        row(quiet.name, quiet.median_ms, beside.median_ms);
    }
    for (name, is_metadata) in [("queries, geometric mean", false), ("metadata, geometric mean", true)] {
        row(name, geometric_mean(quiet, is_metadata), geometric_mean(beside, is_metadata));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
