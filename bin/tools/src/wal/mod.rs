//! `varve wal`: inspect, verify, dump, repair and replay a WAL, and recover blocks from one.
//!
//! `data_dir` detects whether a data directory is Varve's or Prometheus'. `varve` and `prometheus`
//! have the tools for each. Reports go to standard output, progress and diagnostics to standard
//! error.
//!
//! Exit codes, for scripts: 0 sound, 1 damage was found, 2 the command failed.

mod args;
mod filter;
pub(crate) mod prometheus;
mod record_json;
pub(crate) mod varve;

use std::process::ExitCode;

use anyhow::Result;
use varve_prometheus::inspect::Depth;

pub use args::WalCommand;

use crate::data_dir::{self, Owner};
use crate::verdict::{self, Verdict};

/// Runs `varve wal ...`.
pub fn run(command: &WalCommand) -> ExitCode {
    verdict::exit_code(dispatch(command))
}

fn dispatch(command: &WalCommand) -> Result<Verdict> {
    match command {
        WalCommand::Inspect(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::inspect::inspect(args),
            Owner::Prometheus => prometheus::inspect::run(args, Depth::Summary),
        },
        WalCommand::Verify(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::inspect::verify(args),
            Owner::Prometheus => prometheus::inspect::run(args, Depth::Everything),
        },
        WalCommand::Dump(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::dump::run(args),
            Owner::Prometheus => prometheus::dump::run(args),
        },
        WalCommand::Repair(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::repair::run(args),
            Owner::Prometheus => prometheus::repair::run(args),
        },
        WalCommand::Replay(args) => match data_dir::owner(&args.dir)? {
            Owner::Varve => varve::replay::run(args),
            Owner::Prometheus => prometheus::replay::run(args),
        },
        WalCommand::Recover(args) => prometheus::recover::run(args),
    }
}
