//! `varve advise`: what of the stored metrics nobody needs.
//!
//! ```text
//! rules, dashboards, grafana, record -> template -> needs  \
//!                                                          findings -> report, relabel_rules
//! exposition, a running server       ->       inventory    /
//! ```
//!
//! Needs are taken wide and costs as they are: where a dashboard leaves open what it selects, everything that it may select
//! is kept, and what cannot be parsed keeps each metric whose name stands in it.

mod alternation;
mod args;
mod dashboards;
mod documents;
mod drops;
mod exposition;
mod findings;
mod inventory;
mod needs;
mod problems;
mod record;
mod relabel_rules;
mod report;
mod rules;
mod template;
mod usage;

use std::process::ExitCode;

pub(crate) use args::AdviseCommand;

use crate::printing::exit_code;

/// Runs `varve advise ...`.
pub(crate) fn run(command: &AdviseCommand) -> ExitCode {
    let result = match command {
        AdviseCommand::Drops(args) => drops::drops(args),
        AdviseCommand::Usage(args) => usage::usage(args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| exit_code(Err(error)))
}
