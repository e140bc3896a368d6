//! Varve: a Prometheus-compatible metrics store.
//!
//! This package is the only place that knows HTTP, JSON, the configuration file, signals and tokio. The store itself is
//! `varve-tsdb`, the way in is `varve-ingest`, the way out `varve-query`; docs/architecture.md has the map.

#![forbid(unsafe_code)]

// First: its macros stand for those of the standard library in all that follows.
#[macro_use]
mod printing;

mod allocator;
mod cli;
mod client;
mod config;
mod http;
mod log;
mod machine;
mod process;
mod promql_text;
mod quantity;
mod recovery;
mod serve;
mod server;
mod tools;

use std::process::ExitCode;

use cli::Command;
use printing::exit_code;

// Requests allocate and free much on many threads, which is what this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let invocation = match cli::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        // Also the way of `--help` and `--version`, whose exit code is 0.
        Err(told) => told.exit(),
    };
    match invocation.command {
        Command::Serve(args) => {
            allocator::take_no_more_than_needed();
            exit_code(serve::serve(*args, invocation.flags))
        }
        Command::Query(command) => tools::query::run(&command),
        Command::Check(command) => tools::check::run(&command),
        Command::Tsdb(command) => tools::tsdb::run(&command),
        Command::Wal(command) => {
            allocator::take_no_more_than_needed();
            recovery::wal(&command)
        }
        Command::Advise(command) => tools::advise::run(&command),
        Command::Status(command) => exit_code(tools::status::run(&command)),
        Command::Completion(args) => exit_code(tools::manual::completion(&args)),
        Command::Man(args) => exit_code(tools::manual::man(&args)),
    }
}
