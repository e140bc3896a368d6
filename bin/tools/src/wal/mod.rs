//! `varve wal`: inspect, verify, dump, repair and replay a WAL, and recover blocks from one.
//!
//! `directory` detects whether a data directory is Varve's or Prometheus'. `varve` and `prometheus`
//! have the tools for each. Reports go to standard output, progress and diagnostics to standard
//! error.
//!
//! Exit codes, for scripts: 0 sound, 1 damage was found, 2 the command failed.

mod args;
mod filter;
mod progress;
mod prometheus;
mod record_json;
mod report;
mod varve;

use std::process::ExitCode;

use anyhow::Result;
use varve_prometheus::inspect::Depth;
use varve_system::printing::error_chain;

pub(crate) use self::prometheus::recover::{default_options, recover_with_progress};
pub(crate) use self::varve::inspect::wal_damage as varve_wal_damage;
use super::directory::{self, Owner};
pub use args::WalCommand;
pub(crate) use progress::{Progress, Unit};
pub(crate) use report::{block_table, blocks_json, damage_lines, time, verdict};

/// The result of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Sound,
    Damaged,
}

/// Runs `varve wal ...`.
pub fn run(command: &WalCommand) -> ExitCode {
    exit_code(dispatch(command))
}

fn dispatch(command: &WalCommand) -> Result<Verdict> {
    match command {
        WalCommand::Inspect(args) => match directory::owner(&args.dir)? {
            Owner::Varve => varve::inspect::inspect(args),
            Owner::Prometheus => prometheus::inspect::run(args, Depth::Summary),
        },
        WalCommand::Verify(args) => match directory::owner(&args.dir)? {
            Owner::Varve => varve::inspect::verify(args),
            Owner::Prometheus => prometheus::inspect::run(args, Depth::Everything),
        },
        WalCommand::Dump(args) => match directory::owner(&args.dir)? {
            Owner::Varve => varve::dump::run(args),
            Owner::Prometheus => prometheus::dump::run(args),
        },
        WalCommand::Repair(args) => match directory::owner(&args.dir)? {
            Owner::Varve => varve::repair::run(args),
            Owner::Prometheus => prometheus::repair::run(args),
        },
        WalCommand::Replay(args) => match directory::owner(&args.dir)? {
            Owner::Varve => varve::replay::run(args),
            Owner::Prometheus => prometheus::replay::run(args),
        },
        WalCommand::Recover(args) => prometheus::recover::run(args),
    }
}

/// Prints the error of a tool and returns its exit code.
pub(crate) fn exit_code(result: Result<Verdict>) -> ExitCode {
    match result {
        Ok(Verdict::Sound) => ExitCode::SUCCESS,
        Ok(Verdict::Damaged) => ExitCode::from(1),
        Err(error) => {
            eprintln!("varve: {}", error_chain(&error));
            ExitCode::from(2)
        }
    }
}
