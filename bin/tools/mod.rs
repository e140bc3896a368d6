//! The subcommands that need no running server of their own.

pub(crate) mod advise;
pub(crate) mod check;
mod directory;
mod export;
mod import;
pub(crate) mod manual;
pub(crate) mod query;
pub(crate) mod status;
pub(crate) mod tsdb;
pub(crate) mod wal;

pub(crate) use export::{ExportArgs, export};
pub(crate) use import::{ImportArgs, import};
