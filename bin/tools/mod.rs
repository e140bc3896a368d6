//! The subcommands that need no running server of their own.

pub(crate) mod advise;
pub(crate) mod check;
pub(crate) mod manual;
pub(crate) mod query;
pub(crate) mod status;
pub(crate) mod tsdb;
