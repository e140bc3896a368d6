//! The tools for logs and data directories: `varve wal`, and what `varve tsdb` does with Prometheus' directories.
//!
//! Exit codes, for scripts: 0 sound, 1 faults were found, 2 it could not be done.

mod args;
mod progress;
mod recover;
mod table;

use std::process::ExitCode;

use anyhow::Result;

pub(crate) use args::WalCommand;

/// What a tool found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Sound,
    Faults,
}

/// Runs `varve wal ...`.
pub(crate) fn wal(command: &WalCommand) -> ExitCode {
    exit_code(match command {
        WalCommand::Recover(args) => recover::run(args),
    })
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
