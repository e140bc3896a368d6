//! The tools for logs and data directories: `varve wal`, and what `varve tsdb` does with Prometheus' directories.
//!
//! Whose directory it is is found out ([`directory`]); `own` are the tools for Varve's, `prom` those for Prometheus'.
//! Reports go to standard output, progress and what stands beside a dump to standard error.
//!
//! Exit codes, for scripts: 0 sound, 1 faults were found, 2 it could not be done.

mod args;
mod directory;
mod filter;
mod import;
mod item;
mod own;
mod progress;
mod prom;
mod report;
mod staging;

use std::process::ExitCode;

use anyhow::Result;
use varve_prometheus::inspect::Depth;

pub(crate) use args::{ExportArgs, ImportArgs, WalCommand};
use directory::Owner;
pub(crate) use report::fault_lines;

use crate::printing::error_chain;

/// What a tool found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Sound,
    Faults,
}

/// Runs `varve wal ...`.
pub(crate) fn wal(command: &WalCommand) -> ExitCode {
    exit_code(run(command))
}

fn run(command: &WalCommand) -> Result<Verdict> {
    match command {
        WalCommand::Inspect(args) => match directory::owner(&args.dir)? {
            Owner::Varve => own::inspect::inspect(args),
            Owner::Prometheus => prom::inspect::run(args, Depth::Summary),
        },
        WalCommand::Verify(args) => match directory::owner(&args.dir)? {
            Owner::Varve => own::inspect::verify(args),
            Owner::Prometheus => prom::inspect::run(args, Depth::Everything),
        },
        WalCommand::Dump(args) => match directory::owner(&args.dir)? {
            Owner::Varve => own::dump::run(args),
            Owner::Prometheus => prom::dump::run(args),
        },
        WalCommand::Repair(args) => match directory::owner(&args.dir)? {
            Owner::Varve => own::repair::run(args),
            Owner::Prometheus => prom::repair::run(args),
        },
        WalCommand::Replay(args) => match directory::owner(&args.dir)? {
            Owner::Varve => own::replay::run(args),
            Owner::Prometheus => prom::replay::run(args),
        },
        WalCommand::Recover(args) => prom::recover::run(args),
    }
}

/// Runs `varve tsdb import`.
pub(crate) fn import(args: &ImportArgs) -> ExitCode {
    exit_code(import::import(args))
}

/// Runs `varve tsdb export`.
pub(crate) fn export(args: &ExportArgs) -> ExitCode {
    exit_code(import::export_blocks(args))
}

fn exit_code(result: Result<Verdict>) -> ExitCode {
    match result {
        Ok(Verdict::Sound) => ExitCode::SUCCESS,
        Ok(Verdict::Faults) => ExitCode::from(1),
        Err(error) => {
            eprintln!("varve: {}", error_chain(&error));
            ExitCode::from(2)
        }
    }
}
