//! The tools for logs and data directories: `varve wal`, and what `varve tsdb` does with Prometheus' directories.
//!
//! Exit codes, for scripts: 0 sound, 1 faults were found, 2 it could not be done.

mod args;
mod import;
mod inspect;
mod progress;
mod recover;
mod repair;
mod report;
mod table;

use std::process::ExitCode;

use anyhow::Result;
use varve_tsdb::prometheus::inspect::Depth;

pub(crate) use args::{ExportArgs, ImportArgs, WalCommand};
pub(crate) use report::fault_lines;

/// What a tool found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Sound,
    Faults,
}

/// Runs `varve wal ...`.
pub(crate) fn wal(command: &WalCommand) -> ExitCode {
    exit_code(match command {
        WalCommand::Inspect(args) => inspect::run(args, Depth::Summary),
        WalCommand::Verify(args) => inspect::run(args, Depth::Everything),
        WalCommand::Dump(args) => inspect::dump(args),
        WalCommand::Repair(args) => repair::run(args),
        WalCommand::Recover(args) => recover::run(args),
    })
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
            eprintln!("varve: {error:#}");
            ExitCode::from(2)
        }
    }
}
