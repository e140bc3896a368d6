//! Load generator: simulates a kube-prometheus fleet, writes it to any server by remote write,
//! reads it back, runs dashboard queries, and compares servers.
//!
//! Used by the binary `varve-bench`, by the benches (the fleet alone) and by the comparison of
//! queries in `tests/`. docs/development/bench.md describes the commands.
//!
//! Invariants
//! 1. It accesses a server only through its HTTP API, its process id and its files.
//! 2. Equal options give equal series and samples ([`Fleet`]).
//!
//! Threads: one per connection.

#![forbid(unsafe_code)]

mod args;
mod client;
mod compare;
mod fleet;
mod history;
mod message;
mod mixed;
mod noisy_neighbor;
mod output;
mod parse;
#[path = "../../../bin/system/src/machine/process.rs"]
#[expect(
    unreachable_pub,
    reason = "the file belongs to varve-system, which has dependencies that are not needed here"
)]
mod process;
mod query;
mod server;
mod server_process;
mod statistics;
mod table;
mod training;
mod unbounded;
mod verify;
mod write;

use anyhow::Result;

pub use args::Cli;
pub use fleet::{Fleet, FleetOptions, SeriesId};

use args::Command;

/// Runs a command and prints its results to standard output.
///
/// # Errors
/// If a server cannot be run or reached, rejects samples, or returns unexpected ones.
pub fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::Write(args) => write::write(args),
        Command::Query(args) => query::query(args),
        Command::Verify(args) => verify::verify(args),
        Command::Mixed(args) => mixed::mixed(args),
        Command::Unbounded(args) => unbounded::unbounded(args),
        Command::NoisyNeighbor(args) => noisy_neighbor::noisy_neighbor(args),
        Command::Compare(args) => compare::compare(args),
        Command::History(args) => history::history(args),
        Command::Training(command) => training::training(command),
    }
}
