//! `varve rules`: why an alert does not fire, when it would have fired, and recording rules over
//! history.
//!
//! `explain` and `backtest` print responses of a server. `backfill` evaluates recording rules
//! through the HTTP API and imports their samples into a data directory.

mod args;
mod backfill;
mod backtest;
mod explain;

use anyhow::Result;

pub use args::RulesCommand;

/// Runs `varve rules ...`.
///
/// # Errors
/// If the server cannot be reached or returns an error, or the file is invalid.
pub fn run(command: &RulesCommand) -> Result<()> {
    match command {
        RulesCommand::Explain(args) => explain::explain(args),
        RulesCommand::Backtest(args) => backtest::backtest(args),
        RulesCommand::Backfill(args) => backfill::backfill(args),
    }
}
