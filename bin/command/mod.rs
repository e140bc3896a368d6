//! What the subcommands do.

mod serve;

pub(crate) use serve::serve;
