//! `varve advise`: finds stored metrics, buckets and labels that nothing uses.
//!
//! ```text
//! rules, dashboards, usage_record -> template -> needs  \
//!                                                        findings -> report, relabel_rules
//! scrapes, a server, a store      ->      inventory     /
//! ```
//!
//! `own` does the same inside a server, for /api/v1/status/advice.
//!
//! Needs err on the safe side: a dashboard needs everything that its variables may select, and an expression that does
//! not parse needs every metric whose name occurs in it.

mod alternation;
mod args;
mod dashboards;
mod documents;
mod drops;
mod findings;
mod inventory;
mod needs;
pub(crate) mod own;
mod problems;
mod relabel_rules;
mod report;
mod rules;
mod template;
mod usage;
mod usage_record;

use std::process::ExitCode;

pub(crate) use args::AdviseCommand;
pub(crate) use findings::{Finding, Kind, Totals};
pub(crate) use relabel_rules::Dialect;

use crate::printing::exit_code;

/// Runs `varve advise ...`.
pub(crate) fn run(command: &AdviseCommand) -> ExitCode {
    let result = match command {
        AdviseCommand::Drops(args) => drops::drops(args),
        AdviseCommand::Usage(args) => usage::usage(args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| exit_code(Err(error)))
}
