//! `varve-bench`: the command line of the load generator.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;

// The server's allocator: senders allocate a request for every 2,000 samples.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match varve_bench::run(&varve_bench::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("varve-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
