//! What the subcommands do.

mod advise;
mod manual;
mod status;
mod tsdb;

pub(crate) use advise::advise;
pub(crate) use manual::{completion, man};
pub(crate) use status::status;
pub(crate) use tsdb::{churn, compact};
