//! `varve advise`: finds stored metrics, buckets and labels that nothing uses, and verifies that
//! dropping them changes no result.
//!
//! The analysis is the crate `varve-advise`. Here are the arguments, the inputs from files and
//! servers, and the output.

mod args;
mod drops;
mod expressions;
mod files;
mod grafana;
mod report;
mod scrapes;
mod server;
mod usage;
mod usage_record;
mod verify;

use std::process::ExitCode;

use varve_system::printing::exit_code;

pub use args::AdviseCommand;

/// Runs `varve advise ...`.
pub fn run(command: &AdviseCommand) -> ExitCode {
    let result = match command {
        AdviseCommand::Drops(args) => drops::drops(args),
        AdviseCommand::Usage(args) => usage::usage(args).map(|()| ExitCode::SUCCESS),
        AdviseCommand::Verify(args) => verify::verify(args),
    };
    result.unwrap_or_else(|error| exit_code(Err(error)))
}
