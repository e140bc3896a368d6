//! The black-box tests: they run the built binary and use it over HTTP and the command line.
//!
//! `harness` starts and stops processes; every other module tests one area.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod harness;

mod advise;
mod cli;
mod crash;
mod deploy;
mod docs;
mod http;
mod ingest;
mod objstore;
mod otlp;
mod prometheus;
mod promql;
mod protection;
mod recovery;
mod rules;
