//! What the subcommands do.

mod serve;
mod tsdb;

pub(crate) use serve::serve;
pub(crate) use tsdb::compact;
