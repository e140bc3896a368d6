//! The subcommands that need no running server of their own.

pub(crate) mod advise;
pub(crate) mod check;
mod directory;
mod features;
mod label;
pub(crate) mod manual;
mod output;
pub(crate) mod query;
pub(crate) mod relabel;
pub(crate) mod rules;
mod scratch_dir;
mod server_args;
pub(crate) mod status;
pub(crate) mod test;
pub(crate) mod tsdb;
pub(crate) mod wal;
