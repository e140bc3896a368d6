//! The subcommands other than `varve serve`: checks, queries, work on data directories and logs,
//! advice.
//!
//! Used by the package `varve`, which parses the command line. Each module has the arguments of a
//! subcommand, and runs it.

#![forbid(unsafe_code)]

// They replace those of the standard library.
#[macro_use(eprint, eprintln, print, println)]
extern crate varve_system;

pub mod admin;
pub mod advise;
pub mod check;
pub mod data_dir;
mod features;
mod label;
mod output;
mod progress;
pub mod query;
pub mod relabel;
mod report;
pub mod rules;
mod scratch_dir;
mod selector;
mod server_args;
pub mod status;
pub mod test;
mod time;
pub mod tsdb;
mod verdict;
pub mod wal;
