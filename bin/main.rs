//! Varve: a Prometheus-compatible metrics store.
//!
//! This package is the only one that knows HTTP, JSON, the configuration file, signals and tokio. The storage engine is
//! `varve-tsdb`, the write path `varve-ingest`, the query engine `varve-query`. docs/architecture.md has the map.

#![forbid(unsafe_code)]

// First: its macros replace those of the standard library in the modules below.
#[macro_use]
mod printing;

mod cli;
mod client;
mod config;
mod grpc;
mod http;
mod log;
mod machine;
mod notifier;
mod objstore;
mod quantity;
mod serve;
mod server;
mod service_manager;
mod tls;
mod tools;
mod traces;
mod version;

use std::process::ExitCode;

use cli::Command;
use machine::allocator;
use printing::exit_code;

// Requests allocate and free on many threads, which this allocator is designed for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let invocation = match cli::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        // Also `--help` and `--version`, with exit code 0.
        Err(message) => message.exit(),
    };
    match invocation.command {
        Command::Serve(args) => {
            allocator::release_freed_memory();
            exit_code(serve::serve(*args, invocation.flags))
        }
        Command::Query(command) => tools::query::run(&command),
        Command::Check(command) => tools::check::run(&command),
        Command::Test(command) => tools::test::run(&command),
        Command::Tsdb(command) => tools::tsdb::run(&command),
        Command::Wal(command) => {
            allocator::release_freed_memory();
            tools::wal::run(&command)
        }
        Command::Advise(command) => tools::advise::run(&command),
        Command::Relabel(command) => exit_code(tools::relabel::run(&command)),
        Command::Rules(command) => exit_code(tools::rules::run(&command)),
        Command::Status(command) => exit_code(tools::status::run(&command)),
        Command::Completion(args) => exit_code(tools::manual::completion(&args, cli::description())),
        Command::Man(args) => exit_code(tools::manual::man(&args, cli::description())),
    }
}
