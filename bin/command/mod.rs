//! What the subcommands do.

mod bench;
mod query;
mod serve;
mod tsdb;

pub(crate) use bench::bench;
pub(crate) use query::explain;
pub(crate) use serve::serve;
pub(crate) use tsdb::compact;
