//! What the subcommands do.

mod bench;
mod serve;
mod tsdb;

pub(crate) use bench::bench;
pub(crate) use serve::serve;
pub(crate) use tsdb::compact;
