//! `varve tsdb`: promtool's tools for data directories, of Prometheus and of Varve, and Varve's
//! own.
//!
//! `source` opens either kind as a stream of series. A Prometheus directory is only read and may be
//! in use. Its WAL is first converted to blocks in a scratch directory. A Varve directory must not
//! be open elsewhere. Only `compact`, and `import` into it, change it.
//!
//! Exit codes are promtool's: 0 success, 1 failure or unreadable data.

mod analyze;
mod args;
mod backfill;
mod backup;
mod chunk_sizes;
mod churn;
mod columns;
mod compact;
mod dump;
mod export;
mod import;
mod label_stats;
mod list;
mod source;
mod write_block;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use varve_env::damage::DamageReport;
use varve_ingest::text::TextFormat;
use varve_system::printing::{exit_code, failure};

pub use args::TsdbCommand;

use crate::report::{damage_lines, print_losses};
use crate::verdict;
use args::{CreateBlocksCommand, ImportArgs};
use dump::Format;
use export::export;
use import::import;
use source::Visited;
pub(crate) use write_block::{Samples, write_block};

/// Runs `varve tsdb ...`.
pub fn run(command: &TsdbCommand) -> ExitCode {
    match command {
        TsdbCommand::List(args) => end_of_visit(list::list(args), "in sound blocks"),
        TsdbCommand::Analyze(args) => end(analyze::analyze(args)),
        TsdbCommand::Dump(args) => end_of_visit(dump::dump(args, Format::Prometheus), "printed"),
        TsdbCommand::DumpOpenmetrics(args) => {
            end_of_visit(dump::dump(args, Format::OpenMetrics), "printed")
        }
        TsdbCommand::CreateBlocksFrom(command) => {
            let created = match command {
                CreateBlocksCommand::Openmetrics(args) => {
                    backfill::backfill(args, TextFormat::OpenMetrics)
                }
                CreateBlocksCommand::JsonLines(args) => {
                    backfill::backfill(args, TextFormat::JsonLines)
                }
            };
            end(created.map(|()| DamageReport::default()))
        }
        TsdbCommand::Import(args) => verdict::exit_code(import(args)),
        TsdbCommand::Export(args) => verdict::exit_code(export(args)),
        TsdbCommand::Backup(args) => exit_code(backup::backup(args)),
        TsdbCommand::Restore(args) => exit_code(backup::restore(args)),
        TsdbCommand::Churn(args) => end(churn::churn(args)),
        TsdbCommand::Compact(args) => end(compact::compact(args)),
    }
}

/// Puts the Prometheus blocks of a directory where the server of the data directory `path` imports
/// them from. Returns the new directory there, which an import removes; `None` without blocks.
///
/// # Errors
/// If a block is damaged, or another import is running, and for I/O errors.
pub(crate) fn stage_blocks(blocks: &Path, path: &Path) -> Result<Option<PathBuf>> {
    let staged = import::stage(&ImportArgs {
        source: blocks.to_owned(),
        path: path.to_owned(),
        block_labels: Vec::new(),
        external_labels: Vec::new(),
    })?;
    staged.ensure_complete()?;
    Ok(staged.dir)
}

/// Prints damage and what became of the samples, if some are lost, and returns the exit code.
fn end_of_visit(result: Result<Visited>, kept: &str) -> ExitCode {
    match result {
        Ok(Visited { damage, totals }) => {
            let ended = end(Ok(damage));
            print_losses(&totals, kept);
            if totals.is_complete() {
                ended
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => failure(&error),
    }
}

/// Prints errors and returns the exit code.
fn end(result: Result<DamageReport>) -> ExitCode {
    match result {
        Ok(damage) if damage.n_damaged() == 0 => ExitCode::SUCCESS,
        Ok(damage) => {
            eprint!("{}", damage_lines(&damage));
            ExitCode::FAILURE
        }
        Err(error) => failure(&error),
    }
}
