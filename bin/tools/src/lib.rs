//! The subcommands other than `varve serve`: checks, queries, work on data directories and logs,
//! advice.
//!
//! Used by the package `varve`, which parses the command line. Each module has the arguments of a
//! subcommand, and runs it.

#![forbid(unsafe_code)]

// They replace those of the standard library.
#[macro_use(eprint, eprintln, print, println)]
extern crate varve_system;

pub mod advise;
pub mod check;
mod directory;
mod features;
mod label;
mod output;
pub mod query;
pub mod relabel;
pub mod rules;
mod scratch_dir;
mod server_args;
pub mod status;
pub mod test;
pub mod tsdb;
pub mod wal;
