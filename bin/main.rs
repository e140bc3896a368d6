//! Varve: a Prometheus-compatible metrics store.
//!
//! This package has the command line, and starts and stops a server. The server is `varve-server`,
//! its protocols are `varve-http`, and the other commands are `varve-tools`. The storage engine is
//! `varve-tsdb`, the write path `varve-ingest`, and the query engine `varve-query`.
//! docs/architecture.md has the map.

#![forbid(unsafe_code)]

mod cli;
mod serve;

use std::process::ExitCode;

use varve_config::limits::name_limits;
use varve_system::machine::allocator;
use varve_system::printing::exit_code;
use varve_tools as tools;

use cli::Command;

// Requests allocate and free on many threads, which this allocator is designed for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    name_limits();
    let invocation = match cli::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(message) => return cli::print_message(&message),
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
        Command::Status(args) => exit_code(tools::status::run(&args)),
        Command::Admin(command) => exit_code(tools::admin::run(&command)),
        Command::Completion(args) => exit_code(cli::manual::completion(&args, cli::description())),
        Command::Man(args) => exit_code(cli::manual::man(&args, cli::description())),
    }
}
