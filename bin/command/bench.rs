//! `varve bench`: which bench runs.

use anyhow::Result;

use crate::bench::{self, BenchCommand, FleetCommand};

/// Runs a bench to its end.
///
/// # Errors
/// What kept it from running, or what it found wrong.
pub(crate) fn bench(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Compare(args) => bench::compare(args),
        BenchCommand::Fleet(FleetCommand::Write(args)) => bench::write(args),
        BenchCommand::Fleet(FleetCommand::Verify(args)) => bench::verify(args),
        BenchCommand::Fleet(FleetCommand::Query(args)) => bench::query(args),
        BenchCommand::Fleet(FleetCommand::Unbounded(args)) => bench::unbounded(args),
        BenchCommand::Fleet(FleetCommand::Mixed(args)) => bench::mixed(args),
        BenchCommand::Fleet(FleetCommand::Calibrate(args)) => bench::calibrate(args),
    }
}
