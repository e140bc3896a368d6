//! `varve tsdb list|analyze|dump|dump-openmetrics|create-blocks-from`: what promtool does with a data directory, for those
//! of Prometheus and of Varve.
//!
//! `source` opens either kind as one stream of series; the rest prints. A Prometheus directory is read alone and may be in
//! use; what its log holds is brought into blocks in a scratch folder first. A Varve directory must not be open elsewhere.
//!
//! Exit codes are promtool's: 0 done, 1 not, or not all of it was readable.

mod analyze;
mod args;
mod backfill;
mod chunk_sizes;
mod churn;
mod columns;
mod dump;
mod figures;
mod list;
mod scratch;
mod source;

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use anyhow::Result;

pub(crate) use args::TsdbCommand;

use args::CreateBlocksCommand;
use dump::Format;
use varve_tsdb::prometheus::fault::Faults;

use crate::printing::{exit_code, told};
use crate::recovery::{self, fault_lines};

/// Runs `varve tsdb ...`.
pub(crate) fn run(command: &TsdbCommand) -> ExitCode {
    match command {
        TsdbCommand::List(args) => end(list::list(args).map(|()| Faults::default())),
        TsdbCommand::Analyze(args) => end(analyze::analyze(args)),
        TsdbCommand::Dump(args) => end(dump::dump(args, Format::Prometheus)),
        TsdbCommand::DumpOpenmetrics(args) => end(dump::dump(args, Format::OpenMetrics)),
        TsdbCommand::CreateBlocksFrom(CreateBlocksCommand::Openmetrics(args)) => {
            end(backfill::backfill(args).map(|()| Faults::default()))
        }
        TsdbCommand::Import(args) => recovery::import(args),
        TsdbCommand::Export(args) => recovery::export(args),
        TsdbCommand::Churn(args) => exit_code(churn::churn(args)),
        TsdbCommand::Compact(args) => exit_code(churn::compact(args)),
    }
}

/// Tells what went wrong, and returns what the process ends with.
fn end(result: Result<Faults>) -> ExitCode {
    match result {
        Ok(faults) if faults.n_unsound() == 0 => ExitCode::SUCCESS,
        Ok(faults) => {
            eprint!("{}", fault_lines(&faults));
            ExitCode::FAILURE
        }
        // Who reads has read enough, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", told(&error));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_so = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(is_so))
}
