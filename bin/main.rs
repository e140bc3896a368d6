//! Varve: a Prometheus-compatible metrics store.
//!
//! This package is the only place that knows HTTP, JSON, the configuration file, signals and tokio. The store itself is
//! `varve-tsdb`, the way in is `varve-ingest`, the way out `varve-query`; docs/architecture.md has the map.

#![forbid(unsafe_code)]

// First: its macros stand for those of the standard library in all that follows.
#[macro_use]
mod printing;

mod advise;
mod allocator;
mod check;
mod cli;
mod client;
mod command;
mod config;
mod http;
mod log;
mod machine;
mod process;
mod promql_text;
mod quantity;
mod query;
mod recovery;
mod serve;
mod server;
mod tsdb;

use std::process::ExitCode;

// Requests allocate and free much on many threads, which is what this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let invocation = match cli::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        // Also the way of `--help` and `--version`, whose exit code is 0.
        Err(told) => told.exit(),
    };
    let result = match invocation.command {
        cli::Command::Serve(args) => {
            allocator::take_no_more_than_needed();
            serve::serve(*args, invocation.flags)
        }
        cli::Command::Tsdb(cli::TsdbCommand::Compact(args)) => command::compact(&args),
        cli::Command::Tsdb(cli::TsdbCommand::Churn(args)) => command::churn(&args),
        cli::Command::Tsdb(cli::TsdbCommand::Import(args)) => return recovery::import(&args),
        cli::Command::Tsdb(cli::TsdbCommand::Export(args)) => return recovery::export(&args),
        cli::Command::Tsdb(cli::TsdbCommand::List(args)) => return tsdb::list(&args),
        cli::Command::Tsdb(cli::TsdbCommand::Analyze(args)) => return tsdb::analyze(&args),
        cli::Command::Tsdb(cli::TsdbCommand::Dump(args)) => return tsdb::dump(&args),
        cli::Command::Tsdb(cli::TsdbCommand::DumpOpenmetrics(args)) => return tsdb::dump_openmetrics(&args),
        cli::Command::Tsdb(cli::TsdbCommand::CreateBlocksFrom(command)) => return tsdb::create_blocks(&command),
        cli::Command::Completion(args) => command::completion(&args),
        cli::Command::Man(args) => command::man(&args),
        cli::Command::Status(command) => command::status(&command),
        cli::Command::Wal(command) => {
            allocator::take_no_more_than_needed();
            return recovery::wal(&command);
        }
        cli::Command::Check(command) => return check::check(&command),
        cli::Command::Query(command) => return query::query(&command),
        cli::Command::Advise(command) => return end(command::advise(&command)),
    };
    end(result.map(|()| ExitCode::SUCCESS))
}

/// Returns what the process ends with.
fn end(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("varve: {}", printing::told(&error));
            ExitCode::FAILURE
        }
    }
}
