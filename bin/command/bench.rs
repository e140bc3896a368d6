//! `varve bench`: which bench runs.

use anyhow::Result;

use crate::bench::{self, BenchCommand, FleetCommand};

/// Runs a bench to its end.
///
/// # Errors
/// What kept it from running, or what it found wrong.
pub(crate) fn bench(command: &BenchCommand) -> Result<()> {
    let BenchCommand::Fleet(command) = command;
    match command {
        FleetCommand::Write(args) => bench::write(args),
        FleetCommand::Verify(args) => bench::verify(args),
        FleetCommand::Calibrate(args) => bench::calibrate(args),
    }
}
