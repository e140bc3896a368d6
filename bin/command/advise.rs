//! `varve advise`: what of the stored metrics nobody needs.

use std::process::ExitCode;

use anyhow::Result;

use crate::advise::{self, AdviseCommand};

/// Runs a command of `varve advise` and returns what the process ends with.
///
/// # Errors
/// What kept it from its answer.
pub(crate) fn advise(command: &AdviseCommand) -> Result<ExitCode> {
    match command {
        AdviseCommand::Drops(args) => advise::drops(args),
        AdviseCommand::Usage(args) => advise::usage(args).map(|()| ExitCode::SUCCESS),
    }
}
