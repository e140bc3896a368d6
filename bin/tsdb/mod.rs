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
mod columns;
mod dump;
mod figures;
mod list;
mod scratch;
mod source;

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use anyhow::Result;

pub(crate) use args::{AnalyzeArgs, CreateBlocksCommand, DumpArgs, ListArgs};

use dump::Format;
use varve_tsdb::prometheus::fault::Faults;

use crate::printing::told;
use crate::recovery::fault_lines;

/// Runs `varve tsdb list`.
pub(crate) fn list(args: &ListArgs) -> ExitCode {
    end(list::list(args).map(|()| Faults::default()))
}

/// Runs `varve tsdb dump`.
pub(crate) fn dump(args: &DumpArgs) -> ExitCode {
    end(dump::dump(args, Format::Prometheus))
}

/// Runs `varve tsdb dump-openmetrics`.
pub(crate) fn dump_openmetrics(args: &DumpArgs) -> ExitCode {
    end(dump::dump(args, Format::OpenMetrics))
}

/// Runs `varve tsdb analyze`.
pub(crate) fn analyze(args: &AnalyzeArgs) -> ExitCode {
    end(analyze::analyze(args))
}

/// Runs `varve tsdb create-blocks-from`.
pub(crate) fn create_blocks(command: &CreateBlocksCommand) -> ExitCode {
    let CreateBlocksCommand::Openmetrics(args) = command;
    end(backfill::backfill(args).map(|()| Faults::default()))
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
