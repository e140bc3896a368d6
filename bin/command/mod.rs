//! What the subcommands do.

mod advise;
mod bench;
mod query;
mod serve;
mod status;
mod tsdb;

pub(crate) use advise::advise;
pub(crate) use bench::bench;
pub(crate) use query::explain;
pub(crate) use serve::serve;
pub(crate) use status::status;
pub(crate) use tsdb::{churn, compact};
