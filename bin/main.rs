//! Varve: a Prometheus-compatible metrics store.
//!
//! This package is the only place that knows HTTP, JSON, the configuration file, signals and tokio. The store itself is
//! `varve-tsdb`, the way in is `varve-ingest`, the way out `varve-query`; docs/architecture.md has the map.

#![forbid(unsafe_code)]

mod advise;
mod allocator;
mod auto_reload;
mod bench;
mod churn;
mod cli;
mod client;
mod command;
mod config;
mod http;
mod live_config;
mod log;
mod machine;
mod metrics;
mod pressure;
mod promql_text;
mod quantity;
mod query_log;
mod recovery;
mod rejects;
mod ring;
mod self_scrape;
mod shutdown;
mod store;
mod usage;
mod web_config;

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
            allocator::give_back_at_once();
            command::serve(*args, invocation.flags)
        }
        cli::Command::Tsdb(cli::TsdbCommand::Compact(args)) => command::compact(&args),
        cli::Command::Tsdb(cli::TsdbCommand::Churn(args)) => command::churn(&args),
        cli::Command::Tsdb(cli::TsdbCommand::Import(args)) => return recovery::import(&args),
        cli::Command::Tsdb(cli::TsdbCommand::Export(args)) => return recovery::export(&args),
        cli::Command::Status(command) => command::status(&command),
        cli::Command::Wal(command) => return recovery::wal(&command),
        cli::Command::Query(cli::QueryCommand::Explain(args)) => command::explain(&args),
        cli::Command::Bench(command) => command::bench(&command),
        cli::Command::Advise(command) => return end(command::advise(&command)),
    };
    end(result.map(|()| ExitCode::SUCCESS))
}

/// Returns what the process ends with.
fn end(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("varve: {error:#}");
            ExitCode::FAILURE
        }
    }
}
